//! Request numbers: each request of one part gets the element's next number (Algorithm 1, lines 2 and 3).

use pathcall_wire::clone::{CALLER_ID, is_id_of};
use pathcall_wire::{Mutant, mutant};

use super::CallContext;
use crate::FrameDropReason;
use crate::registers::RegisterArray;

/// Numbers a request, unless it has an id of its caller (§3.7: sent again, or of several parts).
///
/// # Errors
/// The request is dropped if its parts could not be distinguished from another's, or if its id names another caller,
/// whose answers could be filtered by it.
#[inline]
pub(super) fn number(call: &mut CallContext<'_>, numbers: &mut RegisterArray<u64>) -> Result<(), FrameDropReason> {
    let head = call.head();
    if head.req_id() & CALLER_ID != 0 {
        let own = is_id_of(head.req_id(), call.base().src()) || mutant::on(Mutant::CloneIdUnchecked);
        return if own { Ok(()) } else { Err(FrameDropReason::Forged) };
    }
    if head.parts() > 1 {
        return Err(FrameDropReason::Malformed);
    }
    let last = &mut numbers.visit(&mut call.pass, 0, 1)[0];
    // From 1, in 63 bits; 0 means no id.
    *last = if *last >= CALLER_ID - 1 { 1 } else { *last + 1 };
    let number = *last;
    call.frame.head_mut().set_req_id(number);
    Ok(())
}
