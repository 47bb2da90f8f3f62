//! Trials of the roles: processor and accelerator together, or one of them alone.
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

/// Roles that take messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Roles {
    /// All.
    Any,
    /// Processor, where the request type allows.
    Cpu,
    /// Accelerator, where the request type allows.
    Acc,
}

const CHOICES: [Roles; 3] = [Roles::Any, Roles::Cpu, Roles::Acc];

/// Trials, and the measurement that runs. Time counts while messages are in flight.
#[derive(Debug)]
pub(super) struct RoleTrial {
    enabled: bool,
    best: Roles,
    tried: Option<Roles>,
    choices: [Choice; 3],
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
    /// Creates the trials. `enabled`: processor and accelerator are different choices.
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            best: Roles::Any,
            tried: None,
            choices: [Choice::default(); 3],
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
        if !self.enabled {
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
        if self.choices[self.roles() as usize].cost > 0.0 { whole } else { whole / 2 }
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
                let role = &mut self.choices[self.best as usize];
                role.due_ns = role.due_ns.min(self.busy_ns);
                self.best = Roles::Any;
            }
            None => {
                self.mean = work / f64::from(messages.max(1));
                self.measured(cost);
                let usual = self.choices[self.best as usize].cost;
                let due = |choice: &Roles| {
                    let is_due = self.choices[*choice as usize].due_ns <= self.busy_ns;
                    *choice != self.best && is_due && least(*choice) < usual
                };
                let first = |one: &Roles, other: &Roles| {
                    self.choices[*one as usize].due_ns.total_cmp(&self.choices[*other as usize].due_ns)
                };
                self.tried = CHOICES.into_iter().filter(due).min_by(first);
            }
        }
        // Messages of the previous choice end, and as many of this one: what the former have left behind may delay these.
        let before = if self.tried.is_some() { 2 * self.in_flight } else { self.in_flight };
        let messages = self.part_of(TRIAL) + before;
        let usual_ns = self.choices[self.best as usize].cost * self.mean * f64::from(messages);
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
        let usual = self.choices[self.best as usize].cost;
        let took_ns = self.busy_ns - self.epoch.began_ns;
        if cost < usual * if tried == Roles::Any { 1.0 } else { BETTER } {
            self.choices[self.best as usize].due_ns = self.busy_ns + REST * took_ns;
            self.best = tried;
            self.choices[tried as usize] = Choice { cost, ..Choice::default() };
            return;
        }
        let choice = &mut self.choices[tried as usize];
        let loss = 1.0 - usual / cost.max(usual);
        choice.due_ns = self.busy_ns + took_ns * REST.max(LOSS * loss * f64::from(1 << choice.lost));
        choice.lost = (choice.lost + 1).min(CALM_MAX);
    }

    /// Records the cost of the choice in use. If it has grown much, the others may have become better.
    fn measured(&mut self, cost: f64) {
        let own = &mut self.choices[self.best as usize];
        if own.cost > 0.0 && cost <= CHANGED * own.cost {
            own.cost = (own.cost + cost) / 2.0;
            return;
        }
        own.cost = cost;
        for choice in CHOICES.into_iter().filter(|choice| *choice != self.best) {
            self.choices[choice as usize] = Choice { due_ns: self.busy_ns, ..Choice::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of a closed loop, one after the other, with a cost of each choice; returns the messages of each.
    fn counts(trial: &mut RoleTrial, now: &mut Instant, messages: u32, costs: [u64; 3]) -> [u32; 3] {
        let mut counts = [0; 3];
        for _ in 0..messages {
            let choice = trial.roles() as usize;
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
            let (mut trial, mut now) = (RoleTrial::new(true), Instant(0));
            counts(&mut trial, &mut now, 1_000, costs);
            let began = now;
            let counts = counts(&mut trial, &mut now, 100_000, costs);
            let least = 100_000 * 100;
            assert!(now.0 - began.0 <= least + least / 50, "{counts:?}: {} ns", now.0 - began.0);
            assert!(counts[best] > 98_000, "{counts:?}");
        }
    }

    #[test]
    fn change_of_costs_is_found() {
        let (mut trial, mut now) = (RoleTrial::new(true), Instant(0));
        counts(&mut trial, &mut now, 10_000, [100, 150, 300]);
        let after = counts(&mut trial, &mut now, 1_000, [300, 150, 600]);
        assert!(after[1] > 600, "{after:?}");
        assert_eq!(trial.roles(), Roles::Cpu);
    }

    #[test]
    fn choice_that_answers_nothing_ends_in_time() {
        let (mut trial, mut now) = (RoleTrial::new(true), Instant(0));
        while trial.tried.is_none() {
            counts(&mut trial, &mut now, 1, [100; 3]);
        }
        trial.sent(now);
        now.0 += 1_000_000;
        trial.lost(now, |_| 0.0);
        assert_eq!(trial.roles(), Roles::Any);
    }

    #[test]
    fn choice_that_cannot_be_cheaper_is_not_tried() {
        let (mut trial, mut now) = (RoleTrial::new(true), Instant(0));
        for _ in 0..10_000 {
            trial.sent(now);
            now.0 += 100;
            trial.done(now, 1.0, true, |choice| if choice == Roles::Acc { 500.0 } else { 0.0 });
            assert_ne!(trial.roles(), Roles::Acc);
        }
    }

    #[test]
    fn without_waiting_messages_all_roles_take_them() {
        let (mut trial, mut now) = (RoleTrial::new(true), Instant(0));
        counts(&mut trial, &mut now, 1_000, [200, 100, 300]);
        assert_eq!(trial.best, Roles::Cpu);
        for _ in 0..1_000 {
            trial.sent(now);
            now.0 += 100;
            trial.done(now, 1.0, false, |_| 0.0);
        }
        assert_eq!(trial.roles(), Roles::Any);
    }
}
