//! Durable state of an owner: what survives in a store, and how another owner continues from it.
//!
//! ```text
//! input ─► MapServer ─► changed keys, frames, members, ids ─► take_batch ─► driver ─► store
//!                                                                on_persisted ◄─────────┘
//! store ─► all batches ─► MapServer::restore ─► members are absent, until they resume ─► queries
//! ```
//!
//! A batch has the new state of everything that has changed since the last batch, not the operations: applying a batch
//! twice is harmless, and a snapshot is a batch of everything. Outputs wait in the `gate` for the batches before them.
//!
//! A caller that resumes keeps its sequence numbers: the restored repeat filters tell which of its frames took effect.
//! For frames of the element, the caller gets the notice of a change of epoch, as if the former owner had ended its last
//! epoch.

pub(super) mod codec;
pub(super) mod gate;
mod images;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::EpochChange;
use super::super::lease::Era;
use super::{EndedEpoch, Joined, MapServer, Member, MemberState, ServerConfig};
use gate::OutputGate;

/// Time for which a restored member may be absent before it counts as gone.
pub const RESUME_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of notices of ended epochs that are kept for a caller that has not confirmed them.
const TOLD_MAX: usize = 4;

/// Changes of an owner for its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Number of the batch, from 1.
    pub number: u64,
    /// Encoded changes.
    pub bytes: Vec<u8>,
}

/// Error of a record that no owner has written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {index} of the owner's state is damaged")]
pub struct DamagedRecord {
    /// Index of the record, from 0.
    pub index: usize,
}

/// Proof of a caller that it is the member that it says, 16 random bytes.
pub type ResumeSecret = [u8; 16];

/// Changed state of the owner that is in no batch yet, except keys and ids.
#[derive(Default)]
pub(super) struct Changes {
    /// Whether there is a store.
    pub(super) on: bool,
    meta: bool,
    members: BTreeSet<u32>,
    /// Frames that took effect: endpoint, flow, sequence number.
    frames: Vec<(u32, u32, u32)>,
    /// Positions in the list of notes.
    notes_from: usize,
}

impl Changes {
    pub(super) fn note_member(&mut self, endpoint: u32) {
        if self.on {
            self.members.insert(endpoint);
        }
    }

    /// Records that a member has left. Nothing of it is needed any more.
    pub(super) fn note_left(&mut self, endpoint: u32) {
        self.note_member(endpoint);
        self.frames.retain(|(of, ..)| *of != endpoint);
    }

    pub(super) fn note_frame(&mut self, endpoint: u32, flow: u32, seq: u32) {
        if self.on {
            self.frames.push((endpoint, flow, seq));
        }
    }

    pub(super) fn note_meta(&mut self) {
        self.meta |= self.on;
    }
}

/// State of the owner beside its parts that only an owner with a store has.
#[derive(Default)]
pub(super) struct Durable {
    pub(super) gate: OutputGate,
    /// Restored members that have not resumed, with the time at which each counts as gone.
    absent: BTreeMap<u32, Instant>,
    /// Notes of the driver.
    notes: Vec<Box<[u8]>>,
}

impl MapServer {
    /// Turns on the output of batches, for an owner with a store.
    #[must_use]
    pub fn with_store(mut self) -> Self {
        self.durable.gate = OutputGate::with_store();
        self.shared.changes.on = true;
        self.keyed.changed.on = true;
        self.idempotency.changed.on = true;
        self.shared.changes.note_meta();
        self
    }

    /// Owner that continues from the batches of a former one, in order. Its [epoch](MapServer::epoch) is that of `config`, or a
    /// later one: later than all epochs of former owners.
    /// All its members are absent; each has [`RESUME_TIMEOUT`] to [resume](MapServer::resume).
    ///
    /// # Errors
    /// A batch is damaged.
    pub fn restore<'a>(
        now: Instant,
        config: ServerConfig,
        batches: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, DamagedRecord> {
        let mut server = Self::new(config).with_store();
        let mut former_epoch = None;
        for (index, batch) in batches.into_iter().enumerate() {
            server.load(now, batch, &mut former_epoch).ok_or(DamagedRecord { index })?;
        }
        if let Some(former) = former_epoch {
            server.shared.previous_epoch = former;
            if former >= config.epoch {
                // Who gave this epoch did not know the former owner; the element may have its registers.
                (server.shared.config.epoch, server.shared.config.grant) = (former + 1, None);
            }
        }
        server.shared.era = Era::of_epoch(server.shared.config.epoch);
        server.keyed.end_restored_epoch(now, &mut server.shared);
        let endpoints: Vec<u32> = server.shared.members.keys().copied().collect();
        for endpoint in endpoints {
            server.durable.absent.insert(endpoint, now + RESUME_TIMEOUT);
            server.shared.changes.note_member(endpoint);
        }
        server.shared.changes.notes_from = server.durable.notes.len();
        Ok(server)
    }

    /// Lets a restored member continue; `known_epoch` is the epoch that it knows, and `member` has its slots under the
    /// current terms. `None` if there is no such member, or what it missed is not known any more: then it must join.
    pub fn resume(&mut self, member: Member, secret: ResumeSecret, known_epoch: u32) -> Option<(Joined, EpochChange)> {
        if !self.may_resume(member.endpoint, member.incarnation, &secret) {
            return None;
        }
        let state = self.shared.members.get_mut(&member.endpoint)?;
        let missed = state.told.iter().position(|told| told.epoch == known_epoch);
        if let Some(at) = missed.filter(|_| !mutant::on(Mutant::NoticeForgotten)) {
            // The caller missed the notice, and has sent nothing since.
            state.ended = Some(state.told.swap_remove(at));
        }
        if state.ended.as_ref().is_none_or(|ended| ended.epoch != known_epoch) {
            return None;
        }
        state.told.clear();
        if member.terms != self.shared.terms {
            return None;
        }
        self.durable.absent.remove(&member.endpoint);
        let change = self.take_epoch_change(member)?;
        let config = &self.shared.config;
        let joined = Joined {
            worker: 0,
            start_chunk: 0,
            rows: config.grant.map_or(0, |grant| grant.rows),
            width: config.width,
            element: change.element,
            era: change.era,
        };
        Some((joined, change))
    }

    /// Whether this is an absent member, with its secret.
    #[must_use]
    pub fn may_resume(&self, endpoint: u32, incarnation: u32, secret: &ResumeSecret) -> bool {
        let known = |state: &MemberState| state.member.incarnation == incarnation && state.secret == *secret;
        self.durable.absent.contains_key(&endpoint) && self.shared.members.get(&endpoint).is_some_and(known)
    }

    /// Whether a member has not resumed yet. It has no stream on which it could be told anything.
    pub(super) fn is_absent(&self, endpoint: u32) -> bool {
        self.durable.absent.contains_key(&endpoint)
    }

    /// Current epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.shared.config.epoch
    }

    /// Sets the secret by which a member proves later that it is the same.
    pub fn set_secret(&mut self, endpoint: u32, secret: ResumeSecret) {
        if let Some(state) = self.shared.members.get_mut(&endpoint) {
            state.secret = secret;
            self.shared.changes.note_member(endpoint);
        }
    }

    /// Keeps a note of the driver with the state; notes are never removed.
    pub fn keep_note(&mut self, note: &[u8]) {
        if self.durable.gate.has_store() {
            self.durable.notes.push(note.into());
        }
    }

    /// Notes of the driver, in order.
    pub fn notes(&self) -> impl Iterator<Item = &[u8]> {
        self.durable.notes.iter().map(|note| &**note)
    }

    /// Ticket of the latest change: what depends on it may leave the owner when [`lets_pass`](Self::lets_pass) is true.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.durable.gate.taken() + u64::from(self.has_changes())
    }

    /// Whether the state that a ticket stands for is in the store, or there is no store.
    #[must_use]
    pub fn lets_pass(&self, ticket: u64) -> bool {
        self.durable.gate.lets_pass(ticket)
    }

    /// Changes since the last batch, for the store. `None` if nothing has changed or there is no store.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if !self.has_changes() {
            return None;
        }
        let bytes = self.write_changes();
        Some(Batch { number: self.durable.gate.take_batch(), bytes })
    }

    /// The whole state as one batch. It replaces all batches so far, also the next one to be taken.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.write_all()
    }

    /// Records that the store has all batches up to this one. [`MapServer::poll`] sends what has waited for them.
    pub fn on_persisted(&mut self, number: u64) {
        self.durable.gate.on_persisted(number);
    }

    /// Whether there are changes in no batch yet.
    fn has_changes(&self) -> bool {
        let Changes { on, meta, members, frames, notes_from } = &self.shared.changes;
        let own = *meta || !members.is_empty() || !frames.is_empty() || *notes_from < self.durable.notes.len();
        *on && (own || self.keyed.changed.has_some() || self.idempotency.changed.has_some())
    }

    /// Ends an input: the frames that it has caused leave when its changes are in the store.
    pub(super) fn release_outputs(&mut self, out: &mut impl super::FrameSink) {
        if self.has_changes() {
            self.durable.gate.note_change();
        }
        self.durable.gate.release(out);
    }

    /// Removes absent members whose time is over.
    pub(super) fn expire_absent(&mut self, now: Instant) {
        while let Some((&endpoint, _)) = self.durable.absent.iter().find(|(_, until)| **until <= now) {
            self.durable.absent.remove(&endpoint);
            self.leave(now, endpoint);
        }
    }

    /// Next time at which an absent member counts as gone.
    pub(super) fn absence_deadline(&self) -> Option<Instant> {
        self.durable.absent.values().copied().min()
    }
}

impl MemberState {
    /// Keeps a notice until the caller confirms it.
    pub(super) fn note_told(&mut self, ended: &EndedEpoch) {
        if self.told.len() == TOLD_MAX {
            self.told.remove(0);
        }
        self.told.push(ended.clone());
    }
}
