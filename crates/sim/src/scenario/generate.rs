//! Scenario generator.

use std::time::Duration;

use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::{Ack, ClearPolicy, Operation};
use pathcall_program::Size;
use pathcall_wire::{ForwardTarget, Instant, KEYED_WIDTH, LINEAR_LANES, TokenKey};

use super::faults::FaultPlan;
use super::{
    ApplicationPlan, CallerPlan, MemoryMove, ProcessCrash, Purpose, RegisterRange, Scenario, Step, StepWork, keyed,
    sum, votes,
};
use crate::random::{Chance, Random};

/// XOR mask of the seed for tokens.
const TOKENS: u64 = 0x70_6b65;
/// XOR mask of the seed for inline elements.
const WAYS: u64 = 0x77_6179;
/// XOR mask of the seed for clear policies.
const CLEARING: u64 = 0x63_6c72;
/// XOR mask of the seed for callers that leave.
const LEAVING: u64 = 0x6c_6561;
/// Limit on the elements of a scenario.
const ELEMENTS_MAX: usize = 2;

/// Allocator of endpoint ids, slots and memory.
#[derive(Default)]
struct IdAllocator {
    endpoints: u32,
    slots: u32,
    /// Allocated rows and lanes, by element.
    memory: [(u32, u32); ELEMENTS_MAX],
}

impl IdAllocator {
    fn endpoint(&mut self) -> u32 {
        self.endpoints += 1;
        // Ids differ from indexes, so that a mix-up is detected.
        100 + self.endpoints
    }

    fn slots(&mut self, flows: u32) -> u32 {
        let base = self.slots;
        self.slots += flows;
        base
    }

    fn memory(&mut self, element: usize, rows: u32, width: u16) -> RegisterRange {
        let (row_base, lane_base) = self.memory[element];
        self.memory[element] = (row_base + rows, lane_base + rows * u32::from(width));
        RegisterRange { element, row_base, rows, lane_base, width }
    }
}

/// Generates the scenario of this seed: 1 to 5 applications of 1 to 5 callers each, on an element, on one without
/// memory for them, or without an element; and its faults.
#[must_use]
pub fn generate(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let fault_plan = FaultPlan::draw(&mut random);
    let with_element = random.happens(Chance::percent(85));
    let elements = if with_element { random.pick(&[1, 1, ELEMENTS_MAX]) } else { 0 };
    let mut ids = IdAllocator::default();
    let count = random.pick(&[1, 1, 2, 3, 5]);
    let applications: Vec<_> =
        (0..count).map(|index| application(&mut random, index, fault_plan.timing(), elements, &mut ids)).collect();
    let moves = moves(&mut random, &applications, elements, &fault_plan, &mut ids);
    let slots = ids.slots as usize;
    let size = |(rows, lanes): (u32, u32)| Size { rows: rows as usize, lanes: lanes as usize, slots };
    let mut scenario = Scenario {
        seed,
        wire: fault_plan.wire,
        faults: fault_plan.faults,
        faults_until: fault_plan.faults_until,
        elements: ids.memory[..elements].iter().map(|memory| size(*memory)).collect(),
        applications,
        moves,
        ..Scenario::default()
    };
    fault_plan.apply_to(&mut random, &mut scenario);
    acknowledge_by_server(&mut random, &mut scenario);
    let mut random = Random::new(seed ^ TOKENS);
    for application in &mut scenario.applications {
        let key = TokenKey::new([random.bits(), random.bits()]);
        application.token_key = random.happens(Chance::percent(40)).then_some(key);
    }
    let mut random = Random::new(seed ^ CLEARING);
    for application in scenario.applications.iter_mut().filter(|plan| plan.purpose == Purpose::Sum) {
        let shadow = random.happens(Chance::percent(45));
        application.clear = if shadow { ClearPolicy::Shadow } else { ClearPolicy::Copy };
    }
    leave(&mut Random::new(seed ^ LEAVING), &mut scenario);
    let mut random = Random::new(seed ^ WAYS);
    if random.happens(Chance::percent(45)) {
        scenario.inline = true;
        fault_plan.add_detours(&mut random, &mut scenario);
    }
    scenario
}

/// In some applications callers close and leave when they have done all steps. Not in those that sum: their workers
/// stay to the last round.
fn leave(random: &mut Random, scenario: &mut Scenario) {
    for plan in scenario.applications.iter_mut().filter(|plan| plan.purpose != Purpose::Sum) {
        let (some, within) =
            (random.happens(Chance::percent(40)), random.pick(&[0, 1, 500].map(Duration::from_millis)));
        for caller in plan.callers.iter_mut().filter(|caller| some && caller.crash.is_none()) {
            caller.leaves = random.happens(Chance::percent(70)).then(|| random.up_to(within));
        }
    }
}

/// In some applications that add, the server acknowledges: no addition that was reported done may be lost. In half of
/// them a caller dies near the time when the element fails.
fn acknowledge_by_server(random: &mut Random, scenario: &mut Scenario) {
    for plan in scenario.applications.iter_mut().filter(|plan| plan.purpose == Purpose::Add) {
        if !random.happens(Chance::percent(30)) {
            continue;
        }
        plan.ack = Ack::Server;
        for step in plan.callers.iter_mut().flat_map(|caller| &mut caller.steps) {
            if let StepWork::Call(Operation::Add { ack, .. }) = &mut step.work {
                *ack = Ack::Server;
            }
        }
        if let Some(failure) = scenario.failures.first()
            && random.happens(Chance::percent(50))
            && plan.callers.iter().all(|caller| caller.crash.is_none())
        {
            let (about, noticed) = (Duration::from_millis(20), Duration::from_millis(500));
            let at = Instant(failure.at.0.saturating_sub(about.as_nanos() as u64 / 2)) + random.up_to(about);
            let killed = random.index(plan.callers.len());
            plan.callers[killed].crash = Some(ProcessCrash { at, detected_after: random.up_to(noticed) });
        }
    }
}

fn application(
    random: &mut Random,
    index: u32,
    timing: FlowTiming,
    elements: usize,
    ids: &mut IdAllocator,
) -> ApplicationPlan {
    let with_element = elements > 0;
    let callers = random.range(1..=5) as usize;
    let purpose = purpose(random, callers);
    let holds_memory = !matches!(purpose, Purpose::AddGet);
    let mut row_width = || match purpose {
        Purpose::Sum => sum_width(random),
        // A lock and a ballot take a row without lanes.
        Purpose::Lock | Purpose::Count { .. } => 1,
        _ => KEYED_WIDTH as u16,
    };
    let widths = [row_width(), row_width()];
    let memory = (with_element && holds_memory && random.happens(Chance::percent(90))).then(|| {
        let width = widths[0];
        let rows = random.pick(&[1, 2, 3, 5, 16, 64, 300]);
        ids.memory(random.index(elements), rows, width)
    });
    let width = memory.map_or(widths[1], |memory| memory.width);
    let mut expected_error = None;
    let (steps, set) = match purpose {
        Purpose::Sum => {
            let scale = sum::Scale {
                width,
                chunks_max: random.pick(&[3, 20, 20, 80, 600 / callers as u64]),
                calls: random.range(1..=6),
            };
            let (steps, why) = sum::steps(random, callers, scale);
            expected_error = why;
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
    // A worker that joins after the others' give-up timeout must still find them waiting.
    let joins_within = random.pick(&[0, 0, 1, 1, 50, 50, 50, 9_000].map(Duration::from_millis));
    let defaults = CallerDefaults {
        // An element that knows the callers but has no memory for the application forwards their frames.
        through: with_element && holds_memory && (memory.is_some() || random.happens(Chance::percent(30))),
        // The owner takes locks out of the element when a caller cannot reach it; the simulator does not do that.
        strangers: if purpose != Purpose::Lock && random.happens(Chance::percent(10)) {
            Chance::percent(40)
        } else {
            Chance(0)
        },
        joins_within,
        in_order: purpose == Purpose::Sum && random.happens(Chance::percent(50)),
    };
    let mut callers: Vec<_> = steps.into_iter().map(|steps| caller(random, steps, defaults, ids)).collect();
    let may_be_killed = match purpose {
        Purpose::Add | Purpose::AddGet | Purpose::Lock | Purpose::Count { .. } => true,
        Purpose::Sum => {
            expected_error.is_none() && !callers.iter().flat_map(|caller| &caller.steps).any(|step| step.may_never_end)
        }
    };
    if may_be_killed && random.happens(Chance::percent(20)) {
        let unnoticed = purpose == Purpose::Lock && random.happens(Chance::percent(50));
        if unnoticed { hang(random, &mut callers) } else { kill(random, &mut callers, ids) }
    }
    ApplicationPlan {
        gaid: 1000 + index,
        epoch: random.range(1..=5) as u32,
        endpoint: ids.endpoint(),
        incarnation: random.bits() as u32 | 1,
        token_key: None,
        memory,
        width,
        eviction: (purpose == Purpose::Add).then(|| keyed::eviction(random)).flatten(),
        purpose,
        ack: Ack::Element,
        clear: ClearPolicy::Copy,
        expected_error,
        timing,
        lease: random.pick(&[100, 100, 300, 1_000, 5_000].map(Duration::from_millis)),
        callers,
        queries,
    }
}

/// Draws changes of the memory of some applications during the run.
fn moves(
    random: &mut Random,
    applications: &[ApplicationPlan],
    elements: usize,
    fault_plan: &FaultPlan,
    ids: &mut IdAllocator,
) -> Vec<MemoryMove> {
    let mut moves = Vec::new();
    for (application, plan) in applications.iter().enumerate() {
        let Some(first) = plan.memory.filter(|_| random.happens(Chance::percent(25))) else { continue };
        for _ in 0..random.range(1..=3) {
            let rows = random.pick(&[first.rows, first.rows, first.rows.div_ceil(2), 1, first.rows * 2]);
            let memory = ids.memory(random.index(elements), rows, first.width);
            let all = fault_plan.faults_until.since(Instant(0));
            let within = random.pick(&[all.min(Duration::from_millis(50)), all]);
            moves.push(MemoryMove {
                at: Instant(0) + random.up_to(within),
                application,
                memory: (!random.happens(Chance::percent(20))).then_some(memory),
                element_notified_after: random.pick(&[Some(0), Some(1), Some(300), None]).map(Duration::from_millis),
                message_delay_max: fault_plan.message_delay_max(random),
            });
        }
    }
    moves.sort_by_key(|change| change.at);
    moves
}

fn purpose(random: &mut Random, callers: usize) -> Purpose {
    match random.below(100) {
        0..40 => Purpose::Sum,
        40..68 => Purpose::Add,
        68..78 => Purpose::AddGet,
        // A threshold of 1 is test-and-set, which is a lock.
        78..88 if callers > 1 => {
            let to =
                random.pick(&[ForwardTarget::All, ForwardTarget::Src, ForwardTarget::Server, ForwardTarget::Server]);
            Purpose::Count { threshold: random.range(2..=callers as u64) as u32, to }
        }
        _ => Purpose::Lock,
    }
}

/// Row width: mostly that of the default profile; narrow rows give many frames of few lanes.
fn sum_width(random: &mut Random) -> u16 {
    match random.below(10) {
        0..5 => LINEAR_LANES as u16,
        5 => random.range(129..=255) as u16,
        6 => 128,
        7 => random.pick(&[1, 2, 3]),
        _ => random.range(4..=40) as u16,
    }
}

/// Properties that the callers of an application share.
#[derive(Clone, Copy)]
struct CallerDefaults {
    /// Whether they send through the element.
    through: bool,
    /// Chance that the element does not know a caller, which then bypasses it.
    strangers: Chance,
    joins_within: Duration,
    /// Whether each caller makes one call at a time.
    in_order: bool,
}

fn caller(random: &mut Random, steps: Vec<Step>, defaults: CallerDefaults, ids: &mut IdAllocator) -> CallerPlan {
    let flows = random.pick(&[1, 1, 2, 4]);
    let through = defaults.through && !random.happens(defaults.strangers);
    CallerPlan {
        endpoint: ids.endpoint(),
        incarnation: random.bits() as u32 | 1,
        slot_base: ids.slots(flows),
        flows,
        registered: through,
        by_element: through,
        joins: Instant(0) + random.up_to(defaults.joins_within),
        crash: None,
        leaves: None,
        succeeds: None,
        outstanding: if defaults.in_order { 1 } else { random.pick(&[1, 2, 8, 100]) },
        steps,
    }
}

/// Kills a caller's process without detection: only its lease ends its locks.
fn hang(random: &mut Random, callers: &mut [CallerPlan]) {
    let (hung, within) = (random.index(callers.len()), random.pick(&[1, 20, 300].map(Duration::from_millis)));
    let at = Instant(0) + random.up_to(within);
    callers[hung].crash = Some(ProcessCrash { at, detected_after: Duration::from_secs(24 * 3600) });
}

/// Kills a caller's process; a new one takes over its slots and a part of its steps.
fn kill(random: &mut Random, callers: &mut Vec<CallerPlan>, ids: &mut IdAllocator) {
    let (killed, within) = (random.index(callers.len()), random.pick(&[1, 20, 300].map(Duration::from_millis)));
    let death = ProcessCrash {
        at: Instant(0) + random.up_to(within),
        detected_after: random.up_to(Duration::from_millis(500)),
    };
    callers[killed].crash = Some(death);
    let mut successor = CallerPlan {
        endpoint: ids.endpoint(),
        incarnation: random.bits() as u32 | 1,
        joins: death.at + death.detected_after + random.up_to(Duration::from_millis(20)),
        crash: None,
        succeeds: Some(killed),
        ..callers[killed].clone()
    };
    // A cancellable call is marked by a key of its own, so it may be made only once.
    successor.steps.retain(|step| step.cancel_after.is_none());
    for step in &mut successor.steps {
        // Other values than the predecessor's, so that a sum shows whose part it contains.
        if let StepWork::Call(Operation::Sum { lanes, .. }) = &mut step.work {
            *lanes = lanes.iter().map(|value| !value).collect();
        }
    }
    callers.push(successor);
}
