//! Generator of calls on keys: additions, reads and locks.

use std::time::Duration;

use pathcall_endpoint::map::server::EvictionPolicy;
use pathcall_endpoint::map::{Ack, Key, Modify, Operation};
use pathcall_wire::{Instant, OpType};

use super::sum::modify;
use super::{Query, Step, StepWork, keys};
use crate::random::{Chance, Random};

/// First integer of the marker keys. A cancellable call has a marker key of its own, whose value says whether the
/// call took effect.
const MARKER: i64 = 7 << 56;

/// Marker key: only the step with this number adds 1 to it.
fn marker(number: i64) -> Key {
    Key::from(MARKER + number)
}

/// Whether a key is a marker key.
pub(crate) fn marked(key: &Key) -> bool {
    key.as_int().is_some_and(|int| int >= MARKER)
}

/// Value that two callers cannot both add to a key: the second sum would exceed 64 bits.
const MOST: i64 = 3 << 61;
/// Value near the limit, so that sums with 32-bit values may exceed 64 bits.
const BRIM: i64 = i64::MAX - (1 << 31);

/// Draws the keys of an application, few or many.
pub(super) fn key_set(random: &mut Random) -> Vec<Key> {
    let count = match random.below(10) {
        0..4 => random.range(1..=6),
        4..8 => random.range(10..=100),
        _ => random.range(200..=1500),
    };
    keys::draw(random, count as usize)
}

/// Draws the steps of callers that add, by caller. `software`: no register holds any key.
pub(super) fn additions(random: &mut Random, set: &[Key], callers: usize, get: bool, software: bool) -> Vec<Vec<Step>> {
    // Many small calls move a flow's sequence numbers around the window several times while repeats are late.
    let chatty = random.percent(15);
    let (calls, most_keys) = match (chatty, set.len()) {
        (true, _) => (random.range(300..=1_500) / callers as u64, 3),
        (false, 0..=150) => (random.range(1..=30), 150),
        (false, _) => (random.range(1..=6), 400),
    };
    let pauses = if chatty { [0, 0, 100] } else { [0, 1_000, 30_000] };
    let most_pause = random.pick(&pauses.map(Duration::from_micros));
    let large = random.pick(&[Chance(0), Chance::percent(2), Chance::percent(30)]);
    let cancels = random.percent(20);
    let operators = random.percent(30);
    let filling = random.percent(10);
    // Where registers hold a part of a key, the parts may be smaller than their sum.
    let to_the_brim = software && !filling && random.percent(10);
    let mut number = 0;
    let mut steps = vec![Vec::new(); callers];
    for steps in &mut steps {
        for _ in 0..calls {
            number += 1;
            let modify = if operators { modify(random) } else { Modify::default() };
            let narrow = modify.op != OpType::Nop;
            let mut pairs: Vec<_> = keys::choose(random, set, most_keys)
                .into_iter()
                .map(|key| (key, addend(random, large, narrow)))
                .collect();
            let cancel = cancels && !get && modify.op == OpType::Nop && random.percent(20);
            let cancel_after = cancel.then(|| random.up_to(Duration::from_millis(5)));
            if cancel {
                pairs.push((marker(number), 1));
                random.shuffle(&mut pairs);
            }
            if filling && !cancel && !narrow && random.below(calls) < 2 {
                pairs.push((Key::from("full"), MOST));
                random.shuffle(&mut pairs);
            }
            if to_the_brim && !cancel && !narrow {
                let value = if random.below(8) == 0 { BRIM } else { 1 << 30 };
                pairs.push((Key::from("brim"), value));
                random.shuffle(&mut pairs);
            }
            let operation = Operation::Add { pairs, modify, get, ack: Ack::Element };
            steps.push(Step { pause: random.up_to(most_pause), cancel_after, ..Step::call(operation) });
        }
    }
    steps
}

/// Draws the time before keys lose their registers; mostly shorter than is useful.
pub(super) fn eviction(random: &mut Random) -> Option<EvictionPolicy> {
    let window = random.pick(&[0, 1, 10, 100].map(Duration::from_millis));
    let (uses_min, margin) = (random.pick(&[1, 2, 5]), random.pick(&[0, 1, 4]));
    random.percent(80).then_some(EvictionPolicy { window, uses_min, margin })
}

fn addend(random: &mut Random, large: Chance, narrow: bool) -> i64 {
    if !random.happens(large) {
        return random.below(201) as i64 - 100;
    }
    match random.below(4) {
        // Overflow of a register.
        0 | 1 => i64::from(random.pick(&[i32::MAX, i32::MIN, i32::MAX - 1, 1 << 30, -(1 << 30)])),
        2 => i64::from(random.bits() as i32),
        _ if narrow => i64::from(random.bits() as i32),
        _ => random.pick(&[1 << 31, -(1 << 31) - 1, 1 << 45, -(1 << 50)]),
    }
}

/// Draws queries during the calls, by time.
pub(super) fn queries(random: &mut Random, set: &[Key]) -> Vec<Query> {
    let count = random.pick(&[0, 0, 1, 4, 30]);
    let within = random.pick(&[1, 20, 300].map(Duration::from_millis));
    let mut queries: Vec<Query> = (0..count)
        .map(|_| Query {
            at: Instant(0) + random.up_to(within),
            keys: random.percent(50).then(|| keys::choose(random, set, 50)),
        })
        .collect();
    queries.sort_by_key(|query| query.at);
    queries
}

/// Draws the steps of callers that take locks, some of them several at once, some with cancellation.
pub(super) fn locks(random: &mut Random, callers: usize) -> Vec<Vec<Step>> {
    let count = random.pick(&[1, 2, 5]);
    let mut set = keys::draw(random, count);
    if random.percent(20) {
        // Keys so long that a call for several needs as many frames.
        set = (0..count).map(|n| Key::from(format!("{n}-{:0700}", random.below(10)).as_str())).collect();
    }
    let most_keys = random.pick(&[1, 1, 3]);
    let calls = random.range(1..=12);
    let longest = random.pick(&[0, 1, 20, 20, 200].map(Duration::from_millis));
    let impatient = random.pick(&[Chance(0), Chance::percent(20)]);
    let mut steps = vec![Vec::new(); callers];
    for steps in &mut steps {
        for _ in 0..calls {
            let keys = keys::choose(random, &set, most_keys);
            let hold = random.up_to(longest);
            let cancel_after = random.happens(impatient).then(|| random.up_to(Duration::from_millis(10)));
            let work = StepWork::Lock { keys, hold };
            steps.push(Step { work, cancel_after, pause: random.up_to(longest), may_never_end: false });
        }
    }
    steps
}

/// Value that an addition adds: operators are 32 bits wide, additions 64.
pub(crate) fn modified(value: i64, modify: Modify) -> i64 {
    if modify.op == OpType::Nop { value } else { i64::from(modify.op.apply(value as i32, modify.para)) }
}
