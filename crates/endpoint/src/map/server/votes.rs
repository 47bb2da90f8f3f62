//! Ballots at the owner: keys that the element or the server counts up to a threshold.
//!
//! ```text
//! past the element    ─┬─ counted by the server, or redirected to the element, or deferred
//!                      └─ a claim: of a decision by the element, or of votes that it had counted
//! through the element ─┬─ threshold reached in the element, and the server decides: recorded here, then announced
//!                      ├─ row of another ballot, or of the server: counted by the server
//!                      ├─ a query that the element could not answer
//!                      └─ a clear
//! ```
//!
//! Either a row in the element or this table counts the votes of a ballot, never both. The element counts from zero, so
//! it must not count a ballot that is open here: at the start of an epoch, the rows of such ballots are
//! [moved](VotePhase::Moving) to the server first. When the epoch ends, callers [claim](ballot) their votes that the
//! element had acknowledged, and the decisions that it had announced; before all claims, no vote counts.

mod ballot;
mod phase;

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, MAX_ENTRIES, PairAnswer, PairStatus};
use pathcall_wire::{
    BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr, Mutant, W_MAX, mutant,
};

use super::super::{Dest, FrameSink, Key};
use super::{Events, OwnerContext, ServerConfig};
use crate::flow::SeqClass;
use crate::tables::SeededHashMap;
use ballot::Ballot;
use phase::VotePhase;

/// Unique id of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameId {
    endpoint: u32,
    flow: u32,
    seq: u32,
}

/// Answer to a frame that its repeats must get as well, as bit masks of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct RepeatAnswer {
    seq: u32,
    /// Entries that the element counts.
    moved: u128,
    /// Entries that decided their ballots.
    won: u128,
}

/// Request of a frame.
#[derive(Clone, Copy)]
struct VoteRequest {
    clears: bool,
    threshold: u32,
    to: ForwardTarget,
    frame_id: FrameId,
    seen: SeqClass,
}

/// Ballots of an application.
pub(super) struct BallotStore {
    ballots: SeededHashMap<Key, Ballot>,
    /// Remaining memory for ballots in bytes.
    memory_left: usize,
    /// Answers for repeats, by window position, so the number is bounded.
    answered: BTreeMap<(u32, u32, u32), RepeatAnswer>,
    phase: VotePhase,
}

impl BallotStore {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            ballots: SeededHashMap::default(),
            memory_left: config.key_memory,
            answered: BTreeMap::new(),
            phase: VotePhase::default(),
        }
    }

    /// Number of ballots.
    pub(super) fn len(&self) -> usize {
        self.ballots.len()
    }

    /// Whether the votes recorded for a key have reached this threshold.
    pub(super) fn is_decided(&self, key: &Key, threshold: u32) -> bool {
        self.ballots.get(key).is_some_and(|ballot| ballot.has_reached(threshold))
    }

    /// Handles a frame of whole keys from a caller.
    pub(super) fn on_pairs(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let mut entries = pairs::entries(frame.payload());
        let count = entries.by_ref().count();
        let is_valid = entries.is_exhausted() && (1..=MAX_ENTRIES).contains(&count);
        let keys = || pairs::entries(frame.payload()).map(|(key, _)| key);
        if !is_valid || keys().any(|key| Key::from_bytes(key).is_none()) {
            return None;
        }
        let by_element = !base.has(Flags::CROSS);
        if by_element && base.has(Flags::NOT_ADMITTED) {
            // The element does not have this epoch any more; the epoch ends, and the caller sends again.
            return None;
        }
        let first = if by_element { shared.members.get(&base.src())?.member.slot_base } else { 0 };
        let frame_id = FrameId { endpoint: base.src(), flow: base.slot().checked_sub(first)?, seq: base.seq() };
        if map.has(MapFlags::COUNT | MapFlags::GET) && !map.has(MapFlags::CLEAR) {
            return self.answer_query(frame, shared, out);
        }
        if by_element && !map.has(MapFlags::DIVERTED) {
            return if count == 1 { self.on_counted_by_element(frame, frame_id, shared, out) } else { None };
        }
        if !by_element && map.has(MapFlags::CLAIM) {
            return self.claim(frame, frame_id, shared, out);
        }
        if !by_element {
            self.start_element_phase(now, shared);
        }
        self.count_in_software(frame, frame_id, shared, out)
    }

    /// Answers for each key whether its ballot is decided. Repeats are harmless.
    fn answer_query(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let threshold = frame.map().threshold();
        let mut answers = VoteAnswers::default();
        for (key, _) in pairs::entries(frame.payload()) {
            let decided = self.ballots.get(key).is_some_and(|ballot| ballot.has_reached(threshold));
            answers.push((if decided { PairStatus::Whole } else { PairStatus::Held }, 0, 0))?;
        }
        answers.send(frame, None, shared, out)
    }

    /// Counts or clears at the server, except keys that the element counts.
    fn count_in_software(
        &mut self,
        frame: &MapFrame<&[u8]>,
        frame_id: FrameId,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let request = VoteRequest::parse(frame, frame_id, shared)?;
        let by_element = !frame.base().has(Flags::CROSS);
        let before = self.answered_before(request);
        let mut now = RepeatAnswer { seq: frame_id.seq, ..RepeatAnswer::default() };
        let (mut answers, mut decided) = (VoteAnswers::default(), Vec::new());
        for (index, (key, _)) in pairs::entries(frame.payload()).enumerate() {
            let bit = 1u128 << index;
            let away = match request.seen {
                SeqClass::New => !by_element && !self.counts_here(key, shared),
                _ => before.moved & bit != 0,
            };
            if away {
                now.moved |= bit;
                answers.push((PairStatus::Moved, self.phase.rows(shared), 0))?;
                continue;
            }
            shared.stats.software_adds += u64::from(request.seen == SeqClass::New);
            let (answer, won) = self.execute(key, &request, before.won & bit != 0);
            answers.push(answer)?;
            if won && request.seen == SeqClass::New {
                now.won |= bit;
                decided.push(key);
            }
        }
        if request.seen == SeqClass::New {
            self.record_answer(frame_id, now);
        }
        answers.send(frame, None, shared, out)?;
        if request.waits() {
            decided.into_iter().for_each(|key| announce_decision(key, 0, shared, out));
        }
        Some(())
    }

    /// Executes one entry. Returns the answer, and whether the vote decides its ballot, or decided it before (`won`).
    fn execute(&mut self, key: &[u8], request: &VoteRequest, won: bool) -> (VoteAnswer, bool) {
        let Some(ballot) = self.ballot(key) else { return ((PairStatus::Full, 0, 0), false) };
        let new = request.seen == SeqClass::New;
        if request.clears {
            if new {
                ballot.clear();
            }
            return ((PairStatus::Whole, 0, 0), false);
        }
        let won = if new { ballot.vote(request.threshold) } else { won };
        let waits = request.waits() && !ballot.has_reached(request.threshold);
        let status = if waits { PairStatus::Held } else { PairStatus::Whole };
        ((status, 0, if won { request.threshold.into() } else { 0 }), won)
    }

    /// Handles a vote that the element has counted, or a clear in the element.
    fn on_counted_by_element(
        &mut self,
        frame: &MapFrame<&[u8]>,
        frame_id: FrameId,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (key, _) = pairs::entries(frame.payload()).next()?;
        let request = VoteRequest::parse(frame, frame_id, shared)?;
        let (round, new) = (frame.base().round(), request.seen == SeqClass::New);
        let mut now = RepeatAnswer { seq: frame_id.seq, ..self.answered_before(request) };
        let Some(ballot) = self.ballot(key) else {
            return send_single_answer(frame, (PairStatus::Full, 0, 0), None, shared, out);
        };
        // A higher round shows a clear that this frame is or has overtaken.
        ballot.observe_round(round);
        let current = frame.map().has(MapFlags::REACHED) && ballot.round == round;
        // The ballot was cleared before the frame arrived, and the handler has to run for it.
        let cleared_decision = frame.map().has(MapFlags::REACHED)
            && !current
            && request.runs_handler()
            && !mutant::on(Mutant::ClearedDecisionLost);
        let mut decides = false;
        if new && current {
            decides = !ballot.is_decided() || mutant::on(Mutant::DecidedTwice);
            ballot.decide(request.threshold);
            now.won = u128::from(decides);
        } else if new && cleared_decision {
            // In the round of the frame, no other vote has decided.
            now.won = 1;
        } else if new && !request.clears {
            // The vote must be sent again.
            now.moved = 1;
        }
        let waits = request.waits() && !ballot.is_decided();
        self.record_answer(frame_id, now);
        let answer = match (now.won != 0, now.moved != 0) {
            (true, _) => (PairStatus::Mapped, 0, i64::from(request.threshold)),
            (_, true) => (PairStatus::Moved, self.phase.rows(shared), 0),
            _ => (if waits { PairStatus::Held } else { PairStatus::Mapped }, 0, 0),
        };
        // The decision is recorded, so it may be announced; the element sees it when it forwards the answer.
        send_single_answer(frame, answer, current.then_some((frame.map().index(), round)), shared, out)?;
        if decides && request.waits() {
            announce_decision(key, round + 1, shared, out);
        }
        Some(())
    }

    /// Ballot of a key, created if new; `None` if the memory limit is reached or the bytes are no valid key.
    fn ballot(&mut self, key: &[u8]) -> Option<&mut Ballot> {
        if !self.ballots.contains_key(key) {
            // A growing table needs twice its memory.
            let taken = key.len() + 2 * size_of::<(Key, Ballot)>();
            self.memory_left = self.memory_left.checked_sub(taken)?;
            self.ballots.insert(Key::from_bytes(key)?, Ballot::default());
        }
        self.ballots.get_mut(key)
    }

    fn answered_before(&self, request: VoteRequest) -> RepeatAnswer {
        let before =
            self.answered.get(&request.frame_id.position()).filter(|answered| answered.seq == request.frame_id.seq);
        let RepeatAnswer { seq, moved, won } = before.copied().unwrap_or_default();
        let moved = if mutant::on(Mutant::MovedSaidOnce) { 0 } else { moved };
        RepeatAnswer { seq, moved, won: if mutant::on(Mutant::WonSaidOnce) { 0 } else { won } }
    }

    fn record_answer(&mut self, frame_id: FrameId, answered: RepeatAnswer) {
        if answered.moved | answered.won == 0 {
            self.answered.remove(&frame_id.position());
        } else {
            self.answered.insert(frame_id.position(), answered);
        }
    }
}

impl BallotStore {
    /// Sends due frames.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
        events: &mut Events,
    ) {
        self.phase.poll(now, shared, out, events);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.phase.deadline()
    }

    /// Removes a caller. Its votes stay counted.
    pub(super) fn leave(&mut self, endpoint: u32) {
        self.answered.retain(|(owner, ..), _| *owner != endpoint);
    }
}

impl VoteRequest {
    /// Parses a frame; `None` if the frame was answered long ago.
    fn parse(frame: &MapFrame<&[u8]>, frame_id: FrameId, shared: &mut OwnerContext) -> Option<Self> {
        let map = frame.map();
        let seen = shared.members.get_mut(&frame_id.endpoint)?.seen.classify(frame_id.flow, frame_id.seq);
        let clears = map.has(MapFlags::CLEAR);
        let request = Self { clears, threshold: map.threshold(), to: frame.target(), frame_id, seen };
        (seen != SeqClass::Stale).then_some(request)
    }

    /// Whether the caller waits for the decision.
    fn waits(&self) -> bool {
        !self.clears && self.to != ForwardTarget::Server
    }

    /// Whether the handler runs for the deciding vote.
    fn runs_handler(&self) -> bool {
        !self.clears && self.to == ForwardTarget::Server
    }
}

impl FrameId {
    /// Position of the frame in the repeat filter.
    fn position(self) -> (u32, u32, u32) {
        (self.endpoint, self.flow, self.seq % W_MAX)
    }
}

/// Answer to one vote: status, row and value.
type VoteAnswer = (PairStatus, u32, i64);

/// Answers to the votes of a frame.
struct VoteAnswers {
    bytes: [u8; MAX_ENTRIES * ANSWER_LEN],
    len: usize,
}

impl Default for VoteAnswers {
    fn default() -> Self {
        Self { bytes: [0; MAX_ENTRIES * ANSWER_LEN], len: 0 }
    }
}

impl VoteAnswers {
    fn push(&mut self, (status, row, value): VoteAnswer) -> Option<()> {
        pairs::put_answer(self.bytes.get_mut(self.len..)?, &PairAnswer { status, lane: 0, row, value })?;
        self.len += ANSWER_LEN;
        Some(())
    }

    /// Answers a frame. `decided` is row and round of a decided ballot in the element, which sees the decision when it
    /// forwards the answer.
    fn send(
        &self,
        frame: &MapFrame<&[u8]>,
        decided: Option<(u32, u32)>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let (index, round) = decided.unwrap_or_default();
        let base = BaseRepr { round, ..shared.answer(FrameKind::MapPairsAck, frame) };
        let flags = MapFlags::BARE | if decided.is_some() { MapFlags::COUNT } else { 0 };
        let map = MapRepr { flags, index, payload_len: self.len as u16, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, self.len);
        emit(&base, &map, shared.scratch.get_mut(..len)?).payload_mut().copy_from_slice(&self.bytes[..self.len]);
        match decided {
            Some(_) => shared.send_by_element(Some(base.dst), len, out),
            None => shared.send(Dest::Endpoint(base.dst), len, out),
        }
        Some(())
    }
}

fn send_single_answer(
    frame: &MapFrame<&[u8]>,
    answer: VoteAnswer,
    decided: Option<(u32, u32)>,
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) -> Option<()> {
    let mut answers = VoteAnswers::default();
    answers.push(answer)?;
    answers.send(frame, decided, shared, out)
}

/// Announces a decision to all members. `round` is one more than the round in the element, or 0 if the server counted
/// the ballot.
fn announce_decision(key: &[u8], round: u32, shared: &mut OwnerContext, out: &mut impl FrameSink) {
    let base = BaseRepr { round, ..shared.base(FrameKind::MapSoft, Flags::MCAST) };
    let payload = pairs::entry_len(key.len());
    let flags = MapFlags::BARE | MapFlags::COUNT;
    let map = MapRepr { flags, payload_len: payload as u16, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, payload);
    if pairs::put(emit(&base, &map, &mut shared.scratch[..len]).payload_mut(), key, 0).is_some() {
        shared.send_to_all(len, out);
    }
}
