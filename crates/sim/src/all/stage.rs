//! What the parts of a run are played on: their plans with what happens to all of them, and what is around them.

use std::time::Duration;

use pathcall_place::Paths;
use pathcall_place::path::Side;
use pathcall_program::{Profile, Program, Size};
use pathcall_wire::Instant;

use super::plan::{Plan, Spell, TROUBLE};
use crate::around::{Around, ELEMENT};
use crate::clone::element::blank;
use crate::function::part::CARRIES;
use crate::link::Outage;
use crate::party::Node;
use crate::place::beds;
use crate::scenario::Scenario;
use crate::switch::Switch;
use crate::{clone, delegate, function, place};

/// Everything ends this long after all faults, at least.
const CALM_FROM: Duration = Duration::from_millis(1_500);
/// A server's time for a packet at most, where it works on those of others, too.
const SERVICE: Duration = Duration::from_micros(4);
/// For how long the function holds a packet back at most, in its queues.
const FRONT: Duration = Duration::from_millis(20);

/// Plans as they are played, and what is around.
pub(super) struct Stage {
    pub(super) map: Option<Scenario>,
    pub(super) clone: Option<clone::Plan>,
    pub(super) delegate: Option<delegate::Plan>,
    pub(super) function: Option<function::Plan>,
    pub(super) place: Option<(place::Plan, Paths)>,
    /// The element's program.
    pub(super) switch: Switch,
    pub(super) around: Around,
}

impl Stage {
    pub(super) fn new(plan: &Plan) -> Self {
        let calm = plan.is_calm();
        let front = plan.front && plan.function.is_some();
        let placed = plan.placed.filter(|_| plan.place.is_some());
        let switch = Switch::shared(Self::program(plan));
        let mut around = Around {
            switch: Some(switch.clone()),
            machines: plan.machines,
            pauses: plan.pauses.clone().into(),
            cuts: plan.cuts.clone().into(),
            front: if front { CARRIES } else { Default::default() },
            placed,
            patience: Duration::ZERO,
            failures: plan.failures.len(),
        };
        around.patience = patience(plan, &around);
        let disturbed_until = Instant(0) + CALM_FROM;
        let map = plan.map.clone().map(|mut map| {
            if !calm {
                map.faults_until = map.faults_until.max(disturbed_until);
            }
            map.failures.extend(&plan.failures);
            machines(plan, &around, &mut map);
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
            let paths = beds::paths(place.hosts, place.app);
            // The machine that does the work stands still with all that is in it.
            for pause in plan.pauses.iter().filter(|pause| Some(pause.machine) == placed) {
                let Spell { since: from, until, .. } = *pause;
                let stands = place::Spell { from, until, what: place::Trouble::Stands };
                let stations = paths.resources.iter().enumerate();
                let its = stations.filter(|(_, resource)| resource.side == Side::Responder);
                place.spells.extend(its.map(|(station, _)| (station, stands)));
            }
            (place, paths)
        });
        Self { map, clone, delegate, function, place, switch, around }
    }

    /// The element's program as it starts: with room for all.
    pub(super) fn program(plan: &Plan) -> Program {
        let none = Size { rows: 0, lanes: 0, slots: 0 };
        let size = plan.map.as_ref().and_then(|map| map.elements.first().copied()).unwrap_or(none);
        match &plan.clone {
            Some(clone) => blank(clone, size),
            None => Program::with_profile(size, Profile::FullSequence),
        }
    }
}

/// For how long one part may wait for another at most.
fn patience(plan: &Plan, around: &Around) -> Duration {
    if plan.is_calm() {
        return Duration::ZERO;
    }
    let spells = plan.pauses.iter().chain(&plan.cuts).map(|spell| spell.until.since(spell.since));
    let work = plan.place.as_ref().filter(|_| around.placed.is_some()).map_or(Duration::ZERO, |place| {
        let befalls: Duration = place.spells.iter().map(|(_, spell)| spell.until.since(spell.from)).sum();
        place.time_out * (u32::from(place.config.attempts_max) + 1) * 4 + befalls + TROUBLE / 3
    });
    spells.sum::<Duration>() + FRONT + work
}

/// Has the hosts of map stand still, or be cut off, with their machines.
fn machines(plan: &Plan, around: &Around, map: &mut Scenario) {
    let nodes: Vec<_> = map.nodes().map(|(_, node)| node).collect();
    let element = (ELEMENT, Node::Element(0));
    for (host, node) in nodes.into_iter().enumerate().chain([element]) {
        let machine = around.machine(host);
        for Spell { since, until, .. } in plan.pauses.iter().filter(|spell| spell.machine == machine) {
            map.hosts.entry(node).or_default().pauses.push((*since, until.since(*since)));
        }
        for Spell { since, until, .. } in plan.cuts.iter().filter(|spell| spell.machine == machine) {
            let (since, until) = (*since, *until);
            map.outages.push(Outage { from: Some(node), to: None, since, until });
            map.outages.push(Outage { from: None, to: Some(node), since, until });
        }
    }
}
