//! The filter: of a cloned call one answer passes (NetClone §3.5; lines 16 to 24).
//!
//! ```text
//! answer ─► table by IDX, slot by hash of REQ_ID ─┬─ its id, another server's: the slower answer, stopped
//!                                                 ├─ its id, its server's: the network's repeat, stopped;
//!                                                 │                        of several parts another: passes
//!                                                 └─ anything else: overwritten, passes
//! ```
//!
//! Of an answer of one part the slower one frees its slot. The paper's ordered tables, one to each part,
//! would let a part of each answer pass: here the server whose part came first has won, with all of them.

use pathcall_wire::{Mutant, mutant};

use super::registers::{Fingerprint, place_of};
use super::{Call, CloneRegisters};

/// Whether an answer is stopped; notes it if it is the first.
pub(super) fn stops(call: &mut Call<'_>, registers: &mut CloneRegisters) -> bool {
    let head = call.frame.head().repr();
    // Without an id there is nothing to remember it by.
    if head.clo == 0 || head.req_id == 0 || mutant::on(Mutant::CloneUnfiltered) {
        return false;
    }
    let size = registers.size();
    let table = usize::from(head.idx) % size.filters;
    let at = table * size.slots + place_of(head.req_id, size.slots);
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
