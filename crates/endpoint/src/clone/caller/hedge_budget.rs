//! Hedge budgets: limits of the extra requests of a caller, as [`HedgeBudgetConfig`] sets them.

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::HedgeBudgetConfig;

/// Hedge budgets of a caller.
#[derive(Debug)]
pub(super) struct HedgeBudgets(Vec<HedgeBudget>);

impl HedgeBudgets {
    pub(super) fn new(now: Instant, budgets: &[HedgeBudgetConfig]) -> Self {
        Self(budgets.iter().map(|budget| HedgeBudget::new(now, *budget)).collect())
    }

    /// Adds the share of a new call to its budget.
    pub(super) fn add_call(&mut self, now: Instant, budget: u8) {
        if let Some(budget) = self.get_mut(budget) {
            budget.add_call(now);
        }
    }

    /// Takes an extra request of this cost from the budget.
    pub(super) fn spend(&mut self, now: Instant, budget: u8, cost: u16) -> Payment {
        self.get_mut(budget).map_or(Payment::Spent, |budget| budget.spend(now, cost))
    }

    /// Takes an extra request of this cost from the upper half of the budget; returns whether it is paid.
    pub(super) fn spend_spare(&mut self, now: Instant, budget: u8, cost: u16) -> bool {
        self.get_mut(budget)
            .is_some_and(|budget| budget.has_spare(now, cost) && budget.spend(now, cost) == Payment::Paid)
    }

    /// Refunds an extra request that was not sent.
    pub(super) fn refund(&mut self, budget: u8, cost: u16) {
        if let Some(budget) = self.get_mut(budget) {
            budget.refund(cost);
        }
    }

    fn get_mut(&mut self, budget: u8) -> Option<&mut HedgeBudget> {
        let budget = if mutant::on(Mutant::ClonePursesShared) { 0 } else { budget };
        self.0.get_mut(usize::from(budget))
    }
}

/// Whether an extra request is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payment {
    /// It may be sent.
    Paid,
    /// The budget is spent.
    Spent,
    /// The budget has enough for a cheaper call only.
    TooDear,
}

/// Token bucket: calls and time add tokens, extra requests take them.
#[derive(Debug)]
struct HedgeBudget {
    config: HedgeBudgetConfig,
    tokens: f64,
    /// Time up to which tokens were added.
    updated_at: Instant,
}

impl HedgeBudget {
    fn new(now: Instant, config: HedgeBudgetConfig) -> Self {
        Self { config, tokens: config.burst, updated_at: now }
    }

    /// Adds the share of a new call.
    fn add_call(&mut self, now: Instant) {
        self.add(self.config.share);
        self.add_elapsed(now);
    }

    /// Takes an extra request.
    fn spend(&mut self, now: Instant, cost: u16) -> Payment {
        self.add_elapsed(now);
        let cost = if mutant::on(Mutant::CloneCostIgnored) { 1.0 } else { f64::from(cost.max(1)) };
        if self.tokens >= cost {
            self.tokens -= cost;
        } else if !mutant::on(Mutant::CloneBudgetIgnored) {
            return if self.tokens < 1.0 { Payment::Spent } else { Payment::TooDear };
        }
        Payment::Paid
    }

    /// Returns whether half of the burst is left after an extra request.
    fn has_spare(&mut self, now: Instant, cost: u16) -> bool {
        self.add_elapsed(now);
        self.tokens - f64::from(cost.max(1)) >= self.config.burst / 2.0
    }

    /// Refunds an extra request that was not sent.
    fn refund(&mut self, cost: u16) {
        self.add(f64::from(cost.max(1)));
    }

    fn add_elapsed(&mut self, now: Instant) {
        let time = now.since(self.updated_at);
        self.updated_at = self.updated_at.max(now);
        self.add(self.config.per_second * time.as_secs_f64());
    }

    fn add(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.config.burst.max(1.0));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn budget_grows_with_calls_and_time() {
        let config = HedgeBudgetConfig { share: 0.1, burst: 2.0, per_second: 1.0 };
        let mut budget = HedgeBudget::new(Instant(0), config);
        let mut taken = 0;
        for call in 0..1_000_u32 {
            let now = Instant(0) + Duration::from_millis(10) * call;
            budget.add_call(now);
            taken += u32::from(budget.spend(now, 1) == Payment::Paid);
        }
        // 100 for the calls, 10 for the seconds, 2 at the start.
        assert!((110..=112).contains(&taken), "{taken}");
        budget.refund(1);
        assert_eq!(budget.spend(Instant(10_000_000_000), 1), Payment::Paid, "a refund can be spent");
    }

    /// Number of extra requests that the budget allows now.
    fn taken(budget: &mut HedgeBudget, now: Instant) -> usize {
        (0..1_000).take_while(|_| budget.spend(now, 1) == Payment::Paid).count()
    }

    #[test]
    fn budget_is_capped_at_its_burst() {
        let config = HedgeBudgetConfig { share: 0.5, burst: 3.0, per_second: 10.0 };
        let mut budget = HedgeBudget::new(Instant(0), config);
        assert_eq!(taken(&mut budget, Instant(0)), 3, "the budget starts full");
        let hour = Instant(0) + Duration::from_secs(3_600);
        assert_eq!(taken(&mut budget, hour), 3, "an idle hour adds at most a burst, not 36,000");
        (0..1_000).for_each(|_| budget.add_call(hour));
        assert_eq!(taken(&mut budget, hour), 3, "a thousand calls add at most a burst");
        (0..1_000).for_each(|_| budget.refund(1));
        assert_eq!(taken(&mut budget, hour), 3, "a thousand refunds add at most a burst");
        // A burst below 1 would never allow an extra request.
        let mut budget = HedgeBudget::new(Instant(0), HedgeBudgetConfig { share: 0.0, burst: 0.5, per_second: 1.0 });
        assert_eq!((taken(&mut budget, Instant(0)), taken(&mut budget, hour)), (0, 1));
    }

    #[test]
    fn budgets_are_independent() {
        let budget = |burst| HedgeBudgetConfig { share: 0.0, burst, per_second: 0.0 };
        let mut budgets = HedgeBudgets::new(Instant(0), &[budget(1.0), budget(2.0)]);
        let taken = [0, 0, 1, 1, 1, 2].map(|budget| budgets.spend(Instant(0), budget, 1) == Payment::Paid);
        assert_eq!(taken, [true, false, true, true, false, false]);
        budgets.refund(0, 1);
        assert_eq!([0, 1].map(|budget| budgets.spend(Instant(0), budget, 1)), [Payment::Paid, Payment::Spent]);
    }

    #[test]
    fn dear_call_takes_its_cost() {
        let config = HedgeBudgetConfig { share: 0.1, burst: 20.0, per_second: 0.0 };
        let mut budget = HedgeBudget::new(Instant(0), config);
        let paid = |budget: &mut HedgeBudget, cost| budget.spend(Instant(0), cost);
        assert_eq!([10, 8, 3, 2, 1].map(|cost| paid(&mut budget, cost)), {
            use Payment::{Paid, Spent, TooDear};
            [Paid, Paid, TooDear, Paid, Spent]
        });
        budget.refund(10);
        let taken =
            (0..1_000).filter(|_| (budget.add_call(Instant(0)), paid(&mut budget, 5)).1 == Payment::Paid).count();
        assert!((21..=22).contains(&taken), "{taken}: 10 refunded, a tenth of 1,000 calls");
    }
}
