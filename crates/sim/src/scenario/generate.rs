//! A scenario from a seed.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_program::Size;
use pathcall_wire::{Instant, KEYED_WIDTH, LINEAR_LANES, Target};

use super::{ApplicationPlan, CallerPlan, ElementFailure, Memory, Purpose, Scenario, Step, keyed, sum};
use crate::link::{Faults, WireSpec};
use crate::random::{Chance, Random};

/// Bytes of a queue that is never full.
const ROOMY: u64 = 10_000_000;

/// What is given out once: endpoints, slots, memory.
#[derive(Default)]
struct Given {
    endpoints: u32,
    slots: u32,
    rows: u32,
    lanes: u32,
}

impl Given {
    fn endpoint(&mut self) -> u32 {
        self.endpoints += 1;
        // Ids that are no indices, so that one can't be taken for the other.
        100 + self.endpoints
    }

    fn slots(&mut self, flows: u32) -> u32 {
        let base = self.slots;
        self.slots += flows;
        base
    }

    fn memory(&mut self, rows: u32, width: u16) -> Memory {
        let memory = Memory { row_base: self.rows, rows, lane_base: self.lanes, width };
        self.rows += rows;
        self.lanes += rows * u32::from(width);
        memory
    }
}

/// The scenario of this seed: loss up to 10 %, repeats up to 5 %, reordering, 1 to 3 applications
/// of 1 to 5 callers each, on an element, on one without memory for them, or on none.
#[must_use]
pub fn generate(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let faults_until = Instant(0) + random.pick(&[200, 2_000, 20_000].map(Duration::from_millis));
    let (wire, faults) = (wire(&mut random), faults(&mut random));
    let with_element = random.happens(Chance::percent(85));
    let mut given = Given::default();
    let count = random.pick(&[1, 1, 2, 3]);
    let applications: Vec<_> = (0..count)
        .map(|index| application(&mut random, index, timing(wire, faults), with_element, &mut given))
        .collect();
    let size = Size { rows: given.rows as usize, lanes: given.lanes as usize, slots: given.slots as usize };
    let failures = if with_element { failures(&mut random, faults_until) } else { Vec::new() };
    Scenario { seed, wire, faults, faults_until, element: with_element.then_some(size), applications, failures }
}

/// Every third element restarts, up to three times, or is gone for good.
fn failures(random: &mut Random, until: Instant) -> Vec<ElementFailure> {
    let mut failures = Vec::new();
    if !random.happens(Chance::percent(33)) {
        return failures;
    }
    let mut at = Instant(0);
    for _ in 0..random.range(1..=3) {
        at = at + random.up_to(until.since(Instant(0)) / 2);
        let down = random.up_to(Duration::from_millis(300));
        failures.push(ElementFailure {
            at,
            down,
            told_after: down + random.up_to(Duration::from_millis(500)),
            word_within: random.pick(&[0, 1, 50, 1_000].map(Duration::from_millis)),
            returns: !random.happens(Chance::percent(15)),
        });
        at = at + Duration::from_secs(1);
    }
    failures
}

fn wire(random: &mut Random) -> WireSpec {
    let delay = random.pick(&[5, 50, 500, 5_000].map(Duration::from_micros));
    let narrow = random.happens(Chance::percent(30));
    WireSpec {
        delay,
        jitter: if random.happens(Chance::percent(50)) { delay / 2 } else { Duration::ZERO },
        rate_bytes: if narrow { 12_500_000 } else { 1_250_000_000 },
        queue_bytes: if narrow { random.range(20_000..=200_000) } else { ROOMY },
        mark_bytes: if narrow { random.range(5_000..=40_000) } else { 200_000 },
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut chance = |percent: u64| match random.below(4) {
        0 => Chance(0),
        1 => Chance(random.below(10_000) as u32),
        _ => Chance(random.below(percent * 10_000 + 1) as u32),
    };
    let (loss, repeat, reorder) = (chance(10), chance(5), chance(30));
    Faults {
        loss,
        repeat,
        repeat_within: random.pick(&[1, 100, 5_000].map(Duration::from_millis)),
        reorder,
        reorder_within: random.pick(&[1, 20].map(Duration::from_millis)),
    }
}

fn application(
    random: &mut Random,
    index: u32,
    timing: Timing,
    with_element: bool,
    given: &mut Given,
) -> ApplicationPlan {
    let callers = random.range(1..=5) as usize;
    let purpose = purpose(random, callers);
    let holds_memory = matches!(purpose, Purpose::Sum | Purpose::Add);
    let memory = (with_element && holds_memory && random.happens(Chance::percent(90))).then(|| {
        let width = if purpose == Purpose::Sum { sum_width(random) } else { KEYED_WIDTH as u16 };
        let rows = random.pick(&[1, 2, 3, 5, 16, 64, 300]);
        given.memory(rows, width)
    });
    let width = memory
        .map_or(if purpose == Purpose::Sum { sum_width(random) } else { KEYED_WIDTH as u16 }, |memory| memory.width);
    let mut doom = None;
    let (steps, set) = match purpose {
        Purpose::Sum => {
            let scale = sum::Scale {
                width,
                chunks_max: random.pick(&[3, 20, 20, 80, 600 / callers as u64]),
                calls: random.range(1..=6),
            };
            let (steps, why) = sum::steps(random, callers, scale);
            doom = why;
            (steps, None)
        }
        Purpose::Add | Purpose::AddGet => {
            let set = keyed::key_set(random);
            (keyed::additions(random, &set, callers, purpose == Purpose::AddGet), Some(set))
        }
        Purpose::Count { threshold, to } => (keyed::counts(random, callers, threshold, to), None),
        Purpose::Lock => (keyed::locks(random, callers), None),
    };
    let queries = set.map(|set| keyed::queries(random, &set)).unwrap_or_default();
    // A worker that comes after the others' give-up time must still find them waiting.
    let joins_within = random.pick(&[0, 0, 1, 1, 50, 50, 50, 9_000].map(Duration::from_millis));
    let habits = Habits {
        // An element that knows the callers but has no memory for the application passes on what they send.
        through: with_element && holds_memory && (memory.is_some() || random.happens(Chance::percent(30))),
        strangers: if random.happens(Chance::percent(10)) { Chance::percent(40) } else { Chance(0) },
        joins_within,
        in_order: purpose == Purpose::Sum && random.happens(Chance::percent(50)),
    };
    ApplicationPlan {
        gaid: 1000 + index,
        epoch: random.range(1..=5) as u32,
        endpoint: given.endpoint(),
        incarnation: random.bits() as u32 | 1,
        memory,
        width,
        purpose,
        doom,
        timing,
        callers: steps.into_iter().map(|steps| caller(random, steps, habits, given)).collect(),
        queries,
    }
}

/// Time-outs as they are by default; but where much is lost, nobody gives up.
fn timing(wire: WireSpec, faults: Faults) -> Timing {
    let quiet = faults.loss <= Chance::percent(2) && wire.queue_bytes >= ROOMY;
    if quiet { Timing::default() } else { Timing { give_up: Duration::from_secs(3600), ..Timing::default() } }
}

fn purpose(random: &mut Random, callers: usize) -> Purpose {
    match random.below(100) {
        0..40 => Purpose::Sum,
        40..68 => Purpose::Add,
        68..78 => Purpose::AddGet,
        // A threshold of 1 is test-and-set: a lock.
        78..88 if callers > 1 => {
            let to = random.pick(&[Target::All, Target::All, Target::Src, Target::Server]);
            Purpose::Count { threshold: random.range(2..=callers as u64) as u32, to }
        }
        _ => Purpose::Lock,
    }
}

/// Mostly the default profile's; narrow rows make many frames of few lanes.
fn sum_width(random: &mut Random) -> u16 {
    match random.below(10) {
        0..5 => LINEAR_LANES as u16,
        5 => random.range(129..=255) as u16,
        6 => 128,
        7 => random.pick(&[1, 2, 3]),
        _ => random.range(4..=40) as u16,
    }
}

/// What the callers of an application have in common.
#[derive(Clone, Copy)]
struct Habits {
    /// They send by the element.
    through: bool,
    /// The element does not know them, and they send past it.
    strangers: Chance,
    joins_within: Duration,
    /// One call at a time at all of them.
    in_order: bool,
}

fn caller(random: &mut Random, steps: Vec<Step>, habits: Habits, given: &mut Given) -> CallerPlan {
    let flows = random.pick(&[1, 1, 2, 4]);
    let through = habits.through && !random.happens(habits.strangers);
    CallerPlan {
        endpoint: given.endpoint(),
        incarnation: random.bits() as u32 | 1,
        slot_base: given.slots(flows),
        flows,
        registered: through,
        by_element: through,
        joins: Instant(0) + random.up_to(habits.joins_within),
        outstanding: if habits.in_order { 1 } else { random.pick(&[1, 2, 8, 100]) },
        steps,
    }
}
