//! What the smallest plan may do without.

use super::plan::Plan;
use crate::random::Chance;
use crate::smaller::{Fails, List, Smaller};

/// Runs at most.
const RUNS_MAX: u32 = 1_000;

/// Changes that leave out one kind of fault.
const CHANGES: [fn(&mut Plan); 6] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeats = Chance(0),
    |plan| plan.forged = Chance(0),
    |plan| plan.long = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
    |plan| plan.hosts.iter_mut().for_each(|host| host.0 = 0),
];

const LISTS: [List<Plan>; 3] = [
    (|plan| plan.calls.len(), |plan, part| drop(plan.calls.drain(part))),
    (|plan| plan.crashes.len(), |plan, part| drop(plan.crashes.drain(part))),
    (|plan| plan.breaks.len(), |plan, part| drop(plan.breaks.drain(part))),
];

/// The smallest plan found of which `fails` says that it fails as this one does.
pub(super) fn smallest(plan: &Plan, fails: Fails<'_, Plan>) -> Plan {
    let mut smaller = Smaller::new(plan, RUNS_MAX, fails);
    smaller.without(&CHANGES, &LISTS);
    smaller.best
}
