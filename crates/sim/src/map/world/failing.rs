//! Failures of elements and moves of memory, and the reactions of the controller.
//!
//! ```text
//! element fails ─► down, all state is gone ─┐
//! controller loses it, it works on ─────────┼─► controller: new epoch, tables ─► owners ─► callers
//! memory of an application moves ───────────┤        └─► the old element, later or never
//! owner reports silence, continues  ───────┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_endpoint::map::EpochChange;
use pathcall_wire::Instant;

use super::{MapEvent, MapWorld};
use crate::map::checker::MapViolation;
use crate::map::node::MapNodeId;
use crate::map::scenario::{ApplicationPlan, MemoryMove, RegisterRange, Scenario};
use crate::random::Random;

/// Limit on the time that an owner continues without a silent element.
pub(super) const SUSPENSION: Duration = Duration::from_secs(1);

/// Update of an owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnerUpdate {
    pub(crate) epoch: u32,
    pub(crate) memory: Option<RegisterRange>,
    /// Element that it works with; `None`: there is none.
    pub(crate) element: Option<usize>,
    /// Limit on the delay of the owner's message to a caller.
    message_delay_max: Duration,
}

/// Assignment of memory to an application by the controller.
#[derive(Debug, Clone, Copy)]
struct Assignment {
    epoch: u32,
    memory: Option<RegisterRange>,
    /// Element that knows the application, with memory or without.
    element: usize,
}

/// Update of a caller: its renewal, and the element to send through.
type CallerUpdate = (EpochChange, Option<usize>);

/// State of the controller, with its messages in transit.
pub(super) struct Controller {
    /// Assignments, by application.
    assignments: Vec<Assignment>,
    /// Elements that are gone for good.
    gone: BTreeSet<usize>,
    /// Arrival time of the last message at each node: messages keep their order.
    last_arrivals: BTreeMap<MapNodeId, Instant>,
    /// Updates in transit: to owners, by application; to callers, by application and index.
    to_owners: BTreeMap<usize, VecDeque<OwnerUpdate>>,
    to_callers: BTreeMap<(usize, usize), VecDeque<CallerUpdate>>,
    pub(super) random: Random,
}

impl Controller {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let assignments =
            |plan: &ApplicationPlan| Assignment { epoch: plan.epoch, memory: plan.memory, element: plan.element() };
        Self {
            assignments: scenario.applications.iter().map(assignments).collect(),
            gone: BTreeSet::new(),
            last_arrivals: BTreeMap::new(),
            to_owners: BTreeMap::new(),
            to_callers: BTreeMap::new(),
            random: Random::new(!scenario.seed),
        }
    }

    /// Epoch for an owner that takes over, and whether its application has memory. It gets none before it asks.
    pub(super) fn next_epoch(&mut self, application: usize) -> (u32, bool) {
        self.to_owners.remove(&application);
        let assignment = &mut self.assignments[application];
        assignment.epoch += 1;
        (assignment.epoch, assignment.memory.is_some())
    }

    /// Forgets the updates in transit to a caller: its stream is broken.
    pub(super) fn forget_updates(&mut self, application: usize, number: usize) {
        self.to_callers.remove(&(application, number));
    }

    /// Arrival time of a message that is sent now to a node.
    pub(super) fn arrival(&mut self, now: Instant, to: MapNodeId, within: Duration) -> Instant {
        let last = self.last_arrivals.entry(to).or_insert(now);
        *last = (now + self.random.up_to(within)).max(*last);
        *last
    }
}

impl MapWorld<'_> {
    /// Fails an element: it loses its state, or the controller cannot reach it.
    pub(super) fn fail(&mut self, index: usize) {
        let failure = self.scenario.failures[index];
        let number = failure.element;
        if self.controller.gone.contains(&number) || self.element_from[number] == Instant(u64::MAX) {
            return;
        }
        self.time.record(MapNodeId::Element(number), || format!("FAILS {failure:?}"));
        if failure.loses_state {
            self.nodes.elements[number].clear_state(self.scenario.elements[number]);
            let inbox = &mut self.nodes.host(MapNodeId::Element(number)).inbox;
            self.in_air -= inbox.len() as u64;
            inbox.clear();
            self.element_from[number] = if failure.returns { self.time.now + failure.down } else { Instant(u64::MAX) };
        }
        self.time.after(failure.notified_after, MapEvent::React(index));
    }

    /// Reaction of the controller: gives every application of the element a new epoch, fills the element's tables if
    /// possible, and informs every owner.
    pub(super) fn react(&mut self, index: usize) -> Result<(), MapViolation> {
        let failure = self.scenario.failures[index];
        if self.controller.gone.contains(&failure.element) {
            return Ok(());
        }
        if !failure.returns {
            self.controller.gone.insert(failure.element);
        }
        for application in 0..self.controller.assignments.len() {
            let assignments = &mut self.controller.assignments[application];
            let withdrawn = assignments.memory.is_none() && self.scenario.applications[application].memory.is_some();
            if assignments.element != failure.element || withdrawn {
                continue;
            }
            assignments.memory = assignments.memory.filter(|_| failure.returns);
            self.install(application, failure.returns, failure.message_delay_max)?;
        }
        Ok(())
    }

    /// Changes the memory of an application.
    pub(super) fn move_memory(&mut self, index: usize) -> Result<(), MapViolation> {
        let change = self.scenario.moves[index];
        let MemoryMove { application, element_notified_after, message_delay_max, .. } = change;
        let memory = change.memory.filter(|memory| !self.controller.gone.contains(&memory.element));
        let assignments = &mut self.controller.assignments[application];
        let before = std::mem::replace(&mut assignments.memory, memory);
        if before.is_none() && memory.is_none() {
            return Ok(());
        }
        let left = assignments.element;
        assignments.element = memory.map_or(left, |memory| memory.element);
        self.time.record(MapNodeId::Owner(application), || format!("MOVES to {memory:?}"));
        if let Some(after) = element_notified_after {
            self.time.after(after, MapEvent::Remove(application, left));
        }
        self.install(application, memory.is_some(), message_delay_max)
    }

    /// Gives an application a new epoch on its element, if one serves it, and informs its owner.
    fn install(&mut self, application: usize, serves: bool, message_delay_max: Duration) -> Result<(), MapViolation> {
        let plan = &self.scenario.applications[application];
        let assignments = &mut self.controller.assignments[application];
        assignments.epoch += 1;
        let Assignment { epoch, memory, element: number } = *assignments;
        if serves {
            let element = &mut self.nodes.elements[number];
            element.install(plan, self.nodes.owners[application].incarnation(), memory, epoch)?;
            let joined = self.nodes.callers[application].iter().zip(&plan.callers);
            for (_, caller) in joined.filter(|(state, caller)| state.is_member() && caller.registered) {
                element.register(plan, memory, caller)?;
            }
        }
        let update = OwnerUpdate { epoch, memory, element: serves.then_some(number), message_delay_max };
        let at = self.controller.arrival(self.time.now, MapNodeId::Owner(application), message_delay_max);
        self.controller.to_owners.entry(application).or_default().push_back(update);
        self.time.push(at, MapEvent::RenewOwner(application));
        Ok(())
    }

    /// Makes an owner continue without its silent element; it asks for memory again later.
    pub(super) fn suspend(&mut self, application: usize) -> Result<(), MapViolation> {
        let Some(epoch) = self.nodes.owners[application].epoch_with_memory() else { return Ok(()) };
        let owner = MapNodeId::Owner(application);
        self.time.record(owner, || "GOES ON without the element, which is silent".to_owned());
        self.checker.suspended(application);
        self.counts.suspended += 1;
        self.time.after(self.controller.random.up_to(SUSPENSION), MapEvent::RequestMemory(application));
        let update = OwnerUpdate { epoch, memory: None, element: None, message_delay_max: Duration::from_millis(1) };
        self.controller.to_owners.entry(application).or_default().push_back(update);
        self.handle_event(MapEvent::RenewOwner(application))
    }

    /// Assigns its memory to an owner again, under a new epoch, as the state of the element is unknown.
    pub(super) fn request_memory(&mut self, application: usize) -> Result<(), MapViolation> {
        let Assignment { memory, element, .. } = self.controller.assignments[application];
        if memory.is_none() || self.controller.gone.contains(&element) {
            return Ok(());
        }
        self.install(application, true, Duration::from_millis(1))
    }

    /// Removes an application from the element that it left, unless it is back.
    pub(super) fn remove(&mut self, application: usize, element: usize) {
        let assignments = self.controller.assignments[application];
        if assignments.memory.is_none() || assignments.element != element {
            self.nodes.elements[element].remove(&self.scenario.applications[application]);
        }
    }

    /// Registers a joining caller at the element.
    pub(super) fn register(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let plan = &self.scenario.applications[application];
        let Assignment { memory, element, .. } = self.controller.assignments[application];
        let reached = !self.controller.gone.contains(&element);
        if let (true, Some(element)) = (reached, self.nodes.elements.get_mut(element)) {
            element.register(plan, memory, &plan.callers[number])?;
        }
        Ok(())
    }

    /// Delivers an update to an owner, which informs its callers.
    pub(super) fn renew_owner(&mut self, application: usize) -> Result<(), MapViolation> {
        let node = MapNodeId::Owner(application);
        let waiting = self.controller.to_owners.get_mut(&application);
        let Some(update) = waiting.and_then(VecDeque::pop_front) else { return Ok(()) };
        let now = self.local_time(node);
        let mut effects = std::mem::take(&mut self.effects);
        let owner = &mut self.nodes.owners[application];
        owner.renew(now, &update, &mut effects);
        for (number, caller) in self.scenario.applications[application].callers.iter().enumerate() {
            let Some(renewal) = owner.rejoin(now, caller) else { continue };
            let at = self.controller.arrival(
                self.time.now,
                MapNodeId::Caller(application, number),
                update.message_delay_max,
            );
            let waiting = self.controller.to_callers.entry((application, number)).or_default();
            waiting.push_back((renewal, update.element));
            self.time.push(at, MapEvent::RenewCaller(application, number));
        }
        self.carry_out(node, effects, false)
    }

    /// Delivers a renewal to a caller.
    pub(super) fn renew_caller(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let node = MapNodeId::Caller(application, number);
        let waiting = self.controller.to_callers.get_mut(&(application, number));
        let Some((renewal, element)) = waiting.and_then(VecDeque::pop_front) else { return Ok(()) };
        self.windows.renewed(self.scenario.applications[application].callers[number].endpoint, renewal.rows);
        self.time.renewal(node, &renewal);
        let now = self.local_time(node);
        let mut effects = std::mem::take(&mut self.effects);
        self.nodes.callers[application][number].renew(now, &renewal, element, &mut effects);
        self.carry_out(node, effects, false)
    }
}
