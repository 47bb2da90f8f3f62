//! Shrinking of a place plan.

use super::plan::PlacePlan;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList};
use crate::random::Chance;

/// Limit on the runs.
const RUNS_MAX: u32 = 1_000;

/// Changes that remove one kind of fault.
const CHANGES: [fn(&mut PlacePlan); 5] = [
    |plan| plan.noise_ns = 0,
    |plan| plan.unmeasured = Chance(0),
    |plan| plan.network.jitter = 0,
    |plan| plan.network.network_ns.1 = plan.network.network_ns.0,
    |plan| plan.requests.iter_mut().for_each(|ask| ask.abandoned = None),
];

const LISTS: [ShrinkList<PlacePlan>; 2] = [
    (|plan| plan.requests.len(), |plan, part| drop(plan.requests.drain(part))),
    (|plan| plan.station_faults.len(), |plan, part| drop(plan.station_faults.drain(part))),
];

/// Shrinks a plan to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(plan: &PlacePlan, fails: FailureTest<'_, PlacePlan>) -> PlacePlan {
    let mut smaller = Minimizer::new(plan, RUNS_MAX, fails);
    smaller.minimize(&CHANGES, &LISTS);
    smaller.best
}
