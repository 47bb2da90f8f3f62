//! Ballots at a caller: calls that count keys up to a threshold, or clear them.
//!
//! Keys are sent whole. Past the element, several keys share a frame. When the server has reported that the element
//! counts, each key that fits a register is sent to the element in its own frame, to the row of its hash. Votes that
//! only the element has counted, and decisions that it has announced, are [kept](claims) until the epoch ends or this
//! caller leaves; if a vote of this caller decided, the server learns of it at once. A vote in flight at the end of an
//! epoch is sent past the element with the same sequence number, so that the server does not count it twice.

mod call;
mod claims;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::pairs::{self, MAX_KEY, PairStatus};
use pathcall_wire::{FrameKind, Instant, MapFlags, MapFrame, Mutant, mutant};

use super::super::{CallError, Dest, Key, Operation, Output};
use super::{CallId, ClientConfig, ClientStats, Flow, FlowPosition, Item};
use call::{VoteCall, VoteOp};
use claims::UnrecordedVotes;

/// First and maximum pause before a key is sent again that the server could not count yet.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// Ballot calls of a caller.
#[derive(Default)]
pub(super) struct VoteCalls {
    calls: BTreeMap<CallId, VoteCall>,
    /// Calls with unsent frames, in order.
    ready: VecDeque<CallId>,
    done: VecDeque<(CallId, Result<Output, CallError>)>,
    /// Calls with the time of their next action.
    timers: BTreeSet<(Instant, CallId)>,
    /// Number of rows for ballots in the element in this epoch; 0 if unknown or none.
    rows: u32,
    unrecorded: UnrecordedVotes,
    own: u64,
    closing: bool,
}

impl VoteCalls {
    /// Starts an operation that counts or clears.
    pub(super) fn start(
        &mut self,
        id: CallId,
        operation: Operation,
        config: &ClientConfig,
    ) -> Result<Option<Output>, CallError> {
        let call = VoteCall::new(operation);
        if let Some(position) = call.keys.iter().position(|key| key.as_bytes().len() > MAX_KEY) {
            return Err(CallError::KeyLength { len: call.keys[position].as_bytes().len() - 1, position });
        }
        if call.keys.is_empty() {
            return Ok(Some(call.output()));
        }
        self.queue_call(id, call, config);
        Ok(None)
    }

    fn queue_call(&mut self, id: CallId, mut call: VoteCall, config: &ClientConfig) {
        let all: Vec<u32> = (0..call.keys.len() as u32).collect();
        call.pack(&all, if config.element { self.rows } else { 0 });
        self.ready.push_back(id);
        self.calls.insert(id, call);
    }

    /// Cancels a call; false if there is no such call.
    pub(super) fn cancel(&mut self, now: Instant, id: CallId, config: &ClientConfig) -> bool {
        let Some(call) = self.calls.get_mut(&id) else { return false };
        call.detached = true;
        self.finish_if_done(now, id, config);
        let Some(call) = self.calls.get_mut(&id) else { return true };
        if call.next_frame == 0 {
            self.calls.remove(&id);
            self.ready.retain(|other| *other != id);
        }
        true
    }

    pub(super) fn peek(&self) -> Option<Item> {
        let id = *self.ready.front()?;
        Some(Item::Vote(id, self.calls.get(&id)?.next_frame as u32))
    }

    pub(super) fn on_sent(&mut self) {
        let Some(id) = self.ready.front().copied() else { return };
        if let Some(call) = self.calls.get_mut(&id) {
            call.next_frame += 1;
            if call.next_frame == call.frames.len() {
                self.ready.pop_front();
            }
        }
    }

    pub(super) fn emit(
        &mut self,
        id: CallId,
        index: u32,
        position: FlowPosition,
        config: &ClientConfig,
        scratch: &mut [u8],
        mut send: impl FnMut(Dest, &[u8], u64),
    ) {
        if let Some(call) = self.calls.get_mut(&id) {
            let (to, len, lane_bytes) = call.emit(index as usize, position, config, scratch);
            send(to, &scratch[..len], lane_bytes);
        }
    }

    /// Handles the answer to a frame.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        id: CallId,
        index: u32,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
        stats: &mut ClientStats,
    ) -> Option<()> {
        let call = self.calls.get_mut(&id)?;
        let sent = call.frames.get(index as usize).filter(|sent| !sent.done)?;
        let (members, is_query) = (sent.members.clone(), sent.is_query);
        let rows = if config.element { self.rows } else { 0 };
        if frame.kind() == FrameKind::MapAck {
            let i = *members.first().filter(|_| sent.row.is_some())?;
            stats.lanes_element += u64::from(!is_query);
            let (counts, waits) = (matches!(call.op, VoteOp::Count { .. }), call.op.waits());
            let (decided, round) = (frame.map().has(MapFlags::REACHED), frame.base().round());
            if decided {
                call.decided_early.remove(&i);
            }
            if decided && waits {
                self.unrecorded.add_decision(call.op, &call.keys[i as usize], round);
            }
            // Before the server records the decision, only the element has the vote.
            if counts && !decided && !is_query {
                self.unrecorded.add_vote(call.op, &call.keys[i as usize], round);
            }
            if counts && !decided && waits && !mutant::on(Mutant::HeldIsDone) {
                call.wait_for_decision(i, Some(round), rows);
            }
        } else {
            let answers: Vec<_> = pairs::answers(frame.payload()).collect();
            if answers.len() != members.len() {
                return None;
            }
            for (i, answer) in members.into_iter().zip(&answers) {
                match answer.status {
                    PairStatus::Moved => {
                        if frame.base().epoch() == config.epoch && answer.row > 0 {
                            call.pauses = if self.rows == 0 { 0 } else { call.pauses };
                            self.rows = answer.row;
                        }
                        call.later.push(i);
                        continue;
                    }
                    PairStatus::Held if !mutant::on(Mutant::HeldIsDone) => {
                        call.wait_for_decision(i, None, rows);
                    }
                    PairStatus::Full => call.error = Some(CallError::KeysFull),
                    _ if call.op.is_deciding(answer.value) => {
                        let i = if mutant::on(Mutant::WonForFirstKey) { 0 } else { i };
                        call.won[i as usize] = true;
                    }
                    _ => {}
                }
                let by_element = answer.status == PairStatus::Mapped;
                let lanes = if by_element { &mut stats.lanes_element } else { &mut stats.lanes_software };
                *lanes += u64::from(!is_query && !matches!(call.op, VoteOp::Claim { .. }));
            }
        }
        let call = self.calls.get_mut(&id)?;
        call.frames[index as usize].done = true;
        call.open -= 1;
        self.mark_ready(id);
        self.finish_if_done(now, id, config);
        Some(())
    }

    /// Ends a call without open frames, or schedules its next action.
    fn finish_if_done(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let waits = !call.waiting.is_empty();
        if call.open == 0 && call.later.is_empty() && (!waits || call.detached) {
            let Some(mut call) = self.calls.remove(&id) else { return };
            self.timers.retain(|(_, other)| *other != id);
            if !call.detached {
                self.done.push_back((id, call.error.take().map_or_else(|| Ok(call.output()), Err)));
            }
            self.claim_if_closing(config);
            return;
        }
        if (waits || !call.later.is_empty()) && call.timer.is_none() {
            let (first, longest) = if call.later.is_empty() { config.timing.probe } else { RETRY_PAUSE };
            let directly = self.rows > 0 && call.pauses == 0 && !call.later.is_empty();
            let pause = if directly { Duration::ZERO } else { first.saturating_mul(1 << call.pauses.min(10)) };
            call.pauses += 1;
            let at = now + pause.min(longest);
            call.timer = Some(at);
            self.timers.insert((at, id));
        }
    }

    /// Runs expired timers: votes again for keys that could not be counted, and queries awaited decisions.
    pub(super) fn run_timers(&mut self, now: Instant, config: &ClientConfig) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            let rows = if config.element { self.rows } else { 0 };
            let Some(call) = self.calls.get_mut(&id) else { continue };
            call.timer = None;
            call.forget_answered();
            let later = std::mem::take(&mut call.later);
            call.pack(&later, rows);
            if !call.detached && !mutant::on(Mutant::HeldNeverProbed) {
                // The announcement of the decision may be lost, or the decision may be of an ended epoch.
                let waiting = std::mem::take(&mut call.waiting);
                call.push_queries(&waiting.into_keys().collect::<Vec<_>>(), rows);
            }
            self.mark_ready(id);
            self.finish_if_done(now, id, config);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Queues a call that has unsent frames.
    fn mark_ready(&mut self, id: CallId) {
        let unsent = self.calls.get(&id).is_some_and(|call| call.next_frame < call.frames.len());
        if unsent && !self.ready.contains(&id) {
            self.ready.push_back(id);
        }
    }

    /// Handles the announcement of a decision: votes of this round are complete; other votes for the key query now.
    pub(super) fn on_decision(&mut self, now: Instant, frame: &MapFrame<&[u8]>, config: &ClientConfig) {
        let Some((key, _)) = pairs::entries(frame.payload()).next() else { return };
        let round = frame.base().round().checked_sub(1).filter(|_| frame.base().epoch() == config.epoch);
        let concerned = self.calls.values().find(|call| call.op.waits() && call.concerns(key));
        if let (Some(round), Some(call), Some(key)) = (round, concerned, Key::from_bytes(key)) {
            self.unrecorded.add_decision(call.op, &key, round);
        }
        let rows = if config.element { self.rows } else { 0 };
        let waiting = self.calls.iter_mut().filter(|(_, call)| call.op.waits());
        let heard: Vec<CallId> =
            waiting.filter_map(|(id, call)| call.on_decision(key, round, rows).then_some(*id)).collect();
        for id in heard {
            self.mark_ready(id);
            self.finish_if_done(now, id, config);
        }
    }

    /// Handles the element's decision by the vote in this frame of a call: the vote is complete, and the server learns
    /// of the decision.
    pub(super) fn on_own_decision(
        &mut self,
        now: Instant,
        id: CallId,
        index: u32,
        round: u32,
        config: &ClientConfig,
        stats: &mut ClientStats,
    ) -> Option<()> {
        let call = self.calls.get_mut(&id)?;
        let sent = call.frames.get_mut(index as usize).filter(|sent| !sent.done && sent.row.is_some())?;
        let i = *sent.members.first().filter(|_| !sent.is_query)?;
        sent.done = true;
        call.open -= 1;
        call.decided_early.remove(&i);
        stats.lanes_element += 1;
        let (op, key) = (call.op, call.keys[i as usize].clone());
        self.unrecorded.add_decision(op, &key, round);
        self.report_decision(op, key, round, config);
        self.mark_ready(id);
        self.finish_if_done(now, id, config);
        Some(())
    }

    /// Applies a change of epoch: votes are sent past the element, and the votes of the ended epoch are claimed.
    pub(super) fn renew(&mut self, flows: &mut [Flow<Item>], config: &ClientConfig) {
        self.rows = 0;
        self.calls.values_mut().for_each(|call| call.pauses = 0);
        for call in self.calls.values_mut() {
            call.frames.iter_mut().for_each(|frame| frame.row = None);
            call.forget_rounds();
        }
        if mutant::on(Mutant::VoteRenumbered) {
            self.renumber(flows);
        }
        self.claim(config);
    }

    fn renumber(&mut self, flows: &mut [Flow<Item>]) {
        for flow in flows {
            let items: Vec<(u32, Item)> = flow.items().collect();
            for (seq, item) in items {
                let Item::Vote(id, index) = item else { continue };
                let Some(call) = self.calls.get_mut(&id) else { continue };
                flow.remove(seq);
                let frame = &mut call.frames[index as usize];
                let members = std::mem::take(&mut frame.members);
                frame.done = true;
                call.open -= 1;
                call.pack(&members, 0);
                self.mark_ready(id);
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn next_done(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.done.pop_front()
    }

    /// Removes all calls, and returns those with a waiting caller.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.ready.clear();
        self.timers.clear();
        self.unrecorded = UnrecordedVotes::default();
        std::mem::take(&mut self.calls).into_iter().filter(|(_, call)| !call.detached).map(|(id, _)| id).collect()
    }
}
