//! Shrinking of a function plan.

use super::plan::FunctionPlan;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList};
use crate::random::Chance;

/// Limit on the runs.
const RUNS_MAX: u32 = 600;

/// Changes that remove one kind of fault.
const CHANGES: [fn(&mut FunctionPlan); 4] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeat = Chance(0),
    |plan| plan.reorder = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
];

const LISTS: [ShrinkList<FunctionPlan>; 3] = [
    (|plan| plan.incidents.len(), |plan, part| drop(plan.incidents.drain(part))),
    (|plan| plan.packets.len(), |plan, part| drop(plan.packets.drain(part))),
    (|plan| plan.routes.len(), |plan, part| drop(plan.routes.drain(part))),
];

/// Shrinks a plan to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(plan: &FunctionPlan, fails: FailureTest<'_, FunctionPlan>) -> FunctionPlan {
    let mut smaller = Minimizer::new(plan, RUNS_MAX, fails);
    smaller.minimize(&CHANGES, &LISTS);
    smaller.best
}
