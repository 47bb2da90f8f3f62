//! All nodes of a run, each with its machine.

use std::collections::BTreeMap;

use pathcall_program::Program;
use pathcall_wire::Instant;

use crate::caller::Caller;
use crate::element::Element;
use crate::host::Host;
use crate::judge::Failure;
use crate::owner::Owner;
use crate::party::{Node, Party};
use crate::scenario::{ApplicationPlan, Scenario};
use crate::switch::Switch;

/// All nodes.
pub(crate) struct Parties<'a> {
    pub(crate) elements: Vec<Element>,
    pub(crate) owners: Vec<Owner<'a>>,
    /// By application.
    pub(crate) callers: Vec<Vec<Caller<'a>>>,
    hosts: BTreeMap<Node, Host>,
    /// Which node has this endpoint.
    endpoints: BTreeMap<u32, Node>,
    /// The element between the hosts of an application, if what they send each other passes by one.
    ways: Vec<usize>,
}

impl<'a> Parties<'a> {
    /// `shared`: the first element is one of several worlds.
    pub(crate) fn new(scenario: &'a Scenario, shared: Option<&Switch>) -> Result<Self, Failure> {
        let switch = |number, size| {
            let shared = shared.filter(|_| number == 0).cloned();
            shared.unwrap_or_else(|| Switch::own(Program::new(size)))
        };
        let applications = &scenario.applications;
        let endpoints: BTreeMap<u32, Node> = scenario.nodes().collect();
        let nodes = endpoints.values().copied().chain((0..scenario.elements.len()).map(Node::Element));
        let plan = |node: &Node| scenario.hosts.get(node).cloned().unwrap_or_default();
        Ok(Self {
            elements: (0..)
                .zip(&scenario.elements)
                .map(|(n, size)| Element::new(n, switch(n, *size), applications))
                .collect::<Result<_, _>>()?,
            owners: applications.iter().map(Owner::new).collect(),
            callers: applications.iter().map(|plan| plan.callers.iter().map(Caller::new).collect()).collect(),
            hosts: nodes.map(|node| (node, Host::new(plan(&node)))).collect(),
            endpoints,
            ways: applications.iter().filter(|_| scenario.inline).map(ApplicationPlan::element).collect(),
        })
    }

    /// The machine of a node.
    pub(crate) fn host(&mut self, node: Node) -> &mut Host {
        self.hosts.entry(node).or_default()
    }

    /// Whether a caller believes that it holds the locks of a step.
    pub(crate) fn believes(&mut self, now: Instant, node: Node, step: usize) -> bool {
        let shown = self.host(node).plan.clock.shows(now);
        let Node::Caller(application, number) = node else { return false };
        self.callers[application][number].holds(shown, step)
    }

    /// The node that has this endpoint.
    pub(crate) fn at(&self, endpoint: u32) -> Option<Node> {
        self.endpoints.get(&endpoint).copied()
    }

    /// The element that a node sends by.
    pub(crate) fn element_of(&self, node: Node) -> Option<usize> {
        let element = match node {
            Node::Element(_) => None,
            Node::Owner(application) => self.owners.get(application)?.element(),
            Node::Caller(application, number) => self.callers.get(application)?.get(number)?.element(),
        };
        element.filter(|number| *number < self.elements.len())
    }

    /// The element that a frame from one host to another passes by, if it is one for that element.
    pub(crate) fn on_the_way(&self, from: Node, to: Node, frame: &[u8]) -> Option<usize> {
        let (Node::Owner(application) | Node::Caller(application, _)) = from else { return None };
        let element = self.ways.get(application).copied()?;
        (to != from && self.elements.get(element)?.knows_addressee(frame)).then_some(element)
    }

    pub(crate) fn get(&mut self, node: Node) -> Option<&mut dyn Party> {
        match node {
            Node::Element(number) => self.elements.get_mut(number).map(|element| element as &mut dyn Party),
            Node::Owner(application) => self.owners.get_mut(application).map(|owner| owner as &mut dyn Party),
            Node::Caller(application, number) => {
                self.callers.get_mut(application)?.get_mut(number).map(|caller| caller as &mut dyn Party)
            }
        }
    }

    /// A caller with something under way; those apart whose call waits for one that was cancelled.
    pub(crate) fn busy_caller(&self, scenario: &Scenario) -> Option<Node> {
        let applications = scenario.applications.iter().zip(&self.callers).enumerate();
        let busy = applications.flat_map(|(index, (plan, callers))| {
            let callers = plan.callers.iter().zip(callers).enumerate();
            callers.map(move |(number, (plan, caller))| (Node::Caller(index, number), plan, caller))
        });
        let mut busy =
            busy.filter(|(_, plan, caller)| !plan.steps.iter().any(|step| step.may_starve) && !caller.is_idle());
        busy.next().map(|(node, ..)| node)
    }
}
