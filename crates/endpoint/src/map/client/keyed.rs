//! Keyed calls: pairs by three roads.
//!
//! A key whose register the server has told travels in its lane, to be added in the element; one
//! that the server knows by its logical address travels as that; any other travels whole. Answers
//! teach the place of keys ([`KeyBook`]), and lanes that overflowed come round again, whole
//! (NetRPC §5.2.1, §5.2.2).

mod book;
mod call;
mod kept;
mod lease;
mod line;
mod locks;
mod moved;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::pairs::{self, MAX_KEY, Status};
use pathcall_wire::{Instant, MapFlags, MapFrame, Mutant, OpType, mutant};

use super::{CallError, CallId, ClientConfig, ClientStats, Dest, Item, Operation, Output, Place};
use book::{KeyBook, KeyPlace};
use call::{Call, Road, Work};
use kept::Kept;
pub(super) use lease::Ask;
use line::Lines;
use locks::Locks;

/// First and longest pause before a denied test-and-set is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// Calls that the client makes itself, to give locks back.
const OWN_CALLS: u64 = 1 << 63;

/// What an answer means for the frame's place in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It took effect.
    Done,
    /// It waits for others.
    Held,
    /// It stands in line for a lock; an answer follows.
    InLine,
}

#[derive(Default)]
pub(super) struct KeyedCalls {
    book: KeyBook,
    calls: BTreeMap<CallId, Call>,
    /// Calls with frames that were not sent yet, in turn.
    ready: VecDeque<CallId>,
    /// Calls that try again at a time.
    retries: BTreeSet<(Instant, CallId)>,
    done: VecDeque<(CallId, Result<Output, CallError>)>,
    own: u64,
    kept: Kept,
    locks: Locks,
    pub(super) lines: Lines,
}

impl KeyedCalls {
    pub(super) fn start(
        &mut self,
        now: Instant,
        id: CallId,
        operation: Operation,
        config: &ClientConfig,
    ) -> Result<Option<Output>, CallError> {
        self.note_use();
        let call = Call::new(operation);
        check(&call)?;
        if call.keys.is_empty() {
            let output = if call.takes_locks() { call.locked(Duration::ZERO) } else { call.output() };
            return Ok(Some(output));
        }
        self.enter(now, id, call, config);
        Ok(None)
    }

    /// Another kind of call needs what [`MapClient::close`](super::MapClient::close) does for keyed ones.
    pub(super) fn note_use(&mut self) {
        self.kept.used = true;
    }

    fn enter(&mut self, now: Instant, id: CallId, mut call: Call, config: &ClientConfig) {
        if call.takes_locks() {
            self.locks.lease.want(now, config);
        }
        let all = call.in_key_order();
        self.plan(&mut call, &all, config.element);
        self.ready.push_back(id);
        self.calls.insert(id, call);
    }

    /// Packs pairs into frames, each by the best road known for its key.
    fn plan(&mut self, call: &mut Call, members: &[u32], by_element: bool) {
        let (mut logical, mut whole) = (Vec::new(), Vec::new());
        let adds = matches!(call.work, Work::Add { get: false });
        for &i in members {
            if call.work == Work::Clear
                && let Some(held) = self.locks.give_back(&call.keys[i as usize], call.values[i as usize] as u64)
            {
                if let Some((row, tag)) = held.element {
                    call.push_lock(i, row, tag);
                    continue;
                }
                call.values[i as usize] = held.token as i64;
            }
            let fits = i32::try_from(call.values[i as usize]).is_ok();
            match self.book.find(&call.keys[i as usize]) {
                Some(KeyPlace::Mapped { lane, row }) if fits && adds && by_element => {
                    self.book.put_in_lane(lane, i, row)
                }
                Some(KeyPlace::Logical) if fits && adds => logical.push(i),
                _ => whole.push(i),
            }
        }
        let version = self.book.version();
        self.book.drain_lanes(|frame| call.push_mapped(frame, version));
        call.push_logical(&logical);
        // What is held already is claimed in no order, and waits for nobody.
        if !call.takes_locks() || call.claim || mutant::on(Mutant::LocksAtOnce) {
            call.push_whole(&whole);
        } else if !whole.is_empty() {
            call.line.splice(..0, whole);
            self.next_locks(call, by_element);
        }
    }

    pub(super) fn cancel(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let Some(call) = self.calls.get_mut(&id) else {
            self.kept.cancel(id);
            return self.release_all(now, id, config);
        };
        call.detached = true;
        self.lines.hurry(now, |of| of == id);
        if call.nothing_sent() && !self.kept.repeats(id) {
            self.calls.remove(&id);
            self.ready.retain(|other| *other != id);
        } else {
            self.settle(now, id, config);
        }
    }

    /// Calls whose time to try again has come.
    pub(super) fn wake(&mut self, now: Instant, config: &ClientConfig) {
        while let Some((at, id)) = self.retries.first().copied().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, id));
            if let Some(mut call) = self.calls.remove(&id) {
                let denied = std::mem::take(&mut call.denied);
                call.line_up(denied);
                self.next_locks(&mut call, config.element);
                self.ready.push_back(id);
                self.calls.insert(id, call);
            }
        }
    }

    pub(super) fn deadline(&self, config: &ClientConfig) -> Option<Instant> {
        let retry = self.retries.first().map(|(at, _)| *at);
        let lease = self.locks.lease.deadline(config);
        [retry, self.kept.deadline(), lease, self.lines.deadline()].into_iter().flatten().min()
    }

    pub(super) fn peek(&self, now: Instant, config: &ClientConfig) -> Option<Item> {
        if let Some(settled) = self.kept.peek(config, self.calls.is_empty()) {
            return Some(settled);
        }
        let id = *self.ready.front()?;
        if (self.kept.is_full() || self.locks.are_claimed()) && !self.kept.repeats(id) {
            return None;
        }
        let call = self.calls.get(&id)?;
        if call.takes_locks() && !call.claim && self.locks.lease.session(now, config).is_none() {
            return None;
        }
        Some(Item::Keyed(id, call.next_frame as u32))
    }

    pub(super) fn sent(&mut self) {
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
        (now, place): (Instant, Place),
        config: &ClientConfig,
        scratch: &mut [u8],
        mut send: impl FnMut(Dest, &[u8], u64),
    ) {
        if let Some(call) = self.calls.get_mut(&id) {
            let session = self.locks.lease.session(now, config).unwrap_or(0);
            let (to, len, lane_bytes) =
                call.emit(index as usize, place, config, (self.book.version(), session), scratch);
            send(to, &scratch[..len], lane_bytes);
        }
    }

    /// Takes the answer to a frame.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        id: CallId,
        index: u32,
        frame: &MapFrame<&[u8]>,
        config: &ClientConfig,
        stats: &mut ClientStats,
    ) -> Option<Verdict> {
        self.hear_version(frame, config);
        self.look_at_lease(now, config);
        let sent = self.calls.get(&id)?.frames.get(index as usize)?.clone();
        let whole_answer = frame.kind() == pathcall_wire::Kind::MapPairsAck;
        if whole_answer != (sent.road == Road::Whole) || sent.done {
            return None;
        }
        if whole_answer {
            let answers: Vec<_> = pairs::answers(frame.payload()).collect();
            if answers.len() != sent.members.len() {
                return None;
            }
            if answers.iter().any(|a| a.status == Status::Held) && !mutant::on(Mutant::HeldIsDone) {
                return Some(Verdict::Held);
            }
            if answers.iter().any(|a| a.status == Status::InLine) {
                return Some(Verdict::InLine);
            }
            stats.lanes_software += answers.len() as u64;
            let current = frame.base().epoch() == config.epoch && frame.base().round() == self.book.version();
            let mut call = self.calls.remove(&id)?;
            for (at, answer) in sent.members.zip(&answers) {
                let i = call.order[at];
                if current {
                    self.book.learn(&call.keys[i as usize], answer);
                }
                if call.takes_locks() {
                    self.server_answered(now, (id, &mut call), (i, index as usize), answer, config);
                } else {
                    call.take(i, answer);
                }
            }
            if !call.moved.is_empty() {
                // Those after a lock that is elsewhere were not tried.
                let mut again = std::mem::take(&mut call.moved);
                again.append(&mut call.denied);
                if config.element && current { call.line_up(again) } else { call.denied = again }
            } else if !call.denied.is_empty() && !call.is_in_line(index as usize) {
                // The first of several is waited for in line.
                let denied = std::mem::take(&mut call.denied);
                call.line_up(denied);
                call.queue = Some(0);
            }
            self.calls.insert(id, call);
        } else if sent.road == Road::Lock {
            let mut call = self.calls.remove(&id)?;
            self.element_answered(now, (id, &mut call), index as usize, frame, config);
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
                    if sent.road == Road::Logical {
                        self.book.forget(&call.keys[i as usize]);
                    }
                    again.push(i);
                } else {
                    took_effect += 1;
                }
            }
            if sent.road == Road::Mapped {
                stats.lanes_element += took_effect;
                let frame_state = &mut call.frames[index as usize];
                (frame_state.generation, frame_state.left_out) = (Some(frame.base().round()), frame.bitmap(0));
                self.kept.heard(frame.map().index());
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
        self.settle(now, id, config);
        Some(Verdict::Done)
    }

    /// Ends a call that has nothing open, or has it try again.
    fn settle(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
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
        let goes_on = !call.line.is_empty() && (!call.detached || call.claim);
        let Some(mut call) = self.calls.remove(&id) else { return };
        if goes_on {
            self.next_locks(&mut call, config.element);
            self.ready.push_back(id);
            self.calls.insert(id, call);
            return;
        }
        self.retries.retain(|(_, other)| *other != id);
        if call.must_wait(self.kept.committed()) {
            call.waits = Some(id);
        } else if !call.detached {
            let lease = self.locks.lease.until(config).map_or(Duration::ZERO, |until| until.since(now));
            let outcome = call.outcome();
            let outcome = if call.takes_locks() { outcome.map(|_| call.locked(lease)) } else { outcome };
            self.done.push_back((id, outcome));
        } else if call.claim {
            self.locks.claimed(&call);
        } else if !call.granted.is_empty() && !mutant::on(Mutant::CancelledLockKept) {
            // An acquire whose caller gave up is driven to its end and released.
            let (keys, tokens) = call.granted.iter().map(|i| call.granted_as(*i)).unzip();
            self.release(now, keys, tokens, config);
        }
        self.kept.finished(now, id, call);
    }

    pub(super) fn next_done(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.done.pop_front().or_else(|| self.kept.next_acked())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.kept.is_empty()
    }

    /// Whether locks are held, or asked for.
    pub(super) fn has_locks(&self) -> bool {
        self.locks.are_held() || self.calls.values().any(Call::takes_locks)
    }

    /// Forgets all calls; those that somebody waits for are returned.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.ready.clear();
        self.retries.clear();
        self.locks = Locks::default();
        self.lines = Lines::default();
        let kept = std::mem::take(&mut self.kept).drain();
        let open = std::mem::take(&mut self.calls).into_iter().filter(|(_, call)| !call.detached);
        open.map(|(id, _)| id).chain(kept).collect()
    }
}

/// What can't travel is refused before anything is sent.
fn check(call: &Call) -> Result<(), CallError> {
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

/// Flags of the primitives a call asks for.
fn primitives(work: Work) -> u16 {
    match work {
        Work::Add { get: false } => MapFlags::ADD,
        Work::Add { get: true } => MapFlags::ADD | MapFlags::GET,
        Work::Count { .. } => MapFlags::COUNT,
        Work::Clear => MapFlags::CLEAR,
    }
}
