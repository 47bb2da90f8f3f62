//! Response filter: one answer of a cloned call passes (NetClone §3.5; lines 16 to 24).
//!
//! ```text
//! answer ─► table by IDX, slot by hash of REQ_ID ─┬─ its id, another server's: the slower answer, stopped
//!                                                 ├─ its id, its server's: repeat by the network, stopped;
//!                                                 │                        of several parts another: passes
//!                                                 └─ anything else: overwritten, passes
//! ```
//!
//! The slower answer of one part frees its slot. The paper's ordered tables, one for each part, would let parts of both
//! answers pass; here the server whose part came first has won, with all its parts.

use pathcall_wire::{Mutant, mutant};

use super::registers::{Fingerprint, slot_of};
use super::{CallContext, CloneRegisters};

/// Whether an answer is filtered; records it if it is the first.
pub(super) fn is_filtered(call: &mut CallContext<'_>, registers: &mut CloneRegisters) -> bool {
    let head = call.frame.head().repr();
    // Without an id there is no key for the record.
    if head.clo == 0 || head.req_id == 0 || mutant::on(Mutant::CloneUnfiltered) {
        return false;
    }
    let size = registers.size();
    let table = usize::from(head.idx) % size.filters;
    let at = table * size.slots + slot_of(head.req_id, size.slots);
    let slot = &mut registers.filters.visit(&mut call.pass, at, 1)[0];
    let answer = Fingerprint { req_id: head.req_id, gaid: call.base().gaid(), sid: head.sid };
    if (slot.req_id, slot.gaid) != (answer.req_id, answer.gaid) {
        *slot = answer;
        return false;
    }
    let same_server = slot.sid == head.sid;
    if head.parts > 1 {
        let passes = same_server || mutant::on(Mutant::CloneAnswersMixed);
        return !passes || mutant::on(Mutant::ClonePartsFiltered);
    }
    if !same_server && !mutant::on(Mutant::CloneFilterKept) {
        *slot = Fingerprint::default();
    }
    true
}
