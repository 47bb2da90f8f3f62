//! What a caller may send beyond one request for each call, as [`Budget`] says.

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::Budget;

/// A purse for each budget of a caller.
#[derive(Debug)]
pub(super) struct Purses(Vec<Purse>);

impl Purses {
    pub(super) fn new(now: Instant, budgets: &[Budget]) -> Self {
        Self(budgets.iter().map(|budget| Purse::new(now, *budget)).collect())
    }

    /// A call is made that this one pays for.
    pub(super) fn pay_in(&mut self, now: Instant, purse: u8) {
        if let Some(purse) = self.of(purse) {
            purse.pay_in(now);
        }
    }

    /// Whether an extra request may be sent; it is paid for.
    pub(super) fn take(&mut self, now: Instant, purse: u8) -> bool {
        self.of(purse).is_some_and(|purse| purse.take(now))
    }

    /// An extra request was paid for and not sent.
    pub(super) fn pay_back(&mut self, purse: u8) {
        if let Some(purse) = self.of(purse) {
            purse.pay_back();
        }
    }

    fn of(&mut self, purse: u8) -> Option<&mut Purse> {
        let purse = if mutant::on(Mutant::ClonePursesShared) { 0 } else { purse };
        self.0.get_mut(usize::from(purse))
    }
}

/// A token bucket: calls and time pay in, extra requests are paid from it.
#[derive(Debug)]
struct Purse {
    budget: Budget,
    tokens: f64,
    /// Up to when time has paid.
    paid_until: Instant,
}

impl Purse {
    fn new(now: Instant, budget: Budget) -> Self {
        Self { budget, tokens: budget.burst, paid_until: now }
    }

    /// A call is made.
    fn pay_in(&mut self, now: Instant) {
        self.add(self.budget.share);
        self.time_pays(now);
    }

    /// Whether an extra request may be sent; it is paid for.
    fn take(&mut self, now: Instant) -> bool {
        self.time_pays(now);
        if mutant::on(Mutant::CloneBudgetIgnored) {
            return true;
        }
        let pays = self.tokens >= 1.0;
        if pays {
            self.tokens -= 1.0;
        }
        pays
    }

    /// An extra request was paid for and not sent.
    fn pay_back(&mut self) {
        self.add(1.0);
    }

    fn time_pays(&mut self, now: Instant) {
        let time = now.since(self.paid_until);
        self.paid_until = self.paid_until.max(now);
        self.add(self.budget.per_second * time.as_secs_f64());
    }

    fn add(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.budget.burst.max(1.0));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn extra_requests_are_a_share_of_calls_and_time() {
        let budget = Budget { share: 0.1, burst: 2.0, per_second: 1.0 };
        let mut purse = Purse::new(Instant(0), budget);
        let mut taken = 0;
        for call in 0..1_000_u32 {
            let now = Instant(0) + Duration::from_millis(10) * call;
            purse.pay_in(now);
            taken += u32::from(purse.take(now));
        }
        // 100 for the calls, 10 for the seconds, 2 at the start.
        assert!((110..=112).contains(&taken), "{taken}");
        purse.pay_back();
        assert!(purse.take(Instant(10_000_000_000)), "what was paid back may be spent");
    }

    /// Extra requests that are paid for now, one after the other.
    fn taken(purse: &mut Purse, now: Instant) -> usize {
        (0..1_000).take_while(|_| purse.take(now)).count()
    }

    #[test]
    fn budget_saves_up_no_more_than_its_burst() {
        let budget = Budget { share: 0.5, burst: 3.0, per_second: 10.0 };
        let mut purse = Purse::new(Instant(0), budget);
        assert_eq!(taken(&mut purse, Instant(0)), 3, "it begins full");
        let hour = Instant(0) + Duration::from_secs(3_600);
        assert_eq!(taken(&mut purse, hour), 3, "a quiet hour pays for a burst, not for 36,000");
        (0..1_000).for_each(|_| purse.pay_in(hour));
        assert_eq!(taken(&mut purse, hour), 3, "so do a thousand calls");
        (0..1_000).for_each(|_| purse.pay_back());
        assert_eq!(taken(&mut purse, hour), 3, "and a thousand clones that were not made");
        // A burst below one would never pay for anything.
        let mut purse = Purse::new(Instant(0), Budget { share: 0.0, burst: 0.5, per_second: 1.0 });
        assert_eq!((taken(&mut purse, Instant(0)), taken(&mut purse, hour)), (0, 1));
    }

    #[test]
    fn one_kind_of_calls_does_not_spend_what_another_has() {
        let budget = |burst| Budget { share: 0.0, burst, per_second: 0.0 };
        let mut purses = Purses::new(Instant(0), &[budget(1.0), budget(2.0)]);
        let taken = [0, 0, 1, 1, 1, 2].map(|purse| purses.take(Instant(0), purse));
        assert_eq!(taken, [true, false, true, true, false, false]);
        purses.pay_back(0);
        assert!(purses.take(Instant(0), 0) && !purses.take(Instant(0), 1));
    }
}
