//! Owner of the map simulation: a [`MapServer`] without its driver.

use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::server::{ElementTerms, Event, MapServer, Member, QueryId, ServerStats};
use pathcall_endpoint::map::{CallError, EpochChange, Key};
use pathcall_wire::Instant;

use super::caller::decision;
use super::node::{Effects, NodeReport, SimulatedNode};
use super::scenario::{ApplicationPlan, MapCallerPlan, RegisterRange};
use super::world::OwnerUpdate;

/// Owner of one application.
pub(crate) struct Owner<'a> {
    plan: &'a ApplicationPlan,
    server: MapServer,
    epoch: u32,
    terms: u64,
    /// Memory in the element, if any.
    memory: Option<RegisterRange>,
    /// Element that it works with, if one serves it.
    element: Option<usize>,
}

impl<'a> Owner<'a> {
    pub(crate) fn new(plan: &'a ApplicationPlan) -> Self {
        let server = MapServer::new(plan.server_config()).authenticate(plan.token_key);
        Self { plan, server, epoch: plan.epoch, terms: 0, memory: plan.memory, element: Some(plan.element()) }
    }

    /// Whether a caller can join now.
    pub(crate) fn can_join(&mut self, now: Instant, effects: &mut Effects) -> bool {
        let can_join = self.server.can_admit();
        self.poll_until_idle(now, effects);
        can_join
    }

    /// Admits a caller; returns its configuration.
    pub(crate) fn join(&mut self, now: Instant, caller: &MapCallerPlan) -> Result<ClientConfig, CallError> {
        let joined = self.server.join(now, self.member(caller))?;
        Ok(ClientConfig {
            epoch: self.epoch,
            endpoint: caller.endpoint,
            incarnation: caller.incarnation,
            slot_base: caller.slot_base,
            flows: caller.flows,
            element: self.sends_by_element(caller, joined.element),
            rows: joined.rows,
            width: joined.width,
            worker: joined.worker,
            start_chunk: joined.start_chunk,
            era: joined.era,
            ..self.plan.client_config()
        })
    }

    fn member(&self, caller: &MapCallerPlan) -> Member {
        let MapCallerPlan { endpoint, incarnation, slot_base, flows, registered, .. } = *caller;
        Member {
            endpoint,
            incarnation,
            element: registered && self.element.is_some(),
            slot_base,
            flows,
            terms: self.terms,
        }
    }

    /// Epoch of its memory, if it has memory.
    pub(crate) fn epoch_with_memory(&self) -> Option<u32> {
        self.memory.map(|_| self.epoch)
    }

    /// Element that it works with.
    pub(crate) fn element(&self) -> Option<usize> {
        self.element
    }

    /// Takes a change of its memory or its element.
    pub(crate) fn renew(&mut self, now: Instant, update: &OwnerUpdate, effects: &mut Effects) {
        (self.element, self.epoch, self.memory) = (update.element, update.epoch, update.memory);
        self.terms += 1;
        let reason = "the element failed";
        let grant = self.memory.map(RegisterRange::grant);
        let terms = ElementTerms { number: self.terms, epoch: self.epoch, grant, reason };
        self.server.renew(now, terms);
        self.poll_until_idle(now, effects);
    }

    /// Removes a caller that has left, or died.
    pub(crate) fn leave(&mut self, now: Instant, caller: &MapCallerPlan, effects: &mut Effects) {
        self.server.leave(now, caller.endpoint);
        self.poll_until_idle(now, effects);
    }

    /// Records that the element admits no more frames of a caller that has left.
    pub(crate) fn finish_departure(&mut self, now: Instant, caller: &MapCallerPlan, effects: &mut Effects) {
        self.server.on_caller_expelled(now, caller.endpoint);
        self.poll_until_idle(now, effects);
    }

    /// Renewal for a caller; `None` if the caller has not joined.
    pub(crate) fn rejoin(&mut self, caller: &MapCallerPlan) -> Option<EpochChange> {
        let renewal = self.server.take_epoch_change(self.member(caller))?;
        Some(EpochChange { element: self.sends_by_element(caller, renewal.element), ..renewal })
    }

    /// Whether a caller sends through the element. With memory the owner decides; without, the element only forwards.
    fn sends_by_element(&self, caller: &MapCallerPlan, of_use: bool) -> bool {
        if self.memory.is_some() { of_use } else { caller.by_element && self.element.is_some() }
    }

    pub(crate) fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// Queries the values of these keys, or of all.
    pub(crate) fn query(&mut self, now: Instant, id: QueryId, keys: Option<Vec<Key>>, effects: &mut Effects) {
        effects.reports.push(NodeReport::Asked(id));
        self.server.query(now, id, keys);
        self.poll_until_idle(now, effects);
    }

    fn poll_until_idle(&mut self, now: Instant, effects: &mut Effects) {
        self.server.poll(now, effects);
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, outcome) => effects.reports.push(NodeReport::Answered(id, outcome)),
                Event::ElementSilent | Event::EpochEndRequested => effects.silent |= self.memory.is_some(),
            }
        }
    }
}

impl SimulatedNode for Owner<'_> {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        let ignored = self.server.stats().frames_ignored;
        match marked {
            true => self.server.handle_marked(now, frame, effects),
            false => self.server.handle(now, frame, effects),
        }
        effects.decision = Some(decision(self.server.stats().frames_ignored == ignored));
        self.poll_until_idle(now, effects);
    }

    fn wake(&mut self, now: Instant, effects: &mut Effects) {
        self.poll_until_idle(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        self.server.deadline()
    }
}
