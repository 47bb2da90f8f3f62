//! What a run of all consists of, from a seed: what each part plays, and what happens to all of them at one time.

use std::fmt;
use std::time::Duration;

use pathcall_wire::Instant;

pub use crate::around::Spell;
use crate::random::{Chance, Random};
use crate::scenario::{ElementFailure, Scenario};
use crate::{clone, delegate, function, generate as generate_map, place};

/// Makes the seed of what happens to all.
const ALL: u64 = 0x616c_6c2e_7061_7274;
/// Endpoints of map are that much higher here: those of clone begin at 100.
const APART: u32 = 10_000;
/// What happens to all happens by then.
pub(super) const TROUBLE: Duration = Duration::from_millis(900);
/// Requests of delegated calls of one run at most, so that it does not take longer than all others.
const REQUESTS_MAX: usize = 400;

/// A run: without a part, where it was left out.
#[derive(Clone, PartialEq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Applications of map.
    pub map: Option<Scenario>,
    /// A pool of servers.
    pub clone: Option<clone::Plan>,
    /// Delegated calls.
    pub delegate: Option<delegate::Plan>,
    /// A network function.
    pub function: Option<function::Plan>,
    /// A host that chooses paths.
    pub place: Option<place::Plan>,
    /// Whether the function stands before the element: what comes to it passes the function first.
    pub front: bool,
    /// Machines, on which the hosts of all parts are.
    pub machines: usize,
    /// The one with an accelerator: the work of its servers is done by the paths that are chosen there.
    pub placed: Option<usize>,
    /// When the element fails.
    pub failures: Vec<ElementFailure>,
    /// When machines stand still.
    pub pauses: Vec<Spell>,
    /// When nothing comes to machines, or from them.
    pub cuts: Vec<Spell>,
    /// When a stranger sends what it has heard of one part in the name of another.
    pub strangers: Vec<Instant>,
}

impl fmt::Debug for Plan {
    /// Without what the parts' own plans say at length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("Plan");
        parts.field("seed", &self.seed);
        if let Some(map) = &self.map {
            let applications = map.applications.iter().map(|plan| (plan.gaid, plan.purpose, plan.callers.len()));
            parts.field("map", &format_args!("{:?}", applications.collect::<Vec<_>>()));
        }
        if let Some(clone::Plan { servers, callers, calls, incidents, .. }) = &self.clone {
            let (servers, callers, calls) = (servers.len(), callers.len(), calls.len());
            parts.field("clone", &format_args!("{servers} servers, {callers} callers, {calls} calls, {incidents:?}"));
        }
        if let Some(delegate::Plan { hosts, calls, crashes, .. }) = &self.delegate {
            let requests: usize = calls.iter().map(|call| call.requests.len()).sum();
            let (hosts, calls) = (hosts.len(), calls.len());
            parts.field("delegate", &format_args!("{hosts} hosts, {calls} calls, {requests} requests, {crashes:?}"));
        }
        if let Some(function::Plan { servers, packets, incidents, .. }) = &self.function {
            let packets = packets.len();
            parts.field("function", &format_args!("{servers} servers, {packets} packets, {incidents:?}"));
        }
        if let Some(place::Plan { hosts, app, strategy, asks, spells, .. }) = &self.place {
            let (asks, spells) = (asks.len(), spells.len());
            parts.field(
                "place",
                &format_args!("{app:?} on {hosts:?} by {strategy:?}, {asks} requests, {spells} spells"),
            );
        }
        let Self { front, machines, placed, failures, pauses, cuts, strangers, .. } = self;
        parts.field("front", front).field("machines", machines).field("placed", placed);
        parts.field("failures", failures).field("pauses", pauses).field("cuts", cuts);
        parts.field("strangers", &strangers.len()).finish()
    }
}

/// The plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> Plan {
    let random = &mut Random::new(seed ^ ALL);
    let calm = random.happens(Chance::percent(20));
    let machines = random.range(2..=5) as usize;
    let mut plan = Plan {
        seed,
        map: Some(map(random)),
        clone: Some(clone(random)),
        delegate: Some(delegate(random)),
        function: Some(function(random, calm)),
        place: Some(place(random, calm)),
        front: random.happens(Chance::percent(70)),
        machines,
        placed: random.happens(Chance::percent(70)).then(|| random.index(machines)),
        failures: Vec::new(),
        pauses: Vec::new(),
        cuts: Vec::new(),
        strangers: (0..random.range(0..=40)).map(|_| Instant(0) + random.up_to(TROUBLE)).collect(),
    };
    if !calm {
        plan.failures = failures(random);
        plan.pauses = (0..random.below(4)).map(|_| spell(random, machines + 1)).collect();
        plan.cuts = (0..random.below(3)).map(|_| spell(random, machines + 1)).collect();
    }
    plan
}

impl Plan {
    /// Whether nothing happens to any part but what its own plan says.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        !self.front && self.placed.is_none() && self.is_fair()
    }

    /// Whether nothing happens to machines and the element.
    pub(super) fn is_fair(&self) -> bool {
        self.failures.is_empty() && self.pauses.is_empty() && self.cuts.is_empty()
    }
}

/// Applications with an element, the failures of which are everybody's.
fn map(random: &mut Random) -> Scenario {
    let mut scenario = drawn(random, generate_map, |scenario| !scenario.elements.is_empty());
    scenario.failures.retain(|failure| failure.element > 0 || !failure.forgets);
    for application in &mut scenario.applications {
        application.endpoint += APART;
        application.callers.iter_mut().for_each(|caller| caller.endpoint += APART);
    }
    scenario
}

/// A pool at the element.
fn clone(random: &mut Random) -> clone::Plan {
    let mut plan = clone::plan::generate(random.bits());
    plan.incidents.retain(|(_, incident)| !matches!(incident, clone::plan::Incident::Restart { .. }));
    plan
}

fn delegate(random: &mut Random) -> delegate::Plan {
    let requests = |plan: &delegate::Plan| plan.calls.iter().map(|call| call.requests.len()).sum::<usize>();
    drawn(random, delegate::plan::generate, |plan| requests(plan) <= REQUESTS_MAX)
}

/// A function that loses nothing where all is calm.
fn function(random: &mut Random, calm: bool) -> function::Plan {
    let mut plan = drawn(random, function::plan::generate, |plan| !(calm && plan.faulty()));
    plan.incidents.retain(|(_, incident)| *incident != function::plan::Incident::Restart);
    plan
}

/// A host whose requests are work of others, and what befalls it meanwhile.
fn place(random: &mut Random, calm: bool) -> place::Plan {
    let mut plan = drawn(random, place::plan::generate, |plan| plan.watch.is_none());
    plan.spells.clear();
    let stations = place::beds::paths(plan.hosts, plan.app).resources.len();
    for _ in 0..if calm { 0 } else { random.below(5) } {
        let Spell { since: from, until, .. } = spell(random, 1);
        let what = random.pick(&[place::Trouble::Slow(10), place::Trouble::Stands, place::Trouble::Dead]);
        plan.spells.push((random.index(stations), place::Spell { from, until, what }));
    }
    plan
}

/// The first of many that will do.
fn drawn<P>(random: &mut Random, generate: fn(u64) -> P, will_do: impl Fn(&P) -> bool) -> P {
    loop {
        let plan = generate(random.bits());
        if will_do(&plan) {
            return plan;
        }
    }
}

/// The element restarts, blank, up to twice; or it is gone for good.
fn failures(random: &mut Random) -> Vec<ElementFailure> {
    let mut at = Instant(0);
    let mut failures = Vec::new();
    for _ in 0..random.pick(&[0, 1, 1, 2]) {
        at = at + Duration::from_millis(5) + random.up_to(TROUBLE / 2 - Duration::from_millis(5));
        let down = random.up_to(Duration::from_millis(50));
        failures.push(ElementFailure {
            at,
            element: 0,
            forgets: true,
            down,
            told_after: down + random.up_to(Duration::from_millis(100)),
            word_within: random.up_to(Duration::from_millis(20)),
            returns: !random.happens(Chance::percent(15)),
        });
    }
    failures
}

/// A machine is not there for a while.
fn spell(random: &mut Random, machines: usize) -> Spell {
    let since = Instant(0) + random.up_to(TROUBLE - Duration::from_millis(150));
    let long = Duration::from_millis(random.pick(&[2, 20, 120]));
    Spell { machine: random.index(machines), since, until: since + Duration::from_micros(1) + random.up_to(long) }
}
