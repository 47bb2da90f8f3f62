//! Scenario generator.

use std::time::Duration;

use pathcall_endpoint::map::{Ack, ClearPolicy, Operation};
use pathcall_program::Size;
use pathcall_wire::{ForwardTarget, Instant, TokenKey};

use super::application;
use super::faults::FaultPlan;
use super::gradient;
use super::read;
use super::sum;
use super::votes;
use super::{ApplicationPlan, MemoryMove, OwnerCrash, ProcessCrash, Purpose, RegisterRange, Scenario, StepWork};
use crate::map::StorePlan;
use crate::random::Random;

/// XOR mask of the seed for tokens.
const TOKENS: u64 = 0x70_6b65;
/// XOR mask of the seed for inline elements.
const WAYS: u64 = 0x77_6179;
/// XOR mask of the seed for clear policies.
const CLEARING: u64 = 0x63_6c72;
/// XOR mask of the seed for the rows of sums, and for the clear policy *lazy*.
const ROWS: u64 = 0x72_6f77;
/// XOR mask of the seed for gradients.
const GRADIENTS: u64 = 0x67_7261;
/// XOR mask of the seed for votes.
const VOTING: u64 = 0x76_6f74;
/// XOR mask of the seed for callers that leave.
const LEAVING: u64 = 0x6c_6561;
/// XOR mask of the seed for owners with a store, and their ends.
const STORES: u64 = 0x73_746f;
/// XOR mask of the seed for sums whose results a handler decides.
const HANDLERS: u64 = 0x68_616e;
/// XOR mask of the seed for reads by callers.
const READS: u64 = 0x72_6561;
/// XOR mask of the seed for votes to the server for several keys.
const BALLOTS: u64 = 0x62_616c;
/// Limit on the elements of a scenario.
const ELEMENTS_MAX: usize = 2;

/// Allocator of endpoint ids, slots and memory.
#[derive(Default)]
pub(super) struct IdAllocator {
    endpoints: u32,
    slots: u32,
    /// Allocated rows and lanes, by element.
    memory: [(u32, u32); ELEMENTS_MAX],
}

impl IdAllocator {
    pub(super) fn endpoint(&mut self) -> u32 {
        self.endpoints += 1;
        // Ids differ from indexes, so that a mix-up is detected.
        100 + self.endpoints
    }

    pub(super) fn slots(&mut self, flows: u32) -> u32 {
        let base = self.slots;
        self.slots += flows;
        base
    }

    pub(super) fn memory(&mut self, element: usize, rows: u32, width: u16) -> RegisterRange {
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
    let with_element = random.percent(85);
    let elements = if with_element { random.pick(&[1, 1, ELEMENTS_MAX]) } else { 0 };
    let mut ids = IdAllocator::default();
    let count = random.pick(&[1, 1, 2, 3, 5]);
    let applications: Vec<_> = (0..count)
        .map(|index| application::draw(&mut random, index, fault_plan.timing(), elements, &mut ids))
        .collect();
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
        application.token_key = random.percent(40).then_some(key);
    }
    let mut random = Random::new(seed ^ CLEARING);
    for application in scenario.applications.iter_mut().filter(|plan| plan.purpose == Purpose::Sum) {
        let shadow = random.percent(45);
        application.clear = if shadow { ClearPolicy::Shadow } else { ClearPolicy::Copy };
    }
    let mut random = Random::new(seed ^ ROWS);
    for application in scenario.applications.iter_mut().filter(|plan| plan.purpose == Purpose::Sum) {
        let (lazy, grows) = (random.percent(50), random.percent(40));
        if lazy && application.clear == ClearPolicy::Shadow {
            application.clear = ClearPolicy::Lazy;
        }
        application.rows_max = application.memory.filter(|_| grows).map_or(0, |memory| memory.rows * 2);
    }
    let mut random = Random::new(seed ^ GRADIENTS);
    scenario.applications.iter_mut().for_each(|plan| gradient::draw(&mut random, plan));
    decide_at_server(&mut Random::new(seed ^ VOTING), &mut scenario);
    leave(&mut Random::new(seed ^ LEAVING), &mut scenario);
    let mut random = Random::new(seed ^ WAYS);
    if random.percent(45) {
        scenario.inline = true;
        fault_plan.add_detours(&mut random, &mut scenario);
    }
    end_owners(&mut Random::new(seed ^ STORES), &mut scenario);
    let mut random = Random::new(seed ^ HANDLERS);
    scenario.applications.iter_mut().for_each(|plan| sum::handle(&mut random, plan));
    let mut random = Random::new(seed ^ READS);
    for (index, plan) in scenario.applications.iter_mut().enumerate() {
        scenario.moves.extend(read::draw(&mut random, plan, index));
    }
    scenario.moves.sort_by_key(|change| change.at);
    let mut random = Random::new(seed ^ BALLOTS);
    scenario.applications.iter_mut().for_each(|plan| votes::join(&mut random, plan));
    scenario
}

/// Some applications that add have a store, and their owners end, up to three times each.
fn end_owners(random: &mut Random, scenario: &mut Scenario) {
    let all = scenario.faults_until.since(Instant(0));
    let mut crashes = Vec::new();
    for (application, plan) in scenario.applications.iter_mut().enumerate() {
        if !matches!(plan.purpose, Purpose::Add | Purpose::AddGet) || !random.percent(35) {
            continue;
        }
        let sync_max = random.pick(&[0, 1, 1, 20, 200].map(Duration::from_millis));
        plan.store = Some(StorePlan { sync_max, snapshot_after: random.pick(&[1, 10, 1_000]) });
        let mut at = Instant(0);
        for _ in 0..random.pick(&[0, 1, 1, 2, 3]) {
            // Half of them early, while most calls are in progress.
            let within = if random.percent(50) { all.min(Duration::from_millis(50)) } else { all / 2 };
            let longest = random.pick(&[1, 300, 3_000].map(Duration::from_millis));
            at = at + random.up_to(within);
            let down = random.up_to(longest);
            let noticed_max = random.pick(&[0, 1, 500].map(Duration::from_millis));
            at = at.min(scenario.faults_until);
            crashes.push(OwnerCrash { at, application, down, noticed_max });
            at = at + down;
        }
    }
    crashes.sort_by_key(|crash| crash.at);
    scenario.owner_crashes = crashes;
}

/// In some applications callers close and leave when they have done all steps. Not in those that sum: their workers
/// stay to the last round.
fn leave(random: &mut Random, scenario: &mut Scenario) {
    for plan in scenario.applications.iter_mut().filter(|plan| plan.purpose != Purpose::Sum) {
        let (some, within) = (random.percent(40), random.pick(&[0, 1, 500].map(Duration::from_millis)));
        for caller in plan.callers.iter_mut().filter(|caller| some && caller.crash.is_none()) {
            caller.leaves = random.percent(70).then(|| random.up_to(within));
        }
    }
}

/// In some applications that add, the server acknowledges: no addition that was reported done may be lost. In half of
/// them a caller dies near the time when the element fails.
fn acknowledge_by_server(random: &mut Random, scenario: &mut Scenario) {
    for plan in scenario.applications.iter_mut().filter(|plan| plan.purpose == Purpose::Add) {
        if !random.percent(30) {
            continue;
        }
        plan.ack = Ack::Server;
        for step in plan.callers.iter_mut().flat_map(|caller| &mut caller.steps) {
            if let StepWork::Call(Operation::Add { ack, .. }) = &mut step.work {
                *ack = Ack::Server;
            }
        }
        if let Some(failure) = scenario.failures.first()
            && random.percent(50)
            && plan.callers.iter().all(|caller| caller.crash.is_none())
        {
            let (about, noticed) = (Duration::from_millis(20), Duration::from_millis(500));
            let at = Instant(failure.at.0.saturating_sub(about.as_nanos() as u64 / 2)) + random.up_to(about);
            let killed = random.index(plan.callers.len());
            plan.callers[killed].crash = Some(ProcessCrash { at, detected_after: random.up_to(noticed) });
        }
    }
}

/// In some applications whose callers wait for decisions, the server acknowledges: no decision that a caller got may be
/// lost.
fn decide_at_server(random: &mut Random, scenario: &mut Scenario) {
    for plan in &mut scenario.applications {
        let Purpose::Count { to: ForwardTarget::All | ForwardTarget::Src, .. } = plan.purpose else { continue };
        if !random.percent(30) {
            continue;
        }
        plan.ack = Ack::Server;
        for step in plan.callers.iter_mut().flat_map(|caller| &mut caller.steps) {
            if let StepWork::Call(Operation::Count { ack, .. }) = &mut step.work {
                *ack = Ack::Server;
            }
        }
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
        let Some(first) = plan.memory.filter(|_| random.percent(25)) else { continue };
        for _ in 0..random.range(1..=3) {
            let rows = random.pick(&[first.rows, first.rows, first.rows.div_ceil(2), 1, first.rows * 2]);
            let memory = ids.memory(random.index(elements), rows, first.width);
            let all = fault_plan.faults_until.since(Instant(0));
            let within = random.pick(&[all.min(Duration::from_millis(50)), all]);
            moves.push(MemoryMove {
                at: Instant(0) + random.up_to(within),
                application,
                memory: (!random.percent(20)).then_some(memory),
                element_notified_after: random.pick(&[Some(0), Some(1), Some(300), None]).map(Duration::from_millis),
                message_delay_max: fault_plan.message_delay_max(random),
            });
        }
    }
    moves.sort_by_key(|change| change.at);
    moves
}
