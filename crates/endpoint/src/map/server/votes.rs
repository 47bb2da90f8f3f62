//! Ballots: keys that are counted up to a threshold, by the element or here.
//!
//! ```text
//! past the element ─► counted here, or told to go by the element, or to come again
//! by the element   ─┬─ it reached the threshold there: decided, recorded here, then told
//!                   ├─ its row is another ballot's, or the server's: counted here
//!                   └─ a clearing
//! ```
//!
//! A ballot's votes are in one place: either its row in the element counts them, or this table does.
//! The element counts a key from zero, so it may only do so while nothing of an undecided ballot is
//! here: when an epoch begins, the rows of such ballots are [moved](Road::Moving) first. When it
//! ends, callers [claim](claims) what the element had acknowledged, and until all have, no vote counts.

mod ballot;
mod claims;
mod road;

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, Answer, MAX_ENTRIES, Status};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Mutant, Target, W_MAX, mutant};

use super::super::{Dest, Key, Outbox};
use super::{Events, ServerConfig, Shared};
use crate::flow::Seen;
use crate::tables::ByName;
use ballot::Ballot;
use road::Road;

/// Names a frame for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameName {
    endpoint: u32,
    flow: u32,
    seq: u32,
}

/// What a frame was answered that its repeat must be answered as well, entry by entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Answered {
    seq: u32,
    /// The element counts these.
    moved: u128,
    /// These decided their ballots.
    won: u128,
}

/// What a frame asks for.
#[derive(Clone, Copy)]
struct Request {
    clears: bool,
    threshold: u32,
    to: Target,
    name: FrameName,
    seen: Seen,
}

pub(super) struct VoteTruth {
    ballots: ByName<Key, Ballot>,
    /// Bytes that ballots may still take.
    room: usize,
    /// By place in the repeat filter, so bounded.
    answered: BTreeMap<(u32, u32, u32), Answered>,
    road: Road,
}

impl VoteTruth {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self { ballots: ByName::default(), room: config.key_memory, answered: BTreeMap::new(), road: Road::default() }
    }

    /// Ballots known here.
    pub(super) fn len(&self) -> usize {
        self.ballots.len()
    }

    /// Takes a frame of whole keys from a caller.
    pub(super) fn frame(
        &mut self,
        now: Instant,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (base, map) = (frame.base(), frame.map());
        let mut entries = pairs::entries(frame.payload());
        let count = entries.by_ref().count();
        let sane = entries.is_exhausted() && (1..=MAX_ENTRIES).contains(&count);
        let keys = || pairs::entries(frame.payload()).map(|(key, _)| key);
        if !sane || keys().any(|key| Key::from_bytes(key).is_none()) {
            return None;
        }
        let by_element = !base.has(Flags::CROSS);
        if by_element && base.has(Flags::NOT_ADMITTED) {
            // The element knows nothing of this epoch any more: it ends, and this comes again.
            return None;
        }
        let first = if by_element { shared.members.get(&base.src())?.member.slot_base } else { 0 };
        let name = FrameName { endpoint: base.src(), flow: base.slot().checked_sub(first)?, seq: base.seq() };
        if !by_element && map.has(MapFlags::COUNT | MapFlags::GET) {
            return self.asked(frame, shared, out);
        }
        if by_element && !map.has(MapFlags::DIVERTED) {
            return if count == 1 { self.counted_there(frame, name, shared, out) } else { None };
        }
        if !by_element && map.has(MapFlags::CLAIM) {
            return self.claim(frame, name, shared, out);
        }
        if !by_element {
            self.choose_road(now, shared);
        }
        self.count_here(frame, name, shared, out)
    }

    /// Says of each key whether its ballot is decided. That is no vote, and may be asked again.
    fn asked(&mut self, frame: &MapFrame<&[u8]>, shared: &mut Shared, out: &mut impl Outbox) -> Option<()> {
        let threshold = frame.map().threshold();
        let mut answers = Answers::default();
        for (key, _) in pairs::entries(frame.payload()) {
            let decided = self.ballots.get(key).is_some_and(|ballot| ballot.has_reached(threshold));
            answers.push((if decided { Status::Whole } else { Status::Held }, 0, 0))?;
        }
        answers.send(frame, None, shared, out)
    }

    /// Counts or clears here, but for keys that the element counts.
    fn count_here(
        &mut self,
        frame: &MapFrame<&[u8]>,
        name: FrameName,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let request = Request::of(frame, name, shared)?;
        let by_element = !frame.base().has(Flags::CROSS);
        let before = self.answered_before(request);
        let mut now = Answered { seq: name.seq, ..Answered::default() };
        let (mut answers, mut decided) = (Answers::default(), Vec::new());
        for (index, (key, _)) in pairs::entries(frame.payload()).enumerate() {
            let bit = 1u128 << index;
            let away = match request.seen {
                Seen::New => !by_element && !self.takes(key, shared),
                _ => before.moved & bit != 0,
            };
            if away {
                now.moved |= bit;
                answers.push((Status::Moved, self.road.rows(shared), 0))?;
                continue;
            }
            shared.stats.software_adds += u64::from(request.seen == Seen::New);
            let (said, won) = self.execute(key, &request, before.won & bit != 0);
            answers.push(said)?;
            if won && request.seen == Seen::New {
                now.won |= bit;
                decided.push(key);
            }
        }
        if request.seen == Seen::New {
            self.remember(name, now);
        }
        answers.send(frame, None, shared, out)?;
        if request.waits() {
            decided.into_iter().for_each(|key| tell_all(key, 0, shared, out));
        }
        Some(())
    }

    /// One entry; and whether it decides its ballot, or `won` says that it did.
    fn execute(&mut self, key: &[u8], request: &Request, won: bool) -> (Said, bool) {
        let Some(ballot) = self.ballot(key) else { return ((Status::Full, 0, 0), false) };
        let new = request.seen == Seen::New;
        if request.clears {
            if new {
                ballot.clear();
            }
            return ((Status::Whole, 0, 0), false);
        }
        let won = if new { ballot.vote(request.threshold) } else { won };
        let waits = request.waits() && !ballot.has_reached(request.threshold);
        let status = if waits { Status::Held } else { Status::Whole };
        ((status, 0, if won { request.threshold.into() } else { 0 }), won)
    }

    /// Takes a vote that the element has counted, or the clearing of a ballot there.
    fn counted_there(
        &mut self,
        frame: &MapFrame<&[u8]>,
        name: FrameName,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (key, _) = pairs::entries(frame.payload()).next()?;
        let request = Request::of(frame, name, shared)?;
        let (round, new) = (frame.base().round(), request.seen == Seen::New);
        let mut now = Answered { seq: name.seq, ..self.answered_before(request) };
        let Some(ballot) = self.ballot(key) else {
            return answer_one(frame, (Status::Full, 0, 0), None, shared, out);
        };
        // More than here: a clearing that this frame has overtaken, or is.
        ballot.observe(round);
        let current = frame.map().has(MapFlags::REACHED) && ballot.round == round;
        let mut decides = false;
        if new && current {
            decides = !ballot.is_decided() || mutant::on(Mutant::DecidedTwice);
            ballot.decide(request.threshold);
            now.won = u128::from(decides);
        } else if new && !request.clears {
            // Its ballot was cleared before it came: it votes in the one that is open now.
            now.moved = 1;
        }
        let waits = request.waits() && !ballot.is_decided();
        self.remember(name, now);
        let said = match (now.won != 0, now.moved != 0) {
            (true, _) => (Status::Mapped, 0, i64::from(request.threshold)),
            (_, true) => (Status::Moved, self.road.rows(shared), 0),
            _ => (if waits { Status::Held } else { Status::Mapped }, 0, 0),
        };
        // What was recorded is told, and the element hears it in passing.
        answer_one(frame, said, current.then_some((frame.map().index(), round)), shared, out)?;
        if decides && request.waits() {
            tell_all(key, round + 1, shared, out);
        }
        Some(())
    }

    /// The ballot of a key, made if it is new; `None` when there is no room, or it is no key.
    fn ballot(&mut self, key: &[u8]) -> Option<&mut Ballot> {
        if !self.ballots.contains_key(key) {
            // A table that grows is there twice for a moment.
            let taken = key.len() + 2 * size_of::<(Key, Ballot)>();
            self.room = self.room.checked_sub(taken)?;
            self.ballots.insert(Key::from_bytes(key)?, Ballot::default());
        }
        self.ballots.get_mut(key)
    }

    fn answered_before(&self, request: Request) -> Answered {
        let before = self.answered.get(&request.name.place()).filter(|answered| answered.seq == request.name.seq);
        let Answered { seq, moved, won } = before.copied().unwrap_or_default();
        let moved = if mutant::on(Mutant::MovedSaidOnce) { 0 } else { moved };
        Answered { seq, moved, won: if mutant::on(Mutant::WonSaidOnce) { 0 } else { won } }
    }

    fn remember(&mut self, name: FrameName, answered: Answered) {
        if answered.moved | answered.won == 0 {
            self.answered.remove(&name.place());
        } else {
            self.answered.insert(name.place(), answered);
        }
    }
}

impl VoteTruth {
    /// Sends what is due.
    pub(super) fn poll(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox, events: &mut Events) {
        self.road.poll(now, shared, out, events);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.road.deadline()
    }

    /// A caller has left. Its votes count.
    pub(super) fn leave(&mut self, endpoint: u32) {
        self.answered.retain(|(owner, ..), _| *owner != endpoint);
    }
}

impl Request {
    /// `None` when the frame was answered long ago.
    fn of(frame: &MapFrame<&[u8]>, name: FrameName, shared: &mut Shared) -> Option<Self> {
        let map = frame.map();
        let seen = shared.members.get_mut(&name.endpoint)?.seen.meet(name.flow, name.seq);
        let clears = map.has(MapFlags::CLEAR);
        let request = Self { clears, threshold: map.threshold(), to: frame.target(), name, seen };
        (seen != Seen::Stale).then_some(request)
    }

    /// Whether its caller waits for the decision.
    fn waits(&self) -> bool {
        !self.clears && self.to != Target::Server
    }
}

impl FrameName {
    /// Its place in the repeat filter.
    fn place(self) -> (u32, u32, u32) {
        (self.endpoint, self.flow, self.seq % W_MAX)
    }
}

/// What is said of one vote: status, row and value.
type Said = (Status, u32, i64);

/// What is said of the votes of a frame.
struct Answers {
    bytes: [u8; MAX_ENTRIES * ANSWER_LEN],
    len: usize,
}

impl Default for Answers {
    fn default() -> Self {
        Self { bytes: [0; MAX_ENTRIES * ANSWER_LEN], len: 0 }
    }
}

impl Answers {
    fn push(&mut self, (status, row, value): Said) -> Option<()> {
        pairs::put_answer(self.bytes.get_mut(self.len..)?, &Answer { status, lane: 0, row, value })?;
        self.len += ANSWER_LEN;
        Some(())
    }

    /// Answers a frame. `decided`: row and round of a ballot in the element, which hears of it in passing.
    fn send(
        &self,
        frame: &MapFrame<&[u8]>,
        decided: Option<(u32, u32)>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let (index, round) = decided.unwrap_or_default();
        let base = BaseRepr { round, ..shared.answer(Kind::MapPairsAck, frame) };
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

fn answer_one(
    frame: &MapFrame<&[u8]>,
    said: Said,
    decided: Option<(u32, u32)>,
    shared: &mut Shared,
    out: &mut impl Outbox,
) -> Option<()> {
    let mut answers = Answers::default();
    answers.push(said)?;
    answers.send(frame, decided, shared, out)
}

/// Tells everybody who waits that a ballot is decided: in the element one more than its `round`, 0 of
/// one that was counted here.
fn tell_all(key: &[u8], round: u32, shared: &mut Shared, out: &mut impl Outbox) {
    let base = BaseRepr { round, ..shared.base(Kind::MapSoft, Flags::MCAST) };
    let payload = pairs::entry_len(key.len());
    let flags = MapFlags::BARE | MapFlags::COUNT;
    let map = MapRepr { flags, payload_len: payload as u16, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, payload);
    if pairs::put(emit(&base, &map, &mut shared.scratch[..len]).payload_mut(), key, 0).is_some() {
        shared.send_to_all(len, out);
    }
}
