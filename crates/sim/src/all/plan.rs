//! Plan of a combined run, drawn from a seed: the plans of the parts, and the faults that hit all parts.

use std::fmt;
use std::time::Duration;

use pathcall_wire::Instant;

pub use crate::environment::MachineOutage;
use crate::map::scenario::{ElementFailure, Scenario};
use crate::random::Random;
use crate::{clone, delegate, function, map, place};

/// XOR mask of the seed for the common faults.
const SEED_MASK: u64 = 0x616c_6c2e_7061_7274;
/// Offset of map's endpoint ids; clone's begin at 100.
const ENDPOINT_OFFSET: u32 = 10_000;
/// End of the time in which common faults begin.
pub(super) const FAULTS_END: Duration = Duration::from_millis(900);
/// Limit on the requests of delegated calls in one run, so that one seed does not take much longer than others.
const REQUESTS_MAX: usize = 400;

/// Plan of a combined run; a part that was left out is `None`.
#[derive(Clone, PartialEq)]
pub struct CombinedPlan {
    /// Seed of the plan.
    pub seed: u64,
    /// Applications of map.
    pub map: Option<Scenario>,
    /// Pool of servers.
    pub clone: Option<clone::ClonePlan>,
    /// Delegated calls.
    pub delegate: Option<delegate::DelegatePlan>,
    /// Network function.
    pub function: Option<function::FunctionPlan>,
    /// Host with a path selector.
    pub place: Option<place::PlacePlan>,
    /// Whether frames to the element pass the network function first.
    pub front: bool,
    /// Number of machines that the hosts of all parts run on.
    pub machines: usize,
    /// Machine with an accelerator: the work of its servers runs on paths that a selector chooses.
    pub placed: Option<usize>,
    /// Failures of the element.
    pub failures: Vec<ElementFailure>,
    /// Pauses of machines.
    pub pauses: Vec<MachineOutage>,
    /// Times at which a machine neither sends nor receives.
    pub cuts: Vec<MachineOutage>,
    /// Times at which the attacker sends an overheard frame of one part under the ids of another.
    pub strangers: Vec<Instant>,
}

impl fmt::Debug for CombinedPlan {
    /// Leaves out the details of the parts' own plans.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("CombinedPlan");
        parts.field("seed", &self.seed);
        if let Some(map) = &self.map {
            let applications = map.applications.iter().map(|plan| (plan.gaid, plan.purpose, plan.callers.len()));
            parts.field("map", &format_args!("{:?}", applications.collect::<Vec<_>>()));
        }
        if let Some(clone::ClonePlan { servers, callers, calls, incidents, .. }) = &self.clone {
            let (servers, callers, calls) = (servers.len(), callers.len(), calls.len());
            parts.field("clone", &format_args!("{servers} servers, {callers} callers, {calls} calls, {incidents:?}"));
        }
        if let Some(delegate::DelegatePlan { hosts, calls, crashes, .. }) = &self.delegate {
            let requests: usize = calls.iter().map(|call| call.requests.len()).sum();
            let (hosts, calls) = (hosts.len(), calls.len());
            parts.field("delegate", &format_args!("{hosts} hosts, {calls} calls, {requests} requests, {crashes:?}"));
        }
        if let Some(function::FunctionPlan { servers, packets, incidents, .. }) = &self.function {
            let packets = packets.len();
            parts.field("function", &format_args!("{servers} servers, {packets} packets, {incidents:?}"));
        }
        if let Some(place::PlacePlan { hosts, app, strategy, requests, station_faults, .. }) = &self.place {
            let (requests, faults) = (requests.len(), station_faults.len());
            parts.field(
                "place",
                &format_args!("{app:?} on {hosts:?} by {strategy:?}, {requests} requests, {faults} station faults"),
            );
        }
        let Self { front, machines, placed, failures, pauses, cuts, strangers, .. } = self;
        parts.field("front", front).field("machines", machines).field("placed", placed);
        parts.field("failures", failures).field("pauses", pauses).field("cuts", cuts);
        parts.field("strangers", &strangers.len()).finish()
    }
}

/// Generates the plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> CombinedPlan {
    let random = &mut Random::new(seed ^ SEED_MASK);
    let calm = random.percent(20);
    let machines = random.range(2..=5) as usize;
    let mut plan = CombinedPlan {
        seed,
        map: Some(map(random)),
        clone: Some(clone(random)),
        delegate: Some(delegate(random)),
        function: Some(function(random, calm)),
        place: Some(place(random, calm)),
        front: random.percent(70),
        machines,
        placed: random.percent(70).then(|| random.index(machines)),
        failures: Vec::new(),
        pauses: Vec::new(),
        cuts: Vec::new(),
        strangers: (0..random.range(0..=40)).map(|_| Instant(0) + random.up_to(FAULTS_END)).collect(),
    };
    if !calm {
        plan.failures = failures(random);
        plan.pauses = (0..random.below(4)).map(|_| draw_outage(random, machines + 1)).collect();
        plan.cuts = (0..random.below(3)).map(|_| draw_outage(random, machines + 1)).collect();
    }
    plan
}

impl CombinedPlan {
    /// Whether no part has any interaction or fault beyond those of its own plan.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        !self.front && self.placed.is_none() && self.is_fair()
    }

    /// Whether no machine and no element has a fault.
    pub(super) fn is_fair(&self) -> bool {
        self.failures.is_empty() && self.pauses.is_empty() && self.cuts.is_empty()
    }
}

/// Draws applications that have an element; failures of that element are common to all parts.
fn map(random: &mut Random) -> Scenario {
    let mut scenario = draw_suitable(random, map::generate, |scenario| !scenario.elements.is_empty());
    scenario.failures.retain(|failure| failure.element > 0 || !failure.loses_state);
    for application in &mut scenario.applications {
        application.endpoint += ENDPOINT_OFFSET;
        application.callers.iter_mut().for_each(|caller| caller.endpoint += ENDPOINT_OFFSET);
    }
    scenario
}

/// Draws a pool of servers.
fn clone(random: &mut Random) -> clone::ClonePlan {
    let mut plan = clone::plan::generate(random.bits());
    plan.incidents.retain(|(_, incident)| !matches!(incident, clone::plan::CloneIncident::Restart { .. }));
    plan
}

fn delegate(random: &mut Random) -> delegate::DelegatePlan {
    let requests = |plan: &delegate::DelegatePlan| plan.calls.iter().map(|call| call.requests.len()).sum::<usize>();
    draw_suitable(random, delegate::plan::generate, |plan| requests(plan) <= REQUESTS_MAX)
}

/// Draws a function; one without losses if the run is calm.
fn function(random: &mut Random, calm: bool) -> function::FunctionPlan {
    let mut plan = draw_suitable(random, function::plan::generate, |plan| !(calm && plan.faulty()));
    plan.incidents.retain(|(_, incident)| *incident != function::plan::FunctionIncident::Restart);
    plan
}

/// Draws a host with a path selector, and its faults.
fn place(random: &mut Random, calm: bool) -> place::PlacePlan {
    let mut plan = draw_suitable(random, place::plan::generate, |plan| plan.reaction_check.is_none());
    plan.station_faults.clear();
    let further = std::mem::take(&mut plan.further);
    let stations = plan.paths().resources.len();
    for _ in 0..if calm { 0 } else { random.below(5) } {
        let MachineOutage { since: from, until, .. } = draw_outage(random, 1);
        let what = random.pick(&[
            place::StationFaultKind::Slow(10),
            place::StationFaultKind::Stands,
            place::StationFaultKind::Dead,
        ]);
        plan.station_faults.push((random.index(stations), place::StationFault { from, until, what }));
    }
    plan.set_further(further);
    plan
}

/// Draws plans until one is suitable.
fn draw_suitable<P>(random: &mut Random, generate: fn(u64) -> P, will_do: impl Fn(&P) -> bool) -> P {
    loop {
        let plan = generate(random.bits());
        if will_do(&plan) {
            return plan;
        }
    }
}

/// Draws up to two failures of the element: a restart without state, or the end of the element.
fn failures(random: &mut Random) -> Vec<ElementFailure> {
    let mut at = Instant(0);
    let mut failures = Vec::new();
    for _ in 0..random.pick(&[0, 1, 1, 2]) {
        at = at + Duration::from_millis(5) + random.up_to(FAULTS_END / 2 - Duration::from_millis(5));
        let down = random.up_to(Duration::from_millis(50));
        failures.push(ElementFailure {
            at,
            element: 0,
            loses_state: true,
            down,
            notified_after: down + random.up_to(Duration::from_millis(100)),
            message_delay_max: random.up_to(Duration::from_millis(20)),
            returns: !random.percent(15),
        });
    }
    failures
}

/// Draws the time in which a machine is paused or cut off.
fn draw_outage(random: &mut Random, machines: usize) -> MachineOutage {
    let since = Instant(0) + random.up_to(FAULTS_END - Duration::from_millis(150));
    let long = Duration::from_millis(random.pick(&[2, 20, 120]));
    MachineOutage {
        machine: random.index(machines),
        since,
        until: since + Duration::from_micros(1) + random.up_to(long),
    }
}
