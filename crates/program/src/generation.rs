//! Generation stage of keyed values: the server harvests one closed generation after the other, until it has all values
//! that only the element held (docs/map.md, *Generations*).
//!
//! ```text
//! close g ─► frames add to g+1 ─► the server reads g's bank and the record ─► wipe g ─► close g+1 …
//! ```
//!
//! Generation g is in bank g mod 2, so the server may close a generation only after the one before was wiped.

use pathcall_wire::{Mutant, mutant};

use crate::registers::{Generation, Registers};
use crate::{Context, InstalledApplication};

/// Generation state of the frame's application.
pub(crate) fn of(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
) -> Generation {
    registers.generations.visit(&mut context.pass, application.row_base as usize, 1)[0]
}

/// Closes the generation that the frame names, if it is open; returns the new state.
pub(crate) fn close(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
) -> Generation {
    let state = &mut registers.generations.visit(&mut context.pass, application.row_base as usize, 1)[0];
    if context.base.round == state.open {
        // The server closes a generation only after the harvest of all earlier ones.
        state.committed = state.open - 1;
        state.open = state.open.wrapping_add(1).max(1);
        state.version = context.map.index;
    }
    *state
}

/// Records that a closed generation was harvested; false if its bank may be in use again or was never closed, because a
/// late wipe must not touch newer values.
pub(crate) fn commit(application: &InstalledApplication, registers: &mut Registers, context: &mut Context<'_>) -> bool {
    let state = &mut registers.generations.visit(&mut context.pass, application.row_base as usize, 1)[0];
    let just_closed = state.open == context.base.round.wrapping_add(1) || mutant::on(Mutant::WipeOldGeneration);
    if just_closed {
        state.committed = context.base.round;
    }
    just_closed
}

impl Generation {
    /// First lane of the open bank in a row.
    pub(crate) fn bank(self) -> usize {
        bank(if mutant::on(Mutant::HarvestUnfrozen) { self.committed + 1 } else { self.open })
    }
}

/// First lane of a generation's bank in a row.
pub(crate) fn bank(generation: u32) -> usize {
    (generation % 2) as usize * pathcall_wire::KEYED_LANES
}
