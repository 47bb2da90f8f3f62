//! What the smallest plan may do without: whole parts, then what happens to all of them, and then what the parts' own
//! plans may do without.

use std::mem::discriminant;

use super::Wrong;
use super::plan::Plan;
use crate::ability::Ability;
use crate::smaller::{Fails, List, Smaller};
use crate::{clone, delegate, function, place, shrink as map};

/// Runs at most, but for those of the parts' own.
const RUNS_MAX: u32 = 500;

/// Changes that leave out a whole part, or one thing that parts do for each other.
const PARTS: [fn(&mut Plan); 7] = [
    |plan| plan.map = None,
    |plan| plan.clone = None,
    |plan| plan.delegate = None,
    |plan| plan.function = None,
    |plan| plan.place = None,
    |plan| plan.front = false,
    |plan| plan.placed = None,
];

/// What happens to all.
const LISTS: [List<Plan>; 4] = [
    (|plan| plan.failures.len(), |plan, part| drop(plan.failures.drain(part))),
    (|plan| plan.pauses.len(), |plan, part| drop(plan.pauses.drain(part))),
    (|plan| plan.cuts.len(), |plan, part| drop(plan.cuts.drain(part))),
    (|plan| plan.strangers.len(), |plan, part| drop(plan.strangers.drain(part))),
];

/// The smallest plan found of which `fails` says that it fails as this one does.
pub(super) fn smallest(plan: &Plan, fails: Fails<'_, Plan>) -> Plan {
    let mut smaller = Smaller::new(plan, RUNS_MAX, &mut *fails);
    smaller.without(&PARTS, &LISTS);
    let mut best = smaller.best;
    of_part(&mut best, |plan| &mut plan.map, map::smallest, fails);
    of_part(&mut best, |plan| &mut plan.clone, clone::Sim::smallest, fails);
    of_part(&mut best, |plan| &mut plan.delegate, delegate::Sim::smallest, fails);
    of_part(&mut best, |plan| &mut plan.function, function::Sim::smallest, fails);
    of_part(&mut best, |plan| &mut plan.place, place::Sim::smallest, fails);
    best
}

/// Leaves out what a part's own plan may do without, beside what is left of the others.
fn of_part<P: Clone>(
    best: &mut Plan,
    part: fn(&mut Plan) -> &mut Option<P>,
    smallest: fn(&P, Fails<'_, P>) -> P,
    fails: Fails<'_, Plan>,
) {
    let Some(whole) = part(best).clone() else { return };
    let mut plan = best.clone();
    let least = smallest(&whole, &mut |smaller| {
        *part(&mut plan) = Some(smaller.clone());
        fails(&plan)
    });
    *part(best) = Some(least);
}

/// Whether two failures are of one kind, of one part.
pub(super) fn alike(one: &Wrong, other: &Wrong) -> bool {
    let same = match (one, other) {
        (Wrong::Map(one), Wrong::Map(other)) => discriminant(one) == discriminant(other),
        (Wrong::Clone(one), Wrong::Clone(other)) => discriminant::<clone::Wrong>(one) == discriminant(other),
        (Wrong::Delegate(one), Wrong::Delegate(other)) => discriminant::<delegate::Wrong>(one) == discriminant(other),
        (Wrong::Function(one), Wrong::Function(other)) => discriminant::<function::Wrong>(one) == discriminant(other),
        (Wrong::Place(one), Wrong::Place(other)) => discriminant::<place::Wrong>(one) == discriminant(other),
        _ => true,
    };
    same && discriminant(one) == discriminant(other)
}
