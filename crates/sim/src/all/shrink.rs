//! Shrinking of a combined plan: removes whole parts, then common faults, then shrinks the parts' own plans.

use super::plan::CombinedPlan;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList, remove_range};
use crate::simulation::Simulation;
use crate::{clone, delegate, function, map, place};

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
    |plan, part| remove_range(&mut plan.failures, part),
    |plan, part| remove_range(&mut plan.pauses, part),
    |plan, part| remove_range(&mut plan.cuts, part),
    |plan, part| remove_range(&mut plan.strangers, part),
];

/// Shrinks a plan to the smallest one for which `fails` returns true.
pub(super) fn shrink_plan(plan: &CombinedPlan, fails: FailureTest<'_, CombinedPlan>) -> CombinedPlan {
    let mut smaller = Minimizer::new(plan, RUNS_MAX, &mut *fails);
    smaller.minimize(&PARTS, &LISTS);
    let mut best = smaller.best;
    shrink_part(&mut best, |plan| &mut plan.map, map::MapSimulation::shrink_plan, fails);
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
