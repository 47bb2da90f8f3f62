//! `CntFwd`: counters and thresholds (NetRPC §5.2.3).

use pathcall_wire::{MapFlags, Mutant, mutant};

use crate::registers::Registers;
use crate::round::Part;
use crate::{Application, Context};

/// What `CntFwd` says of a frame of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The threshold is reached, or there is none.
    Forward,
    /// Below the threshold.
    Wait,
    /// No such counter.
    Malformed,
}

/// Counts a frame of pairs.
pub(crate) fn pairs(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> Counted {
    let map = &context.map;
    if map.flags & MapFlags::COUNT == 0 || map.threshold == 0 {
        return Counted::Forward;
    }
    if map.index >= application.rows {
        return Counted::Malformed;
    }
    let at = application.row_base as usize + map.index as usize;
    let count = &mut registers.counts.visit(&mut context.pass, at, 1)[0];
    if new {
        *count = count.saturating_add(1);
    }
    let reached = if new { *count == map.threshold } else { *count >= map.threshold };
    if reached { Counted::Forward } else { Counted::Wait }
}

/// Counts a worker's part of a round; whether the round is complete.
pub(crate) fn round(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    part: Part,
) -> bool {
    let at = application.row_base as usize + context.map.index as usize;
    let count = &mut registers.counts.visit(&mut context.pass, at, 1)[0];
    *count = if part == Part::Opening { 1 } else { *count + u32::from(part == Part::First) };
    let reached = *count >= context.map.threshold;
    *count = if reached && mutant::on(Mutant::ClearBeforeBackup) { 0 } else { *count };
    reached
}

/// Sets the counter of a closed round back.
pub(crate) fn clear(application: &Application, registers: &mut Registers, context: &mut Context<'_>) {
    let at = application.row_base as usize + context.map.index as usize;
    registers.counts.visit(&mut context.pass, at, 1)[0] = 0;
}
