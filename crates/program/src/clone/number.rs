//! Numbers: each request of one part gets the element's next (Algorithm 1, lines 2 and 3).

use pathcall_wire::clone::{CALLER_ID, is_id_of};
use pathcall_wire::{Mutant, mutant};

use super::Call;
use crate::Reason;
use crate::registers::RegisterArray;

/// Numbers a request, unless it brings its caller's id (§3.7: sent again, or of several parts).
///
/// # Errors
/// Why it is dropped: parts that could not be told from another's, or an id in another's name, under which
/// it could have that one's answers stopped.
#[inline]
pub(super) fn number(call: &mut Call<'_>, numbers: &mut RegisterArray<u64>) -> Result<(), Reason> {
    let head = call.head();
    if head.req_id() & CALLER_ID != 0 {
        let own = is_id_of(head.req_id(), call.base().src()) || mutant::on(Mutant::CloneIdUnchecked);
        return if own { Ok(()) } else { Err(Reason::Forged) };
    }
    if head.parts() > 1 {
        return Err(Reason::Malformed);
    }
    let last = &mut numbers.visit(&mut call.pass, 0, 1)[0];
    // From 1, in 63 bits; 0 is no id.
    *last = if *last >= CALLER_ID - 1 { 1 } else { *last + 1 };
    let number = *last;
    call.frame.head_mut().set_req_id(number);
    Ok(())
}
