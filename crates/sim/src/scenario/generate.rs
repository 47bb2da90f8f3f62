//! A scenario from a seed.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_program::Size;
use pathcall_wire::{Instant, KEYED_WIDTH, LINEAR_LANES, Target};

use super::weather::Weather;
use super::{ApplicationPlan, CallerPlan, Death, Memory, Purpose, Scenario, Step, keyed, sum, votes};
use crate::random::{Chance, Random};

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

/// The scenario of this seed: 1 to 5 applications of 1 to 5 callers each, on an element, on one
/// without memory for them, or on none; and the weather that they have.
#[must_use]
pub fn generate(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let weather = Weather::draw(&mut random);
    let with_element = random.happens(Chance::percent(85));
    let mut given = Given::default();
    let count = random.pick(&[1, 1, 2, 3, 5]);
    let applications: Vec<_> =
        (0..count).map(|index| application(&mut random, index, weather.timing(), with_element, &mut given)).collect();
    let size = Size { rows: given.rows as usize, lanes: given.lanes as usize, slots: given.slots as usize };
    let mut scenario = Scenario {
        seed,
        wire: weather.wire,
        faults: weather.faults,
        faults_until: weather.faults_until,
        element: with_element.then_some(size),
        applications,
        ..Scenario::default()
    };
    weather.break_over(&mut random, &mut scenario);
    scenario
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
    let holds_memory = !matches!(purpose, Purpose::AddGet);
    let mut row_width = || match purpose {
        Purpose::Sum => sum_width(random),
        // A lock and a ballot take a row and no lanes.
        Purpose::Lock | Purpose::Count { .. } => 1,
        _ => KEYED_WIDTH as u16,
    };
    let widths = [row_width(), row_width()];
    let memory = (with_element && holds_memory && random.happens(Chance::percent(90))).then(|| {
        let width = widths[0];
        let rows = random.pick(&[1, 2, 3, 5, 16, 64, 300]);
        given.memory(rows, width)
    });
    let width = memory.map_or(widths[1], |memory| memory.width);
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
            (keyed::additions(random, &set, callers, purpose == Purpose::AddGet, memory.is_none()), Some(set))
        }
        Purpose::Count { threshold, to } => (votes::steps(random, callers, threshold, to), None),
        Purpose::Lock => (keyed::locks(random, callers), None),
    };
    let queries = set.map(|set| keyed::queries(random, &set)).unwrap_or_default();
    // A worker that comes after the others' give-up time must still find them waiting.
    let joins_within = random.pick(&[0, 0, 1, 1, 50, 50, 50, 9_000].map(Duration::from_millis));
    let habits = Habits {
        // An element that knows the callers but has no memory for the application passes on what they send.
        through: with_element && holds_memory && (memory.is_some() || random.happens(Chance::percent(30))),
        // Locks and ballots leave the element when somebody can't reach it; here nobody would see to that.
        strangers: if !matches!(purpose, Purpose::Lock | Purpose::Count { .. }) && random.happens(Chance::percent(10)) {
            Chance::percent(40)
        } else {
            Chance(0)
        },
        joins_within,
        in_order: purpose == Purpose::Sum && random.happens(Chance::percent(50)),
    };
    let mut callers: Vec<_> = steps.into_iter().map(|steps| caller(random, steps, habits, given)).collect();
    if purpose != Purpose::Sum && random.happens(Chance::percent(20)) {
        kill(random, &mut callers, given);
    }
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
        callers,
        queries,
    }
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
        dies: None,
        succeeds: None,
        outstanding: if habits.in_order { 1 } else { random.pick(&[1, 2, 8, 100]) },
        steps,
    }
}

/// Kills a caller's process; a new one with its slots does a part of what it did.
fn kill(random: &mut Random, callers: &mut Vec<CallerPlan>, given: &mut Given) {
    let (killed, within) = (random.index(callers.len()), random.pick(&[1, 20, 300].map(Duration::from_millis)));
    let death =
        Death { at: Instant(0) + random.up_to(within), noticed_after: random.up_to(Duration::from_millis(500)) };
    callers[killed].dies = Some(death);
    let mut successor = CallerPlan {
        endpoint: given.endpoint(),
        incarnation: random.bits() as u32 | 1,
        joins: death.at + death.noticed_after + random.up_to(Duration::from_millis(20)),
        dies: None,
        succeeds: Some(killed),
        ..callers[killed].clone()
    };
    // What may be cancelled is marked by a key of its own: once is enough.
    successor.steps.retain(|step| step.cancel_after.is_none());
    callers.push(successor);
}
