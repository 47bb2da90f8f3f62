//! One keyed call: its pairs, its frames, what came back.

mod emit;

use std::ops::Range;
use std::time::Duration;

use pathcall_wire::map::frame_len;
use pathcall_wire::pairs::{self, Answer, MAX_ENTRIES, Status};
use pathcall_wire::{MAX_UNSIGNED, MapFlags, Mutant, Target, mutant};

use super::super::super::{Ack, CallError, Key, Modify, Operation, Output};
use super::super::CallId;

/// An empty lane of a frame.
pub(super) const NONE: u32 = u32::MAX;
/// Pairs of a frame of logical addresses.
const LOGICAL_PAIRS: usize = 128;

/// Which primitives a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Add { get: bool },
    Count { threshold: u32, to: Target },
    Clear,
}

/// How a frame's pairs travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    Mapped,
    /// A lock in the element, taken or given back: one pair.
    Lock,
    Logical,
    Whole,
}

#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) road: Road,
    /// Range of `Call::order`.
    pub(super) members: Range<usize>,
    pub(super) done: bool,
    /// The element applied it in this generation, which was not committed when last heard of it.
    pub(super) generation: Option<u32>,
    /// Lanes that the element left out.
    pub(super) left_out: u32,
    /// Names the acquiring of a lock in the element.
    pub(super) tag: u32,
    /// Version of the mapping that its rows are of.
    version: u32,
    /// It waits in line for one lock, which the element denied for this grant; 0: it did not.
    waits: Option<u32>,
    /// The session in which it was first sent.
    pub(super) session: u32,
    /// Sent at least once.
    emitted: bool,
}

pub(super) struct Call {
    pub(super) work: Work,
    pub(super) modify: Modify,
    pub(super) keys: Vec<Key>,
    pub(super) values: Vec<i64>,
    /// What came back, pair by pair.
    results: Vec<i64>,
    /// Pairs in the order of frames; [`NONE`] is an empty lane.
    pub(super) order: Vec<u32>,
    /// Register rows, beside `order`.
    rows: Vec<u32>,
    pub(super) frames: Vec<Frame>,
    /// First frame that was not sent.
    pub(super) next_frame: usize,
    /// Frames without an answer, unsent ones included.
    pub(super) open: usize,
    /// Pairs of a test-and-set that others hold.
    pub(super) denied: Vec<u32>,
    /// Pairs of a test-and-set that wait until all before them are held.
    pub(super) line: Vec<u32>,
    /// Locks that the server says are in the element.
    pub(super) moved: Vec<u32>,
    /// It tells the server of locks that are held already.
    pub(super) claim: bool,
    /// Pairs of a test-and-set that this call holds; their tokens are its results.
    pub(super) granted: Vec<u32>,
    /// The first lock in line is waited for at the server; the grant for which the element denied it.
    pub(super) queue: Option<u32>,
    pub(super) tries: u32,
    forwarded: bool,
    pub(super) detached: bool,
    pub(super) error: Option<CallError>,
    /// Who must have it before it is done.
    ack: Ack,
    /// Its caller waits until the server has it.
    pub(super) waits: Option<CallId>,
}

impl Call {
    /// The call of an operation on keys.
    ///
    /// # Panics
    /// On [`Operation::Sum`], which has no keys.
    pub(super) fn new(operation: Operation) -> Self {
        let mut acked_by = Ack::Element;
        let (work, modify, keys, values) = match operation {
            Operation::Add { pairs, modify, get, ack } => {
                acked_by = ack;
                let (keys, values) = pairs.into_iter().unzip();
                (Work::Add { get }, modify, keys, values)
            }
            Operation::Count { keys, threshold, to } => {
                let values = vec![i64::from(threshold > 1); keys.len()];
                (Work::Count { threshold, to }, Modify::default(), keys, values)
            }
            Operation::Clear { keys, tokens } => {
                let named = |at| tokens.get(at).map_or(0, |token: &u64| *token as i64);
                let values = (0..keys.len()).map(named).collect();
                (Work::Clear, Modify::default(), keys, values)
            }
            Operation::Sum { .. } => unreachable!("sums have no keys"),
        };
        Self {
            work,
            modify,
            results: vec![0; keys.len()],
            keys,
            values,
            order: Vec::new(),
            rows: Vec::new(),
            frames: Vec::new(),
            next_frame: 0,
            open: 0,
            denied: Vec::new(),
            line: Vec::new(),
            moved: Vec::new(),
            claim: false,
            granted: Vec::new(),
            queue: None,
            tries: 0,
            forwarded: matches!(work, Work::Count { to: Target::All | Target::Src, .. }),
            detached: false,
            error: None,
            ack: acked_by,
            waits: None,
        }
    }

    /// All pairs. Locks are taken in a global order of keys, so that no two calls wait for each other.
    pub(super) fn in_key_order(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.keys.len() as u32).collect();
        if matches!(self.work, Work::Count { .. }) && !mutant::on(Mutant::LocksUnordered) {
            all.sort_by(|a, b| self.keys[*a as usize].cmp(&self.keys[*b as usize]));
        }
        all
    }

    /// Pairs of a frame that are in the lanes `lanes`.
    pub(super) fn pairs_of(&self, index: usize, lanes: u32) -> Vec<u32> {
        let members = self.frames[index].members.clone().enumerate();
        let pairs = members.map(|(lane, at)| (lane, self.order[at]));
        pairs.filter(|(lane, i)| *i != NONE && lanes >> lane & 1 == 1).map(|(_, i)| i).collect()
    }

    /// Takes out the pairs of the frames that were not sent.
    pub(super) fn take_unsent(&mut self) -> Vec<u32> {
        let unsent = self.frames.split_off(self.next_frame);
        self.open -= unsent.len();
        let pairs = unsent.into_iter().flat_map(|frame| frame.members).map(|at| self.order[at]);
        pairs.filter(|i| *i != NONE).collect()
    }

    /// The last generation that the element alone holds something of.
    pub(super) fn uncommitted(&self, committed: u32) -> Option<u32> {
        self.frames.iter().filter_map(|frame| frame.generation).filter(|generation| *generation > committed).max()
    }

    /// Whether it is not done before the server has what the element has of it.
    pub(super) fn must_wait(&self, committed: u32) -> bool {
        let by_server = self.ack == Ack::Server && !self.detached && !mutant::on(Mutant::AckTooSoon);
        by_server && self.uncommitted(committed).is_some()
    }

    /// What its caller is told.
    pub(super) fn outcome(&mut self) -> Result<Output, CallError> {
        self.error.take().map_or_else(|| Ok(self.output()), Err)
    }

    pub(super) fn nothing_sent(&self) -> bool {
        self.next_frame == 0 && self.granted.is_empty()
    }

    /// A frame of pairs by their registers, as of this version of the mapping.
    pub(super) fn push_mapped(&mut self, members: &[(u32, u32)], version: u32) {
        let start = self.order.len();
        self.order.extend(members.iter().map(|(i, _)| i));
        self.rows.extend(members.iter().map(|(_, row)| row));
        self.push_frame(Road::Mapped, start);
        if let Some(frame) = self.frames.last_mut() {
            frame.version = version;
        }
    }

    pub(super) fn push_logical(&mut self, members: &[u32]) {
        for members in members.chunks(LOGICAL_PAIRS) {
            let start = self.order.len();
            self.order.extend(members);
            self.push_frame(Road::Logical, start);
        }
    }

    pub(super) fn push_whole(&mut self, members: &[u32]) {
        let mut rest = members;
        while !rest.is_empty() {
            let (frame, later) = rest.split_at(self.whole_fitting(rest));
            let start = self.order.len();
            self.order.extend(frame);
            self.push_frame(Road::Whole, start);
            rest = later;
        }
    }

    /// Puts the next keys of a test-and-set into a frame. One frame at a time: if a later one were
    /// granted before an earlier one, two calls could each hold what the other waits for.
    pub(super) fn push_next_locks(&mut self, most: usize) {
        let fitting = self.locks_fitting(most);
        let later = self.line.split_off(fitting);
        let frame = std::mem::replace(&mut self.line, later);
        self.push_whole(&frame);
    }

    /// How many of the first `most` locks in line fit a frame.
    pub(super) fn locks_fitting(&self, most: usize) -> usize {
        self.whole_fitting(&self.line).min(most)
    }

    /// A frame that waits in line for the first lock alone.
    pub(super) fn push_waiting(&mut self, denied_for: u32) {
        self.push_next_locks(1);
        if let Some(frame) = self.frames.last_mut() {
            frame.waits = Some(denied_for);
        }
    }

    /// A frame of one lock in the element.
    pub(super) fn push_lock(&mut self, i: u32, row: u32, tag: u32) {
        let start = self.order.len();
        self.order.push(i);
        self.rows.push(row);
        self.push_frame(Road::Lock, start);
        if let Some(frame) = self.frames.last_mut() {
            frame.tag = tag;
        }
    }

    /// The key and the row of a lock frame.
    pub(super) fn lock_of(&self, index: usize) -> (u32, u32) {
        let at = self.frames[index].members.start;
        (self.order[at], self.rows[at])
    }

    /// Puts locks that were not granted, or are lost, back into the line, which stays in order.
    pub(super) fn line_up(&mut self, locks: Vec<u32>) {
        let Self { line, keys, .. } = self;
        line.splice(..0, locks);
        if !mutant::on(Mutant::LocksUnordered) {
            line.sort_by(|a, b| keys[*a as usize].cmp(&keys[*b as usize]));
        }
    }

    /// Whether it takes locks.
    pub(super) fn takes_locks(&self) -> bool {
        matches!(self.work, Work::Count { threshold: 1, .. })
    }

    /// Notes a lock that the call holds now.
    pub(super) fn granted(&mut self, i: u32, token: u64) {
        self.results[i as usize] = token as i64;
        self.granted.push(i);
    }

    /// The key and the token of a lock that it holds.
    pub(super) fn granted_as(&self, i: u32) -> (Key, u64) {
        (self.keys[i as usize].clone(), self.results[i as usize] as u64)
    }

    /// What it held is lost: it is taken anew.
    pub(super) fn lose(&mut self) {
        let lost = std::mem::take(&mut self.granted);
        self.line_up(lost);
        self.queue = None;
    }

    /// Whether a frame waits in line.
    pub(super) fn is_in_line(&self, index: usize) -> bool {
        self.frames.get(index).is_some_and(|frame| frame.waits.is_some())
    }

    /// How many of these pairs fit one frame of whole keys; at least 1.
    fn whole_fitting(&self, members: &[u32]) -> usize {
        let room = MAX_UNSIGNED - frame_len(MapFlags::BARE, 0, 0);
        let mut used = 0;
        let fitting = members.iter().take(MAX_ENTRIES).take_while(|i| {
            used += pairs::entry_len(self.keys[**i as usize].as_bytes().len());
            used <= room
        });
        fitting.count().max(1)
    }

    fn push_frame(&mut self, road: Road, start: usize) {
        self.rows.resize(self.order.len(), 0);
        self.frames.push(Frame {
            road,
            members: start..self.order.len(),
            done: false,
            generation: None,
            left_out: 0,
            tag: 0,
            version: 0,
            waits: None,
            session: 0,
            emitted: false,
        });
        self.open += 1;
    }

    /// Takes the answer to one whole pair.
    pub(super) fn take(&mut self, i: u32, answer: &Answer) {
        let position = i as usize;
        self.results[position] = answer.value;
        match answer.status {
            Status::Denied => self.denied.push(i),
            Status::Overflow => self.error = Some(CallError::Overflow { position }),
            // Only ballots are.
            Status::Moved => {}
            Status::Full => self.error = Some(CallError::KeysFull),
            Status::Whole | Status::Logical | Status::Mapped | Status::Held | Status::InLine => match self.work {
                Work::Count { threshold, to: Target::Server } if answer.value == i64::from(threshold) => {
                    self.forwarded = true;
                }
                _ => {}
            },
        }
    }

    pub(super) fn output(&self) -> Output {
        match self.work {
            Work::Add { get: true } => Output::Values(self.results.clone()),
            Work::Count { .. } => Output::Counted { forwarded: self.forwarded },
            _ => Output::Done,
        }
    }

    /// What a call that holds all its locks gives, for so long at least.
    pub(super) fn locked(&self, lease: Duration) -> Output {
        Output::Locked { tokens: self.in_key_order().iter().map(|i| self.results[*i as usize] as u64).collect(), lease }
    }
}
