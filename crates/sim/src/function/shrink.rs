//! What the smallest plan may do without.

use super::plan::Plan;
use crate::random::Chance;
use crate::smaller::{Fails, List, Smaller};

/// Runs at most.
const RUNS_MAX: u32 = 600;

/// Changes that leave out one kind of fault.
const CHANGES: [fn(&mut Plan); 4] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeat = Chance(0),
    |plan| plan.reorder = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
];

const LISTS: [List<Plan>; 3] = [
    (|plan| plan.incidents.len(), |plan, part| drop(plan.incidents.drain(part))),
    (|plan| plan.packets.len(), |plan, part| drop(plan.packets.drain(part))),
    (|plan| plan.routes.len(), |plan, part| drop(plan.routes.drain(part))),
];

/// The smallest plan found of which `fails` says that it fails as this one does.
pub(super) fn smallest(plan: &Plan, fails: Fails<'_, Plan>) -> Plan {
    let mut smaller = Smaller::new(plan, RUNS_MAX, fails);
    smaller.without(&CHANGES, &LISTS);
    smaller.best
}
