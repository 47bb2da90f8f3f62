//! The smallest plan that still fails as one did: without whatever the failure does not need.

use std::mem::discriminant;

use super::Sim;
use super::plan::Plan;
use crate::ability::Ability;
use crate::random::Chance;

/// Runs at most.
const RUNS_MAX: u32 = 600;

/// Changes that leave out one kind of fault.
const CHANGES: [fn(&mut Plan); 4] = [
    |plan| plan.loss = Chance(0),
    |plan| plan.repeat = Chance(0),
    |plan| plan.reorder = Chance(0),
    |plan| plan.delay.1 = plan.delay.0,
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
    without_some(
        &mut best,
        &mut attempt,
        |plan| plan.incidents.len(),
        |plan, from, to| drop(plan.incidents.drain(from..to)),
    );
    without_some(
        &mut best,
        &mut attempt,
        |plan| plan.packets.len(),
        |plan, from, to| drop(plan.packets.drain(from..to)),
    );
    without_some(&mut best, &mut attempt, |plan| plan.routes.len(), |plan, from, to| drop(plan.routes.drain(from..to)));
    best
}

/// Leaves out half of some list, then quarters, down to one by one.
fn without_some(
    best: &mut Plan,
    attempt: &mut impl FnMut(&mut Plan, &dyn Fn(&mut Plan)) -> bool,
    len: fn(&Plan) -> usize,
    drain: fn(&mut Plan, usize, usize),
) {
    let mut some = len(best);
    while some > 0 {
        let mut at = 0;
        while at < len(best) {
            let to = (at + some).min(len(best));
            if !attempt(best, &|plan: &mut Plan| drain(plan, at, to)) {
                at += some;
            }
        }
        some /= 2;
    }
}
