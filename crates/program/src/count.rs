//! `CntFwd` stage: counters and thresholds (NetRPC §5.2.3).

use pathcall_wire::{MapFlags, Mutant, mutant};

use crate::registers::Registers;
use crate::round::RoundPart;
use crate::{Context, InstalledApplication};

/// Result of `CntFwd` for a frame of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountOutcome {
    /// The threshold is reached, or there is none.
    Forward,
    /// The count is below the threshold.
    Wait,
    /// The counter does not exist.
    Malformed,
}

/// Counts a frame of pairs.
pub(crate) fn pairs(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> CountOutcome {
    let map = &context.map;
    if map.flags & MapFlags::COUNT == 0 || map.threshold == 0 {
        return CountOutcome::Forward;
    }
    if map.index >= application.rows {
        return CountOutcome::Malformed;
    }
    let at = application.row_base as usize + map.index as usize;
    let count = &mut registers.counts.visit(&mut context.pass, at, 1)[0];
    if new {
        *count = count.saturating_add(1);
    }
    let reached = if new { *count == map.threshold } else { *count >= map.threshold };
    if reached { CountOutcome::Forward } else { CountOutcome::Wait }
}

/// Counts a worker's part of a round; true if the round is complete.
pub(crate) fn round(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    part: RoundPart,
) -> bool {
    let at = application.row_base as usize + context.map.index as usize;
    let count = &mut registers.counts.visit(&mut context.pass, at, 1)[0];
    *count = if part == RoundPart::Opening { 1 } else { *count + u32::from(part == RoundPart::First) };
    let reached = *count >= context.map.threshold;
    *count = if reached && mutant::on(Mutant::ClearBeforeBackup) { 0 } else { *count };
    reached
}

/// Resets the counter of a closed round.
pub(crate) fn clear(application: &InstalledApplication, registers: &mut Registers, context: &mut Context<'_>) {
    let at = application.row_base as usize + context.map.index as usize;
    registers.counts.visit(&mut context.pass, at, 1)[0] = 0;
}
