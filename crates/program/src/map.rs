//! `Stream.modify`, `Map.addTo`, `Map.get` and `Map.clear` on the registers of an application.

use pathcall_wire::MapFlags;

use crate::registers::Registers;
use crate::{Application, Context, lanes};

/// What became of the pairs of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    /// Lanes that would have overflowed, or that name no register: unchanged, and flagged.
    pub(crate) overflow: u32,
    /// Lanes added.
    pub(crate) added: u32,
}

/// Works on keyed pairs: the i-th pair in the i-th position of its row.
pub(crate) fn pairs(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> Work {
    let Application { lane_base, rows, width, .. } = *application;
    let (op, para) = context.op();
    let flags = context.map.flags;
    let add = flags & MapFlags::ADD != 0 && new;
    let cells = registers.lanes.visit(&mut context.pass, lane_base as usize, rows as usize * width as usize);
    let mut work = Work::default();
    for i in 0..context.frame.lane_count() {
        let (true, Some((row, value))) = (context.frame.marked(i), context.frame.keyed(i)) else { continue };
        let at = row as usize * width as usize + i;
        let value = op.apply(value, para);
        let cell = if row < rows && i < width as usize { cells.get_mut(at) } else { None };
        let Some(cell) = cell else {
            work.overflow |= 1 << i;
            continue;
        };
        if add {
            match cell.checked_add(value) {
                Some(sum) => (*cell, work.added) = (sum, work.added + 1),
                None => work.overflow |= 1 << i,
            }
        }
        let shown = if flags & MapFlags::GET != 0 { *cell } else { value };
        context.frame.set_keyed(i, row, shown);
    }
    work
}

/// Works on a worker's row: adds it when `apply`, and puts the sums into the frame when `reached`.
pub(crate) fn row(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    apply: bool,
    reached: bool,
) {
    let (op, para) = context.op();
    let at = (application.lane_base + context.map.index * application.width) as usize;
    let count = context.frame.lane_count();
    let cells = registers.lanes.visit(&mut context.pass, at, count);
    let lanes = context.frame.bitmap_and_lanes_mut().1;
    if apply {
        lanes::add(cells, lanes, op, para);
    }
    if reached {
        lanes::get(cells, lanes);
    }
}

/// Puts a row of registers into the frame.
pub(crate) fn get_row(application: &Application, registers: &mut Registers, context: &mut Context<'_>) {
    row(application, registers, context, false, true);
}

/// Zeroes a row.
pub(crate) fn clear(application: &Application, registers: &mut Registers, context: &mut Context<'_>) {
    let at = (application.lane_base + context.map.index * application.width) as usize;
    registers.lanes.visit(&mut context.pass, at, application.width as usize).fill(0);
}
