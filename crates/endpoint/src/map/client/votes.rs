//! Calls that count keys up to a threshold, or clear ballots.
//!
//! A call's keys travel whole. Past the element several share a frame; once the server has said that
//! the element counts, each key that a register can hold goes by it in a frame of its own, to the row
//! of its hash. What the element has acknowledged, and the server never saw, is kept as a [`Claim`]
//! until the epoch ends or this caller leaves. A vote on its way when the epoch ends goes on past the
//! element under its own number: if the server has met it, it is not counted again.

mod call;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_wire::pairs::{self, MAX_KEY, Status};
use pathcall_wire::{Instant, Kind, MapFlags, MapFrame, Mutant, mutant};

use super::super::ballot::Claim;
use super::super::{CallError, Dest, Key, Operation, Output};
use super::{CallId, ClientConfig, ClientStats, Flow, Item, Place};
use call::{Call, Work};

/// Calls that the client makes itself: claims.
const OWN_CALLS: u64 = 1 << 63;

/// First and longest pause before a key comes again that the server could not count yet.
const AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

#[derive(Default)]
pub(super) struct VoteCalls {
    calls: BTreeMap<CallId, Call>,
    /// Calls with frames that were not sent yet, in turn.
    ready: VecDeque<CallId>,
    done: VecDeque<(CallId, Result<Output, CallError>)>,
    /// Calls that go on at a time.
    timers: BTreeSet<(Instant, CallId)>,
    /// Rows of the element that this epoch's votes are counted in; 0: they are not, as far as known.
    rows: u32,
    kept: Kept,
    own: u64,
    closing: bool,
}

/// Votes that the element has acknowledged. A row has one key, so there are not more than rows.
#[derive(Default)]
struct Kept {
    claims: BTreeMap<Key, Claim>,
    /// What was counted; all calls count alike.
    counted: Option<Work>,
}

impl VoteCalls {
    /// Takes an operation that counts or clears.
    pub(super) fn start(
        &mut self,
        id: CallId,
        operation: Operation,
        config: &ClientConfig,
    ) -> Result<Option<Output>, CallError> {
        let call = Call::new(operation);
        if let Some(position) = call.keys.iter().position(|key| key.as_bytes().len() > MAX_KEY) {
            return Err(CallError::KeyLength { len: call.keys[position].as_bytes().len() - 1, position });
        }
        if call.keys.is_empty() {
            return Ok(Some(call.output()));
        }
        self.enter(id, call, config);
        Ok(None)
    }

    fn enter(&mut self, id: CallId, mut call: Call, config: &ClientConfig) {
        let all: Vec<u32> = (0..call.keys.len() as u32).collect();
        call.plan(&all, if config.element { self.rows } else { 0 });
        self.ready.push_back(id);
        self.calls.insert(id, call);
    }

    /// The caller no longer waits; false when there is no such call.
    pub(super) fn cancel(&mut self, now: Instant, id: CallId, config: &ClientConfig) -> bool {
        let Some(call) = self.calls.get_mut(&id) else { return false };
        call.detached = true;
        self.settle(now, id, config);
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
        place: Place,
        config: &ClientConfig,
        scratch: &mut [u8],
        mut send: impl FnMut(Dest, &[u8], u64),
    ) {
        if let Some(call) = self.calls.get_mut(&id) {
            let (to, len, lane_bytes) = call.emit(index as usize, place, config, scratch);
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
    ) -> Option<()> {
        let call = self.calls.get_mut(&id)?;
        let sent = call.frames.get(index as usize).filter(|sent| !sent.done)?;
        let (members, asks) = (sent.members.clone(), sent.asks);
        if frame.kind() == Kind::MapAck {
            let i = *members.first().filter(|_| sent.row.is_some())?;
            stats.lanes_element += 1;
            let (counts, waits) = (matches!(call.work, Work::Count { .. }), call.work.waits());
            // As long as the server has not recorded the decision, the element's word is all there is.
            if counts && !frame.map().has(MapFlags::REACHED) {
                let round = frame.base().round();
                self.kept.keep(call.work, &call.keys[i as usize], round);
                if waits && !mutant::on(Mutant::HeldIsDone) {
                    call.wait(i, Some(round));
                }
            }
        } else {
            let answers: Vec<_> = pairs::answers(frame.payload()).collect();
            if answers.len() != members.len() {
                return None;
            }
            for (i, answer) in members.into_iter().zip(&answers) {
                match answer.status {
                    Status::Moved => {
                        if frame.base().epoch() == config.epoch && answer.row > 0 {
                            call.pauses = if self.rows == 0 { 0 } else { call.pauses };
                            self.rows = answer.row;
                        }
                        call.later.push(i);
                        continue;
                    }
                    Status::Held if !mutant::on(Mutant::HeldIsDone) => {
                        call.wait(i, None);
                    }
                    Status::Full => call.error = Some(CallError::KeysFull),
                    _ => call.won |= call.work.wins(answer.value),
                }
                let by_element = answer.status == Status::Mapped;
                let lanes = if by_element { &mut stats.lanes_element } else { &mut stats.lanes_software };
                *lanes += u64::from(!asks);
            }
        }
        let call = self.calls.get_mut(&id)?;
        call.frames[index as usize].done = true;
        call.open -= 1;
        self.line_up(id);
        self.settle(now, id, config);
        Some(())
    }

    /// Ends a call that has nothing open, or has it go on later.
    fn settle(&mut self, now: Instant, id: CallId, config: &ClientConfig) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let waits = !call.waiting.is_empty();
        if call.open == 0 && call.later.is_empty() && (!waits || call.detached) {
            let Some(mut call) = self.calls.remove(&id) else { return };
            self.timers.retain(|(_, other)| *other != id);
            if !call.detached {
                self.done.push_back((id, call.error.take().map_or_else(|| Ok(call.output()), Err)));
            }
            self.leave(config);
            return;
        }
        if (waits || !call.later.is_empty()) && call.timer.is_none() {
            let (first, longest) = if call.later.is_empty() { config.timing.probe } else { AGAIN };
            let directly = self.rows > 0 && call.pauses == 0 && !call.later.is_empty();
            let pause = if directly { Duration::ZERO } else { first.saturating_mul(1 << call.pauses.min(10)) };
            call.pauses += 1;
            let at = now + pause.min(longest);
            call.timer = Some(at);
            self.timers.insert((at, id));
        }
    }

    /// Calls whose time to go on has come: votes again, and asks for what it waits for.
    pub(super) fn wake(&mut self, now: Instant, config: &ClientConfig) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            let rows = if config.element { self.rows } else { 0 };
            let Some(call) = self.calls.get_mut(&id) else { continue };
            call.timer = None;
            call.forget_answered();
            let later = std::mem::take(&mut call.later);
            call.plan(&later, rows);
            if !call.detached && !mutant::on(Mutant::HeldNeverProbed) {
                // The element's word is lost, or an ended epoch's server knows.
                let waiting = std::mem::take(&mut call.waiting);
                call.push_past(&waiting.into_keys().collect::<Vec<_>>(), true);
            }
            self.line_up(id);
            self.settle(now, id, config);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Puts a call in turn that has frames to send.
    fn line_up(&mut self, id: CallId) {
        let unsent = self.calls.get(&id).is_some_and(|call| call.next_frame < call.frames.len());
        if unsent && !self.ready.contains(&id) {
            self.ready.push_back(id);
        }
    }

    /// A ballot is decided: votes of that round are done with, and others of its key ask now.
    pub(super) fn decided(&mut self, now: Instant, frame: &MapFrame<&[u8]>, config: &ClientConfig) {
        let Some((key, _)) = pairs::entries(frame.payload()).next() else { return };
        let round = frame.base().round().checked_sub(1).filter(|_| frame.base().epoch() == config.epoch);
        let waiting = self.calls.iter_mut().filter(|(_, call)| call.work.waits());
        let heard: Vec<CallId> = waiting.filter_map(|(id, call)| call.hear(key, round).then_some(*id)).collect();
        for id in heard {
            self.line_up(id);
            self.settle(now, id, config);
        }
    }

    /// The epoch is another: votes go past the element, and the server hears what the ended one had.
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
                call.plan(&members, 0);
                self.line_up(id);
            }
        }
    }

    /// Tells the server what the element had acknowledged. It is told once: from here on it is a call.
    fn claim(&mut self, config: &ClientConfig) {
        let claims = std::mem::take(&mut self.kept.claims);
        let (keys, values): (Vec<_>, Vec<_>) = claims.into_iter().map(|(key, claim)| (key, claim.to_value())).unzip();
        let Some(Work::Count { threshold, to }) = self.kept.counted else { return };
        if keys.is_empty() || mutant::on(Mutant::VoteForgotten) {
            return;
        }
        let call = Call { detached: true, ..Call::of(Work::Claim { threshold, to }, keys, values) };
        self.own += 1;
        self.enter(CallId(OWN_CALLS | self.own), call, config);
        // Before anything else: no vote counts until all claims have come.
        self.ready.rotate_right(1);
    }

    /// No further call comes.
    pub(super) fn close(&mut self, config: &ClientConfig) {
        self.closing = true;
        self.leave(config);
    }

    /// Leaves nothing behind that only this caller can claim.
    fn leave(&mut self, config: &ClientConfig) {
        if self.closing && self.calls.is_empty() {
            self.claim(config);
        }
    }

    /// Whether the server does not know yet what an ended epoch had.
    pub(super) fn is_claiming(&self) -> bool {
        self.calls.values().any(|call| matches!(call.work, Work::Claim { .. }))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn next_done(&mut self) -> Option<(CallId, Result<Output, CallError>)> {
        self.done.pop_front()
    }

    /// Forgets all calls; those that somebody waits for are returned.
    pub(super) fn drain(&mut self) -> Vec<CallId> {
        self.ready.clear();
        self.timers.clear();
        self.kept = Kept::default();
        std::mem::take(&mut self.calls).into_iter().filter(|(_, call)| !call.detached).map(|(id, _)| id).collect()
    }
}

impl Kept {
    /// Keeps a vote of a round. Those of an earlier one are gone with their ballot.
    fn keep(&mut self, work: Work, key: &Key, round: u32) {
        self.counted = Some(work);
        let claim = self.claims.entry(key.clone()).or_insert(Claim { round, votes: 0 });
        if round > claim.round {
            *claim = Claim { round, votes: 0 };
        }
        if round == claim.round {
            claim.votes = claim.votes.saturating_add(1);
        }
    }
}
