//! Setup of a combined run: plans of the parts with the common faults applied, and their environment.

use std::time::Duration;

use pathcall_place::Paths;
use pathcall_place::path::PathSide;
use pathcall_program::{RepeatFilterProfile, Size, SwitchProgram};
use pathcall_wire::Instant;

use super::plan::{CombinedPlan, FAULTS_END, MachineOutage};
use crate::clone::element::blank;
use crate::element_program::ElementProgram;
use crate::environment::{ELEMENT, Environment};
use crate::function::part::CARRY_SPAN;
use crate::map::link::Outage;
use crate::map::{MapNodeId, Scenario};
use crate::{clone, delegate, function, place};

/// Minimum time until the end of all faults.
const FAULTS_END_MIN: Duration = Duration::from_millis(1_500);
/// Limit on a server's time for a packet when the function also carries packets of other parts.
const SERVICE: Duration = Duration::from_micros(4);
/// Limit on the time that the function's queues delay a packet.
const QUEUE_DELAY_MAX: Duration = Duration::from_millis(20);

/// Plans with the common faults applied, and the environment of the parts.
pub(super) struct Setup {
    pub(super) map: Option<Scenario>,
    pub(super) clone: Option<clone::ClonePlan>,
    pub(super) delegate: Option<delegate::DelegatePlan>,
    pub(super) function: Option<function::FunctionPlan>,
    pub(super) place: Option<(place::PlacePlan, Paths)>,
    /// Program of the shared element.
    pub(super) switch: ElementProgram,
    pub(super) environment: Environment,
}

impl Setup {
    pub(super) fn new(plan: &CombinedPlan) -> Self {
        let calm = plan.is_calm();
        let front = plan.front && plan.function.is_some();
        let placed = plan.placed.filter(|_| plan.place.is_some());
        let switch = ElementProgram::shared(Self::program(plan));
        let mut environment = Environment {
            switch: Some(switch.clone()),
            machines: plan.machines,
            pauses: plan.pauses.clone().into(),
            cuts: plan.cuts.clone().into(),
            front: if front { CARRY_SPAN } else { Default::default() },
            placed,
            wait_limit: Duration::ZERO,
            failures: plan.failures.len(),
        };
        environment.wait_limit = wait_limit(plan, &environment);
        let disturbed_until = Instant(0) + FAULTS_END_MIN;
        let map = plan.map.clone().map(|mut map| {
            if !calm {
                map.faults_until = map.faults_until.max(disturbed_until);
            }
            map.failures.extend(&plan.failures);
            machines(plan, &environment, &mut map);
            map
        });
        let clone = plan.clone.clone().map(|mut clone| {
            if !calm {
                clone.faults_until = clone.faults_until.max(disturbed_until);
            }
            clone
        });
        let delegate = plan.delegate.clone().map(|mut delegate| {
            delegate.disturbed = !calm;
            if !calm {
                delegate.faults_until = delegate.faults_until.max(disturbed_until);
            }
            delegate
        });
        let function = plan.function.clone().map(|mut function| {
            function.disturbed = !plan.is_fair();
            if front {
                function.service = function.service.min(SERVICE);
            }
            function
        });
        let place = plan.place.clone().map(|mut place| {
            let paths = place.paths();
            // A pause of the placed machine pauses all stations of it.
            for pause in plan.pauses.iter().filter(|pause| Some(pause.machine) == placed) {
                let MachineOutage { since: from, until, .. } = *pause;
                let pause = place::StationFault { from, until, what: place::StationFaultKind::Stands };
                let stations = paths.resources.iter().enumerate();
                let its = stations.filter(|(_, resource)| resource.side == PathSide::Responder);
                place.station_faults.extend(its.map(|(station, _)| (station, pause)));
            }
            (place, paths)
        });
        Self { map, clone, delegate, function, place, switch, environment }
    }

    /// Initial program of the element, large enough for all parts.
    pub(super) fn program(plan: &CombinedPlan) -> SwitchProgram {
        let none = Size { rows: 0, lanes: 0, slots: 0 };
        let size = plan.map.as_ref().and_then(|map| map.elements.first().copied()).unwrap_or(none);
        match &plan.clone {
            Some(clone) => blank(clone, size),
            None => SwitchProgram::with_profile(size, RepeatFilterProfile::FullSequence),
        }
    }
}

/// Limit on the time that one part may wait for another.
fn wait_limit(plan: &CombinedPlan, environment: &Environment) -> Duration {
    if plan.is_calm() {
        return Duration::ZERO;
    }
    let outages = plan.pauses.iter().chain(&plan.cuts).map(|outage| outage.until.since(outage.since));
    let work = plan.place.as_ref().filter(|_| environment.placed.is_some()).map_or(Duration::ZERO, |place| {
        let fault_times: Duration =
            place.station_faults.iter().map(|(_, outage)| outage.until.since(outage.from)).sum();
        place.time_out * (u32::from(place.config.attempts_max) + 1) * 4 + fault_times + FAULTS_END / 3
    });
    outages.sum::<Duration>() + QUEUE_DELAY_MAX + work
}

/// Applies pauses and cuts of machines to the hosts of map.
fn machines(plan: &CombinedPlan, environment: &Environment, map: &mut Scenario) {
    let nodes: Vec<_> = map.nodes().map(|(_, node)| node).collect();
    let element = (ELEMENT, MapNodeId::Element(0));
    for (host, node) in nodes.into_iter().enumerate().chain([element]) {
        let machine = environment.machine(host);
        for MachineOutage { since, until, .. } in plan.pauses.iter().filter(|outage| outage.machine == machine) {
            map.hosts.entry(node).or_default().pauses.push((*since, until.since(*since)));
        }
        for MachineOutage { since, until, .. } in plan.cuts.iter().filter(|outage| outage.machine == machine) {
            let (since, until) = (*since, *until);
            map.outages.push(Outage { from: Some(node), to: None, since, until });
            map.outages.push(Outage { from: None, to: Some(node), since, until });
        }
    }
}
