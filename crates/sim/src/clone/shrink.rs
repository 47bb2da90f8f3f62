//! What the smallest plan may do without.

use std::time::Duration;

use super::plan::Plan;
use crate::random::Chance;
use crate::smaller::{Fails, List, Smaller};

/// Runs at most.
const RUNS_MAX: u32 = 1_000;

/// Changes that leave out one kind of fault.
const CHANGES: [fn(&mut Plan); 7] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeat = Chance(0),
    |plan| plan.late = Chance(0),
    |plan| plan.forged = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
    |plan| plan.servers.iter_mut().for_each(|server| server.lies = None),
    |plan| plan.servers.iter_mut().for_each(|server| server.fails = Chance(0)),
];

const LISTS: [List<Plan>; 2] = [
    (|plan| plan.calls.len(), |plan, part| drop(plan.calls.drain(part))),
    (|plan| plan.incidents.len(), |plan, part| drop(plan.incidents.drain(part))),
];

/// The smallest plan found of which `fails` says that it fails as this one does.
pub(super) fn smallest(plan: &Plan, fails: Fails<'_, Plan>) -> Plan {
    let mut smaller = Smaller::new(plan, RUNS_MAX, fails);
    smaller.without(&CHANGES, &LISTS);
    for at in 0..smaller.best.calls.len() {
        smaller.attempt(|plan| plan.calls[at].request = 0);
        smaller.attempt(|plan| plan.calls[at].reply = 0);
        smaller.attempt(|plan| plan.calls[at].options.patience = Some(Duration::ZERO));
    }
    smaller.best
}
