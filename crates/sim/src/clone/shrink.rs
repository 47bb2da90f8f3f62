//! Shrinking of a clone plan.

use std::time::Duration;

use super::plan::ClonePlan;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList};
use crate::random::Chance;

/// Limit on the runs.
const RUNS_MAX: u32 = 1_000;

/// Changes that remove one kind of fault.
const CHANGES: [fn(&mut ClonePlan); 7] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeat = Chance(0),
    |plan| plan.late = Chance(0),
    |plan| plan.forged = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
    |plan| plan.servers.iter_mut().for_each(|server| server.reported_state = None),
    |plan| plan.servers.iter_mut().for_each(|server| server.fails = Chance(0)),
];

const LISTS: [ShrinkList<ClonePlan>; 2] = [
    (|plan| plan.calls.len(), |plan, part| drop(plan.calls.drain(part))),
    (|plan| plan.incidents.len(), |plan, part| drop(plan.incidents.drain(part))),
];

/// Shrinks a plan to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(plan: &ClonePlan, fails: FailureTest<'_, ClonePlan>) -> ClonePlan {
    let mut smaller = Minimizer::new(plan, RUNS_MAX, fails);
    smaller.minimize(&CHANGES, &LISTS);
    for at in 0..smaller.best.calls.len() {
        smaller.try_change(|plan| plan.calls[at].request = 0);
        smaller.try_change(|plan| plan.calls[at].reply = 0);
        smaller.try_change(|plan| plan.calls[at].options.patience = Some(Duration::ZERO));
    }
    smaller.best
}
