//! Reads by callers: in some applications that add, callers read a few keys between their additions.

use std::time::Duration;

use pathcall_endpoint::map::{Key, Operation, ReadMode};
use pathcall_wire::{Instant, OpType};

use super::{ApplicationPlan, MemoryMove, Purpose, Step, StepWork, marked};
use crate::random::Random;

/// Draws the reads of an application. In some, the memory is given anew; or the owner gives up the element, and the
/// element and some callers hear of it late. The change of the memory is returned, for the application with this index.
pub(super) fn draw(random: &mut Random, plan: &mut ApplicationPlan, application: usize) -> Option<MemoryMove> {
    let (some, grows) = (random.percent(50), random.percent(70));
    if plan.purpose != Purpose::Add || !some {
        return None;
    }
    let (moves, stays) = (plan.memory.is_some() && random.percent(25), random.percent(40));
    if moves {
        // Additions and queries would end the generation whose values are read.
        plan.eviction = None;
        plan.queries.clear();
    }
    let steps = plan.callers.iter_mut().flat_map(|caller| &mut caller.steps);
    for step in steps.filter(|_| grows) {
        raise(step);
    }
    let mut keys: Vec<Key> = plan.callers.iter().flat_map(|caller| &caller.steps).flat_map(keys_of).collect();
    // Not the keys that show whether a call took effect, or that one call only can add to.
    keys.retain(|key| !marked(key) && key.as_str() != Some("full"));
    keys.sort_unstable();
    keys.dedup();
    random.shuffle(&mut keys);
    keys.truncate(if moves { 1 } else { random.pick(&[1, 2, 5, 40]) });
    let hot = moves || random.percent(60);
    let additions = plan.callers.iter_mut().flat_map(|caller| &mut caller.steps);
    for step in additions.filter(|step| hot && step.cancel_after.is_none() && !keys.is_empty()) {
        heat(step, &keys[random.index(keys.len())], random.range(1..=9) as i64);
    }
    // A key without a value.
    keys.push(Key::from("never added"));
    let mode = random.pick(&[ReadMode::Linearizable, ReadMode::Linearizable, ReadMode::Recent]);
    let most = random.pick(&[0, 0, 1_000, 30_000].map(Duration::from_micros));
    let pause = if moves { Duration::from_millis(30) } else { most };
    if moves || pause >= Duration::from_millis(30) {
        // Callers add and read for as long as elements fail and memory moves.
        let additions = plan.callers.iter_mut().flat_map(|caller| &mut caller.steps);
        additions.for_each(|step| step.pause += random.up_to(pause));
    }
    for caller in &mut plan.callers {
        for _ in 0..random.pick(&[0, 3, 20, 100]) {
            let count = random.range(1..=keys.len().min(4) as u64) as usize;
            random.shuffle(&mut keys);
            let step = Step::call(Operation::Read { keys: keys[..count].to_vec(), read: mode });
            let at = random.index(caller.steps.len() + 1);
            caller.steps.insert(at, Step { pause: random.up_to(pause), ..step });
        }
    }
    let (memory, delay) = if stays { (plan.memory, Duration::ZERO) } else { (None, Duration::from_millis(500)) };
    moves.then(|| MemoryMove {
        at: Instant(0) + random.up_to(Duration::from_millis(300)),
        application,
        memory,
        element_notified_after: stays.then_some(Duration::ZERO),
        message_delay_max: delay,
    })
}

/// Makes the values of an addition positive: then no read may see less than an earlier one.
fn raise(step: &mut Step) {
    if let StepWork::Call(Operation::Add { pairs, modify, .. }) = &mut step.work
        && modify.op == OpType::Nop
    {
        pairs.iter_mut().for_each(|(_, value)| *value = value.saturating_abs());
    }
}

/// Lets an addition use a key that is read.
fn heat(step: &mut Step, key: &Key, value: i64) {
    if let StepWork::Call(Operation::Add { pairs, .. }) = &mut step.work
        && pairs.iter().all(|(other, _)| other != key)
    {
        pairs.push((key.clone(), value));
    }
}

fn keys_of(step: &Step) -> Vec<Key> {
    match &step.work {
        StepWork::Call(Operation::Add { pairs, .. }) => pairs.iter().map(|(key, _)| key.clone()).collect(),
        _ => Vec::new(),
    }
}
