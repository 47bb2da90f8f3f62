//! Ballot stage: `CntFwd` on keys with a threshold above one (NetRPC §4, Table 2).
//!
//! ```text
//! vote ─► row of its key ─┬─ below the threshold: acknowledged
//!                         ├─ at it: decided here, and sent to all members; or forwarded, the server decides
//!                         ├─ above it: acknowledged, with a flag if decided
//!                         └─ another key's row: forwarded, the server counts
//! query ─► row of its key ─┬─ decided: answered
//!                          └─ otherwise: forwarded, the server answers
//! ```
//!
//! The server decides if the handler must run (target SERVER), or if the decision must be recorded before callers get it
//! (flag WAIT). Callers that wait for the decision and miss it ask with a query, which changes no register.
//!
//! The row of a key follows from the key's hash; the register holds the whole key, so that no other key is counted with
//! it. The first key in a row keeps the row until the epoch ends, so a ballot's votes are never split between element
//! and server. Beside its repeat-filter entry, a vote records whether it reached the threshold, and in which round of its
//! ballot, so that its repeat gets the same answer.

use pathcall_wire::pairs::{self, MAX_BALLOT_KEY};
use pathcall_wire::{ForwardTarget, FrameKind, MapFlags, MapRepr, Mutant, mutant};

use crate::registers::{Ballot, Registers};
use crate::repeat_filter::RepeatStatus;
use crate::{Context, FrameDropReason, FrameVerdict, InstalledApplication, SwitchProgram, repeat_filter};

/// Length of a key, and the key as stored in a register.
type BallotKey = (u8, [u8; MAX_BALLOT_KEY]);

/// State of a ballot as a vote finds it, with the vote counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BallotState {
    /// Whether the row belongs to this key.
    is_own_key: bool,
    reached: bool,
    /// Whether the votes are more than the threshold, so that an earlier vote reached it.
    passed: bool,
    decided: bool,
    /// Whether this vote decided the ballot here.
    decides: bool,
    round: u32,
}

/// Record of an entry's last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VoteMark {
    /// Round of the ballot at the time of the frame.
    round: u32,
    /// Whether the vote decided the ballot here, or the frame was forwarded to the server.
    reached: bool,
}

/// Route of a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VoteRoute {
    /// Forwarded: the server counts the vote.
    Divert,
    /// Forwarded: the threshold is reached, and the server decides or has decided.
    Reached,
    /// Decided here by this vote.
    Decided,
    /// Forwarded: the server has the answer.
    Ask,
    /// Counted here.
    Done,
}

/// Party that decides at the threshold, as a vote says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decider {
    Element,
    /// The server, which runs the handler for the deciding vote.
    Handler,
    /// The server, which records the decision before callers get it.
    Server,
}

impl SwitchProgram {
    /// Processes a vote, or the clear of a ballot.
    pub(crate) fn ballot(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        let (key, new) = match self.ballot_key(application, &mut context) {
            Ok(found) => found,
            Err(reason) => return context.drop(reason),
        };
        let registers = &mut self.tables.registers;
        let clears = map.flags & MapFlags::CLEAR != 0;
        let decider = Decider::of(&context);
        let state = record_vote(application, registers, &mut context, &key, new, decider);
        let first = first_route(state, clears, decider);
        let place = &mut registers.overflows.visit(&mut context.pass, repeat_filter::place(&base), 1)[0];
        if new {
            *place = VoteMark { round: state.round, reached: first != VoteRoute::Done }.word();
        }
        let mark = VoteMark::of(*place);
        let route = if new { first } else { repeat_route(state, mark, clears, decider) };
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new && state.is_own_key);
            c.repeats += u64::from(!new);
            c.diverted += u64::from(route == VoteRoute::Divert);
            c.reached += u64::from(matches!(route, VoteRoute::Reached | VoteRoute::Decided));
        });
        let decided = state.decided && state.round == mark.round;
        // The round in which the frame took effect.
        context.frame.base_mut().set_round(mark.round);
        match route {
            VoteRoute::Divert => context.divert(),
            VoteRoute::Ask => context.forward(),
            VoteRoute::Reached => {
                context.frame.map_mut().set_flags(map.flags | MapFlags::REACHED);
                context.forward()
            }
            VoteRoute::Decided => context.announce_decision(mark.round, new),
            VoteRoute::Done => {
                context.frame.map_mut().set_flags(map.flags | if decided { MapFlags::REACHED } else { 0 });
                context.reflect(FrameKind::MapAck, true)
            }
        }
    }

    /// Answers whether a ballot is decided, if it is; otherwise the server answers.
    pub(crate) fn ballot_query(
        &mut self,
        application: &InstalledApplication,
        mut context: Context<'_>,
    ) -> FrameVerdict {
        let key = match self.ballot_key(application, &mut context) {
            Ok((key, _)) => key,
            Err(reason) => return context.drop(reason),
        };
        let at = application.row_base as usize + context.map.index as usize;
        let ballot = self.tables.registers.ballots.visit(&mut context.pass, at, 1)[0];
        if ballot.moved || !ballot.decided || (ballot.len, ballot.key) != key {
            return context.forward();
        }
        self.count_for(context.base.gaid, |c| c.reads += 1);
        context.frame.base_mut().set_round(ballot.round);
        context.frame.map_mut().set_flags(context.map.flags | MapFlags::REACHED);
        context.reflect(FrameKind::MapAck, true)
    }

    /// Key of a frame's only entry, and whether the frame is new.
    fn ballot_key(
        &mut self,
        application: &InstalledApplication,
        context: &mut Context<'_>,
    ) -> Result<(BallotKey, bool), FrameDropReason> {
        let Context { base, map, .. } = *context;
        let mut entries = pairs::entries(context.frame.payload());
        let key = entries.next().and_then(|(key, _)| padded_key(key));
        let (Some(key), true, true) = (key, entries.is_exhausted(), map.index < application.rows) else {
            return Err(FrameDropReason::Malformed);
        };
        let registers = &mut self.tables.registers;
        match repeat_filter::classify(self.profile, registers, &base, &mut context.pass, 0, true) {
            RepeatStatus::New => Ok((key, true)),
            RepeatStatus::Repeat(_) => Ok((key, false)),
            RepeatStatus::Refused | RepeatStatus::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                Err(FrameDropReason::Stale)
            }
        }
    }

    /// Processes the server's message that a ballot is decided, and records the decision.
    pub(crate) fn decided(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        if context.map.index >= application.rows {
            return context.drop(FrameDropReason::Malformed);
        }
        let at = application.row_base as usize + context.map.index as usize;
        let ballot = &mut self.tables.registers.ballots.visit(&mut context.pass, at, 1)[0];
        // A late message about a ballot that was cleared does not apply to the current round.
        ballot.decided |= ballot.len > 0 && ballot.round == context.base.round;
        self.count_for(context.base.gaid, |c| c.results += 1);
        context.deliver()
    }

    /// Moves a row without a ballot to the server, which then counts its votes.
    pub(crate) fn move_ballot(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        if context.map.index >= application.rows {
            return context.drop(FrameDropReason::Malformed);
        }
        let at = application.row_base as usize + context.map.index as usize;
        self.tables.registers.ballots.visit(&mut context.pass, at, 1)[0].moved = true;
        context.reflect(FrameKind::MapMoved, false)
    }
}

/// Whether a frame asks for the decision of a ballot.
pub(crate) fn is_query(map: &MapRepr) -> bool {
    let query = MapFlags::COUNT | MapFlags::GET;
    map.flags & (query | MapFlags::CLEAR) == query
}

/// Records a frame in the row that it names.
fn record_vote(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    key: &BallotKey,
    new: bool,
    decider: Decider,
) -> BallotState {
    let at = application.row_base as usize + context.map.index as usize;
    let ballot = &mut registers.ballots.visit(&mut context.pass, at, 1)[0];
    if ballot.len == 0 && !ballot.moved && new {
        (ballot.len, ballot.key) = *key;
    }
    let is_own_key = !ballot.moved && ((ballot.len, ballot.key) == *key || mutant::on(Mutant::VoteForAnother));
    let clears = context.map.flags & MapFlags::CLEAR != 0;
    if is_own_key && clears && new {
        let round = if mutant::on(Mutant::ClearsUncounted) { 0 } else { VoteMark::next(ballot.round) };
        *ballot = Ballot { count: 0, decided: false, round, ..*ballot };
    } else if is_own_key && !clears && (new || mutant::on(Mutant::VoteRepeats)) {
        ballot.count = ballot.count.saturating_add(1);
    }
    let reached = ballot.count >= context.map.threshold;
    let passed = ballot.count > context.map.threshold;
    let decides = is_own_key && !clears && new && reached && !passed && !ballot.decided && decider == Decider::Element;
    ballot.decided |= decides && !mutant::on(Mutant::DecidedForgotten);
    ballot.decided |= reached && !clears && mutant::on(Mutant::DecidedUnrecorded);
    BallotState { is_own_key, reached, passed, decided: ballot.decided, decides, round: ballot.round }
}

/// Route of a new frame.
fn first_route(state: BallotState, clears: bool, decider: Decider) -> VoteRoute {
    match state {
        BallotState { is_own_key: false, .. } => VoteRoute::Divert,
        _ if clears => VoteRoute::Ask,
        BallotState { decides: true, .. } => VoteRoute::Decided,
        // If the server lost the vote that reached the threshold, with its caller, this vote takes its place.
        BallotState { reached: true, decided: false, passed, .. } if !passed || decider == Decider::Server => {
            VoteRoute::Reached
        }
        // NetRPC Table 2: frames below the threshold end here.
        _ => VoteRoute::Done,
    }
}

/// Route of a repeat.
fn repeat_route(state: BallotState, mark: VoteMark, clears: bool, decider: Decider) -> VoteRoute {
    match state {
        BallotState { is_own_key: false, .. } => VoteRoute::Divert,
        _ if clears => VoteRoute::Ask,
        _ if !mark.reached || mutant::on(Mutant::DecisionSaidOnce) && decider == Decider::Element => VoteRoute::Done,
        _ if decider == Decider::Element => VoteRoute::Decided,
        // Also if the ballot was cleared meanwhile: the server may not have this vote yet.
        _ => VoteRoute::Reached,
    }
}

impl Decider {
    fn of(context: &Context<'_>) -> Self {
        match context.frame.target() {
            ForwardTarget::Server => Self::Handler,
            _ if context.map.flags & MapFlags::WAIT != 0 => Self::Server,
            _ => Self::Element,
        }
    }
}

/// Key as stored in a register.
fn padded_key(key: &[u8]) -> Option<BallotKey> {
    let mut whole = [0; MAX_BALLOT_KEY];
    whole.get_mut(..key.len())?.copy_from_slice(key);
    (!key.is_empty()).then_some((key.len() as u8, whole))
}

impl VoteMark {
    fn of(word: u32) -> Self {
        Self { round: word >> 1, reached: word & 1 == 1 }
    }

    fn word(self) -> u32 {
        self.round << 1 | u32::from(self.reached)
    }

    /// Next round: 31 bits, so that a mark fits one register.
    fn next(round: u32) -> u32 {
        (round + 1) & (u32::MAX >> 1)
    }
}

#[cfg(test)]
#[path = "ballot_tests.rs"]
mod tests;
