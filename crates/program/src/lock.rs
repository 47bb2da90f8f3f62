//! Locks: `CntFwd` with threshold 1 is test-and-set, and its register holds the owner, so that the
//! owner's repeat is granted again (NetRPC Table 2; NOTES: "Locks and test-and-set").
//!
//! ```text
//! free ─► held ─► held, wanted ─► parked: the server gives it to those who wait ─► free
//!           └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Whoever is denied a lock marks it as wanted. The release of such a lock does not free it: the frame
//! goes on to the server, which serves the line and frees the register when nobody waits any more.
//! Every grant is counted, and every answer says the count: the lower half of a fencing token.

use pathcall_wire::map::{LOCK_PARKED, LOCK_WANTED};
use pathcall_wire::{MapFlags, MapRepr, Mutant, Target, mutant};

use crate::registers::{Lock, Registers};
use crate::{Application, Context};

/// Whether a frame of pairs takes a lock, or gives one back.
pub(crate) fn is_of_lock(map: &MapRepr) -> bool {
    let takes = map.flags & MapFlags::COUNT != 0 && map.threshold == 1;
    let clears = map.flags & (MapFlags::COUNT | MapFlags::CLEAR | MapFlags::ADD) == MapFlags::CLEAR;
    map.lanes == 0 && map.to == Target::Src as u8 && (takes || clears)
}

/// What became of a frame of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was granted now.
    Granted,
    /// Its acquiring holds it already.
    Held,
    /// Somebody else has it.
    Busy,
    /// Nobody has it, but this frame was answered before: another may try.
    Free,
    /// It is given back, or was never its own.
    Released,
    /// It is given back, and the server's now.
    Parked,
}

/// Takes a lock or gives it back, if the frame is `new`. The frame's round says then how often it was
/// granted: 0 if nobody has it whom the sender could wait for.
pub(crate) fn work(
    application: &Application,
    registers: &mut Registers,
    context: &mut Context<'_>,
    new: bool,
) -> Outcome {
    let at = application.row_base as usize + context.map.index as usize;
    let takes = context.map.flags & MapFlags::COUNT != 0;
    let own = Lock { owner: context.base.src, tag: context.map.tag };
    let lock = &mut registers.locks.visit(&mut context.pass, at, 1)[0];
    let outcome = if takes { take(lock, own, new) } else { give_back(lock, own, new) };
    let grants = &mut registers.grants.visit(&mut context.pass, at, 1)[0];
    *grants = grants.saturating_add(u32::from(outcome == Outcome::Granted));
    let said = if outcome == Outcome::Free { 0 } else { *grants };
    context.frame.base_mut().set_round(said);
    outcome
}

fn take(lock: &mut Lock, own: Lock, new: bool) -> Outcome {
    if lock.owner == 0 {
        *lock = if new { own } else { *lock };
        return if new { Outcome::Granted } else { Outcome::Free };
    }
    if lock.owner == own.owner && lock.tag & !LOCK_WANTED == own.tag {
        return Outcome::Held;
    }
    lock.tag |= LOCK_WANTED;
    Outcome::Busy
}

fn give_back(lock: &mut Lock, own: Lock, new: bool) -> Outcome {
    let holds = lock.owner == own.owner && lock.tag & !(LOCK_WANTED | LOCK_PARKED) == own.tag;
    if !holds {
        return Outcome::Released;
    }
    if lock.tag & LOCK_PARKED != 0 {
        // Again: the server has not heard of it, or its answer was lost.
        return Outcome::Parked;
    }
    if !new {
        return Outcome::Released;
    }
    if lock.tag & LOCK_WANTED == 0 {
        *lock = Lock::default();
        return Outcome::Released;
    }
    lock.tag = own.tag | LOCK_PARKED;
    Outcome::Parked
}

/// Frees a lock that exactly this acquiring has, parked or not, and raises its count of grants: to what
/// the server has granted meanwhile. The answer says who had it.
pub(crate) fn free(application: &Application, registers: &mut Registers, context: &mut Context<'_>) {
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
