//! All nodes of a run, each on its machine.

use std::collections::BTreeMap;

use pathcall_program::SwitchProgram;
use pathcall_wire::Instant;

use super::caller::Caller;
use super::checker::MapViolation;
use super::element::Element;
use super::host::Host;
use super::node::{MapNodeId, SimulatedNode};
use super::owner::Owner;
use super::scenario::{ApplicationPlan, Scenario};
use crate::element_program::ElementProgram;

/// Nodes and machines of a run.
pub(crate) struct Nodes<'a> {
    pub(crate) elements: Vec<Element>,
    pub(crate) owners: Vec<Owner<'a>>,
    /// Callers, by application.
    pub(crate) callers: Vec<Vec<Caller<'a>>>,
    hosts: BTreeMap<MapNodeId, Host>,
    /// Nodes by endpoint id.
    endpoints: BTreeMap<u32, MapNodeId>,
    /// Element on the route between the hosts of an application, for each application, if the scenario is inline.
    ways: Vec<usize>,
}

impl<'a> Nodes<'a> {
    /// Creates all nodes. `shared` is the program of the first element if several worlds share it.
    pub(crate) fn new(scenario: &'a Scenario, shared: Option<&ElementProgram>) -> Result<Self, MapViolation> {
        let switch = |number, size| {
            let shared = shared.filter(|_| number == 0).cloned();
            shared.unwrap_or_else(|| ElementProgram::own(SwitchProgram::new(size)))
        };
        let applications = &scenario.applications;
        let endpoints: BTreeMap<u32, MapNodeId> = scenario.nodes().collect();
        let nodes = endpoints.values().copied().chain((0..scenario.elements.len()).map(MapNodeId::Element));
        let plan = |node: &MapNodeId| scenario.hosts.get(node).cloned().unwrap_or_default();
        Ok(Self {
            elements: (0..)
                .zip(&scenario.elements)
                .map(|(n, size)| Element::new(n, switch(n, *size), applications))
                .collect::<Result<_, _>>()?,
            owners: applications.iter().map(Owner::new).collect(),
            callers: applications.iter().map(callers_of).collect(),
            hosts: nodes.map(|node| (node, Host::new(plan(&node)))).collect(),
            endpoints,
            ways: applications.iter().filter(|_| scenario.inline).map(ApplicationPlan::element).collect(),
        })
    }

    /// Machine of a node.
    pub(crate) fn host(&mut self, node: MapNodeId) -> &mut Host {
        self.hosts.entry(node).or_default()
    }

    /// Whether a caller considers itself the holder of a step's locks.
    pub(crate) fn considers_held(&mut self, now: Instant, node: MapNodeId, step: usize) -> bool {
        let shown = self.host(node).plan.clock.local_time(now);
        let MapNodeId::Caller(application, number) = node else { return false };
        self.callers[application][number].holds(shown, step)
    }

    /// Node with this endpoint id.
    pub(crate) fn at(&self, endpoint: u32) -> Option<MapNodeId> {
        self.endpoints.get(&endpoint).copied()
    }

    /// Element that a node sends through.
    pub(crate) fn element_of(&self, node: MapNodeId) -> Option<usize> {
        let element = match node {
            MapNodeId::Element(_) => None,
            MapNodeId::Owner(application) => self.owners.get(application)?.element(),
            MapNodeId::Caller(application, number) => self.callers.get(application)?.get(number)?.element(),
        };
        element.filter(|number| *number < self.elements.len())
    }

    /// Element on the route of a frame between two hosts, if the element knows the addressee.
    pub(crate) fn element_on_route(&self, from: MapNodeId, to: MapNodeId, frame: &[u8]) -> Option<usize> {
        let (MapNodeId::Owner(application) | MapNodeId::Caller(application, _)) = from else { return None };
        let element = self.ways.get(application).copied()?;
        (to != from && self.elements.get(element)?.has_addressee(frame)).then_some(element)
    }

    pub(crate) fn get(&mut self, node: MapNodeId) -> Option<&mut dyn SimulatedNode> {
        match node {
            MapNodeId::Element(number) => {
                self.elements.get_mut(number).map(|element| element as &mut dyn SimulatedNode)
            }
            MapNodeId::Owner(application) => {
                self.owners.get_mut(application).map(|owner| owner as &mut dyn SimulatedNode)
            }
            MapNodeId::Caller(application, number) => {
                self.callers.get_mut(application)?.get_mut(number).map(|caller| caller as &mut dyn SimulatedNode)
            }
        }
    }

    /// Caller with an open call, except callers that wait for a cancelled call of another one.
    pub(crate) fn busy_caller(&self, scenario: &Scenario) -> Option<MapNodeId> {
        let applications = scenario.applications.iter().zip(&self.callers).enumerate();
        let busy = applications.flat_map(|(index, (plan, callers))| {
            let callers = plan.callers.iter().zip(callers).enumerate();
            callers.map(move |(number, (plan, caller))| (MapNodeId::Caller(index, number), plan, caller))
        });
        let mut busy =
            busy.filter(|(_, plan, caller)| !plan.steps.iter().any(|step| step.may_never_end) && !caller.is_idle());
        busy.next().map(|(node, ..)| node)
    }
}

fn callers_of(plan: &ApplicationPlan) -> Vec<Caller<'_>> {
    plan.callers.iter().map(|caller| Caller::new(caller, plan.gradients)).collect()
}
