//! The smallest plan that still fails as one did: without whole parts, and then without whatever the failure does not
//! need of the others.

use std::mem::discriminant;

use super::plan::Plan;
use super::{Sim, Wrong};
use crate::ability::Ability;
use crate::{clone, delegate, function, place};

/// Runs at most.
const RUNS_MAX: u32 = 600;

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

/// A list of which some may be left out: how long it is, and without some of it.
type List = (fn(&Plan) -> usize, fn(&mut Plan, usize, usize));

/// What happens to all, and what the parts' own plans have.
const LISTS: [List; 13] = [
    (|plan| plan.failures.len(), |plan, from, to| drop(plan.failures.drain(from..to))),
    (|plan| plan.pauses.len(), |plan, from, to| drop(plan.pauses.drain(from..to))),
    (|plan| plan.cuts.len(), |plan, from, to| drop(plan.cuts.drain(from..to))),
    (|plan| plan.strangers.len(), |plan, from, to| drop(plan.strangers.drain(from..to))),
    (
        |plan| of(&plan.map, |map| map.failures.len()),
        |plan, from, to| {
            plan.map.iter_mut().for_each(|map| drop(map.failures.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.map, |map| map.moves.len()),
        |plan, from, to| {
            plan.map.iter_mut().for_each(|map| drop(map.moves.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.map, |map| map.outages.len()),
        |plan, from, to| {
            plan.map.iter_mut().for_each(|map| drop(map.outages.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.clone, |clone| clone.incidents.len()),
        |plan, from, to| {
            plan.clone.iter_mut().for_each(|clone| drop(clone.incidents.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.clone, |clone| clone.calls.len()),
        |plan, from, to| {
            plan.clone.iter_mut().for_each(|clone| drop(clone.calls.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.delegate, |delegate| delegate.crashes.len()),
        |plan, from, to| {
            plan.delegate.iter_mut().for_each(|delegate| drop(delegate.crashes.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.delegate, |delegate| delegate.calls.len()),
        |plan, from, to| {
            plan.delegate.iter_mut().for_each(|delegate| drop(delegate.calls.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.function, |function| function.incidents.len()),
        |plan, from, to| {
            plan.function.iter_mut().for_each(|function| drop(function.incidents.drain(from..to)));
        },
    ),
    (
        |plan| of(&plan.function, |function| function.packets.len()),
        |plan, from, to| {
            plan.function.iter_mut().for_each(|function| drop(function.packets.drain(from..to)));
        },
    ),
];

fn of<P>(part: &Option<P>, len: fn(&P) -> usize) -> usize {
    part.as_ref().map_or(0, len)
}

/// The smallest plan found that fails as this one does; `None` when this one does not fail.
pub(super) fn shrink(plan: &Plan) -> Option<Plan> {
    let failure = Sim::play(plan).failure?.1;
    let mut best = plan.clone();
    let mut runs = 0;
    let mut attempt = |best: &mut Plan, change: &dyn Fn(&mut Plan)| {
        let mut smaller = best.clone();
        change(&mut smaller);
        runs += 1;
        let fails = runs <= RUNS_MAX && Sim::play(&smaller).failure.is_some_and(|(_, wrong)| alike(&wrong, &failure));
        if fails {
            *best = smaller;
        }
        fails
    };
    for change in PARTS {
        attempt(&mut best, &change);
    }
    for (len, without) in LISTS {
        let mut some = len(&best);
        while some > 0 {
            let mut at = 0;
            while at < len(&best) {
                let to = (at + some).min(len(&best));
                if !attempt(&mut best, &|plan: &mut Plan| without(plan, at, to)) {
                    at += some;
                }
            }
            some /= 2;
        }
    }
    Some(best)
}

/// Whether two failures are of one kind, of one part.
fn alike(one: &Wrong, other: &Wrong) -> bool {
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
