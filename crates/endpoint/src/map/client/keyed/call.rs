//! Keyed call: its pairs, frames and results.

mod emit;

use std::ops::Range;
use std::time::Duration;

use pathcall_wire::map::frame_len;
use pathcall_wire::pairs::{self, MAX_ENTRIES, PairAnswer, PairStatus};
use pathcall_wire::policy::ReadMode;
use pathcall_wire::{ForwardTarget, Instant, MAX_UNSIGNED, MapFlags, Mutant, mutant};

use super::super::super::{Ack, CallError, Key, Modify, Operation, Output};
use super::super::CallId;
use super::reads::LentBase;

/// Empty lane of a frame.
pub(super) const NONE: u32 = u32::MAX;
/// Maximum number of pairs with logical addresses in a frame.
const LOGICAL_PAIRS: usize = 128;

/// Operation of a keyed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyedOp {
    Add { get: bool },
    Count { threshold: u32, to: ForwardTarget },
    Clear,
    Read(ReadMode),
}

/// Encoding of a frame's pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairEncoding {
    /// Lanes with registers in the element.
    Mapped,
    /// Acquisition or release of one lock in the element.
    Lock,
    Logical,
    Whole,
}

/// Frame of a keyed call.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) encoding: PairEncoding,
    /// Range of `KeyedCall::order`.
    pub(super) members: Range<usize>,
    pub(super) done: bool,
    /// Uncommitted generation in which the element applied the frame.
    pub(super) generation: Option<u32>,
    /// Bit mask of lanes that the element did not apply.
    pub(super) overflowed_lanes: u32,
    /// Id of the acquisition of a lock in the element.
    pub(super) tag: u32,
    /// Mapping version of the rows.
    version: u32,
    /// The frame waits in the queue of one lock: number of the grant for which the element denied the lock, or 0.
    waits: Option<u32>,
    /// Session of the first transmission.
    pub(super) session: u32,
    /// Whether the frame was sent, and the time of the first transmission.
    emitted: bool,
    pub(super) sent: Instant,
}

/// Keyed call in progress.
pub(super) struct KeyedCall {
    pub(super) op: KeyedOp,
    pub(super) modify: Modify,
    pub(super) keys: Vec<Key>,
    pub(super) values: Vec<i64>,
    /// Bases that a read in the element completes; empty before the first.
    pub(super) bases: Vec<LentBase>,
    /// Result of each pair.
    results: Vec<i64>,
    /// Pairs in the order of their frames; [`NONE`] is an empty lane.
    pub(super) order: Vec<u32>,
    /// Register row of each entry of `order`.
    rows: Vec<u32>,
    pub(super) frames: Vec<Frame>,
    /// First unsent frame.
    pub(super) next_frame: usize,
    /// Number of frames without an answer, unsent frames included.
    pub(super) open: usize,
    /// Pairs of a test-and-set that other callers hold.
    pub(super) denied: Vec<u32>,
    /// Pairs of a test-and-set that are requested after all earlier ones are granted.
    pub(super) pending_locks: Vec<u32>,
    /// Locks that are in the element, as reported by the server.
    pub(super) moved: Vec<u32>,
    /// Whether the call claims locks that are held already.
    pub(super) claim: bool,
    /// Pairs of a test-and-set that are granted; their tokens are the results.
    pub(super) granted: Vec<u32>,
    /// The call waits for the first pending lock at the server: number of the grant for which the element denied it.
    pub(super) denied_grant: Option<u32>,
    pub(super) tries: u32,
    /// Number of reads of registers whose base was not that of the open generation.
    pub(super) misses: u32,
    /// Of a count: for each pair, whether `CntFwd` forwards the message.
    forwarded: Vec<bool>,
    pub(super) detached: bool,
    pub(super) error: Option<CallError>,
    /// Acknowledgement that the call waits for.
    ack: Ack,
    /// Id of the call whose caller waits for the commit.
    pub(super) waiting_caller: Option<CallId>,
}

impl KeyedCall {
    /// Call of an operation on keys.
    ///
    /// # Panics
    /// On [`Operation::Sum`], which has no keys.
    pub(super) fn new(operation: Operation) -> Self {
        let mut acked_by = Ack::Element;
        let (op, modify, keys, values) = match operation {
            Operation::Add { pairs, modify, get, ack } => {
                acked_by = ack;
                let (keys, values) = pairs.into_iter().unzip();
                (KeyedOp::Add { get }, modify, keys, values)
            }
            Operation::Count { keys, threshold, to, .. } => {
                let values = vec![i64::from(threshold > 1); keys.len()];
                (KeyedOp::Count { threshold, to }, Modify::default(), keys, values)
            }
            Operation::Clear { keys, tokens } => {
                let named = |at| tokens.get(at).map_or(0, |token: &u64| *token as i64);
                let values = (0..keys.len()).map(named).collect();
                (KeyedOp::Clear, Modify::default(), keys, values)
            }
            Operation::Read { keys, read } => {
                let values = vec![0; keys.len()];
                (KeyedOp::Read(read), Modify::default(), keys, values)
            }
            Operation::Sum { .. } => unreachable!("sums have no keys"),
        };
        let forwarded = match op {
            KeyedOp::Count { to, .. } => vec![to != ForwardTarget::Server; keys.len()],
            _ => Vec::new(),
        };
        Self {
            op,
            modify,
            results: vec![0; keys.len()],
            keys,
            values,
            bases: Vec::new(),
            order: Vec::new(),
            rows: Vec::new(),
            frames: Vec::new(),
            next_frame: 0,
            open: 0,
            denied: Vec::new(),
            pending_locks: Vec::new(),
            moved: Vec::new(),
            claim: false,
            granted: Vec::new(),
            denied_grant: None,
            tries: 0,
            misses: 0,
            forwarded,
            detached: false,
            error: None,
            ack: acked_by,
            waiting_caller: None,
        }
    }

    /// All pairs. Locks are in a global order of keys, which prevents deadlocks.
    pub(super) fn in_key_order(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.keys.len() as u32).collect();
        if matches!(self.op, KeyedOp::Count { .. }) && !mutant::on(Mutant::LocksUnordered) {
            all.sort_by(|a, b| self.keys[*a as usize].cmp(&self.keys[*b as usize]));
        }
        all
    }

    /// Pairs of a frame in the lanes of the bit mask `lanes`.
    pub(super) fn pairs_of(&self, index: usize, lanes: u32) -> Vec<u32> {
        let members = self.frames[index].members.clone().enumerate();
        let pairs = members.map(|(lane, at)| (lane, self.order[at]));
        pairs.filter(|(lane, i)| *i != NONE && lanes >> lane & 1 == 1).map(|(_, i)| i).collect()
    }

    /// Removes the unsent frames and returns their pairs.
    pub(super) fn take_unsent(&mut self) -> Vec<u32> {
        let unsent = self.frames.split_off(self.next_frame);
        self.open -= unsent.len();
        let pairs = unsent.into_iter().flat_map(|frame| frame.members).map(|at| self.order[at]);
        pairs.filter(|i| *i != NONE).collect()
    }

    /// Last uncommitted generation with a frame of this call.
    pub(super) fn uncommitted(&self, committed: u32) -> Option<u32> {
        self.frames.iter().filter_map(|frame| frame.generation).filter(|generation| *generation > committed).max()
    }

    /// Whether the call must wait for a commit.
    pub(super) fn awaits_commit(&self, committed: u32) -> bool {
        let by_server = self.ack == Ack::Server && !self.detached && !mutant::on(Mutant::AckTooSoon);
        by_server && self.uncommitted(committed).is_some()
    }

    /// Outcome for the caller.
    pub(super) fn outcome(&mut self) -> Result<Output, CallError> {
        self.error.take().map_or_else(|| Ok(self.output()), Err)
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.next_frame == 0 && self.granted.is_empty()
    }

    /// Adds a frame of pairs with registers of this mapping version.
    pub(super) fn push_mapped(&mut self, members: &[(u32, u32)], version: u32) {
        let start = self.order.len();
        self.order.extend(members.iter().map(|(i, _)| i));
        self.rows.extend(members.iter().map(|(_, row)| row));
        self.push_frame(PairEncoding::Mapped, start);
        if let Some(frame) = self.frames.last_mut() {
            frame.version = version;
        }
    }

    pub(super) fn push_logical(&mut self, members: &[u32]) {
        for members in members.chunks(LOGICAL_PAIRS) {
            let start = self.order.len();
            self.order.extend(members);
            self.push_frame(PairEncoding::Logical, start);
        }
    }

    pub(super) fn push_whole(&mut self, members: &[u32]) {
        let mut rest = members;
        while !rest.is_empty() {
            let (frame, later) = rest.split_at(self.count_fitting(rest));
            let start = self.order.len();
            self.order.extend(frame);
            self.push_frame(PairEncoding::Whole, start);
            rest = later;
        }
    }

    /// Adds a frame of the next locks of a test-and-set. One frame at a time: if a later frame were granted before an
    /// earlier one, two calls could deadlock.
    pub(super) fn push_next_locks(&mut self, most: usize) {
        let fitting = self.count_fitting_locks(most);
        let later = self.pending_locks.split_off(fitting);
        let frame = std::mem::replace(&mut self.pending_locks, later);
        self.push_whole(&frame);
    }

    /// Number of the first `most` pending locks that fit a frame.
    pub(super) fn count_fitting_locks(&self, most: usize) -> usize {
        self.count_fitting(&self.pending_locks).min(most)
    }

    /// Adds a frame that waits in the queue of the first pending lock.
    pub(super) fn push_waiting(&mut self, denied_for: u32) {
        self.push_next_locks(1);
        if let Some(frame) = self.frames.last_mut() {
            frame.waits = Some(denied_for);
        }
    }

    /// Adds a frame of one lock in the element.
    pub(super) fn push_lock(&mut self, i: u32, row: u32, tag: u32) {
        let start = self.order.len();
        self.order.push(i);
        self.rows.push(row);
        self.push_frame(PairEncoding::Lock, start);
        if let Some(frame) = self.frames.last_mut() {
            frame.tag = tag;
        }
    }

    /// Pair and row of a lock frame.
    pub(super) fn lock_of(&self, index: usize) -> (u32, u32) {
        let at = self.frames[index].members.start;
        (self.order[at], self.rows[at])
    }

    /// Adds denied or lost locks to the pending locks, in order.
    pub(super) fn requeue_locks(&mut self, locks: Vec<u32>) {
        let Self { pending_locks, keys, .. } = self;
        pending_locks.splice(..0, locks);
        if !mutant::on(Mutant::LocksUnordered) {
            pending_locks.sort_by(|a, b| keys[*a as usize].cmp(&keys[*b as usize]));
        }
    }

    /// Whether the call acquires locks.
    pub(super) fn takes_locks(&self) -> bool {
        matches!(self.op, KeyedOp::Count { threshold: 1, .. })
    }

    /// Records the value of a key.
    pub(super) fn set_result(&mut self, i: u32, value: i64) {
        self.results[i as usize] = value;
    }

    /// Records a granted lock.
    pub(super) fn add_grant(&mut self, i: u32, token: u64) {
        self.results[i as usize] = token as i64;
        self.granted.push(i);
    }

    /// Key and token of a granted lock.
    pub(super) fn grant_of(&self, i: u32) -> (Key, u64) {
        (self.keys[i as usize].clone(), self.results[i as usize] as u64)
    }

    /// Makes all granted locks pending again, after the end of the lease.
    pub(super) fn drop_grants(&mut self) {
        let lost = std::mem::take(&mut self.granted);
        self.requeue_locks(lost);
        self.denied_grant = None;
    }

    /// Whether a frame waits in a lock queue.
    pub(super) fn is_waiting(&self, index: usize) -> bool {
        self.frames.get(index).is_some_and(|frame| frame.waits.is_some())
    }

    /// Number of these pairs that fit a frame of whole keys; at least 1.
    fn count_fitting(&self, members: &[u32]) -> usize {
        let room = MAX_UNSIGNED - frame_len(MapFlags::BARE, 0, 0);
        let mut used = 0;
        let fitting = members.iter().take(MAX_ENTRIES).take_while(|i| {
            used += pairs::entry_len(self.keys[**i as usize].as_bytes().len());
            used <= room
        });
        fitting.count().max(1)
    }

    fn push_frame(&mut self, encoding: PairEncoding, start: usize) {
        self.rows.resize(self.order.len(), 0);
        self.frames.push(Frame {
            encoding,
            members: start..self.order.len(),
            done: false,
            generation: None,
            overflowed_lanes: 0,
            tag: 0,
            version: 0,
            waits: None,
            session: 0,
            emitted: false,
            sent: Instant(0),
        });
        self.open += 1;
    }

    /// Applies the answer to one pair with a whole key.
    pub(super) fn apply_answer(&mut self, i: u32, answer: &PairAnswer) {
        let position = i as usize;
        self.results[position] = answer.value;
        match answer.status {
            PairStatus::Denied => self.denied.push(i),
            PairStatus::Overflow => self.error = Some(CallError::Overflow { position }),
            // Only ballots get this status.
            PairStatus::Moved => {}
            PairStatus::Full => self.error = Some(CallError::KeysFull),
            PairStatus::Whole | PairStatus::Logical | PairStatus::Mapped | PairStatus::Held | PairStatus::Queued => {
                match self.op {
                    KeyedOp::Count { threshold, to: ForwardTarget::Server } if answer.value == i64::from(threshold) => {
                        self.forwarded[position] = true;
                    }
                    _ => {}
                }
            }
        }
    }

    pub(super) fn output(&self) -> Output {
        match self.op {
            KeyedOp::Add { get: true } | KeyedOp::Read(_) => Output::Values(self.results.clone()),
            KeyedOp::Count { .. } => Output::Counted { forwarded: self.forwarded.clone() },
            _ => Output::Done,
        }
    }

    /// Output of a call with all its locks, held for at least `lease`.
    pub(super) fn locked_output(&self, lease: Duration) -> Output {
        Output::Locked { tokens: self.results.iter().map(|token| *token as u64).collect(), lease }
    }
}
