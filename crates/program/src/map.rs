//! Map stage: `Stream.modify`, `Map.addTo`, `Map.get` and `Map.clear` on the registers of an application.

use pathcall_wire::{KEYED_LANES, MapFlags, Mutant, RECORD_PLACES, W_MAX, mutant};

use crate::registers::{Pass, Registers};
use crate::round::RoundPart;
use crate::{Context, InstalledApplication, lanes};

/// Result of the pairs of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PairsOutcome {
    /// Lanes that would have overflowed, or that name no register: unchanged, and flagged.
    pub(crate) overflow: u32,
    /// Number of lanes added.
    pub(crate) added: u32,
}

/// Bytes of a pair in a frame: a row, and a value.
const PAIR_BYTES: usize = 8;

/// Processes keyed pairs: the i-th pair uses the i-th position of its row's bank, which starts at `bank`.
pub(crate) fn pairs(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
    bank: usize,
) -> PairsOutcome {
    let InstalledApplication { lane_base, rows, width, .. } = *application;
    let (op, para) = context.op();
    let flags = context.map.flags;
    let add = flags & MapFlags::ADD != 0 && new;
    let cells = registers.lanes.visit(&mut context.pass, lane_base as usize, rows as usize * width as usize);
    let mut work = PairsOutcome::default();
    if flags & (MapFlags::LINEAR | MapFlags::BARE) != 0 {
        return work;
    }
    let marked = context.frame.bitmap(0);
    let (pairs, _) = context.frame.bitmap_and_lanes_mut().1.as_chunks_mut::<PAIR_BYTES>();
    for (i, pair) in pairs.iter_mut().take(KEYED_LANES).enumerate().filter(|(i, _)| marked >> i & 1 == 1) {
        let [r0, r1, r2, r3, v0, v1, v2, v3] = *pair;
        let (row, value) = (u32::from_be_bytes([r0, r1, r2, r3]), i32::from_be_bytes([v0, v1, v2, v3]));
        let at = row as usize * width as usize + bank + i;
        let value = op.apply(value, para);
        let cell = if row < rows && bank + i < width as usize { cells.get_mut(at) } else { None };
        let Some(cell) = cell else {
            work.overflow |= 1 << i;
            continue;
        };
        if add {
            match cell.checked_add(value) {
                Some(sum) => (*cell, work.added) = (sum, work.added + 1),
                None if mutant::on(Mutant::ClampOverflow) => *cell = cell.saturating_add(value),
                None => work.overflow |= 1 << i,
            }
        }
        let shown = if flags & MapFlags::GET != 0 { *cell } else { value };
        pair[PAIR_BYTES / 2..].copy_from_slice(&shown.to_be_bytes());
    }
    work
}

/// Processes a worker's row: adds a part once, to zero if it opens the round, and writes the sums into the frame when
/// `reached`.
pub(crate) fn row(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    part: RoundPart,
    reached: bool,
) {
    let (op, para) = context.op();
    let at = row_at(application, context);
    let count = context.frame.lane_count();
    let cells = registers.lanes.visit(&mut context.pass, at, count);
    let lanes = context.frame.bitmap_and_lanes_mut().1;
    if part == RoundPart::Opening && !mutant::on(Mutant::LastRoundAdded) {
        cells.fill(0);
    }
    if part != RoundPart::Again {
        lanes::add(cells, lanes, op, para);
    }
    if reached {
        lanes::get(cells, lanes);
    }
}

/// Writes registers of a row into the frame, from its first lane on.
pub(crate) fn get_row(application: &InstalledApplication, registers: &mut Registers, context: &mut Context<'_>) {
    let at = row_at(application, context) + usize::from(context.map.first_lane);
    let cells = registers.lanes.visit(&mut context.pass, at, context.frame.lane_count());
    lanes::get(cells, context.frame.bitmap_and_lanes_mut().1);
}

/// Zeroes a row.
pub(crate) fn clear(application: &InstalledApplication, registers: &mut Registers, context: &mut Context<'_>) {
    let at = row_at(application, context);
    registers.lanes.visit(&mut context.pass, at, application.width as usize).fill(0);
}

/// Zeroes a bank of a row.
pub(crate) fn wipe(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    bank: usize,
) {
    let at = row_at(application, context) + bank;
    registers.lanes.visit(&mut context.pass, at, KEYED_LANES).fill(0);
}

/// Writes the masks of a slot's repeat-filter entries into the frame: the lanes that each last frame left out.
pub(crate) fn masks(registers: &mut Registers, pass: &mut Pass, slot: u32, first: usize, lanes: &mut [u8]) {
    let at = slot as usize * W_MAX as usize + first;
    let masks = registers.overflows.visit(pass, at, RECORD_PLACES);
    masks.iter().zip(lanes.chunks_exact_mut(4)).for_each(|(mask, lane)| lane.copy_from_slice(&mask.to_be_bytes()));
}

fn row_at(application: &InstalledApplication, context: &Context<'_>) -> usize {
    (application.lane_base + context.map.index * application.width) as usize
}
