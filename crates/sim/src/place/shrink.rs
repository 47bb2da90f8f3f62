//! The smallest plan that still fails as one did: without whatever the failure does not need.

use std::mem::discriminant;

use super::Sim;
use super::plan::Plan;
use crate::ability::Ability;
use crate::random::Chance;

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
    let mut some = best.asks.len().max(best.spells.len());
    while some > 0 {
        let mut at = 0;
        while at < best.asks.len() {
            let without = |plan: &mut Plan| drop(plan.asks.drain(at..(at + some).min(plan.asks.len())));
            if best.asks.len() == 1 || !attempt(&mut best, &without) {
                at += some;
            }
        }
        let mut at = 0;
        while at < best.spells.len() {
            let without = |plan: &mut Plan| drop(plan.spells.drain(at..(at + some).min(plan.spells.len())));
            if !attempt(&mut best, &without) {
                at += some;
            }
        }
        some /= 2;
    }
    best
}
