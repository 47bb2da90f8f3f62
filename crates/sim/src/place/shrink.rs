//! What the smallest plan may do without.

use super::plan::Plan;
use crate::random::Chance;
use crate::smaller::{Fails, List, Smaller};

/// Runs at most.
const RUNS_MAX: u32 = 1_000;

/// Changes that leave out one kind of fault.
const CHANGES: [fn(&mut Plan); 5] = [
    |plan| plan.noise_ns = 0,
    |plan| plan.unmeasured = Chance(0),
    |plan| plan.between.jitter = 0,
    |plan| plan.between.network_ns.1 = plan.between.network_ns.0,
    |plan| plan.asks.iter_mut().for_each(|ask| ask.abandoned = None),
];

const LISTS: [List<Plan>; 2] = [
    (|plan| plan.asks.len(), |plan, part| drop(plan.asks.drain(part))),
    (|plan| plan.spells.len(), |plan, part| drop(plan.spells.drain(part))),
];

/// The smallest plan found of which `fails` says that it fails as this one does.
pub(super) fn smallest(plan: &Plan, fails: Fails<'_, Plan>) -> Plan {
    let mut smaller = Smaller::new(plan, RUNS_MAX, fails);
    smaller.without(&CHANGES, &LISTS);
    smaller.best
}
