//! Ballots: `CntFwd` on keys with a threshold above one (NetRPC §4, Table 2).
//!
//! ```text
//! vote ─► row of its key ─┬─ below the threshold: acknowledged
//!                         ├─ at it, and not recorded yet: forwarded, the server decides
//!                         ├─ recorded: acknowledged, and said so
//!                         └─ another key's row: forwarded, the server counts
//! ```
//!
//! Who waits for the decision hears of it from the server, or asks there.
//!
//! A key's row follows from its hash; the register keeps the whole key, so that no other is ever
//! counted with it. The first key that comes to a row keeps it until the epoch ends: so a ballot's
//! votes are never split between element and server. Beside its place in the repeat filter, a vote
//! leaves whether it went to the server, and in which round of its ballot: its repeat does the same.

use pathcall_wire::pairs::{self, MAX_BALLOT_KEY};
use pathcall_wire::{Kind, MapFlags, Mutant, mutant};

use crate::once::Met;
use crate::registers::{Ballot, Registers};
use crate::{Application, Context, Program, Reason, Verdict, once};

/// How a vote finds its ballot, itself counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// Whether the row is this key's.
    ours: bool,
    reached: bool,
    decided: bool,
    round: u32,
}

/// What a place remembers of its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// The round of the ballot that it came to.
    round: u32,
    /// It was forwarded to the server.
    went: bool,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The server counts it.
    Divert,
    /// It finds the threshold reached: the server decides, or has decided.
    Reached,
    /// The server knows what to say.
    Ask,
    /// It was counted.
    Done,
}

impl Program {
    /// A vote, or the clearing of a ballot.
    pub(crate) fn ballot(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        let Context { base, map, .. } = context;
        let mut entries = pairs::entries(context.frame.payload());
        let key = entries.next().and_then(|(key, _)| whole(key));
        let (Some(key), true, true) = (key, entries.is_exhausted(), map.index < application.rows) else {
            return context.drop(Reason::Malformed);
        };
        let registers = &mut self.tables.registers;
        let new = match once::meet(self.profile, registers, &base, &mut context.pass, 0, true) {
            Met::New => true,
            Met::Repeat(_) => false,
            Met::Refused | Met::Stale => {
                self.count_for(base.gaid, |c| c.stale += 1);
                return context.drop(Reason::Stale);
            }
        };
        let clears = map.flags & MapFlags::CLEAR != 0;
        let standing = enter(application, registers, &mut context, &key, new);
        let first = first_way(standing, clears);
        let place = &mut registers.overflows.visit(&mut context.pass, once::place(&base), 1)[0];
        if new {
            *place = Mark { round: standing.round, went: first != Way::Done }.word();
        }
        let mark = Mark::of(*place);
        let way = if new { first } else { again(standing, mark, clears) };
        self.count_for(base.gaid, |c| {
            c.applied += u64::from(new && standing.ours);
            c.repeats += u64::from(!new);
            c.diverted += u64::from(way == Way::Divert);
            c.reached += u64::from(way == Way::Reached);
        });
        let decided = standing.decided && standing.round == mark.round;
        // An answer, and a clearing, are of the round in which the frame took effect.
        let settled = clears || way == Way::Done;
        context.frame.base_mut().set_round(if settled { mark.round } else { standing.round });
        match way {
            Way::Divert => context.divert(),
            Way::Ask => context.forward(),
            Way::Reached => {
                context.frame.map_mut().set_flags(map.flags | MapFlags::REACHED);
                context.forward()
            }
            Way::Done => {
                context.frame.map_mut().set_flags(map.flags | if decided { MapFlags::REACHED } else { 0 });
                context.reflect(Kind::MapAck, true)
            }
        }
    }

    /// The server's word that a ballot is decided: notes it in passing.
    pub(crate) fn decided(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        if context.map.index >= application.rows {
            return context.drop(Reason::Malformed);
        }
        let at = application.row_base as usize + context.map.index as usize;
        let ballot = &mut self.tables.registers.ballots.visit(&mut context.pass, at, 1)[0];
        // A late word of a ballot that was cleared since says nothing of this one.
        ballot.decided |= ballot.len > 0 && ballot.round == context.base.round;
        self.count_for(context.base.gaid, |c| c.results += 1);
        context.deliver()
    }

    /// The server counts what comes to a row that has no ballot yet.
    pub(crate) fn move_ballot(&mut self, application: &Application, mut context: Context<'_>) -> Verdict {
        if context.map.index >= application.rows {
            return context.drop(Reason::Malformed);
        }
        let at = application.row_base as usize + context.map.index as usize;
        self.tables.registers.ballots.visit(&mut context.pass, at, 1)[0].moved = true;
        context.reflect(Kind::MapMoved, false)
    }
}

/// Enters a frame in the row that it names.
fn enter(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    key: &(u8, [u8; MAX_BALLOT_KEY]),
    new: bool,
) -> Standing {
    let at = application.row_base as usize + context.map.index as usize;
    let ballot = &mut registers.ballots.visit(&mut context.pass, at, 1)[0];
    if ballot.len == 0 && !ballot.moved && new {
        (ballot.len, ballot.key) = *key;
    }
    let ours = !ballot.moved && ((ballot.len, ballot.key) == *key || mutant::on(Mutant::VoteForAnother));
    let clears = context.map.flags & MapFlags::CLEAR != 0;
    if ours && clears && new {
        let round = if mutant::on(Mutant::ClearsUncounted) { 0 } else { Mark::next(ballot.round) };
        *ballot = Ballot { count: 0, decided: false, round, ..*ballot };
    } else if ours && !clears && (new || mutant::on(Mutant::VoteRepeats)) {
        ballot.count = ballot.count.saturating_add(1);
    }
    let reached = ballot.count >= context.map.threshold;
    ballot.decided |= reached && !clears && mutant::on(Mutant::DecidedUnrecorded);
    Standing { ours, reached, decided: ballot.decided, round: ballot.round }
}

/// Where a frame goes that comes for the first time.
fn first_way(standing: Standing, clears: bool) -> Way {
    match standing {
        Standing { ours: false, .. } => Way::Divert,
        _ if clears => Way::Ask,
        Standing { reached: true, decided: false, .. } => Way::Reached,
        // NetRPC Table 2: what does not reach the threshold goes no further.
        _ => Way::Done,
    }
}

/// Where a repeat goes.
fn again(standing: Standing, mark: Mark, clears: bool) -> Way {
    match standing {
        Standing { ours: false, .. } => Way::Divert,
        _ if clears => Way::Ask,
        _ if !mark.went => Way::Done,
        Standing { reached: true, .. } if standing.round == mark.round => Way::Reached,
        // Its ballot was cleared since it went to the server.
        _ => Way::Ask,
    }
}

/// The key as a register holds it.
fn whole(key: &[u8]) -> Option<(u8, [u8; MAX_BALLOT_KEY])> {
    let mut whole = [0; MAX_BALLOT_KEY];
    whole.get_mut(..key.len())?.copy_from_slice(key);
    (!key.is_empty()).then_some((key.len() as u8, whole))
}

impl Mark {
    fn of(word: u32) -> Self {
        Self { round: word >> 1, went: word & 1 == 1 }
    }

    fn word(self) -> u32 {
        self.round << 1 | u32::from(self.went)
    }

    /// The round after this one: 31 bits, so that a mark is one register.
    fn next(round: u32) -> u32 {
        (round + 1) & (u32::MAX >> 1)
    }
}

#[cfg(test)]
#[path = "ballot_tests.rs"]
mod tests;
