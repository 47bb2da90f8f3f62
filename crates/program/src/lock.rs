//! Lock stage: `CntFwd` with threshold 1 is test-and-set, and its register holds the owner, so that the owner's repeat
//! is granted again (NetRPC Table 2).
//!
//! ```text
//! free ─► held ─► held, wanted ─► parked: the server gives it to those who wait ─► free
//!           └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A caller that is denied a lock marks the lock as wanted. The release of a wanted lock does not free it: the frame
//! goes on to the server, which grants the lock to waiting callers, and frees the register when nobody waits. Every
//! grant is counted, and every answer contains the count: the lower half of a fencing token.

use pathcall_wire::map::{LOCK_PARKED, LOCK_WANTED};
use pathcall_wire::{ForwardTarget, MapFlags, MapRepr, Mutant, mutant};

use crate::registers::{Lock, Registers};
use crate::{Context, InstalledApplication};

/// Whether a frame of pairs acquires or releases a lock.
pub(crate) fn is_of_lock(map: &MapRepr) -> bool {
    let acquires = map.flags & MapFlags::COUNT != 0 && map.threshold == 1;
    let releases = map.flags & (MapFlags::COUNT | MapFlags::CLEAR | MapFlags::ADD) == MapFlags::CLEAR;
    map.lanes == 0 && map.to == ForwardTarget::Src as u8 && (acquires || releases)
}

/// Result of a lock frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    /// Granted now.
    Granted,
    /// Held already by this acquisition.
    Held,
    /// Held by another caller.
    Busy,
    /// Not held, but this frame is a repeat that was answered before: another attempt is needed.
    Free,
    /// Released, or never held by the sender.
    Released,
    /// Released, and parked for the server.
    Parked,
}

/// Acquires or releases a lock, if the frame is `new`. Writes the number of grants into the frame's round: 0 if the
/// sender has nobody to wait for.
pub(crate) fn process(
    application: &InstalledApplication,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> LockOutcome {
    let at = application.row_base as usize + context.map.index as usize;
    let acquires = context.map.flags & MapFlags::COUNT != 0;
    let own = Lock { owner: context.base.src, tag: context.map.tag };
    let lock = &mut registers.locks.visit(&mut context.pass, at, 1)[0];
    let outcome = if acquires { take(lock, own, new) } else { give_back(lock, own, new) };
    let grants = &mut registers.grants.visit(&mut context.pass, at, 1)[0];
    *grants = grants.saturating_add(u32::from(outcome == LockOutcome::Granted));
    let grant_number = if outcome == LockOutcome::Free { 0 } else { *grants };
    context.frame.base_mut().set_round(grant_number);
    outcome
}

fn take(lock: &mut Lock, own: Lock, new: bool) -> LockOutcome {
    if lock.owner == 0 {
        *lock = if new { own } else { *lock };
        return if new { LockOutcome::Granted } else { LockOutcome::Free };
    }
    if lock.owner == own.owner && lock.tag & !LOCK_WANTED == own.tag {
        return LockOutcome::Held;
    }
    lock.tag |= LOCK_WANTED;
    LockOutcome::Busy
}

fn give_back(lock: &mut Lock, own: Lock, new: bool) -> LockOutcome {
    let is_holder = lock.owner == own.owner && lock.tag & !(LOCK_WANTED | LOCK_PARKED) == own.tag;
    if !is_holder {
        return LockOutcome::Released;
    }
    if lock.tag & LOCK_PARKED != 0 {
        // A repeat: the server may not have received the first frame, or its answer was lost.
        return LockOutcome::Parked;
    }
    if !new {
        return LockOutcome::Released;
    }
    if lock.tag & LOCK_WANTED == 0 {
        *lock = Lock::default();
        return LockOutcome::Released;
    }
    lock.tag = own.tag | LOCK_PARKED;
    LockOutcome::Parked
}

/// Frees a lock that exactly this acquisition has, parked or not, and raises the count of grants to that of the server.
/// The answer contains the former owner.
pub(crate) fn free(application: &InstalledApplication, registers: &mut Registers, context: &mut Context<'_>) {
    let at = application.row_base as usize + context.map.index as usize;
    let lock = &mut registers.locks.visit(&mut context.pass, at, 1)[0];
    let had = *lock;
    let exactly = had.owner == context.map.threshold && had.tag & !LOCK_WANTED == context.map.tag;
    if exactly {
        *lock = Lock::default();
    }
    let grants = &mut registers.grants.visit(&mut context.pass, at, 1)[0];
    let raised = exactly && !mutant::on(Mutant::GrantsNotRaised);
    *grants = (*grants).max(if raised { context.base.round } else { 0 });
    let grants = *grants;
    context.frame.base_mut().set_slot(had.owner);
    context.frame.base_mut().set_round(grants);
    context.frame.map_mut().set_para((had.tag & !LOCK_WANTED).cast_signed());
}
