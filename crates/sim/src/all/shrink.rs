//! The smallest plan that still fails as one did: without whole parts, then without what happens to all of them, and then
//! without what the parts' own shrinkers leave out.

use std::mem::discriminant;

use super::plan::Plan;
use super::{Sim, Wrong};
use crate::ability::Ability;
use crate::{clone, delegate, function, place, shrink as map};

/// Runs at most.
const RUNS_MAX: u32 = 1_500;

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

/// What happens to all, and what delegated calls consist of, which have no shrinker of their own.
const LISTS: [List; 6] = [
    (|plan| plan.failures.len(), |plan, from, to| drop(plan.failures.drain(from..to))),
    (|plan| plan.pauses.len(), |plan, from, to| drop(plan.pauses.drain(from..to))),
    (|plan| plan.cuts.len(), |plan, from, to| drop(plan.cuts.drain(from..to))),
    (|plan| plan.strangers.len(), |plan, from, to| drop(plan.strangers.drain(from..to))),
    (
        |plan| plan.delegate.as_ref().map_or(0, |part| part.crashes.len()),
        |plan, from, to| {
            plan.delegate.iter_mut().for_each(|part| drop(part.crashes.drain(from..to)));
        },
    ),
    (
        |plan| plan.delegate.as_ref().map_or(0, |part| part.calls.len()),
        |plan, from, to| {
            plan.delegate.iter_mut().for_each(|part| drop(part.calls.drain(from..to)));
        },
    ),
];

/// The smallest plan found that fails as this one does; `None` when this one does not fail.
pub(super) fn shrink(plan: &Plan) -> Option<Plan> {
    let failure = Sim::play(plan).failure?.1;
    let mut best = plan.clone();
    let mut runs = 0;
    let mut fails = |plan: &Plan| {
        runs += 1;
        runs <= RUNS_MAX && Sim::play(plan).failure.is_some_and(|(_, wrong)| alike(&wrong, &failure))
    };
    for change in PARTS {
        attempt(&mut best, change, &mut fails);
    }
    for (len, without) in LISTS {
        let mut some = len(&best);
        while some > 0 {
            let mut at = 0;
            while at < len(&best) {
                let to = (at + some).min(len(&best));
                if !attempt(&mut best, |plan| without(plan, at, to), &mut fails) {
                    at += some;
                }
            }
            some /= 2;
        }
    }
    of_parts(&mut best, &mut fails);
    Some(best)
}

/// Makes a change, unless what fails is another thing then.
fn attempt(best: &mut Plan, change: impl FnOnce(&mut Plan), fails: &mut dyn FnMut(&Plan) -> bool) -> bool {
    let mut smaller = best.clone();
    change(&mut smaller);
    let so = fails(&smaller);
    if so {
        *best = smaller;
    }
    so
}

/// Leaves out what the parts' own shrinkers leave out, beside what is left of the others.
fn of_parts(best: &mut Plan, fails: &mut dyn FnMut(&Plan) -> bool) {
    let with = |best: &Plan, change: &dyn Fn(&mut Plan)| {
        let mut plan = best.clone();
        change(&mut plan);
        plan
    };
    if let Some(part) = best.clone().map {
        let one = |part: &_| with(best, &|plan| plan.map = Some(Clone::clone(part)));
        let smallest = map::smallest(&part, &mut |part| fails(&one(part)));
        best.map = Some(smallest);
    }
    if let Some(part) = best.clone().clone {
        let one = |part: &_| with(best, &|plan| plan.clone = Some(Clone::clone(part)));
        let smallest = clone::shrink::smallest(&part, &mut |part| fails(&one(part)));
        best.clone = Some(smallest);
    }
    if let Some(part) = best.clone().function {
        let one = |part: &_| with(best, &|plan| plan.function = Some(Clone::clone(part)));
        let smallest = function::shrink::smallest(&part, &mut |part| fails(&one(part)));
        best.function = Some(smallest);
    }
    if let Some(part) = best.clone().place {
        let one = |part: &_| with(best, &|plan| plan.place = Some(Clone::clone(part)));
        let smallest = place::shrink::smallest(&part, &mut |part| fails(&one(part)));
        best.place = Some(smallest);
    }
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
