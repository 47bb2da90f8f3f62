//! Round stage of a sum (SyncAgtr): decides which worker's part counts, before anything is added.

use std::cmp::Ordering;

use crate::registers::{Registers, RoundState};
use crate::{Context, InstalledApplication};
use pathcall_wire::{Flags, MapFlags, MapRepr, Mutant, mutant};

/// Relation of a worker's frame to the round of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundPart {
    /// First frame of this worker in the open round.
    First,
    /// First frame of a new round, whose row still holds an earlier round.
    Opening,
    /// Repeat of a part of the open round.
    Again,
    /// Part of a round that is over.
    Old,
    /// Part that the row cannot take, so that the server has to.
    Diverted,
}

/// Records a worker's frame in its round.
pub(crate) fn record_part(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> RoundPart {
    let row = application.row_base as usize + context.map.index as usize;
    let state = &mut registers.rounds.visit(&mut context.pass, row, 1)[0];
    let opens = match context.base.round.cmp(&state.round) {
        Ordering::Less => return RoundPart::Old,
        // A worker that sends the next round has the result of the round in the row, and so have all others.
        Ordering::Greater if new && clears_itself(&context.map) => true,
        Ordering::Greater => return RoundPart::Diverted,
        Ordering::Equal => false,
    };
    if opens {
        *state = RoundState { round: context.base.round, ..RoundState::default() };
    }
    if state.workers == 0 {
        state.tag = context.map.tag;
    }
    if state.tag != context.map.tag && !mutant::on(Mutant::ElementTag) {
        return RoundPart::Diverted;
    }
    // NetRPC §5.1: the mark stays with the round until it is cleared, so that the loss of one frame does not lose the
    // mark.
    state.ecn |= context.congested;
    if state.ecn {
        context.base.flags |= Flags::ECN;
        context.frame.base_mut().set_flags(context.base.flags);
    }
    let bit = 1u64 << context.map.worker;
    match (state.workers & bit != 0, new) {
        (true, _) if mutant::on(Mutant::ElementWorkers) => RoundPart::First,
        (true, _) => RoundPart::Again,
        (false, true) => {
            state.workers |= bit;
            if opens { RoundPart::Opening } else { RoundPart::First }
        }
        // The original went to the server as well.
        (false, false) => RoundPart::Diverted,
    }
}

/// Whether the row is cleared by its next round, and the element returns the result: policy *shadow* (NetRPC §5.2.2).
pub(crate) fn clears_itself(map: &MapRepr) -> bool {
    map.flags & MapFlags::CLEAR != 0
}

/// Closes the round of a result, and all earlier rounds; false if it is closed already, because a late result must not
/// clear a later round.
pub(crate) fn close(application: &InstalledApplication, registers: &mut Registers, context: &mut Context<'_>) -> bool {
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
