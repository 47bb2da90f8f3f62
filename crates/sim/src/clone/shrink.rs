//! The smallest plan that still fails as one did: without whatever the failure does not need.

use std::mem::discriminant;
use std::time::Duration;

use super::Sim;
use super::plan::Plan;
use crate::ability::Ability;
use crate::random::Chance;

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

/// The smallest plan found that fails as this one does; `None` when this one does not fail.
pub(super) fn shrink(plan: &Plan) -> Option<Plan> {
    let failure = discriminant(&Sim::play(plan).failure?.1);
    let alike = |plan: &Plan| Sim::play(plan).failure.is_some_and(|(_, wrong)| discriminant(&wrong) == failure);
    Some(smallest(plan, &mut &alike))
}

/// The smallest plan found of which `fails` says that it fails as this one does.
pub(crate) fn smallest(plan: &Plan, fails: &mut dyn FnMut(&Plan) -> bool) -> Plan {
    let (mut best, mut runs) = (plan.clone(), 0);
    let mut attempt = |best: &mut Plan, change: &dyn Fn(&mut Plan)| {
        let mut smaller = best.clone();
        change(&mut smaller);
        runs += 1;
        let fails = smaller != *best && runs <= RUNS_MAX && fails(&smaller);
        if fails {
            *best = smaller;
        }
        fails
    };
    for change in CHANGES {
        attempt(&mut best, &change);
    }
    let mut some = best.calls.len().max(best.incidents.len());
    while some > 0 {
        let mut at = 0;
        while at < best.calls.len() {
            let without = |plan: &mut Plan| drop(plan.calls.drain(at..(at + some).min(plan.calls.len())));
            if best.calls.len() == 1 || !attempt(&mut best, &without) {
                at += some;
            }
        }
        let mut at = 0;
        while at < best.incidents.len() {
            let without = |plan: &mut Plan| drop(plan.incidents.drain(at..(at + some).min(plan.incidents.len())));
            if !attempt(&mut best, &without) {
                at += some;
            }
        }
        some /= 2;
    }
    for at in 0..best.calls.len() {
        attempt(&mut best, &|plan: &mut Plan| plan.calls[at].request = 0);
        attempt(&mut best, &|plan: &mut Plan| plan.calls[at].reply = 0);
        attempt(&mut best, &|plan: &mut Plan| plan.calls[at].options.patience = Some(Duration::ZERO));
    }
    best
}
