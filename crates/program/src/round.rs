//! Rounds of SyncAgtr: which worker's part counts, before anything is added (NOTES: "Stage order").

use crate::registers::Registers;
use crate::{Application, Context};
use pathcall_wire::{Flags, Mutant, mutant};

/// What a worker's frame is to its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its part of the open round, for the first time.
    First,
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
    match context.base.round.cmp(&state.round) {
        std::cmp::Ordering::Less => return Part::Old,
        std::cmp::Ordering::Greater => return Part::Diverted,
        std::cmp::Ordering::Equal => {}
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
            Part::First
        }
        // It went to the server the first time.
        (false, false) => Part::Diverted,
    }
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
    *state = crate::registers::RoundState { round: context.base.round.saturating_add(1), ..Default::default() };
    true
}
