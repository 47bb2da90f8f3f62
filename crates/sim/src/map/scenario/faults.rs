//! Faults of a scenario: on the network and on the machines, each kind in some of the scenarios.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::flow::FlowTiming;
use pathcall_wire::Instant;

use super::{ElementFailure, MapCallerPlan, Purpose, Scenario, StepWork, WireChange};
use crate::map::host::{Clock, HostPlan};
use crate::map::link::{Faults, Outage, WireSpec};
use crate::map::node::MapNodeId;
use crate::random::{Chance, Random};

/// Queue capacity in bytes that is never reached.
const LARGE_QUEUE: u64 = 10_000_000;
/// Limit on the number of outages, of link changes and of pauses.
const FAULTS_MAX: u64 = 6;

/// Kinds of faults of a scenario, and the common properties of its links.
pub(super) struct FaultPlan {
    pub(super) wire: WireSpec,
    pub(super) faults: Faults,
    pub(super) faults_until: Instant,
    outages: bool,
    changes: bool,
    pauses: bool,
    slow: bool,
    drift: bool,
    failures: bool,
}

impl FaultPlan {
    pub(super) fn draw(random: &mut Random) -> Self {
        let faults_until = Instant(0) + random.pick(&[200, 2_000, 20_000].map(Duration::from_millis));
        let (wire, faults) = (wire(random), faults(random));
        let mut has = |percent| random.percent(percent);
        let (outages, changes, pauses, slow, drift) = (has(20), has(15), has(25), has(15), has(50));
        let failures = has(33);
        Self { wire, faults, faults_until, outages, changes, pauses, slow, drift, failures }
    }

    /// Limit on the delay of the controller's messages; large if the controller may be cut off.
    pub(super) fn message_delay_max(&self, random: &mut Random) -> Duration {
        let cut_off = if self.is_quiet() { 1_000 } else { 8_000 };
        Duration::from_millis(random.pick(&[0, 1, 50, 1_000, cut_off]))
    }

    /// Timers of an application: the default ones, but without giving up if many frames may be lost.
    pub(super) fn timing(&self) -> FlowTiming {
        let retry_limit = Duration::from_secs(3600);
        if self.is_quiet() {
            FlowTiming::default()
        } else {
            FlowTiming { give_up: retry_limit, ..FlowTiming::default() }
        }
    }

    fn is_quiet(&self) -> bool {
        self.faults.loss <= Chance::percent(2)
            && self.wire.queue_bytes >= LARGE_QUEUE
            && self.faults.burst <= Chance(1_000)
            && !(self.outages || self.changes || self.pauses || self.slow)
    }

    /// Adds the faults of nodes to a scenario.
    pub(super) fn apply_to(&self, random: &mut Random, scenario: &mut Scenario) {
        let mut nodes: Vec<MapNodeId> = scenario.nodes().map(|(_, node)| node).collect();
        nodes.extend((0..scenario.elements.len()).map(MapNodeId::Element));
        if self.outages {
            scenario.outages = (0..random.range(1..=FAULTS_MAX)).map(|_| self.outage(random, &nodes)).collect();
        }
        if self.changes {
            scenario.wire_changes = self.wire_changes(random, &nodes);
        }
        scenario.hosts = self.hosts(random, &nodes);
        self.add_lease_expiries(random, scenario);
        if !scenario.elements.is_empty() && self.failures {
            scenario.failures = self.failures(random, scenario.elements.len());
            // Some elements fall silent before they fail: their acknowledgements are lost.
            for failure in &scenario.failures {
                if random.percent(50) {
                    continue;
                }
                let to = nodes.iter().filter(|node| matches!(node, MapNodeId::Caller(..))).copied().collect::<Vec<_>>();
                let since =
                    Instant(failure.at.0.saturating_sub(random.up_to(Duration::from_millis(300)).as_nanos() as u64));
                let to = Some(random.pick(&to));
                scenario.outages.push(Outage {
                    from: Some(MapNodeId::Element(failure.element)),
                    to,
                    since,
                    until: failure.at,
                });
            }
        }
    }

    /// Makes frames that pass an element take another route at times, in one direction or both.
    pub(super) fn add_detours(&self, random: &mut Random, scenario: &mut Scenario) {
        if random.percent(35) {
            return;
        }
        let hosts: Vec<MapNodeId> = scenario.nodes().map(|(_, node)| node).collect();
        for _ in 0..random.range(1..=FAULTS_MAX) {
            let (since, until) = self.draw_outage(random, Duration::from_secs(8));
            let one = Some(random.pick(&hosts));
            let (from, to) = random.pick(&[(one, None), (None, one), (None, None)]);
            scenario.detours.push(Outage { from, to, since, until });
        }
        // To a host, frames that bypass the element look like a silent element.
        let retry_limit = Duration::from_secs(3600);
        scenario.applications.iter_mut().for_each(|plan| plan.timing.give_up = retry_limit);
    }

    /// Pauses callers of locks, or cuts them off, for about the length of their leases.
    fn add_lease_expiries(&self, random: &mut Random, scenario: &mut Scenario) {
        let Scenario { applications, outages, hosts, .. } = scenario;
        let of_locks = applications.iter_mut().enumerate().filter(|(_, plan)| plan.purpose == Purpose::Lock);
        for (index, plan) in of_locks.filter(|_| self.pauses || self.outages) {
            for _ in 0..random.below(4) {
                let number = random.index(plan.callers.len());
                if random.percent(50) {
                    extend_hold(random, &mut plan.callers[number], plan.lease);
                }
                let node = MapNodeId::Caller(index, number);
                let (since, _) = self.draw_outage(random, Duration::ZERO);
                let until = (since + random.up_to(plan.lease * 2)).min(self.faults_until);
                match hosts.get_mut(&node) {
                    Some(host) if self.pauses && (!self.outages || random.percent(50)) => {
                        host.pauses.push((since, until.since(since)));
                    }
                    _ if self.outages => {
                        outages.push(Outage { from: Some(node), to: None, since, until });
                        outages.push(Outage { from: None, to: Some(node), since, until });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Draws failures: elements restart, up to three times, or are gone for good, or the controller cannot reach
    /// them.
    fn failures(&self, random: &mut Random, elements: usize) -> Vec<ElementFailure> {
        let mut failures = Vec::new();
        let mut at = Instant(0);
        for _ in 0..random.range(1..=3) {
            // Half of them early, while most calls are in progress.
            let within = self.faults_until.since(Instant(0)) / 2;
            let early = random.percent(50);
            at = at + random.up_to(if early { within.min(Duration::from_millis(50)) } else { within });
            let down = random.up_to(Duration::from_millis(300));
            failures.push(ElementFailure {
                at,
                element: random.index(elements),
                loses_state: !random.percent(25),
                down,
                notified_after: down + random.up_to(Duration::from_millis(500)),
                message_delay_max: self.message_delay_max(random),
                returns: !random.percent(15),
            });
            at = at + Duration::from_secs(1);
        }
        failures
    }

    /// Draws a time before the end of the faults, short or long.
    fn draw_outage(&self, random: &mut Random, longest: Duration) -> (Instant, Instant) {
        let all = self.faults_until.since(Instant(0));
        // Half of them early, as most calls end before the faults.
        let within = if random.percent(50) { all.min(Duration::from_millis(100)) } else { all };
        let since = Instant(0) + random.up_to(within);
        let tenths = random.below(3) as u32;
        let until = since + random.up_to(longest / 10u32.pow(tenths));
        (since, until.min(self.faults_until))
    }

    /// Draws an outage of one direction of a link, or of all that a node sends or receives.
    fn outage(&self, random: &mut Random, nodes: &[MapNodeId]) -> Outage {
        let (since, until) = self.draw_outage(random, Duration::from_secs(8));
        let (one, other) = (Some(random.pick(nodes)), Some(random.pick(nodes)));
        let element = nodes.iter().rfind(|node| matches!(node, MapNodeId::Element(_))).copied();
        let (from, to) = random.pick(&[(one, other), (one, element), (one, None), (None, one)]);
        Outage { from, to, since, until }
    }

    /// Draws changes to narrow links; the last change restores the original.
    fn wire_changes(&self, random: &mut Random, nodes: &[MapNodeId]) -> Vec<WireChange> {
        let node = random.percent(70).then(|| random.pick(nodes));
        let mut changes: Vec<WireChange> = (0..random.range(1..=FAULTS_MAX))
            .map(|_| {
                let (at, _) = self.draw_outage(random, Duration::ZERO);
                let rate_bytes = random.pick(&[1_250_000, 12_500_000, 125_000_000]);
                let queue_bytes = random.pick(&[4_000, 30_000, 300_000]);
                let wire = WireSpec { rate_bytes, queue_bytes, mark_bytes: queue_bytes / 2, ..self.wire };
                WireChange { at, node, wire }
            })
            .collect();
        changes.sort_by_key(|change| change.at);
        changes.push(WireChange { at: self.faults_until, node, wire: self.wire });
        changes
    }

    fn hosts(&self, random: &mut Random, nodes: &[MapNodeId]) -> BTreeMap<MapNodeId, HostPlan> {
        let slow = self.slow.then(|| random.pick(nodes));
        let inbox = random.pick(&[50, 300, 2_000]) as usize;
        let mut hosts = BTreeMap::new();
        for &node in nodes {
            let mut plan = HostPlan { timers_first: random.percent(50), ..HostPlan::default() };
            if self.drift {
                let rate_ppm = random.range(900_000..=1_100_000) as u32;
                plan.clock = Clock { origin: Instant(random.below(1 << 50)), rate_ppm };
            }
            if self.pauses || self.slow {
                plan.inbox = inbox;
                plan.mark = inbox / 2;
            }
            if slow == Some(node) {
                plan.frame_time = random.pick(&[5, 50, 500].map(Duration::from_micros));
            }
            hosts.insert(node, plan);
        }
        if self.pauses {
            for _ in 0..random.range(1..=FAULTS_MAX) {
                let (since, until) = self.draw_outage(random, Duration::from_secs(1));
                // Like a garbage collection: rarely shorter than 10 ms.
                let pause = until.since(since).max(Duration::from_millis(10));
                if let Some(plan) = hosts.get_mut(&random.pick(nodes)) {
                    plan.pauses.push((since, pause));
                }
            }
        }
        hosts
    }
}

/// Makes a caller hold its locks so long that it may hold them again when it releases the lost ones.
fn extend_hold(random: &mut Random, caller: &mut MapCallerPlan, lease: Duration) {
    let longest = (lease * 2).min(Duration::from_millis(400));
    for step in &mut caller.steps {
        if let StepWork::Lock { hold, .. } = &mut step.work {
            *hold = random.up_to(longest);
        }
    }
}

fn wire(random: &mut Random) -> WireSpec {
    let delay = random.pick(&[5, 50, 500, 5_000].map(Duration::from_micros));
    let narrow = random.percent(30);
    WireSpec {
        delay,
        jitter: if random.percent(50) { delay / 2 } else { Duration::ZERO },
        rate_bytes: if narrow { 12_500_000 } else { 1_250_000_000 },
        queue_bytes: if narrow { random.range(20_000..=200_000) } else { LARGE_QUEUE },
        mark_bytes: if narrow { random.range(5_000..=40_000) } else { 200_000 },
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut chance = |percent: u64| match random.below(4) {
        0 => Chance(0),
        1 => Chance(random.below(10_000) as u32),
        _ => Chance(random.below(percent * 10_000 + 1) as u32),
    };
    let (loss, repeat, reorder, late, hostile) = (chance(10), chance(5), chance(30), chance(3), chance(3));
    let burst = chance(10);
    Faults {
        loss,
        burst: Chance(burst.0 / 10),
        burst_within: random.pick(&[5, 50].map(Duration::from_millis)),
        repeat,
        repeat_within: random.pick(&[1, 100, 5_000].map(Duration::from_millis)),
        reorder,
        reorder_within: random.pick(&[1, 20].map(Duration::from_millis)),
        late,
        late_frames: random.pick(&[64, 600, 2_000]),
        hostile,
    }
}
