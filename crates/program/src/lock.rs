//! Locks: `CntFwd` with threshold 1 is test-and-set, and its register holds the owner, so that the
//! owner's repeat is granted again (NetRPC Table 2; NOTES: "Locks and test-and-set").

use pathcall_wire::{MapFlags, MapRepr, Target};

use crate::registers::{Lock, Registers};
use crate::{Application, Context};

/// Whether a frame of pairs takes a lock, or gives one back.
pub(crate) fn is_of_lock(map: &MapRepr) -> bool {
    let takes = map.flags & MapFlags::COUNT != 0 && map.threshold == 1;
    let clears = map.flags & (MapFlags::COUNT | MapFlags::CLEAR | MapFlags::ADD) == MapFlags::CLEAR;
    map.lanes == 0 && map.to == Target::Src as u8 && (takes || clears)
}

/// Takes a lock or gives it back, if the frame is `new`; whether the sender was, or is, its holder.
pub(crate) fn work(application: &Application, registers: &mut Registers, context: &mut Context<'_>, new: bool) -> bool {
    let at = application.row_base as usize + context.map.index as usize;
    let own = Lock { owner: context.base.src, tag: context.map.tag };
    let takes = context.map.flags & MapFlags::COUNT != 0;
    let lock = &mut registers.locks.visit(&mut context.pass, at, 1)[0];
    if takes {
        if new && lock.owner == 0 {
            *lock = own;
        }
        return *lock == own;
    }
    if new && *lock == own {
        *lock = Lock::default();
    }
    true
}

/// Frees a lock whose holder has left.
pub(crate) fn free(application: &Application, registers: &mut Registers, context: &mut Context<'_>) {
    let at = application.row_base as usize + context.map.index as usize;
    let lock = &mut registers.locks.visit(&mut context.pass, at, 1)[0];
    if lock.owner == context.map.threshold {
        *lock = Lock::default();
    }
}
