//! An owner: a [`MapServer`] and the queries that it is asked.

use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::server::{MapServer, Member, QueryId, ServerConfig, ServerStats};
use pathcall_endpoint::map::{CallError, Grant, Key};
use pathcall_wire::Instant;

use crate::caller::{decision, mark};
use crate::party::{Effects, Party, Report};
use crate::scenario::{ApplicationPlan, CallerPlan};

/// The owner of one application.
pub(crate) struct Owner<'a> {
    plan: &'a ApplicationPlan,
    server: MapServer,
    next_query: usize,
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
            width: plan.width,
            timing: plan.timing,
        });
        Self { plan, server, next_query: 0 }
    }

    /// Lets a caller in; what it is to know.
    pub(crate) fn join(&mut self, now: Instant, caller: &CallerPlan) -> Result<ClientConfig, CallError> {
        let member = Member { endpoint: caller.endpoint, incarnation: caller.incarnation, element: caller.registered };
        let joined = self.server.join(now, member)?;
        Ok(ClientConfig {
            gaid: self.plan.gaid,
            epoch: self.plan.epoch,
            endpoint: caller.endpoint,
            incarnation: caller.incarnation,
            server: self.plan.endpoint,
            server_incarnation: self.plan.incarnation,
            slot_base: caller.slot_base,
            flows: caller.flows,
            element: caller.by_element,
            rows: joined.rows,
            width: joined.width,
            worker: joined.worker,
            start_chunk: joined.start_chunk,
            timing: self.plan.timing,
        })
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
        while let Some((id, outcome)) = self.server.next_event() {
            effects.reports.push(Report::Answered(id, outcome));
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
        while let Some(query) = self.plan.queries.get(self.next_query).filter(|query| query.at <= now) {
            let id = QueryId(self.next_query as u64);
            self.next_query += 1;
            self.query(now, id, query.keys.clone(), effects);
        }
        self.settle(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        let query = self.plan.queries.get(self.next_query).map(|query| query.at);
        [query, self.server.deadline()].into_iter().flatten().min()
    }
}
