//! Ballot stage: `CntFwd` on keys with a threshold above one (NetRPC §4, Table 2).
//!
//! ```text
//! vote ─► row of its key ─┬─ below the threshold: acknowledged
//!                         ├─ at it, and not recorded yet: forwarded, the server decides
//!                         ├─ recorded: acknowledged, with a flag
//!                         └─ another key's row: forwarded, the server counts
//! ```
//!
//! Callers that wait for the decision get it from the server, or ask there.
//!
//! The row of a key follows from the key's hash; the register holds the whole key, so that no other key is counted with
//! it. The first key in a row keeps the row until the epoch ends, so a ballot's votes are never split between element
//! and server. Beside its repeat-filter entry, a vote records whether it went to the server, and in which round of its
//! ballot, so that its repeat takes the same route.

use pathcall_wire::pairs::{self, MAX_BALLOT_KEY};
use pathcall_wire::{FrameKind, MapFlags, Mutant, mutant};

use crate::registers::{Ballot, Registers};
use crate::repeat_filter::RepeatStatus;
use crate::{Context, FrameDropReason, FrameVerdict, InstalledApplication, SwitchProgram, repeat_filter};

/// State of a ballot as a vote finds it, with the vote counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BallotState {
    /// Whether the row belongs to this key.
    is_own_key: bool,
    reached: bool,
    decided: bool,
    round: u32,
}

/// Record of an entry's last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VoteMark {
    /// Round of the ballot at the time of the frame.
    round: u32,
    /// Whether the frame was forwarded to the server.
    was_forwarded: bool,
}

/// Route of a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VoteRoute {
    /// Forwarded: the server counts the vote.
    Divert,
    /// Forwarded: the threshold is reached, and the server decides or has decided.
    Reached,
    /// Forwarded: the server has the answer.
    Ask,
    /// Counted here.
    Done,
}

impl SwitchProgram {
    /// Processes a vote, or the clear of a ballot.
    pub(crate) fn ballot(&mut self, application: &InstalledApplication, mut context: Context<'_>) -> FrameVerdict {
        let Context { base, map, .. } = context;
        let mut entries = pairs::entries(context.frame.payload());
        let key = entries.next().and_then(|(key, _)| padded_key(key));
        let (Some(key), true, true) = (key, entries.is_exhausted(), map.index < application.rows) else {
            return context.drop(FrameDropReason::Malformed);
        };
        let registers = &mut self.tables.registers;
        let new = match repeat_filter::classify(self.profile, registers, &base, &mut context.pass, 0, true) {
            RepeatStatus::New => true,
            RepeatStatus::Repeat(_) => false,
            RepeatStatus::Refused | RepeatStatus::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                return context.drop(FrameDropReason::Stale);
            }
        };
        let clears = map.flags & MapFlags::CLEAR != 0;
        let state = record_vote(application, registers, &mut context, &key, new);
        let first = first_route(state, clears);
        let place = &mut registers.overflows.visit(&mut context.pass, repeat_filter::place(&base), 1)[0];
        if new {
            *place = VoteMark { round: state.round, was_forwarded: first != VoteRoute::Done }.word();
        }
        let mark = VoteMark::of(*place);
        let route = if new { first } else { repeat_route(state, mark, clears) };
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new && state.is_own_key);
            c.repeats += u64::from(!new);
            c.diverted += u64::from(route == VoteRoute::Divert);
            c.reached += u64::from(route == VoteRoute::Reached);
        });
        let decided = state.decided && state.round == mark.round;
        // An answer, and a clear, name the round in which the frame took effect.
        let in_frame_round = clears || route == VoteRoute::Done;
        context.frame.base_mut().set_round(if in_frame_round { mark.round } else { state.round });
        match route {
            VoteRoute::Divert => context.divert(),
            VoteRoute::Ask => context.forward(),
            VoteRoute::Reached => {
                context.frame.map_mut().set_flags(map.flags | MapFlags::REACHED);
                context.forward()
            }
            VoteRoute::Done => {
                context.frame.map_mut().set_flags(map.flags | if decided { MapFlags::REACHED } else { 0 });
                context.reflect(FrameKind::MapAck, true)
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

/// Records a frame in the row that it names.
fn record_vote(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    key: &(u8, [u8; MAX_BALLOT_KEY]),
    new: bool,
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
    ballot.decided |= reached && !clears && mutant::on(Mutant::DecidedUnrecorded);
    BallotState { is_own_key, reached, decided: ballot.decided, round: ballot.round }
}

/// Route of a new frame.
fn first_route(state: BallotState, clears: bool) -> VoteRoute {
    match state {
        BallotState { is_own_key: false, .. } => VoteRoute::Divert,
        _ if clears => VoteRoute::Ask,
        BallotState { reached: true, decided: false, .. } => VoteRoute::Reached,
        // NetRPC Table 2: frames below the threshold end here.
        _ => VoteRoute::Done,
    }
}

/// Route of a repeat.
fn repeat_route(state: BallotState, mark: VoteMark, clears: bool) -> VoteRoute {
    match state {
        BallotState { is_own_key: false, .. } => VoteRoute::Divert,
        _ if clears => VoteRoute::Ask,
        _ if !mark.was_forwarded => VoteRoute::Done,
        BallotState { reached: true, .. } if state.round == mark.round => VoteRoute::Reached,
        // The ballot was cleared after the frame went to the server.
        _ => VoteRoute::Ask,
    }
}

/// Key as stored in a register.
fn padded_key(key: &[u8]) -> Option<(u8, [u8; MAX_BALLOT_KEY])> {
    let mut whole = [0; MAX_BALLOT_KEY];
    whole.get_mut(..key.len())?.copy_from_slice(key);
    (!key.is_empty()).then_some((key.len() as u8, whole))
}

impl VoteMark {
    fn of(word: u32) -> Self {
        Self { round: word >> 1, was_forwarded: word & 1 == 1 }
    }

    fn word(self) -> u32 {
        self.round << 1 | u32::from(self.was_forwarded)
    }

    /// Next round: 31 bits, so that a mark fits one register.
    fn next(round: u32) -> u32 {
        (round + 1) & (u32::MAX >> 1)
    }
}

#[cfg(test)]
#[path = "ballot_tests.rs"]
mod tests;
