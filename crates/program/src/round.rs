//! Rounds of SyncAgtr: which worker's part counts, before anything is added (NOTES: "Stage order").

use std::cmp::Ordering;

use crate::registers::{Registers, RoundState};
use crate::{Application, Context};
use pathcall_wire::{Flags, MapFlags, MapRepr, Mutant, mutant};

/// What a worker's frame is to its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its part of the open round, for the first time.
    First,
    /// The same, and the first of all of a round that it opens: what the row holds is of an earlier one.
    Opening,
    /// The same again.
    Again,
    /// Part of a round that is over.
    Old,
    /// Nothing that this row can take: the server must.
    Diverted,
}

/// Enters a worker's frame in its round.
pub(crate) fn enter(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> Part {
    let row = application.row_base as usize + context.map.index as usize;
    let state = &mut registers.rounds.visit(&mut context.pass, row, 1)[0];
    let opens = match context.base.round.cmp(&state.round) {
        Ordering::Less => return Part::Old,
        // Whoever sends this has the result of what the row holds, and so has everybody else.
        Ordering::Greater if new && clears_itself(&context.map) => true,
        Ordering::Greater => return Part::Diverted,
        Ordering::Equal => false,
    };
    if opens {
        *state = RoundState { round: context.base.round, ..RoundState::default() };
    }
    if state.workers == 0 {
        state.tag = context.map.tag;
    }
    if state.tag != context.map.tag && !mutant::on(Mutant::ElementTag) {
        return Part::Diverted;
    }
    // NetRPC §5.1: the mark stays with the round until it is cleared, so that its loss loses nothing.
    state.ecn |= context.congested;
    if state.ecn {
        context.base.flags |= Flags::ECN;
        context.frame.base_mut().set_flags(context.base.flags);
    }
    let bit = 1u64 << context.map.worker;
    match (state.workers & bit != 0, new) {
        (true, _) if mutant::on(Mutant::ElementWorkers) => Part::First,
        (true, _) => Part::Again,
        (false, true) => {
            state.workers |= bit;
            if opens { Part::Opening } else { Part::First }
        }
        // It went to the server the first time.
        (false, false) => Part::Diverted,
    }
}

/// Whether a part's row is cleared by its next round, and the element says the result: policy *shadow* (NetRPC §5.2.2).
pub(crate) fn clears_itself(map: &MapRepr) -> bool {
    map.flags & MapFlags::CLEAR != 0
}

/// Closes the round that a result is of, and any before it; false when it is closed already. A
/// late result must not wipe a later round.
pub(crate) fn close(application: &Application, registers: &mut Registers, context: &mut Context<'_>) -> bool {
    let row = application.row_base as usize + context.map.index as usize;
    let state = &mut registers.rounds.visit(&mut context.pass, row, 1)[0];
    if context.base.round < state.round {
        return mutant::on(Mutant::ClearOnOldResult);
    }
    if state.ecn {
        context.base.flags |= Flags::ECN;
        context.frame.base_mut().set_flags(context.base.flags);
    }
    *state = RoundState { round: context.base.round.saturating_add(1), ..RoundState::default() };
    true
}
