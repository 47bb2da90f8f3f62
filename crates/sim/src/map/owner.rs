//! Owner of the map simulation: a [`MapServer`] without its driver.

use pathcall_endpoint::map::client::{ClientConfig, NewOwner};
use pathcall_endpoint::map::server::durable::{DamagedRecord, ResumeSecret};
use pathcall_endpoint::map::server::{ElementTerms, Event, MapServer, Member, QueryId, ServerConfig, ServerStats};
use pathcall_endpoint::map::{CallError, EpochChange, Key};
use pathcall_wire::Instant;

use super::caller::decision;
use super::disk::Disk;
use super::handler::Handler;
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
    /// Disk, if the application has a store.
    disk: Option<Disk>,
    /// Number of owners so far, and whether the present one has ended.
    life: u32,
    down: bool,
    /// Queries that ended with an owner.
    pub(crate) unanswered: Vec<QueryId>,
    open_queries: Vec<QueryId>,
    /// Handler of its sums, if they are for the server.
    handler: Option<Handler>,
}

impl<'a> Owner<'a> {
    pub(crate) fn new(plan: &'a ApplicationPlan) -> Self {
        let server = MapServer::new(plan.server_config()).authenticate(plan.token_key);
        let disk = plan.store.map(|store| Disk::new(store, plan.incarnation.into()));
        let server = if disk.is_some() { server.with_store() } else { server };
        Self {
            plan,
            server,
            epoch: plan.epoch,
            terms: 0,
            memory: plan.memory,
            element: Some(plan.element()),
            disk,
            life: 0,
            down: false,
            unanswered: Vec::new(),
            open_queries: Vec::new(),
            handler: plan.handler.map(|handler| Handler::new(handler, plan)),
        }
    }

    /// Incarnation of the present owner.
    pub(crate) fn incarnation(&self) -> u32 {
        self.plan.incarnation.wrapping_add(2 * self.life)
    }

    /// Number of the present owner.
    pub(crate) fn life(&self) -> u32 {
        self.life
    }

    /// Whether it has ended, and no other has taken over yet.
    pub(crate) fn is_down(&self) -> bool {
        self.down
    }

    /// Ends the owner; returns its number.
    pub(crate) fn crash(&mut self) -> u32 {
        if let Some(disk) = &mut self.disk {
            drop(disk.crash());
        }
        self.unanswered.append(&mut self.open_queries);
        self.down = true;
        self.life
    }

    /// Continues as another owner, from the disk. It has no memory yet.
    pub(crate) fn take_over(&mut self, now: Instant, epoch: u32, effects: &mut Effects) -> Result<(), DamagedRecord> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        self.life += 1;
        (self.down, self.memory, self.element, self.terms) = (false, None, None, 0);
        let incarnation = self.plan.incarnation.wrapping_add(2 * self.life);
        let config = ServerConfig { epoch, incarnation, grant: None, ..self.plan.server_config() };
        let server = MapServer::restore(now, config, disk.batches())?;
        self.server = server.authenticate(self.plan.token_key);
        self.epoch = self.server.epoch();
        disk.replace(self.server.snapshot());
        self.poll_until_idle(now, effects);
        Ok(())
    }

    /// Lets a caller of a former owner continue.
    pub(crate) fn resume(
        &mut self,
        now: Instant,
        caller: &MapCallerPlan,
        known_epoch: u32,
    ) -> Option<(NewOwner, EpochChange)> {
        let member = Member { element: false, ..self.member(caller) };
        let (_, change) = self.server.resume(member, secret(caller), known_epoch)?;
        self.sync(now);
        let ApplicationPlan { gaid, endpoint: server, token_key: key, .. } = *self.plan;
        Some((NewOwner { gaid, server, incarnation: self.incarnation(), key }, change))
    }

    fn sync(&mut self, now: Instant) {
        if let Some(disk) = &mut self.disk {
            disk.sync(now, &mut self.server);
        }
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
        self.server.set_secret(caller.endpoint, secret(caller));
        self.sync(now);
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
            server_incarnation: self.incarnation(),
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
    pub(crate) fn rejoin(&mut self, now: Instant, caller: &MapCallerPlan) -> Option<EpochChange> {
        let renewal = self.server.take_epoch_change(self.member(caller))?;
        self.sync(now);
        Some(EpochChange { element: self.sends_by_element(caller, renewal.element), ..renewal })
    }

    /// Whether a caller sends through the element. With memory the owner decides; without, the element only forwards.
    fn sends_by_element(&self, caller: &MapCallerPlan, of_use: bool) -> bool {
        if self.memory.is_some() { of_use } else { caller.by_element && self.element.is_some() }
    }

    /// Whether it has recorded that a ballot is decided.
    pub(crate) fn has_decided(&self, key: &Key, threshold: u32) -> bool {
        self.server.has_decided(key, threshold)
    }

    pub(crate) fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// Queries the values of these keys, or of all.
    pub(crate) fn query(&mut self, now: Instant, id: QueryId, keys: Option<Vec<Key>>, effects: &mut Effects) {
        effects.reports.push(NodeReport::Asked(id));
        self.query_again(now, id, keys, effects);
    }

    /// Queries again, after the owner that was asked has ended.
    pub(crate) fn query_again(&mut self, now: Instant, id: QueryId, keys: Option<Vec<Key>>, effects: &mut Effects) {
        if self.down {
            return self.unanswered.push(id);
        }
        self.open_queries.push(id);
        self.server.query(now, id, keys);
        self.poll_until_idle(now, effects);
    }

    fn poll_until_idle(&mut self, now: Instant, effects: &mut Effects) {
        if self.down {
            return;
        }
        if let Some(disk) = &mut self.disk {
            disk.advance(now, &mut self.server);
        }
        self.server.poll(now, effects);
        let mut answers = Vec::new();
        if let Some(handler) = &mut self.handler {
            handler.exchange(now, &mut self.server, effects);
        }
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, outcome) => answers.push(NodeReport::Answered(id, outcome)),
                Event::ElementSilent | Event::EpochEndRequested => effects.silent |= self.memory.is_some(),
                Event::Used | Event::ReadsEnded => {}
            }
        }
        let before = effects.reports.len();
        match &mut self.disk {
            Some(disk) => {
                answers.into_iter().for_each(|answer| disk.hold(&self.server, answer));
                disk.write(now, &mut self.server);
                disk.release(&self.server, effects);
            }
            None => effects.reports.append(&mut answers),
        }
        for report in &effects.reports[before..] {
            if let NodeReport::Answered(answered, _) = report {
                self.open_queries.retain(|open| open != answered);
            }
        }
    }
}

/// Secret of a caller's session.
fn secret(caller: &MapCallerPlan) -> ResumeSecret {
    (u128::from(caller.endpoint) << 64 | u128::from(caller.incarnation)).to_le_bytes()
}

impl SimulatedNode for Owner<'_> {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        if self.down {
            return;
        }
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
        let disk = self.disk.as_ref().and_then(Disk::deadline);
        let handler = self.handler.as_ref().and_then(Handler::deadline);
        [self.server.deadline(), disk, handler].into_iter().flatten().min().filter(|_| !self.down)
    }
}
