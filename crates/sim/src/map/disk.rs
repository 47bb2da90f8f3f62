//! Disk of an owner with a store: what is synced survives the owner, what is still being written may not.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_endpoint::map::server::MapServer;
use pathcall_endpoint::map::server::durable::Batch;
use pathcall_wire::Instant;

use super::node::{Effects, NodeReport};
use crate::random::Random;

/// Properties of an application's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePlan {
    /// Limit on the time of a sync.
    pub sync_max: Duration,
    /// Number of batches after which a snapshot replaces them.
    pub snapshot_after: usize,
}

/// Disk of one application.
pub(crate) struct Disk {
    plan: StorePlan,
    random: Random,
    synced: Vec<Vec<u8>>,
    writing: VecDeque<Batch>,
    /// End of the sync in progress.
    due: Option<Instant>,
    /// Reports that wait for the disk, with their tickets.
    held: VecDeque<(u64, NodeReport)>,
}

impl Disk {
    pub(crate) fn new(plan: StorePlan, seed: u64) -> Self {
        let (synced, writing, held) = Default::default();
        Self { plan, random: Random::new(seed), synced, writing, due: None, held }
    }

    /// Ends the sync, if it is due.
    pub(crate) fn advance(&mut self, now: Instant, server: &mut MapServer) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.finish(server);
        }
    }

    /// Writes the changes of the owner.
    pub(crate) fn write(&mut self, now: Instant, server: &mut MapServer) {
        if let Some(batch) = server.take_batch() {
            self.writing.push_back(batch);
            let sync = self.random.up_to(self.plan.sync_max);
            self.due.get_or_insert(now + sync);
        }
    }

    /// Writes and syncs all changes at once: the owner waits for the disk before it answers a join.
    pub(crate) fn sync(&mut self, now: Instant, server: &mut MapServer) {
        self.write(now, server);
        self.finish(server);
        // The frames that have waited leave.
        self.due = Some(now);
    }

    fn finish(&mut self, server: &mut MapServer) {
        let Some(last) = self.writing.back().map(|batch| batch.number) else { return };
        self.synced.extend(self.writing.drain(..).map(|batch| batch.bytes));
        server.on_persisted(last);
        if self.synced.len() > self.plan.snapshot_after {
            // A snapshot has the changes since the last batch, too.
            self.synced = vec![server.snapshot()];
        }
    }

    /// Holds a report of the owner until the disk has what it depends on.
    pub(crate) fn hold(&mut self, server: &MapServer, report: NodeReport) {
        self.held.push_back((server.ticket(), report));
    }

    /// Passes the reports on that may leave.
    pub(crate) fn release(&mut self, server: &MapServer, effects: &mut Effects) {
        let passing = self.held.iter().take_while(|(ticket, _)| server.lets_pass(*ticket)).count();
        effects.reports.extend(self.held.drain(..passing).map(|(_, report)| report));
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// The owner has ended: some of the batches that were being written are on the disk, in order. Returns the queries that
    /// have no answer.
    pub(crate) fn crash(&mut self) -> impl Iterator<Item = NodeReport> + use<> {
        let kept = self.random.below(self.writing.len() as u64 + 1) as usize;
        self.synced.extend(self.writing.drain(..).take(kept).map(|batch| batch.bytes));
        self.due = None;
        std::mem::take(&mut self.held).into_iter().map(|(_, report)| report)
    }

    /// Batches on the disk.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &[u8]> {
        self.synced.iter().map(|batch| &batch[..])
    }

    /// The owner that has taken over writes a snapshot before it serves.
    pub(crate) fn replace(&mut self, snapshot: Vec<u8>) {
        self.synced = vec![snapshot];
    }
}
