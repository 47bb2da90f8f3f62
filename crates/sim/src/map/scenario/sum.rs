//! Generator of SyncAgtr calls: equal array lengths at all workers, and values of every size.

use std::time::Duration;

use pathcall_endpoint::map::{ClearPolicy, Modify, Operation};
use pathcall_wire::{ForwardTarget, OpType};

use super::{ApplicationPlan, ExpectedError, Purpose, Step, StepWork};
use crate::map::HandlerPlan;
use crate::random::Random;

/// Operators of NetRPC Table 8.
const OPERATORS: [OpType; 11] = [
    OpType::Nop,
    OpType::Max,
    OpType::Min,
    OpType::Add,
    OpType::Assign,
    OpType::ShiftL,
    OpType::ShiftR,
    OpType::Band,
    OpType::Bor,
    OpType::Bnot,
    OpType::Bxor,
];

/// Distribution of the values of one worker's array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// A few digits.
    Small,
    /// The full range of 32 bits.
    Full,
    /// Values near the limits of 32 bits, so that sums exceed them.
    Extreme,
    /// Small values, and a few that need more than 32 bits.
    Wide,
}

/// Size of an application's calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) width: u16,
    /// Limit on the chunks of an array.
    pub(super) chunks_max: u64,
    pub(super) calls: u64,
}

/// Draws the steps of all workers, by worker, and the error that they end in, if any.
pub(super) fn steps(random: &mut Random, workers: usize, scale: Scale) -> (Vec<Vec<Step>>, Option<ExpectedError>) {
    let mut steps = vec![Vec::new(); workers];
    let most_pause = random.pick(&[Duration::ZERO, Duration::from_millis(1), Duration::from_millis(30)]);
    for _ in 0..scale.calls {
        let len = length(random, scale);
        let modify = modify(random);
        let usual = spread(random);
        for steps in &mut steps {
            let own = if random.percent(20) { spread(random) } else { usual };
            let lanes = lanes(random, len, own, modify);
            let operation =
                Operation::Sum { lanes: lanes.into(), modify, threshold: workers as u32, to: ForwardTarget::All };
            steps.push(Step { pause: random.up_to(most_pause), ..Step::call(operation) });
        }
    }
    let expected_error = match random.below(100) {
        0..10 => {
            cancel_last_calls(random, &mut steps);
            None
        }
        10..16 if workers > 1 => Some(disagree(random, &mut steps)),
        16..22 if workers > 1 => Some(overflow(random, &mut steps)),
        _ => None,
    };
    (steps, expected_error)
}

/// Passes the sums of some applications with clear policy *copy* to a handler, which decides the results.
pub(super) fn handle(random: &mut Random, plan: &mut ApplicationPlan) {
    let fits = plan.purpose == Purpose::Sum && plan.clear == ClearPolicy::Copy && plan.gradients.is_none();
    if !random.percent(40) || !fits {
        return;
    }
    // Some take longer than workers wait for a silent server.
    let times = [0, 0, 1, 1, 30, 200, 7_000].map(Duration::from_millis);
    // A worker that replaces another one begins in the middle of a call, so its calls have other chunks.
    let lasts = plan.callers.iter().all(|caller| caller.crash.is_none());
    plan.handler = Some(HandlerPlan { time_max: random.pick(&times), whole: random.percent(50) && lasts });
    for step in plan.callers.iter_mut().flat_map(|caller| &mut caller.steps) {
        if let StepWork::Call(Operation::Sum { to, .. }) = &mut step.work {
            *to = ForwardTarget::Server;
        }
    }
}

/// Makes some workers cancel their last call; no later call can disagree with the others.
fn cancel_last_calls(random: &mut Random, steps: &mut [Vec<Step>]) {
    for last in steps.iter_mut().filter_map(|steps| steps.last_mut()) {
        last.may_never_end = true;
        if random.percent(40) {
            last.cancel_after = Some(random.up_to(Duration::from_millis(20)));
        }
    }
}

/// Makes one worker's last array longer than the others'.
fn disagree(random: &mut Random, steps: &mut [Vec<Step>]) -> ExpectedError {
    let (odd, workers) = (random.index(steps.len()), steps.len());
    for (worker, steps) in steps.iter_mut().enumerate() {
        let len = 300 + usize::from(worker == odd);
        steps.push(last(vec![1; len], workers));
    }
    ExpectedError::Disagree
}

/// Makes the last sums exceed 64 bits in one lane.
fn overflow(random: &mut Random, steps: &mut [Vec<Step>]) -> ExpectedError {
    let (lane, workers) = (random.index(300), steps.len());
    for steps in steps {
        let mut lanes = vec![1; 300];
        lanes[lane] = i64::MAX - 1;
        steps.push(last(lanes, workers));
    }
    ExpectedError::Overflow
}

fn last(lanes: Vec<i64>, workers: usize) -> Step {
    Step::call(Operation::Sum {
        lanes: lanes.into(),
        modify: Modify::default(),
        threshold: workers as u32,
        to: ForwardTarget::All,
    })
}

fn length(random: &mut Random, scale: Scale) -> usize {
    let width = u64::from(scale.width);
    let longest = width * scale.chunks_max;
    let len = match random.below(10) {
        0 => random.pick(&[0, 1, 2, 3]),
        1 => random.pick(&[width - 1, width, width + 1]),
        2 => random.pick(&[255, 256, 257]),
        3 => random.pick(&[127, 128, 129]),
        4 | 5 => random.range(1..=longest),
        6 => longest,
        _ => random.range(1..=longest.min(4 * width)),
    };
    len.min(longest) as usize
}

/// Draws an operator and an operand; mostly none.
pub(super) fn modify(random: &mut Random) -> Modify {
    if random.percent(70) {
        return Modify::default();
    }
    let para = match random.below(4) {
        0 => random.below(40) as i32,
        1 => random.bits() as i32,
        2 => random.pick(&[i32::MAX, i32::MIN, -1, 0]),
        _ => random.below(2000) as i32 - 1000,
    };
    Modify { op: random.pick(&OPERATORS), para }
}

fn spread(random: &mut Random) -> Spread {
    match random.below(10) {
        0..5 => Spread::Small,
        5..8 => Spread::Full,
        8 => Spread::Extreme,
        _ => Spread::Wide,
    }
}

fn lanes(random: &mut Random, len: usize, spread: Spread, modify: Modify) -> Vec<i64> {
    // Operators are 32 bits wide.
    let spread = if spread == Spread::Wide && modify.op != OpType::Nop { Spread::Full } else { spread };
    (0..len).map(|_| lane(random, spread)).collect()
}

fn lane(random: &mut Random, spread: Spread) -> i64 {
    match spread {
        Spread::Small => random.below(2001) as i64 - 1000,
        Spread::Full => i64::from(random.bits() as i32),
        Spread::Extreme => {
            let ends = [i32::MAX, i32::MAX - 1, i32::MIN, i32::MIN + 1, 0, 1, -1];
            i64::from(random.pick(&ends))
        }
        Spread::Wide if random.below(50) == 0 => {
            // There are at most 5 workers, so the sum stays within 64 bits.
            let ends = [1 << 60, -(1 << 60), 1 << 31, -(1 << 31) - 1, (1 << 40) + 7];
            random.pick(&ends)
        }
        Spread::Wide => lane(random, Spread::Small),
    }
}
