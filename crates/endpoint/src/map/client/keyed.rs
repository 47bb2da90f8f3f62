//! Keyed calls: additions, queries, counters and locks by key.
//!
//! A pair is sent in one of three encodings: in the lane of its register, for the element; with the logical address of
//! its key, for the server; or with the whole key, for the server. Answers give the location of keys ([`KeyCache`]).
//! Lanes that overflowed are sent again with whole keys (NetRPC §5.2.1, §5.2.2).

mod call;
mod key_cache;
mod lease;
mod locks;
mod reads;
mod unacked;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::pairs::{self, MAX_KEY, PairStatus};
use pathcall_wire::{Instant, MapFrame, Mutant, OpType, mutant};

use super::{CallError, CallId, ClientConfig, ClientStats, Dest, FlowPosition, Item, Operation, Output};
use call::{KeyedCall, KeyedOp, PairEncoding};
use key_cache::{KeyCache, KeyLocation};
pub(super) use lease::LeaseRequest;
use locks::Locks;
use unacked::Unacked;
use waiting::WaitingFrames;

/// First and maximum pause before a denied test-and-set is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// Bit in the ids of calls that the client makes itself, such as releases of locks.
const OWN_CALLS: u64 = 1 << 63;

/// Effect of an answer on its frame in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEffect {
    /// The frame took effect.
    Done,
    /// The frame waits for other callers.
    Held,
    /// The frame is in a lock queue; an answer follows.
    Queued,
}

/// Keyed calls of a caller.
#[derive(Default)]
pub(super) struct KeyedCalls {
    key_cache: KeyCache,
    calls: BTreeMap<CallId, KeyedCall>,
    /// Calls with unsent frames, in order.
    ready: VecDeque<CallId>,
    /// Calls with the time of their next attempt.
    retries: BTreeSet<(Instant, CallId)>,
    done: VecDeque<(CallId, Result<Output, CallError>)>,
    own: u64,
    unacked: Unacked,
    locks: Locks,
    pub(super) waiting_frames: WaitingFrames,
    /// Time of the latest input.
    clock: Instant,
}

impl KeyedCalls {
    pub(super) fn start(
        &mut self,
        now: Instant,
        id: CallId,
        operation: Operation,
        config: &ClientConfig,
    ) -> Result<Option<Output>, CallError> {
        self.clock = now;
        let call = KeyedCall::new(operation);
        if call.read().is_none() {
            self.note_use();
        }
        check(&call)?;
        if call.keys.is_empty() {
            let output = if call.takes_locks() { call.locked_output(Duration::ZERO) } else { call.output() };
            return Ok(Some(output));
        }
        self.queue_call(now, id, call, config);
        Ok(None)
    }

    /// Records that [`MapClient::close`](super::MapClient::close) must notify the server.
    pub(super) fn note_use(&mut self) {
        self.unacked.used = true;
    }

    fn queue_call(&mut self, now: Instant, id: CallId, mut call: KeyedCall, config: &ClientConfig) {
        if call.takes_locks() {
            self.locks.lease.request_lease(now, config);
        }
        let all = call.in_key_order();
        self.pack(&mut call, &all, config);
        self.ready.push_back(id);
        self.calls.insert(id, call);
    }

    /// Packs pairs into frames, each in the best encoding for its key.
    fn pack(&mut self, call: &mut KeyedCall, members: &[u32], config: &ClientConfig) {
        let by_element = config.element;
        let (mut logical, mut whole) = (Vec::new(), Vec::new());
        let adds = matches!(call.op, KeyedOp::Add { get: false });
        for &i in members {
            if let Some(read) = call.read() {
                let key = &call.keys[i as usize];
                let lent = self.base_for(key, read).filter(|_| by_element && !call.wants_whole(config));
                match (lent, self.key_cache.find(key)) {
                    (Some(base), Some(KeyLocation::Mapped { lane, row })) => {
                        call.set_base(i, base);
                        self.key_cache.push_lane(lane, i, row);
                    }
                    _ => whole.push(i),
                }
                continue;
            }
            if call.op == KeyedOp::Clear
                && let Some(held) = self.locks.take_released(&call.keys[i as usize], call.values[i as usize] as u64)
            {
                if let Some((row, tag)) = held.element {
                    call.push_lock(i, row, tag);
                    continue;
                }
                call.values[i as usize] = held.token as i64;
            }
            let fits = i32::try_from(call.values[i as usize]).is_ok();
            match self.key_cache.find(&call.keys[i as usize]) {
                Some(KeyLocation::Mapped { lane, row }) if fits && adds && by_element => {
                    self.key_cache.push_lane(lane, i, row)
                }
                Some(KeyLocation::Logical) if fits && adds => logical.push(i),
                _ => whole.push(i),
            }
        }
        let version = self.key_cache.version();
        self.key_cache.drain_lanes(|frame| call.push_mapped(frame, version));
        call.push_logical(&logical);
        // Locks that are held already are claimed in any order, without waiting.
        if !call.takes_locks() || call.claim || mutant::on(Mutant::LocksAtOnce) {
            call.push_whole(&whole);
        } else if !whole.is_empty() {
            call.pending_locks.splice(..0, whole);
            self.request_next_locks(call, by_element);
        }
    }

    pub(super) fn cancel(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let Some(call) = self.calls.get_mut(&id) else {
            self.unacked.cancel(id);
            return self.release_all(now, id, config);
        };
        call.detached = true;
        self.waiting_frames.ask_now(now, |of| of == id);
        if call.is_unsent() && !self.unacked.is_repeating(id) {
            self.calls.remove(&id);
            self.ready.retain(|other| *other != id);
        } else {
            self.finish_if_done(now, id, config);
        }
    }

    /// Starts the next attempt of calls whose pause has ended.
    pub(super) fn run_retries(&mut self, now: Instant, config: &ClientConfig) {
        self.clock = now;
        while let Some((at, id)) = self.retries.first().copied().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, id));
            if let Some(mut call) = self.calls.remove(&id) {
                let denied = std::mem::take(&mut call.denied);
                if call.read().is_some() {
                    self.pack(&mut call, &denied, config);
                } else {
                    call.requeue_locks(denied);
                    self.request_next_locks(&mut call, config.element);
                }
                self.ready.push_back(id);
                self.calls.insert(id, call);
            }
        }
    }

    pub(super) fn deadline(&self, config: &ClientConfig) -> Option<Instant> {
        let retry = self.retries.first().map(|(at, _)| *at);
        let lease = self.locks.lease.deadline(config);
        [retry, self.unacked.deadline(), lease, self.waiting_frames.deadline()].into_iter().flatten().min()
    }

    pub(super) fn peek(&self, now: Instant, config: &ClientConfig) -> Option<Item> {
        if let Some(settled) = self.unacked.peek(config, self.calls.is_empty()) {
            return Some(settled);
        }
        let id = *self.ready.front()?;
        if (self.unacked.is_full() || self.locks.has_open_claims()) && !self.unacked.is_repeating(id) {
            return None;
        }
        let call = self.calls.get(&id)?;
        if call.takes_locks() && !call.claim && self.locks.lease.session(now, config).is_none() {
            return None;
        }
        Some(Item::Keyed(id, call.next_frame as u32))
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
        (now, position): (Instant, FlowPosition),
        config: &ClientConfig,
        scratch: &mut [u8],
        mut send: impl FnMut(Dest, &[u8], u64),
    ) {
        if let Some(call) = self.calls.get_mut(&id) {
            let session = self.locks.lease.session(now, config).unwrap_or(0);
            let (to, len, lane_bytes) =
                call.emit(index as usize, (now, position), config, (self.key_cache.version(), session), scratch);
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
    ) -> Option<AnswerEffect> {
        self.clock = now;
        self.observe_version(frame, config);
        self.check_lease(now, config);
        let sent = self.calls.get(&id)?.frames.get(index as usize)?.clone();
        let is_whole_answer = frame.kind() == pathcall_wire::FrameKind::MapPairsAck;
        if is_whole_answer != (sent.encoding == PairEncoding::Whole) || sent.done {
            return None;
        }
        if self.is_read(id) {
            return self.on_read_answer(now, (id, index), &sent, frame, config, stats);
        }
        if is_whole_answer {
            let answers: Vec<_> = pairs::answers(frame.payload()).collect();
            if answers.len() != sent.members.len() {
                return None;
            }
            if answers.iter().any(|a| a.status == PairStatus::Held) && !mutant::on(Mutant::HeldIsDone) {
                return Some(AnswerEffect::Held);
            }
            if answers.iter().any(|a| a.status == PairStatus::Queued) {
                return Some(AnswerEffect::Queued);
            }
            stats.lanes_software += answers.len() as u64;
            let current = frame.base().epoch() == config.epoch && frame.base().round() == self.key_cache.version();
            let mut call = self.calls.remove(&id)?;
            for (at, answer) in sent.members.zip(&answers) {
                let i = call.order[at];
                if current {
                    self.key_cache.learn(&call.keys[i as usize], answer);
                }
                if call.takes_locks() {
                    self.on_server_answer(now, (id, &mut call), (i, index as usize), answer, config);
                } else {
                    call.apply_answer(i, answer);
                }
            }
            if !call.moved.is_empty() {
                // The server did not try the locks after one that is in the element.
                let mut again = std::mem::take(&mut call.moved);
                again.append(&mut call.denied);
                if config.element && current { call.requeue_locks(again) } else { call.denied = again }
            } else if !call.denied.is_empty() && !call.is_waiting(index as usize) {
                // The call waits for the first of several locks in its queue.
                let denied = std::mem::take(&mut call.denied);
                call.requeue_locks(denied);
                call.denied_grant = Some(0);
            }
            self.calls.insert(id, call);
        } else if sent.encoding == PairEncoding::Lock {
            let mut call = self.calls.remove(&id)?;
            self.on_element_answer(now, (id, &mut call), index as usize, frame, config);
            self.calls.insert(id, call);
            stats.lanes_element += 1;
        } else {
            let call = self.calls.get_mut(&id)?;
            let mut again = Vec::new();
            let mut took_effect = 0;
            for (lane, at) in sent.members.enumerate() {
                let i = call.order[at];
                if i == call::NONE {
                    continue;
                }
                if frame.marked(lane) {
                    if sent.encoding == PairEncoding::Logical {
                        self.key_cache.forget(&call.keys[i as usize]);
                    }
                    again.push(i);
                } else {
                    took_effect += 1;
                }
            }
            if sent.encoding == PairEncoding::Mapped {
                stats.lanes_element += took_effect;
                let frame_state = &mut call.frames[index as usize];
                (frame_state.generation, frame_state.overflowed_lanes) = (Some(frame.base().round()), frame.bitmap(0));
                self.unacked.mark_committed(frame.map().index());
            } else {
                stats.lanes_software += took_effect;
            }
            if !again.is_empty() {
                call.push_whole(&again);
                if !self.ready.contains(&id) {
                    self.ready.push_back(id);
                }
            }
        }
        let call = self.calls.get_mut(&id)?;
        call.frames[index as usize].done = true;
        call.open -= 1;
        self.finish_if_done(now, id, config);
        Some(AnswerEffect::Done)
    }

    /// Ends a call without open frames, or schedules its next attempt.
    fn finish_if_done(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.open > 0 {
            return;
        }
        if !call.denied.is_empty() && !call.detached {
            let (first, longest) = RETRY;
            let pause = first.saturating_mul(1 << call.tries.min(8)).min(longest);
            call.tries += 1;
            self.retries.insert((now + pause, id));
            return;
        }
        let continues = !call.pending_locks.is_empty() && (!call.detached || call.claim);
        let Some(mut call) = self.calls.remove(&id) else { return };
        if continues {
            self.request_next_locks(&mut call, config.element);
            self.ready.push_back(id);
            self.calls.insert(id, call);
            return;
        }
        self.retries.retain(|(_, other)| *other != id);
        if call.awaits_commit(self.unacked.committed()) {
            call.waiting_caller = Some(id);
        } else if !call.detached {
            let lease = self.locks.lease.until(config).map_or(Duration::ZERO, |until| until.since(now));
            let outcome = call.outcome();
            let outcome = if call.takes_locks() { outcome.map(|_| call.locked_output(lease)) } else { outcome };
            self.done.push_back((id, outcome));
        } else if call.claim {
            self.locks.on_claim_answered(&call);
        } else if !call.granted.is_empty() && !mutant::on(Mutant::CancelledLockKept) {
            // The locks of a cancelled acquisition are released.
            let (keys, tokens) = call.granted.iter().map(|i| call.grant_of(*i)).unzip();
            self.release(now, keys, tokens, config);
        }
        self.unacked.retain_if_uncommitted(now, id, call);
    }

    pub(super) fn next_done(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.done.pop_front().or_else(|| self.unacked.next_committed_call())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.unacked.is_empty()
    }

    /// Whether locks are held or requested.
    pub(super) fn has_locks(&self) -> bool {
        self.locks.has_held() || self.calls.values().any(KeyedCall::takes_locks)
    }

    /// Removes all calls, and returns those with a waiting caller.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.ready.clear();
        self.retries.clear();
        self.locks = Locks::default();
        self.waiting_frames = WaitingFrames::default();
        let unacked = std::mem::take(&mut self.unacked).drain();
        let open = std::mem::take(&mut self.calls).into_iter().filter(|(_, call)| !call.detached);
        open.map(|(id, _)| id).chain(unacked).collect()
    }
}

/// Rejects a call that cannot be encoded, before any frame is sent.
fn check(call: &KeyedCall) -> Result<(), CallError> {
    for (position, key) in call.keys.iter().enumerate() {
        let len = key.as_bytes().len();
        if len > MAX_KEY {
            return Err(CallError::KeyLength { len: len - 1, position });
        }
    }
    if call.modify.op != OpType::Nop
        && let Some(position) = call.values.iter().position(|v| i32::try_from(*v).is_err())
    {
        return Err(CallError::Range { value: call.values[position], position, bits: 32 });
    }
    Ok(())
}
