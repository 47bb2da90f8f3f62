//! Trials of the roles: processor and accelerators together, one role alone, or all without one of several accelerators.
//!
//! Devices may share what no model shows: an accelerator that computes on the processor's cores slows the processor down.
//! So while messages wait, the throughput is measured, and now and then that of the other choices, for a few messages.
//! The best choice is kept. A choice that costs much is tried rarely: trials cost about half a per cent. While no message
//! waits, throughput is not the limit, and all roles take messages.

use pathcall_wire::Instant;

/// Messages of a measurement of the choice in use; of its first one, half.
const EPOCH: u32 = 64;
/// Messages of a trial; of the first one of a choice, half.
const TRIAL: u32 = 32;
/// A trial ends when it takes this many times as long as the choice in use.
const LATE: f64 = 1.25;
/// Least time between two trials of a choice, in measurements of the trial's length.
const REST: f64 = 8.0;
/// Time between two trials in which nothing is lost, for the time that one loses.
const LOSS: f64 = 150.0;
/// Limit on the growth of the time between trials, as a power of two.
const CALM_MAX: u32 = 6;
/// Share of the answers before which messages wait, from which the throughput is the limit.
const SATURATED: f64 = 0.9;
/// One role is taken if it costs less than this share of both; and both again if they cost less than one.
const BETTER: f64 = 0.98;
/// Growth of the cost that makes the other choices worth a trial.
const CHANGED: f64 = 1.3;

/// Roles that take messages: a choice, by number. After the named ones, there is one for each of several accelerators:
/// all without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Roles(u8);

impl Roles {
    /// All.
    pub(super) const ANY: Self = Self(0);
    /// Processor, where the request type allows.
    pub(super) const CPU: Self = Self(1);
    /// Accelerators, where the request type allows.
    pub(super) const ACC: Self = Self(2);

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether only the processor or only accelerators are used.
    pub(super) fn is_one_role(self) -> bool {
        [Self::CPU, Self::ACC].contains(&self)
    }
}

/// Trials, and the measurement that runs. Time counts while messages are in flight.
#[derive(Debug)]
pub(super) struct RoleTrial {
    best: Roles,
    tried: Option<Roles>,
    /// One choice, or at least the named ones.
    choices: Box<[Choice]>,
    in_flight: u32,
    busy_ns: f64,
    last: Instant,
    /// Mean work of a message.
    mean: f64,
    epoch: Epoch,
}

#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    /// Busy time per work; 0 before the first measurement of the choice in use.
    cost: f64,
    /// Busy time of the next trial.
    due_ns: f64,
    /// Trials in sequence that it has lost.
    lost: u32,
}

/// Measurement: it begins when the messages of the previous choice have ended.
#[derive(Debug, Clone, Copy, Default)]
struct Epoch {
    began_ns: f64,
    from_ns: f64,
    /// Busy time at which a trial ends, however few messages have.
    until_ns: f64,
    /// Messages of the previous choice in flight.
    before: u32,
    messages: u32,
    /// Answers before which messages waited for a device.
    waits: u32,
    work: f64,
}

impl RoleTrial {
    /// Creates the trials of this number of choices. One choice needs none.
    pub(super) fn new(choices: usize) -> Self {
        Self {
            best: Roles::ANY,
            tried: None,
            choices: vec![Choice::default(); choices].into_boxed_slice(),
            in_flight: 0,
            busy_ns: 0.0,
            last: Instant(0),
            mean: 1.0,
            epoch: Epoch::default(),
        }
    }

    /// Roles that take messages now.
    pub(super) fn roles(&self) -> Roles {
        self.tried.unwrap_or(self.best)
    }

    pub(super) fn sent(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.last = now;
        }
        self.in_flight += 1;
    }

    /// Records that a message ended without an answer. `least`: least cost that a choice may have.
    pub(super) fn lost(&mut self, now: Instant, least: impl Fn(Roles) -> f64) {
        self.advance(now);
        self.epoch.before = self.epoch.before.saturating_sub(1);
        if self.is_late() {
            self.end_epoch(least);
        }
    }

    /// Records that a message with this work was answered. `waiting`: others waited for a device. `least`: as in
    /// [`Self::lost`].
    pub(super) fn done(&mut self, now: Instant, work: f64, waiting: bool, least: impl Fn(Roles) -> f64) {
        self.advance(now);
        if self.choices.len() == 1 {
            return;
        }
        let epoch = &mut self.epoch;
        if epoch.before > 0 {
            epoch.before -= 1;
            epoch.from_ns = self.busy_ns;
        } else {
            epoch.messages += 1;
            epoch.waits += u32::from(waiting);
            epoch.work += work;
        }
        let whole = if self.tried.is_some() { TRIAL } else { EPOCH };
        if self.epoch.messages >= self.part_of(whole) || self.is_late() {
            self.end_epoch(least);
        }
    }

    fn advance(&mut self, now: Instant) {
        self.busy_ns += now.since(self.last).as_nanos() as f64;
        self.last = now;
        self.in_flight -= 1;
    }

    /// Messages of a measurement: half for a choice without an earlier one.
    fn part_of(&self, whole: u32) -> u32 {
        if self.choices[self.roles().index()].cost > 0.0 { whole } else { whole / 2 }
    }

    /// Whether a trial takes too long.
    fn is_late(&self) -> bool {
        self.tried.is_some() && self.busy_ns > self.epoch.until_ns
    }

    fn end_epoch(&mut self, least: impl Fn(Roles) -> f64) {
        let Epoch { began_ns, from_ns, messages, waits, work, .. } = self.epoch;
        let since_ns = if messages > 0 { from_ns } else { began_ns };
        let cost = (self.busy_ns - since_ns) / work.max(self.mean);
        match self.tried.take() {
            Some(tried) => self.end_trial(tried, cost),
            None if f64::from(waits) < SATURATED * f64::from(messages) => {
                let role = &mut self.choices[self.best.index()];
                role.due_ns = role.due_ns.min(self.busy_ns);
                self.best = Roles::ANY;
            }
            None => {
                self.mean = work / f64::from(messages.max(1));
                self.measured(cost);
                let usual = self.choices[self.best.index()].cost;
                let due = |choice: &Roles| {
                    let is_due = self.choices[choice.index()].due_ns <= self.busy_ns;
                    *choice != self.best && is_due && least(*choice) < usual
                };
                let first = |one: &Roles, other: &Roles| {
                    self.choices[one.index()].due_ns.total_cmp(&self.choices[other.index()].due_ns)
                };
                self.tried = (0..self.choices.len() as u8).map(Roles).filter(due).min_by(first);
            }
        }
        // Messages of the previous choice end, and as many of this one: what the former have left behind may delay these.
        let before = if self.tried.is_some() { 2 * self.in_flight } else { self.in_flight };
        let messages = self.part_of(TRIAL) + before;
        let usual_ns = self.choices[self.best.index()].cost * self.mean * f64::from(messages);
        self.epoch = Epoch {
            began_ns: self.busy_ns,
            from_ns: self.busy_ns,
            until_ns: self.busy_ns + LATE * usual_ns,
            before,
            ..Epoch::default()
        };
    }

    /// Takes the tried choice, or sets the time of its next trial.
    fn end_trial(&mut self, tried: Roles, cost: f64) {
        let usual = self.choices[self.best.index()].cost;
        let took_ns = self.busy_ns - self.epoch.began_ns;
        if cost < usual * if tried == Roles::ANY { 1.0 } else { BETTER } {
            self.choices[self.best.index()].due_ns = self.busy_ns + REST * took_ns;
            self.best = tried;
            self.choices[tried.index()] = Choice { cost, ..Choice::default() };
            return;
        }
        let choice = &mut self.choices[tried.index()];
        let loss = 1.0 - usual / cost.max(usual);
        choice.due_ns = self.busy_ns + took_ns * REST.max(LOSS * loss * f64::from(1 << choice.lost));
        choice.lost = (choice.lost + 1).min(CALM_MAX);
    }

    /// Records the cost of the choice in use. If it has grown much, the others may have become better.
    fn measured(&mut self, cost: f64) {
        let own = &mut self.choices[self.best.index()];
        if own.cost > 0.0 && cost <= CHANGED * own.cost {
            own.cost = (own.cost + cost) / 2.0;
            return;
        }
        own.cost = cost;
        let (best, busy_ns) = (self.best.index(), self.busy_ns);
        let others = self.choices.iter_mut().enumerate().filter(|(choice, _)| *choice != best);
        others.for_each(|(_, choice)| *choice = Choice { due_ns: busy_ns, ..Choice::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of a closed loop, one after the other, with a cost of each choice; returns the messages of each.
    fn counts<const N: usize>(trial: &mut RoleTrial, now: &mut Instant, messages: u32, costs: [u64; N]) -> [u32; N] {
        let mut counts = [0; N];
        for _ in 0..messages {
            let choice = trial.roles().index();
            counts[choice] += 1;
            trial.sent(*now);
            now.0 += costs[choice];
            trial.done(*now, 1.0, true, |_| 0.0);
        }
        counts
    }

    #[test]
    fn cheapest_choice_takes_nearly_all_messages() {
        for (best, costs) in [(0, [100, 150, 300]), (1, [150, 100, 300]), (2, [150, 300, 100])] {
            let (mut trial, mut now) = (RoleTrial::new(3), Instant(0));
            counts(&mut trial, &mut now, 1_000, costs);
            let began = now;
            let counts = counts(&mut trial, &mut now, 100_000, costs);
            let least = 100_000 * 100;
            assert!(now.0 - began.0 <= least + least / 50, "{counts:?}: {} ns", now.0 - began.0);
            assert!(counts[best] > 98_000, "{counts:?}");
        }
    }

    #[test]
    fn all_without_one_accelerator_is_a_choice() {
        for (best, costs) in
            [(3, [120, 150, 300, 100, 180]), (4, [120, 150, 300, 180, 100]), (0, [100, 150, 300, 120, 120])]
        {
            let (mut trial, mut now) = (RoleTrial::new(5), Instant(0));
            counts(&mut trial, &mut now, 20_000, costs);
            let counts = counts(&mut trial, &mut now, 20_000, costs);
            assert!(counts[best] > 19_200, "{counts:?}");
        }
    }

    #[test]
    fn change_of_costs_is_found() {
        let (mut trial, mut now) = (RoleTrial::new(3), Instant(0));
        counts(&mut trial, &mut now, 10_000, [100, 150, 300]);
        let after = counts(&mut trial, &mut now, 1_000, [300, 150, 600]);
        assert!(after[1] > 600, "{after:?}");
        assert_eq!(trial.roles(), Roles::CPU);
    }

    #[test]
    fn choice_that_answers_nothing_ends_in_time() {
        let (mut trial, mut now) = (RoleTrial::new(3), Instant(0));
        while trial.tried.is_none() {
            counts(&mut trial, &mut now, 1, [100; 3]);
        }
        trial.sent(now);
        now.0 += 1_000_000;
        trial.lost(now, |_| 0.0);
        assert_eq!(trial.roles(), Roles::ANY);
    }

    #[test]
    fn choice_that_cannot_be_cheaper_is_not_tried() {
        let (mut trial, mut now) = (RoleTrial::new(3), Instant(0));
        for _ in 0..10_000 {
            trial.sent(now);
            now.0 += 100;
            trial.done(now, 1.0, true, |choice| if choice == Roles::ACC { 500.0 } else { 0.0 });
            assert_ne!(trial.roles(), Roles::ACC);
        }
    }

    #[test]
    fn without_waiting_messages_all_roles_take_them() {
        let (mut trial, mut now) = (RoleTrial::new(3), Instant(0));
        counts(&mut trial, &mut now, 1_000, [200, 100, 300]);
        assert_eq!(trial.best, Roles::CPU);
        for _ in 0..1_000 {
            trial.sent(now);
            now.0 += 100;
            trial.done(now, 1.0, false, |_| 0.0);
        }
        assert_eq!(trial.roles(), Roles::ANY);
    }
}
