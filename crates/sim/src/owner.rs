//! An owner: a [`MapServer`] in its driver's place.

use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::server::{Event, KEY_MEMORY, MapServer, Member, QueryId, ServerConfig, ServerStats, Terms};
use pathcall_endpoint::map::{Ack, CallError, Grant, Key, Renewal};
use pathcall_wire::Instant;

use crate::caller::decision;
use crate::party::{Effects, Party, Report};
use crate::scenario::{ApplicationPlan, CallerPlan, Memory, Purpose};
use crate::world::OwnerWord;

/// The owner of one application.
pub(crate) struct Owner<'a> {
    plan: &'a ApplicationPlan,
    server: MapServer,
    epoch: u32,
    terms: u64,
    /// Memory that it has.
    memory: Option<Memory>,
    /// The element that it works by, if there is one that serves.
    element: Option<usize>,
}

impl<'a> Owner<'a> {
    pub(crate) fn new(plan: &'a ApplicationPlan) -> Self {
        let server = MapServer::new(ServerConfig {
            gaid: plan.gaid,
            epoch: plan.epoch,
            endpoint: plan.endpoint,
            incarnation: plan.incarnation,
            grant: plan.memory.map(grant),
            threshold: plan.workers(),
            clear: plan.clear,
            mapping: plan.mapping(),
            acked: plan.ack == Ack::Server,
            locks: plan.purpose == Purpose::Lock,
            votes: plan.counts(),
            eviction: plan.eviction,
            key_memory: KEY_MEMORY,
            width: plan.width,
            lease: plan.lease,
            timing: plan.timing,
        });
        let server = server.authenticate(plan.token_key);
        Self { plan, server, epoch: plan.epoch, terms: 0, memory: plan.memory, element: Some(plan.element()) }
    }

    /// Whether a caller can join now.
    pub(crate) fn lets_in(&mut self, now: Instant, effects: &mut Effects) -> bool {
        let lets_in = self.server.lets_in();
        self.settle(now, effects);
        lets_in
    }

    /// Lets a caller in; what it is to know.
    pub(crate) fn join(&mut self, now: Instant, caller: &CallerPlan) -> Result<ClientConfig, CallError> {
        let joined = self.server.join(now, self.member(caller))?;
        Ok(ClientConfig {
            gaid: self.plan.gaid,
            epoch: self.epoch,
            endpoint: caller.endpoint,
            incarnation: caller.incarnation,
            server: self.plan.endpoint,
            server_incarnation: self.plan.incarnation,
            slot_base: caller.slot_base,
            flows: caller.flows,
            element: self.sends_by_element(caller, joined.element),
            inline: false,
            rows: joined.rows,
            width: joined.width,
            worker: joined.worker,
            votes: self.plan.counts(),
            clear: self.plan.clear,
            start_chunk: joined.start_chunk,
            lease: self.plan.lease,
            era: joined.era,
            timing: self.plan.timing,
        })
    }

    fn member(&self, caller: &CallerPlan) -> Member {
        let CallerPlan { endpoint, incarnation, slot_base, flows, registered, .. } = *caller;
        Member {
            endpoint,
            incarnation,
            element: registered && self.element.is_some(),
            slot_base,
            flows,
            terms: self.terms,
        }
    }

    /// Epoch that it works under, if it has memory.
    pub(crate) fn epoch_with_memory(&self) -> Option<u32> {
        self.memory.map(|_| self.epoch)
    }

    /// The element that it works by.
    pub(crate) fn element(&self) -> Option<usize> {
        self.element
    }

    /// Its memory is another, or its element has restarted, or is gone.
    pub(crate) fn renew(&mut self, now: Instant, word: &OwnerWord, effects: &mut Effects) {
        (self.element, self.epoch, self.memory) = (word.element, word.epoch, word.memory);
        self.terms += 1;
        let reason = "the element failed";
        let terms = Terms { number: self.terms, epoch: self.epoch, grant: self.memory.map(grant), reason };
        self.server.renew(now, terms);
        self.settle(now, effects);
    }

    /// A caller has left, or died.
    pub(crate) fn leave(&mut self, now: Instant, caller: &CallerPlan, effects: &mut Effects) {
        self.server.leave(now, caller.endpoint);
        self.settle(now, effects);
    }

    /// The element lets in nothing more of a caller that has left.
    pub(crate) fn gone(&mut self, now: Instant, caller: &CallerPlan, effects: &mut Effects) {
        self.server.gone(now, caller.endpoint);
        self.settle(now, effects);
    }

    /// What a caller is to be told of it; `None` when it has not joined.
    pub(crate) fn rejoin(&mut self, caller: &CallerPlan) -> Option<Renewal> {
        let renewal = self.server.rejoin(self.member(caller))?;
        Some(Renewal { element: self.sends_by_element(caller, renewal.element), ..renewal })
    }

    /// Whether a caller's frames go by the element: if there is memory, it is the owner who knows.
    /// Without, the element passes them on.
    fn sends_by_element(&self, caller: &CallerPlan, of_use: bool) -> bool {
        if self.memory.is_some() { of_use } else { caller.by_element && self.element.is_some() }
    }

    pub(crate) fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// Asks for the values of these keys, or of all.
    pub(crate) fn query(&mut self, now: Instant, id: QueryId, keys: Option<Vec<Key>>, effects: &mut Effects) {
        effects.reports.push(Report::Asked(id));
        self.server.query(now, id, keys);
        self.settle(now, effects);
    }

    fn settle(&mut self, now: Instant, effects: &mut Effects) {
        self.server.poll(now, effects);
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, outcome) => effects.reports.push(Report::Answered(id, outcome)),
                Event::ElementSilent | Event::EpochOver => effects.silent |= self.memory.is_some(),
            }
        }
    }
}

fn grant(memory: Memory) -> Grant {
    Grant { rows: memory.rows, width: memory.width }
}

impl Party for Owner<'_> {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        let ignored = self.server.stats().frames_ignored;
        match marked {
            true => self.server.handle_marked(now, frame, effects),
            false => self.server.handle(now, frame, effects),
        }
        effects.decision = Some(decision(self.server.stats().frames_ignored == ignored));
        self.settle(now, effects);
    }

    fn wake(&mut self, now: Instant, effects: &mut Effects) {
        self.settle(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        self.server.deadline()
    }
}
