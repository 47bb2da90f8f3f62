//! Calls whose policy the caller chooses: what their options become, and what is measured of them.

use std::time::Duration;

use pathcall_wire::{CloneFrame, Instant, Mutant, mutant};

use super::super::{Balance, CloneOptions, Hedge, HedgeAfter};
use super::policy::{ClonePolicy, PolicyStats};
use super::policy_choice::PolicyChoice;
use super::slowdown::Slowdown;
use super::{Call, CloneCaller};

/// Most requests of a hedged call.
const HEDGED_ATTEMPTS: u8 = 2;
/// Distinguishes the random numbers of choices from those of the caller.
const CHOICE_SEED: u64 = 0x7061_7468_6361_6c6c;

impl CloneCaller {
    /// Policy of the automatic calls with this budget; `None`: there have been none.
    #[must_use]
    pub fn policy(&self, budget: u8) -> Option<PolicyStats> {
        self.choices.get(usize::from(budget))?.as_ref().map(|choice| choice.stats())
    }

    /// Options of a call that begins, with the chosen policy if it is automatic, and the period that counts it.
    pub(super) fn choose_policy(&mut self, options: CloneOptions) -> (CloneOptions, Option<u32>) {
        if !options.automatic {
            return (options, None);
        }
        let plain = CloneOptions { clone: false, send_to_two: false, balance: Balance::Random, hedge: None, ..options };
        let budget = usize::from(options.budget);
        let known = self.choices.get_mut(budget).zip(self.config.budgets.get(budget));
        let Some((choice, config)) = known.filter(|_| options.idempotent && self.config.pool.servers.len() > 1) else {
            return (plain, None);
        };
        let choice = choice.get_or_insert_with(|| {
            let share = config.share / f64::from(options.cost.max(1));
            let seed = self.config.seed ^ CHOICE_SEED.rotate_left(budget as u32);
            Box::new(PolicyChoice::new(self.config.policy_period, share, seed))
        });
        let all_slow = self.slowdowns.get(budget).is_some_and(Slowdown::is_slow);
        let assigned = choice.start_call(all_slow && !mutant::on(Mutant::CloneAutomaticOutage));
        let shortest = CloneOptions { balance: Balance::Shortest, ..plain };
        let chosen = match assigned.policy {
            ClonePolicy::Random => plain,
            ClonePolicy::Shortest => shortest,
            ClonePolicy::Hedged => {
                let after = HedgeAfter::Share(choice.hedged_thousandths());
                CloneOptions { hedge: Some(Hedge { after, max_attempts: HEDGED_ATTEMPTS }), ..shortest }
            }
            ClonePolicy::Cloned => CloneOptions { clone: true, ..shortest },
        };
        (chosen, Some(assigned.period))
    }

    /// Records the queue of the server that has answered an automatic call.
    pub(super) fn record_server_state(&mut self, call: &Call, frame: &CloneFrame<&[u8]>) {
        if let Some((choice, _)) = self.choice_of(call) {
            choice.record_server_state(frame.head().state() > 0);
        }
    }

    /// Records the end of a call: its latency, or, if it is cancelled or fails, the time that it has waited.
    pub(super) fn record_end(&mut self, now: Instant, call: &Call) {
        self.record_end_after(call, Some(now.since(call.started_at)));
    }

    /// Records the end of a call that only failed answers ended, which says nothing of how soon servers answer.
    pub(super) fn record_failed_end(&mut self, call: &Call) {
        self.record_end_after(call, None);
    }

    fn record_end_after(&mut self, call: &Call, latency: Option<Duration>) {
        if let Some((choice, period)) = self.choice_of(call) {
            choice.end_call(period, latency);
        }
    }

    fn choice_of(&mut self, call: &Call) -> Option<(&mut PolicyChoice, u32)> {
        let period = call.policy_period?;
        Some((self.choices.get_mut(usize::from(call.options.budget))?.as_mut()?, period))
    }
}
