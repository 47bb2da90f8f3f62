//! Idempotency table: calls with ids, each applied whole and exactly once, even if sent several times.
//!
//! ```text
//! open ─► a journal record, with a number that only its caller knows
//! apply(journal, attempt, id, pairs) ─► late, or a known id: nothing │ else: all pairs, or none and an error
//! ```
//!
//! A caller keeps a journal of started calls, so it can repeat them after it was killed. Such calls are sent past the
//! element. The server keeps a record per journal with the ids that the caller has not reported as done. A record that
//! is unused for [`JOURNAL_RETENTION`] is deleted; later calls of this journal fail, since their effect is unknown.
//!
//! A message of a killed process or a broken connection may arrive after its id was repeated, completed and deleted. So
//! each attempt has a number and lists the earlier attempts that are under way; other earlier attempts are late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_wire::Instant;

use super::super::{CallError, Key, Modify};
use super::MapServer;

/// Maximum number of journals of one application.
const JOURNALS_MAX: usize = 4096;
/// Maximum number of ids of one journal.
pub const CALL_IDS_MAX: usize = 4096;
/// Maximum number of ids of all journals of one application.
const APPLICATION_IDS_MAX: usize = 1 << 18;
/// Time for which the record of an unused journal is kept.
pub const JOURNAL_RETENTION: Duration = Duration::from_secs(3600);
/// Maximum length of an id in bytes.
pub const CALL_ID_BYTES_MAX: usize = 128;
/// Maximum number of listed attempts under way, besides all from a number on.
pub const EARLIER_PENDING_MAX: usize = 64;

/// Call with an id.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Number of the caller's journal.
    pub journal: u64,
    /// Attempt of the call.
    pub attempt: &'a CallAttempt,
    /// Id of the call, at most [`CALL_ID_BYTES_MAX`] bytes.
    pub id: &'a [u8],
    /// Ids that are complete: the caller does not send them again, and no attempt with them is under way.
    pub completed: &'a [Vec<u8>],
}

/// Attempt of a call, with the other attempts of its caller that are under way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallAttempt {
    /// Number of the attempt; it rises with time. 0: the caller does not number attempts, and none is late.
    pub number: u64,
    /// First number from which on all attempts may be under way.
    pub pending_from: u64,
    /// Earlier attempts that are under way, at most [`EARLIER_PENDING_MAX`].
    pub earlier_pending: Vec<u64>,
}

impl CallAttempt {
    /// Whether this attempt says that attempt `number` is not under way any more.
    fn has_abandoned(&self, number: u64) -> bool {
        number > 0 && number < self.pending_from && !self.earlier_pending.contains(&number)
    }
}

/// Outcome of a call with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The call took effect now.
    Applied,
    /// The call had taken effect before.
    AlreadyApplied,
}

/// Journal records of an application.
#[derive(Default)]
pub(super) struct IdempotencyTable {
    pub(super) journals: BTreeMap<u64, JournalRecord>,
    /// Number of ids in all journals.
    ids: usize,
    /// Changes for the store.
    pub(super) changed: ChangedIds,
}

/// Changed journals and ids that are in no batch yet.
#[derive(Default)]
pub(super) struct ChangedIds {
    /// Whether there is a store.
    pub(super) on: bool,
    pub(super) journals: BTreeSet<u64>,
    /// Ids, with their journals.
    pub(super) ids: BTreeSet<(u64, Box<[u8]>)>,
}

impl ChangedIds {
    fn note_journal(&mut self, journal: u64) {
        if self.on {
            self.journals.insert(journal);
        }
    }

    fn note_id(&mut self, journal: u64, id: &[u8]) {
        if self.on {
            self.ids.insert((journal, id.into()));
        }
    }

    pub(super) fn has_some(&self) -> bool {
        !self.journals.is_empty() || !self.ids.is_empty()
    }
}

/// Known call ids of one journal.
pub(super) struct JournalRecord {
    pub(super) ids: BTreeSet<Box<[u8]>>,
    heard: Instant,
    /// Latest attempt; its list of attempts under way is valid.
    pub(super) latest: CallAttempt,
}

impl IdempotencyTable {
    fn open(&mut self, now: Instant, number: u64) -> Result<(), CallError> {
        let Self { ids, changed, .. } = self;
        self.journals.retain(|number, journal| {
            let keep = now.since(journal.heard) < JOURNAL_RETENTION;
            if !keep {
                changed.note_journal(*number);
            }
            *ids -= if keep { 0 } else { journal.ids.len() };
            keep
        });
        if self.journals.len() >= JOURNALS_MAX {
            return Err(CallError::IdempotencyFull);
        }
        self.changed.note_journal(number);
        self.journals.entry(number).or_insert(JournalRecord {
            ids: BTreeSet::new(),
            heard: now,
            latest: CallAttempt::default(),
        });
        Ok(())
    }

    /// Deletes completed ids, and returns whether the id is known.
    fn check(&mut self, now: Instant, entry: &Entry<'_>) -> Result<bool, CallError> {
        let journal =
            self.journals.get_mut(&entry.journal).filter(|journal| now.since(journal.heard) < JOURNAL_RETENTION);
        let journal = journal.ok_or(CallError::JournalForgotten)?;
        if journal.latest.has_abandoned(entry.attempt.number) {
            return Err(CallError::AbandonedAttempt);
        }
        if entry.attempt.number > journal.latest.number {
            journal.latest.clone_from(entry.attempt);
            self.changed.note_journal(entry.journal);
        }
        journal.heard = now;
        for id in entry.completed {
            if journal.ids.remove(&id[..]) {
                self.ids -= 1;
                self.changed.note_id(entry.journal, id);
            }
        }
        let met = journal.ids.contains(entry.id);
        if !met && (journal.ids.len() >= CALL_IDS_MAX || self.ids >= APPLICATION_IDS_MAX) {
            return Err(CallError::IdempotencyFull);
        }
        Ok(met)
    }

    fn record(&mut self, entry: &Entry<'_>) {
        if let Some(journal) = self.journals.get_mut(&entry.journal) {
            self.ids += usize::from(journal.ids.insert(entry.id.into()));
            self.changed.note_id(entry.journal, entry.id);
        }
    }

    /// Loads a journal of a former owner, or its latest attempt.
    pub(super) fn load_journal(&mut self, now: Instant, number: u64, (attempt, from, earlier): (u64, u64, Vec<u64>)) {
        let latest = CallAttempt { number: attempt, pending_from: from, earlier_pending: earlier };
        let fresh = || JournalRecord { ids: BTreeSet::new(), heard: now, latest: CallAttempt::default() };
        self.journals.entry(number).or_insert_with(fresh).latest = latest;
    }

    pub(super) fn forget_journal(&mut self, number: u64) {
        let forgotten = self.journals.remove(&number);
        self.ids -= forgotten.map_or(0, |journal| journal.ids.len());
    }

    /// Loads an id of a former owner, or its removal. `None` if its journal is unknown.
    pub(super) fn load_id(&mut self, journal: u64, id: &[u8], present: bool) -> Option<()> {
        let journal = self.journals.get_mut(&journal)?;
        if present {
            self.ids += usize::from(journal.ids.insert(id.into()));
        } else {
            self.ids -= usize::from(journal.ids.remove(id));
        }
        Some(())
    }
}

impl MapServer {
    /// Opens a journal record for a caller's calls with ids. The number should be random: any caller that knows it may
    /// use the journal.
    ///
    /// # Errors
    /// [`CallError::IdempotencyFull`].
    pub fn open_journal(&mut self, now: Instant, number: u64) -> Result<(), CallError> {
        self.idempotency.open(now, number)
    }

    /// Whether an addition to these keys must wait until [`ReadsEnded`](super::Event::ReadsEnded), because callers read their values in the
    /// element. Then ask again.
    pub fn must_wait(&mut self, now: Instant, pairs: &[(Key, i64)]) -> bool {
        self.keyed.must_wait(now, pairs.iter().map(|(key, _)| key.as_bytes()))
    }

    /// Adds all values to their keys, or none: a direct call. [`MapServer::must_wait`] must be false before. Each key
    /// occurs once. Returns the values after the addition if `get`.
    ///
    /// # Errors
    /// Nothing is added: [`CallError::KeysFull`], [`CallError::Overflow`], [`CallError::Range`],
    /// [`CallError::KeyLength`].
    pub fn add(&mut self, pairs: &[(Key, i64)], modify: Modify, get: bool) -> Result<Vec<i64>, CallError> {
        let values = self.keyed.add_all_or_nothing(pairs, modify, get)?;
        self.shared.stats.software_adds += pairs.len() as u64;
        Ok(values)
    }

    /// Adds all values to their keys, or none, unless the call took effect before. [`MapServer::must_wait`] must be false
    /// before.
    ///
    /// # Errors
    /// Nothing is added: [`CallError::JournalForgotten`], [`CallError::AbandonedAttempt`],
    /// [`CallError::IdempotencyFull`], [`CallError::KeysFull`], [`CallError::Overflow`], [`CallError::Range`],
    /// [`CallError::KeyLength`].
    pub fn apply(
        &mut self,
        now: Instant,
        entry: &Entry<'_>,
        pairs: &[(Key, i64)],
        modify: Modify,
    ) -> Result<ApplyOutcome, CallError> {
        if self.idempotency.check(now, entry)? {
            self.shared.stats.calls_repeated += 1;
            return Ok(ApplyOutcome::AlreadyApplied);
        }
        self.keyed.add_all_or_nothing(pairs, modify, false)?;
        self.idempotency.record(entry);
        self.shared.stats.calls_applied += 1;
        self.shared.stats.software_adds += pairs.len() as u64;
        Ok(ApplyOutcome::Applied)
    }
}
