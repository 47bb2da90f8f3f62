//! Reached sums of the server's handler (NetRPC Table 2: parameter server): the handler decides the results of the rounds.
//!
//! ```text
//! parts ─► sum of a round ─► SumEvent::Reached ─► handler ─► MapServer::answer_sum ─► result, to all workers
//! ```
//!
//! While the handler runs, the round is complete but has no result: its row accepts no further part, and a worker that
//! sent the last part, or asks again, is told that its part is held. The element keeps the round open until the result clears it, as with any
//! sum of clear policy *copy*.
//!
//! If the workers fail, the reached sums are void: a late answer of the handler has no effect. The next rounds begin
//! after all rounds of the failed step, so no worker gets a part of its result.

use std::collections::VecDeque;

use pathcall_wire::{Flags, ForwardTarget, Instant, MapFrame, W_MAX};

use super::super::lanes::narrow_lanes;
use super::super::{CallError, FrameSink, Lanes};
use super::frames::send_result;
use super::round::{Backup, Row};
use super::sum::SumStore;
use super::{MapServer, MemberState, OwnerContext};

/// Sum of a round whose result the server's handler decides, see [`MapServer::answer_sum`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedSum {
    /// Position of the round.
    pub position: ReachedPosition,
    /// Tag of the parts: equal for the same chunk of the same call.
    pub tag: u32,
    /// Sums of the chunk's lanes.
    pub sums: Lanes,
}

/// Position of a reached sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReachedPosition {
    /// Number of the chunk.
    pub chunk: u64,
    /// Number of the sum. A repeated step has other numbers.
    pub number: u64,
}

/// Event about the sums for the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SumEvent {
    /// A sum is reached; [`MapServer::answer_sum`] gives it its result.
    Reached(ReachedSum),
    /// The workers' sums have failed: no reached sum so far can get a result.
    Failed,
}

/// Round that waits for its result.
pub(super) struct ReachedRound {
    number: u64,
    tag: u32,
    /// Number of lanes.
    lanes: usize,
    ecn: bool,
    /// Bit mask of workers that joined after the sum was reached.
    late_workers: u64,
}

/// Reached sums that were not taken yet, and the numbers of sums.
#[derive(Default)]
pub(super) struct ReachedSums {
    events: VecDeque<SumEvent>,
    /// Number of the latest sum.
    latest: u64,
}

impl ReachedRound {
    /// Records that a worker index has a new holder.
    pub(super) fn note_joined(&mut self, worker: u16) {
        self.late_workers |= 1 << worker;
    }

    /// Handles a frame of the round: `false` if its sender makes a different call.
    pub(super) fn accept(&mut self, frame: &MapFrame<&[u8]>) -> bool {
        self.ecn |= frame.base().has(Flags::ECN);
        self.tag == frame.map().tag()
    }
}

/// Whether the parts of a frame's round are summed for the handler.
pub(super) fn is_for_handler(frame: &MapFrame<&[u8]>) -> bool {
    frame.map().to() == ForwardTarget::Server as u8
}

impl SumStore {
    /// Passes the sum of the open round of an own row to the handler. `frame` is the last part; its lanes are the sums
    /// if the element added them. Its sender is told that the part is held.
    pub(super) fn reach(
        &mut self,
        (index, round): (u32, u32),
        frame: &MapFrame<&[u8]>,
        by_element: bool,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let chunk = self.own_numbering().chunk(index, round)?;
        let row = self.rows.get_mut(index as usize)?;
        let sums = match row.software.take().filter(|_| !by_element) {
            Some(software) => Lanes::from(software.into_sums()),
            None => Lanes::Narrow(narrow_lanes(frame.lanes()).collect()),
        };
        self.reached.latest += 1;
        let number = self.reached.latest;
        let (tag, lanes, ecn) = (frame.map().tag(), sums.len(), frame.base().has(Flags::ECN));
        row.reached = Some(Box::new(ReachedRound { number, tag, lanes, ecn, late_workers: 0 }));
        let position = ReachedPosition { chunk, number };
        self.reached.events.push_back(SumEvent::Reached(ReachedSum { position, tag, sums }));
        shared.answer_held(frame, out)
    }

    /// Begins after all rounds of the failed step: some of them may have results, which the repeated step must not get.
    /// `handled`: the handler hears that its sums are void.
    pub(super) fn void_rounds(&mut self, handled: bool) {
        self.reached.events.clear();
        self.reached.events.extend(handled.then_some(SumEvent::Failed));
        // A worker is at most all rows ahead of another one.
        let last = self.rows.iter().map(|row| row.backup.round).max().unwrap_or(0);
        let round = last.saturating_add(1);
        for row in &mut self.rows {
            let software = Some(Box::default());
            *row = Row { backup: Backup { round, ..Backup::default() }, software, ..Row::default() };
        }
    }

    /// Gives a reached sum its result, and sends it.
    fn answer(
        &mut self,
        now: Instant,
        position: ReachedPosition,
        result: &Lanes,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> bool {
        let (index, round) = self.own_numbering().position(position.chunk);
        let Some(row) = self.rows.get_mut(index as usize) else { return false };
        let is_open =
            |reached: &mut Box<ReachedRound>| reached.number == position.number && reached.lanes == result.len();
        let Some(reached) = row.reached.take_if(is_open) else { return false };
        row.store_answer(round, reached.tag, result);
        row.late_workers = reached.late_workers;
        let is_missed = row.late_workers != 0;
        let place = self.position(index, round);
        let place = (place.0, place.1, self.rows());
        send_result(&self.rows[index as usize].backup, place, (reached.ecn, None), shared, out);
        if is_missed {
            self.announce_again(now, index, round);
        }
        true
    }
}

impl MapServer {
    /// Next event about the sums for the handler.
    pub fn next_sum_event(&mut self) -> Option<SumEvent> {
        self.sums.reached.events.pop_front()
    }

    /// Sends the handler's result of a reached sum to all workers. The result has as many values as the sum. Returns
    /// false, and does nothing, if the sum has a result already or its step has failed.
    pub fn answer_sum(
        &mut self,
        now: Instant,
        position: ReachedPosition,
        result: &Lanes,
        out: &mut impl FrameSink,
    ) -> bool {
        let mut guard = std::mem::take(&mut self.guard);
        let answered = self.sums.answer(now, position, result, &mut self.shared, &mut guard.signing(out));
        self.guard = guard;
        answered
    }

    /// Number of the first chunk that has no result: where the next step begins, after a failed one.
    #[must_use]
    pub fn first_open_chunk(&self) -> u64 {
        self.sums.first_open_chunk()
    }

    /// Makes the sums of all present workers fail with this error. They get no further sums before they have joined
    /// again.
    pub fn fail_sums(&mut self, now: Instant, error: CallError) {
        self.sums.fail_all_workers(now, error, &mut self.shared);
        self.request_epoch_end_for_sums();
    }

    /// Maximum number of chunks of a call whose sums can all be reached before one of them has a result: each has a row,
    /// and a place in a flow of each worker.
    #[must_use]
    pub fn chunks_at_once(&self) -> u32 {
        let flows = self.shared.members.values().map(|state| state.member.flows.max(1)).min().unwrap_or(1);
        self.sums.rows().min(flows.saturating_mul(W_MAX / 2))
    }

    /// Handles a caller that abandons a sum to which it may have contributed. All present workers get
    /// [`CallError::SumAbandoned`], and no further sums before they have joined again, since the next sum of this
    /// caller would belong to a different step.
    pub fn abandon_sum(&mut self, now: Instant, endpoint: u32, incarnation: u32) {
        let lives = |state: &MemberState| state.member.incarnation == incarnation;
        if self.shared.members.get(&endpoint).is_some_and(lives) && self.shared.config.threshold > 0 {
            self.fail_sums(now, CallError::SumAbandoned);
        }
    }
}
