//! Generator of gradients: some applications that sum get arrays of a few lengths, whose values grow and shrink.

use pathcall_endpoint::map::gradient::GradientFormat;
use pathcall_endpoint::map::{LaneFormat, Modify, Operation};
use pathcall_wire::ForwardTarget;

use super::{ApplicationPlan, Purpose, Step};
use crate::random::Random;

/// Steps of a worker.
const STEPS_MAX: usize = 6;

/// Makes gradients of an application's arrays, in some applications that sum. The workers of the others may die, or
/// differ: which of a call's sums such a worker takes part in, only the tests of the state machine know.
pub(super) fn draw(random: &mut Random, plan: &mut ApplicationPlan) {
    let ends = |step: &Step| step.cancel_after.is_none() && !step.may_never_end;
    let lasts = plan.callers.iter().all(|caller| caller.crash.is_none() && caller.steps.iter().all(ends));
    let fits = plan.purpose == Purpose::Sum && plan.expected_error.is_none() && lasts;
    if !random.percent(40) || !fits {
        return;
    }
    let workers = plan.workers();
    let lanes = random.pick(&[LaneFormat::Int8, LaneFormat::Int8, LaneFormat::Int16]);
    plan.gradients = Some(GradientFormat { lanes, workers, topk: random.pick(&[0, 0, 100_000, 500_000]) });
    let longest = usize::from(plan.width) * 40;
    let lengths = [40, 300, 1_200].map(|len: usize| len.min(longest));
    let few = [random.pick(&lengths), random.pick(&lengths)];
    let shape: Vec<(usize, i64)> = (0..random.range(1..=STEPS_MAX as u64))
        .map(|_| (random.pick(&few), random.pick(&[0, 3, 3, 50, 50, 900, 100_000])))
        .collect();
    for caller in &mut plan.callers {
        // One call's sums follow each other.
        caller.outstanding = 1;
        let pause = caller.steps.first().map(|step| step.pause).unwrap_or_default();
        caller.steps = shape
            .iter()
            .map(|&(len, size)| {
                let size = if random.percent(10) { size * 100 } else { size };
                let lanes: Vec<i64> = (0..len).map(|_| random.range(0..=2 * size as u64) as i64 - size).collect();
                let operation = Operation::Sum {
                    lanes: lanes.into(),
                    modify: Modify::default(),
                    threshold: workers,
                    to: ForwardTarget::All,
                };
                Step { pause, ..Step::call(operation) }
            })
            .collect();
    }
}
