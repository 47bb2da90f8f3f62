//! Shrinking of a delegate plan.

use super::plan::DelegatePlan;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList};
use crate::random::Chance;

/// Limit on the runs.
const RUNS_MAX: u32 = 1_000;

/// Changes that remove one kind of fault.
const CHANGES: [fn(&mut DelegatePlan); 6] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeats = Chance(0),
    |plan| plan.forged = Chance(0),
    |plan| plan.long = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
    |plan| plan.hosts.iter_mut().for_each(|host| host.0 = 0),
];

const LISTS: [ShrinkList<DelegatePlan>; 3] = [
    (|plan| plan.calls.len(), |plan, part| drop(plan.calls.drain(part))),
    (|plan| plan.crashes.len(), |plan, part| drop(plan.crashes.drain(part))),
    (|plan| plan.breaks.len(), |plan, part| drop(plan.breaks.drain(part))),
];

/// Shrinks a plan to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(plan: &DelegatePlan, fails: FailureTest<'_, DelegatePlan>) -> DelegatePlan {
    let mut smaller = Minimizer::new(plan, RUNS_MAX, fails);
    smaller.minimize(&CHANGES, &LISTS);
    smaller.best
}
