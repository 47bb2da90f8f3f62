//! Shrinking of a combined plan: removes whole parts, then common faults, then shrinks the parts' own plans.

use std::mem::discriminant;

use super::CombinedViolation;
use super::plan::CombinedPlan;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList};
use crate::simulation::Simulation;
use crate::{clone, delegate, function, place, shrink as map};

/// Limit on the runs, without those of the parts' own shrinking.
const RUNS_MAX: u32 = 500;

/// Changes that remove a whole part, or one interaction between parts.
const PARTS: [fn(&mut CombinedPlan); 7] = [
    |plan| plan.map = None,
    |plan| plan.clone = None,
    |plan| plan.delegate = None,
    |plan| plan.function = None,
    |plan| plan.place = None,
    |plan| plan.front = false,
    |plan| plan.placed = None,
];

/// Lists of common faults.
const LISTS: [ShrinkList<CombinedPlan>; 4] = [
    (|plan| plan.failures.len(), |plan, part| drop(plan.failures.drain(part))),
    (|plan| plan.pauses.len(), |plan, part| drop(plan.pauses.drain(part))),
    (|plan| plan.cuts.len(), |plan, part| drop(plan.cuts.drain(part))),
    (|plan| plan.strangers.len(), |plan, part| drop(plan.strangers.drain(part))),
];

/// Shrinks a plan to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(plan: &CombinedPlan, fails: FailureTest<'_, CombinedPlan>) -> CombinedPlan {
    let mut smaller = Minimizer::new(plan, RUNS_MAX, &mut *fails);
    smaller.minimize(&PARTS, &LISTS);
    let mut best = smaller.best;
    shrink_part(&mut best, |plan| &mut plan.map, map::shrink_plan, fails);
    shrink_part(&mut best, |plan| &mut plan.clone, clone::CloneSimulation::shrink_plan, fails);
    shrink_part(&mut best, |plan| &mut plan.delegate, delegate::DelegateSimulation::shrink_plan, fails);
    shrink_part(&mut best, |plan| &mut plan.function, function::FunctionSimulation::shrink_plan, fails);
    shrink_part(&mut best, |plan| &mut plan.place, place::PlaceSimulation::shrink_plan, fails);
    best
}

/// Shrinks one part's plan while the other parts stay as they are.
fn shrink_part<P: Clone>(
    best: &mut CombinedPlan,
    part: fn(&mut CombinedPlan) -> &mut Option<P>,
    shrink_plan: fn(&P, FailureTest<'_, P>) -> P,
    fails: FailureTest<'_, CombinedPlan>,
) {
    let Some(whole) = part(best).clone() else { return };
    let mut plan = best.clone();
    let least = shrink_plan(&whole, &mut |smaller| {
        *part(&mut plan) = Some(smaller.clone());
        fails(&plan)
    });
    *part(best) = Some(least);
}

/// Whether two violations are of the same kind and of the same part.
pub(super) fn same_kind(one: &CombinedViolation, other: &CombinedViolation) -> bool {
    let same = match (one, other) {
        (CombinedViolation::Map(one), CombinedViolation::Map(other)) => discriminant(one) == discriminant(other),
        (CombinedViolation::Clone(one), CombinedViolation::Clone(other)) => {
            discriminant::<clone::CloneViolation>(one) == discriminant(other)
        }
        (CombinedViolation::Delegate(one), CombinedViolation::Delegate(other)) => {
            discriminant::<delegate::DelegateViolation>(one) == discriminant(other)
        }
        (CombinedViolation::Function(one), CombinedViolation::Function(other)) => {
            discriminant::<function::FunctionViolation>(one) == discriminant(other)
        }
        (CombinedViolation::Place(one), CombinedViolation::Place(other)) => {
            discriminant::<place::PlaceViolation>(one) == discriminant(other)
        }
        _ => true,
    };
    same && discriminant(one) == discriminant(other)
}
