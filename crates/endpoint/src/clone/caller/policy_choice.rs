//! Choice of the policy of one method's calls, from their latencies.
//!
//! ```text
//! round: a period of each policy to compare, in random order ─▶ verdict ─▶ periods of the chosen policy ─▶ round ..
//! period: calls that settle, not counted ─▶ calls that count ─▶ calls of the chosen policy until these have ended
//! ```
//!
//! All calls of a period have the same policy, since an extra request takes time from the calls of everybody. Calls that
//! start while calls of the policy before are in progress are not counted. One request to a random server is the
//! measure: each round has a period of it, so policies are compared at the same time. A policy that sends more requests is
//! chosen if its p99 is really lower and its p50 not higher; it is left if it has become worse. Pauses before it is tried
//! again grow.

use std::time::Duration;

use pathcall_wire::{Mutant, SplitMix64, mutant};

use super::latency_record::{LatencyRecord, QuantileEstimate};
use super::policy::{ClonePolicy, POLICIES, PolicyReason, PolicyStats};
use super::policy_period::{AssignedPolicy, PolicyPeriod};

/// Share of the calls that are hedged, at most.
const HEDGED_SHARE: f64 = 0.1;
/// Least share with which a call is hedged at all.
const HEDGED_SHARE_MIN: f64 = 0.001;
/// Factor by which a policy may be worse than a random server.
const WORSE: f64 = 1.05;
/// Factor on the p99 from which a policy with more requests is better.
const BETTER: f64 = 0.95;
/// Factor on the p99 up to which a policy with fewer requests is about as good.
const EQUAL: f64 = 1.02;
/// Rounds of a trial.
const TRIAL_ROUNDS: u32 = 8;
/// Rounds after which a policy on trial has to show some gain.
const GAIN_ROUNDS: u32 = 3;
/// Weight of the latencies before a round, without a trial.
const FADE: f32 = 0.875;
/// Periods between two rounds: at first, and at most.
const CRUISE: (u32, u32) = (4, 32);
/// Periods until a policy that is not better is tried again: at first, and at most.
const PAUSE: (u32, u32) = (8, 128);
/// The same for a policy that is worse.
const LONG_PAUSE: (u32, u32) = (32, 1024);
/// Factor by which a pause grows.
const PAUSE_GROWTH: u32 = 2;
/// Weight of an answer in the share of answers that report waiting requests.
const BUSY_WEIGHT: f64 = 1.0 / 1024.0;
/// Shares of them from which extra requests are not allowed, and are allowed again.
const BUSY: (f64, f64) = (0.5, 0.25);
/// Where all answers report waiting requests, a period is longer by this factor: calls then wait for the same requests,
/// and their latencies say less.
const BUSY_PERIOD: f64 = 8.0;
/// Periods after a slow time of all servers, within which another one is blamed on the policy.
const SLOW_AGAIN: u32 = 2 * CRUISE.0;
/// Factor by which calls of the chosen policy are slower than in the last round, so that another round is due.
const CHANGED: f64 = 1.3;
/// Counted ends of calls after which a policy that is much worse ends its period, and the factor.
const CHECKED_EVERY: u32 = 64;
const MUCH_WORSE: f64 = 1.5;

/// Pause of a policy that was not chosen.
#[derive(Debug, Clone, Copy, Default)]
struct TrialPause {
    periods_left: u32,
    length: u32,
}

/// Policy of one method. Its memory is bounded.
#[derive(Debug)]
pub(super) struct PolicyChoice {
    /// Counted calls of a period: this number, or up to half more.
    period_calls: u32,
    /// Extra requests for each call that the budget allows.
    share: f64,
    random: SplitMix64,
    chosen: ClonePolicy,
    reason: PolicyReason,
    /// The same before the last period: a slow time that had begun but was not noticed may have changed it.
    before: (ClonePolicy, PolicyReason),
    /// Policy that is compared with the chosen one.
    trial: Option<ClonePolicy>,
    /// Rounds since the records were empty.
    rounds: u32,
    /// Periods of the round that are still to come.
    round: Vec<ClonePolicy>,
    cruise: u32,
    cruise_left: u32,
    period: PolicyPeriod,
    records: [LatencyRecord; POLICIES],
    /// Latencies of the period, if it belongs to no round.
    recent: LatencyRecord,
    /// Latencies of a random server before the trial, its median and its tail.
    reference: [QuantileEstimate; 2],
    pauses: [TrialPause; POLICIES],
    /// Share of answers that report waiting requests, and whether there are too many.
    busy: f64,
    is_busy: bool,
    /// Whether all servers were slow when the last call started.
    all_slow: bool,
    /// Periods since then.
    since_slow: u32,
    in_progress: u32,
    stats: PolicyStats,
}

impl PolicyChoice {
    /// Choice for calls of which `share` may have an extra request.
    pub(super) fn new(period_calls: u32, share: f64, seed: u64) -> Self {
        let mut choice = Self {
            period_calls: period_calls.max(1),
            share,
            random: SplitMix64::new(seed),
            chosen: ClonePolicy::Random,
            reason: PolicyReason::FewCalls,
            before: (ClonePolicy::Random, PolicyReason::FewCalls),
            trial: None,
            rounds: 0,
            round: Vec::with_capacity(POLICIES),
            cruise: CRUISE.0,
            // Few calls keep the default.
            cruise_left: 1,
            period: PolicyPeriod::default(),
            records: Default::default(),
            recent: LatencyRecord::default(),
            reference: LatencyRecord::default().median_and_tail(),
            pauses: Default::default(),
            busy: 0.0,
            is_busy: false,
            all_slow: false,
            since_slow: SLOW_AGAIN,
            in_progress: 0,
            stats: PolicyStats::default(),
        };
        choice.before.0 = if choice.may_use(ClonePolicy::Hedged) { ClonePolicy::Hedged } else { ClonePolicy::Shortest };
        choice.chosen = choice.before.0;
        choice
    }

    /// Share of the calls to hedge, in thousandths.
    pub(super) fn hedged_thousandths(&self) -> u16 {
        (self.share.min(HEDGED_SHARE) * 1000.0) as u16
    }

    /// Starts a call. While all servers are slow, it is one request to a random server, and not counted.
    pub(super) fn start_call(&mut self, all_slow: bool) -> AssignedPolicy {
        self.in_progress += 1;
        if all_slow {
            if !std::mem::replace(&mut self.all_slow, true) {
                self.begin_slow_time();
            }
            self.since_slow = 0;
            return AssignedPolicy { policy: ClonePolicy::Random, period: 0 };
        }
        self.all_slow = false;
        if self.period.is_over() {
            self.next_period();
        }
        let policy = if self.period.is_trailing() { self.chosen } else { self.period.policy };
        AssignedPolicy { policy, period: self.period.start_call() }
    }

    /// Ends a call, after this time. `None`: the time says nothing of how soon servers answer.
    pub(super) fn end_call(&mut self, period: u32, latency: Option<Duration>) {
        self.in_progress = self.in_progress.saturating_sub(1);
        let counted = period != 0 && period == self.period.number || mutant::on(Mutant::ClonePolicyMixed);
        if !counted {
            return;
        }
        (self.period.waiting, self.period.ended) = (self.period.waiting.saturating_sub(1), self.period.ended + 1);
        let Some(latency) = latency else { return };
        if !self.period.is_measured {
            return self.recent.record(latency);
        }
        self.records[self.period.policy as usize].record(latency);
        if self.period.ended.is_multiple_of(CHECKED_EVERY) {
            self.check_period();
        }
    }

    /// Ends a period early if its policy is much worse than a random server is, or was before the trial.
    fn check_period(&mut self) {
        let policy = self.period.policy;
        if self.trial == Some(policy) && self.records[policy as usize].exceeds_any(self.reference, MUCH_WORSE) {
            self.begin_again();
            self.end_trial(policy, LONG_PAUSE);
        } else if self.is_worse(policy, MUCH_WORSE) {
            self.period.stop_counting();
        }
    }

    /// Records whether an answer reports waiting requests. While all servers are slow, requests wait for this reason.
    pub(super) fn record_server_state(&mut self, requests_wait: bool) {
        if self.all_slow {
            return;
        }
        self.busy += BUSY_WEIGHT * (f64::from(u8::from(requests_wait)) - self.busy);
        if self.is_busy {
            self.is_busy = self.busy > BUSY.1;
        } else if self.busy > BUSY.0 {
            self.is_busy = true;
            self.stop_extra();
        }
    }

    /// Leaves policies with extra requests, chosen or on trial.
    fn stop_extra(&mut self) {
        for policy in ClonePolicy::ALL.into_iter().filter(|policy| policy.sends_extra()) {
            let is_chosen = policy == self.chosen;
            if is_chosen {
                self.choose(ClonePolicy::Shortest, PolicyReason::ServersBusy);
            }
            if is_chosen || self.trial == Some(policy) {
                self.begin_again();
                self.end_trial(policy, PAUSE);
            }
        }
    }

    pub(super) const fn stats(&self) -> PolicyStats {
        PolicyStats { policy: self.chosen, reason: self.reason, ..self.stats }
    }

    /// Ends the round, when all servers have become slow. If this happens again and again soon after calls have the chosen
    /// policy, the policy itself may be the reason.
    fn begin_slow_time(&mut self) {
        (self.chosen, self.reason) = self.before;
        if let Some(trial) = self.trial {
            self.end_trial(trial, PAUSE);
        }
        if self.chosen != ClonePolicy::Random && self.since_slow < SLOW_AGAIN {
            self.leave(PolicyReason::OtherWorse, LONG_PAUSE);
        }
        self.begin_again();
    }

    /// Ends the period and its round without a verdict, and forgets the latencies.
    fn begin_again(&mut self) {
        self.round.clear();
        self.records.iter_mut().for_each(LatencyRecord::clear);
        (self.rounds, self.cruise_left) = (0, CRUISE.0);
        self.period = PolicyPeriod { number: self.next_number(), policy: self.chosen, ..PolicyPeriod::default() };
    }

    /// Number of another period.
    fn next_number(&self) -> u32 {
        self.period.number.wrapping_add(1).max(1)
    }

    fn next_period(&mut self) {
        let PolicyPeriod { policy, waiting, is_measured, .. } = self.period;
        if is_measured {
            self.records[policy as usize].record_without_end(waiting);
        } else if self.has_changed() {
            (self.cruise, self.cruise_left) = (CRUISE.0, 0);
        }
        self.recent.clear();
        self.before = (self.chosen, self.reason);
        self.since_slow = self.since_slow.saturating_add(1);
        if is_measured && self.round.is_empty() {
            self.judge();
        }
        for pause in &mut self.pauses {
            pause.periods_left = pause.periods_left.saturating_sub(1);
        }
        if self.round.is_empty() && self.cruise_left == 0 {
            self.begin_round();
        }
        let (policy, is_measured) = match self.round.pop() {
            Some(policy) => (policy, true),
            None => (self.chosen, false),
        };
        self.cruise_left = self.cruise_left.saturating_sub(u32::from(!is_measured));
        self.stats.periods[policy as usize] += 1;
        // Callers should not change their policies at the same time.
        let calls = (f64::from(self.period_calls) * (1.0 + BUSY_PERIOD * self.busy)) as u32;
        let calls = calls + self.random.below(calls / 2 + 1);
        self.period = PolicyPeriod {
            number: self.next_number(),
            policy,
            settling: if mutant::on(Mutant::ClonePolicyMixed) { 0 } else { self.in_progress + self.period_calls / 8 },
            counting: calls,
            trailing_max: (2 * calls + 4 * self.in_progress, 2 * calls + 64 * self.in_progress),
            is_measured,
            ..PolicyPeriod::default()
        };
    }

    /// Whether calls of the chosen policy have become slower since the last round.
    fn has_changed(&self) -> bool {
        let before = self.records[self.chosen as usize].median_and_tail();
        self.chosen != ClonePolicy::Random && self.recent.exceeds_any(before, CHANGED)
    }

    /// Begins a round: with the policy on trial, with another one that is due, or to see whether the chosen one is still
    /// better than a random server.
    fn begin_round(&mut self) {
        if self.trial.is_none() {
            let due = |policy: &ClonePolicy| self.pauses[*policy as usize].periods_left == 0 && self.may_use(*policy);
            let others = [ClonePolicy::Hedged, ClonePolicy::Shortest, ClonePolicy::Cloned];
            self.trial = others.into_iter().filter(|policy| *policy != self.chosen).find(due);
            if self.trial.is_some() {
                self.reference = self.records[ClonePolicy::Random as usize].median_and_tail();
                self.records.iter_mut().for_each(LatencyRecord::clear);
                self.rounds = 0;
            } else {
                self.records.iter_mut().for_each(|record| record.fade(FADE));
            }
        }
        let others = [Some(self.chosen), self.trial];
        self.round.extend(others.into_iter().flatten().filter(|policy| *policy != ClonePolicy::Random));
        if self.round.is_empty() {
            // Nothing to compare a random server with.
            self.cruise_left = CRUISE.0;
            return;
        }
        self.round.push(ClonePolicy::Random);
        for at in (1..self.round.len()).rev() {
            self.round.swap(at, self.random.index(at + 1));
        }
    }

    /// Decides after a round.
    fn judge(&mut self) {
        self.rounds += 1;
        let (chosen, ripe) = (self.chosen, self.rounds >= TRIAL_ROUNDS);
        if chosen != ClonePolicy::Random && !mutant::on(Mutant::ClonePolicyKept) {
            if self.is_worse(chosen, WORSE) {
                return self.leave(PolicyReason::OtherWorse, LONG_PAUSE);
            }
            if ripe && self.p99(chosen) >= self.p99(ClonePolicy::Random) {
                return self.leave(PolicyReason::FewestRequests, PAUSE);
            }
        }
        let Some(trial) = self.trial else {
            if self.exceeds(ClonePolicy::Random, chosen, 1.0) {
                self.cruise = (2 * self.cruise).min(CRUISE.1);
            }
            self.cruise_left = self.cruise;
            return;
        };
        let gains = trial < chosen || self.rounds < GAIN_ROUNDS || self.p99(trial) < self.p99(chosen);
        if self.is_worse(trial, WORSE) {
            self.end_trial(trial, LONG_PAUSE);
        } else if self.is_preferred(trial, chosen, ripe) {
            let dearer = trial > chosen;
            self.choose(trial, if dearer { PolicyReason::LowerP99 } else { PolicyReason::FewestRequests });
            self.end_trial(chosen, PAUSE);
        } else if ripe || !gains || self.exceeds(trial, chosen, EQUAL) {
            if chosen > trial {
                self.reason = PolicyReason::LowerP99;
            } else if self.reason == PolicyReason::FewCalls {
                self.reason = PolicyReason::FewestRequests;
            }
            let worse = self.p99(trial) > WORSE * self.p99(ClonePolicy::Random);
            self.end_trial(trial, if worse { LONG_PAUSE } else { PAUSE });
        }
    }

    /// Whether a policy should take the place of the chosen one.
    fn is_preferred(&self, trial: ClonePolicy, chosen: ClonePolicy, ripe: bool) -> bool {
        let better = |factor: f64| self.exceeds(chosen, trial, 1.0 / factor);
        if trial > chosen { better(BETTER) } else { better(1.0) || ripe && self.p99(trial) <= EQUAL * self.p99(chosen) }
    }

    /// Whether a policy is worse than a random server at the median or at the tail.
    fn is_worse(&self, policy: ClonePolicy, factor: f64) -> bool {
        let random = self.records[ClonePolicy::Random as usize].median_and_tail();
        policy != ClonePolicy::Random && self.records[policy as usize].exceeds_any(random, factor)
    }

    /// Whether the p99 of a policy exceeds that of another one by this factor.
    fn exceeds(&self, policy: ClonePolicy, other: ClonePolicy, factor: f64) -> bool {
        let p99 = |policy: ClonePolicy| self.records[policy as usize].quantile(0.99);
        p99(policy).exceeds(p99(other), factor)
    }

    fn p99(&self, policy: ClonePolicy) -> f64 {
        self.records[policy as usize].quantile(0.99).likely
    }

    /// Whether budget and servers allow a policy.
    fn may_use(&self, policy: ClonePolicy) -> bool {
        let affordable = match policy {
            ClonePolicy::Random | ClonePolicy::Shortest => true,
            ClonePolicy::Hedged => self.share >= HEDGED_SHARE_MIN,
            ClonePolicy::Cloned => self.share >= 1.0,
        };
        affordable && !(self.is_busy && policy.sends_extra())
    }

    /// Leaves the chosen policy for a random server.
    fn leave(&mut self, reason: PolicyReason, pause: (u32, u32)) {
        let left = self.chosen;
        self.choose(ClonePolicy::Random, reason);
        self.end_trial(left, pause);
    }

    fn choose(&mut self, policy: ClonePolicy, reason: PolicyReason) {
        self.stats.changes += u64::from(policy != self.chosen);
        (self.chosen, self.reason) = (policy, reason);
        self.pauses[policy as usize] = TrialPause::default();
        self.cruise = CRUISE.0;
    }

    /// Ends a trial; the policy that was not chosen pauses.
    fn end_trial(&mut self, other: ClonePolicy, (least, most): (u32, u32)) {
        let pause = &mut self.pauses[other as usize];
        pause.length = (PAUSE_GROWTH * pause.length).clamp(least, most);
        pause.periods_left = pause.length + self.random.below(pause.length / 2);
        self.trial = None;
        self.cruise_left = self.cruise;
    }
}

#[cfg(test)]
mod tests;
