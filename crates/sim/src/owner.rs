//! An owner: a [`MapServer`] in its driver's place.

use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::server::{Event, MapServer, Member, QueryId, ServerConfig, ServerStats, Terms};
use pathcall_endpoint::map::{CallError, Grant, Key, Renewal};
use pathcall_wire::Instant;

use crate::caller::{decision, mark};
use crate::party::{Effects, Party, Report};
use crate::scenario::{ApplicationPlan, CallerPlan, Purpose};

/// The owner of one application.
pub(crate) struct Owner<'a> {
    plan: &'a ApplicationPlan,
    server: MapServer,
    epoch: u32,
    terms: u64,
    /// Whether there is an element.
    element: bool,
}

impl<'a> Owner<'a> {
    pub(crate) fn new(plan: &'a ApplicationPlan) -> Self {
        let server = MapServer::new(ServerConfig {
            gaid: plan.gaid,
            epoch: plan.epoch,
            endpoint: plan.endpoint,
            incarnation: plan.incarnation,
            grant: plan.memory.map(|memory| Grant { rows: memory.rows, width: memory.width }),
            threshold: plan.workers(),
            mapping: plan.mapping(),
            locks: plan.purpose == Purpose::Lock,
            votes: plan.counts(),
            width: plan.width,
            timing: plan.timing,
        });
        Self { plan, server, epoch: plan.epoch, terms: 0, element: true }
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
            element: caller.by_element && self.element,
            rows: joined.rows,
            width: joined.width,
            worker: joined.worker,
            votes: self.plan.counts(),
            start_chunk: joined.start_chunk,
            timing: self.plan.timing,
        })
    }

    fn member(&self, caller: &CallerPlan) -> Member {
        let CallerPlan { endpoint, incarnation, slot_base, flows, registered, .. } = *caller;
        Member { endpoint, incarnation, element: registered && self.element, slot_base, flows, terms: self.terms }
    }

    /// The element has restarted, or is gone.
    pub(crate) fn renew(&mut self, now: Instant, epoch: u32, element: bool, effects: &mut Effects) {
        self.element = element;
        self.epoch = epoch;
        let grant = self.plan.memory.filter(|_| element).map(|memory| Grant { rows: memory.rows, width: memory.width });
        self.terms += 1;
        let terms = Terms { number: self.terms, epoch: self.epoch, grant, reason: "the element failed" };
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
        // The element passes on the frames of an application that it has no memory for.
        Some(Renewal { element: caller.by_element && self.element, ..renewal })
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
                // The world tells of every failure of the element in time.
                Event::ElementSilent => {}
            }
        }
    }
}

impl Party for Owner<'_> {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        mark(frame, marked);
        let ignored = self.server.stats().frames_ignored;
        self.server.handle(now, frame, effects);
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
