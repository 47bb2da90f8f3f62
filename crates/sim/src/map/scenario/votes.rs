//! Generator of calls on ballots: votes of all callers, with clears in between.

use std::time::Duration;

use pathcall_endpoint::map::{Ack, Key, Operation};
use pathcall_wire::ForwardTarget;

use super::{ApplicationPlan, Purpose, Step, StepWork, keys};
use crate::random::{Chance, Random};

/// Draws the steps of callers that vote: each for every key, in rounds that may be cleared.
pub(super) fn steps(random: &mut Random, callers: usize, threshold: u32, to: ForwardTarget) -> Vec<Vec<Step>> {
    let ballots = random.range(1..=15) as usize;
    let most_pause = random.pick(&[Duration::ZERO, Duration::from_millis(5), Duration::from_millis(60)]);
    // `join` makes calls for several keys later.
    let per_call = if to == ForwardTarget::Server { 1 } else { random.pick(&[1, 1, 3, 100]) };
    let mut set = keys::draw(random, ballots * per_call);
    if random.percent(10) {
        // Keys so long that no register holds them.
        set = (0..ballots * per_call).map(|n| Key::from(format!("ballot-{n:040}").as_str())).collect();
    }
    set.truncate(ballots * per_call);
    // A caller that waits for a cleared ballot would wait for the next one, which may never be held.
    let clears = to == ForwardTarget::Server && random.percent(50);
    let clearing = random.pick(&[Chance::percent(5), Chance::percent(25)]);
    let rounds = if clears { random.range(1..=6) } else { 1 };
    let mut steps = vec![Vec::new(); callers];
    for _ in 0..rounds {
        for keys in set.chunks(per_call) {
            for steps in &mut steps {
                let mut keys = keys.to_vec();
                random.shuffle(&mut keys);
                let pause = random.up_to(most_pause);
                if clears && random.happens(clearing) {
                    steps.push(Step {
                        pause,
                        ..Step::call(Operation::Clear { keys: keys.clone(), tokens: Vec::new() })
                    });
                }
                let operation = Operation::Count { keys, threshold, to, ack: Ack::Element };
                steps.push(Step { pause, ..Step::call(operation) });
            }
        }
    }
    steps
}

/// Joins votes to the server that follow each other into calls for several keys, in some applications.
pub(super) fn join(random: &mut Random, plan: &mut ApplicationPlan) {
    let most = random.pick(&[1, 3, 100]);
    if !matches!(plan.purpose, Purpose::Count { to: ForwardTarget::Server, .. }) || random.percent(50) {
        return;
    }
    for caller in &mut plan.callers {
        let mut joined: Vec<Step> = Vec::new();
        for step in caller.steps.drain(..) {
            let last = joined.last_mut().map(|last| &mut last.work);
            match (last, &step.work) {
                (
                    Some(StepWork::Call(Operation::Count { keys, .. })),
                    StepWork::Call(Operation::Count { keys: next, .. }),
                ) if keys.len() < most && !next.iter().any(|key| keys.contains(key)) => keys.extend_from_slice(next),
                _ => joined.push(step),
            }
        }
        caller.steps = joined;
    }
}
