//! Level of a sum: a group of workers is summed here, and is one worker of the level above (NetRPC §6.6: several
//! switches).
//!
//! ```text
//! workers ─ parts ─► MapServer ─ sums of the group ─► SumLevel ─► MapClient ─► level above
//! workers ◄─ sums ── MapServer ◄─ sums of all groups ─ SumLevel ◄─ MapClient ◄─ level above
//! ```
//!
//! A chunk goes up as soon as the group's sum of it is reached, so the levels work at the same time on different chunks
//! of a call. The chunks go up in order, from the first chunk of the step in which the level has joined. All groups make
//! the same sequence of calls, so this chunk is the same everywhere. A group at another chunk of a call, or in a call of
//! another length, has another tag, and the level above reports it.
//!
//! A failure goes both ways. If the sums fail here, the level abandons its sum above: the other groups would wait for it.
//! If they fail above, they fail here. Then the level is *detached*: it keeps the sums that its workers reach, and passes
//! them up after [`SumLevel::attach`].

use std::collections::BTreeMap;

use pathcall_wire::{Instant, Mutant, mutant};

use super::client::{CallId, MapClient};
use super::server::{MapServer, ReachedPosition, ReachedSum, SumEvent};
use super::{CallError, FrameSink, Output};

/// Failure of a level's sums: the level is detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LevelFailure {
    /// The sums have failed here. The level abandons its sum above, see [`MapServer::abandon_sum`], and joins again.
    Below,
    /// The sums have failed above. The level joins again.
    Above(CallError),
}

/// Sums of one level.
#[derive(Debug)]
pub struct SumLevel {
    /// Number of workers of the level above.
    threshold: u32,
    /// Next chunk to pass up; `None` if detached.
    next: Option<u64>,
    /// Sums that were not passed up, by chunk.
    waiting: BTreeMap<u64, ReachedSum>,
    /// Sums under way above.
    passed: BTreeMap<CallId, ReachedPosition>,
    /// Number of sums passed up.
    calls: u64,
}

impl SumLevel {
    /// Detached level below one with `threshold` workers.
    #[must_use]
    pub fn new(threshold: u32) -> Self {
        Self { threshold, next: None, waiting: BTreeMap::new(), passed: BTreeMap::new(), calls: 0 }
    }

    /// Begins to pass sums to a client that has just joined the level above. The rows there are at least as wide as
    /// those of `server`, whose sums are for a handler.
    pub fn attach(&mut self, server: &MapServer) {
        self.next = Some(server.first_open_chunk());
    }

    /// Whether the level passes sums up.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.next.is_some()
    }

    /// Passes the workers' sums up, and their results down; call it after each input of `server` or `client`. `out`
    /// takes frames for the workers.
    ///
    /// # Errors
    /// [`LevelFailure`]: `client` is to be replaced by one that joins again.
    pub fn exchange(
        &mut self,
        now: Instant,
        server: &mut MapServer,
        client: &mut MapClient,
        out: &mut impl FrameSink,
    ) -> Result<(), LevelFailure> {
        let failed = self.take_sums(server);
        if !self.is_attached() {
            return Ok(());
        }
        if failed && !mutant::on(Mutant::LevelFailureKept) {
            self.detach();
            return Err(LevelFailure::Below);
        }
        self.pass_up(client);
        while let Some((id, outcome)) = client.next_event() {
            if let (Some(position), Ok(Output::Sums(total))) = (self.passed.remove(&id), outcome) {
                // A sum that has failed here meanwhile gets no result.
                server.answer_sum(now, position, &total, out);
            }
        }
        // Also while no sum is under way: the workers learn of it before their next step.
        if let Some(error) = client.failure() {
            // A worker's frames tell no other reason.
            let told = if error.to_fields().is_some() { error.clone() } else { CallError::SumAbandoned };
            if !mutant::on(Mutant::LevelFailureHidden) {
                server.fail_sums(now, told);
            }
            self.detach();
            self.take_sums(server);
            return Err(LevelFailure::Above(error.clone()));
        }
        Ok(())
    }

    /// Takes the server's sums. Returns whether its workers' sums have failed.
    fn take_sums(&mut self, server: &mut MapServer) -> bool {
        let mut failed = false;
        while let Some(event) = server.next_sum_event() {
            match event {
                SumEvent::Reached(sum) => drop(self.waiting.insert(sum.position.chunk, sum)),
                SumEvent::Failed => {
                    failed = true;
                    self.waiting.clear();
                }
            }
        }
        failed
    }

    fn pass_up(&mut self, client: &mut MapClient) {
        while let Some((&chunk, _)) = self.waiting.first_key_value()
            && (self.next == Some(chunk) || mutant::on(Mutant::LevelUnordered))
            && let Some(ReachedSum { position, tag, sums }) = self.waiting.remove(&chunk)
        {
            self.next = Some(chunk + 1);
            self.calls += 1;
            let id = CallId(self.calls);
            self.passed.insert(id, position);
            // Parts for a handler have the inverse of the tag that parts for all workers have.
            let tag = if mutant::on(Mutant::LevelUntagged) { 1 } else { !tag };
            client.pass_sum(id, sums, self.threshold, tag);
        }
    }

    fn detach(&mut self) {
        self.next = None;
        self.passed.clear();
    }
}
