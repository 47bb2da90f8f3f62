//! Calls to a pool of servers: the element steers each call, may clone it, and filters the slower answer (NetClone,
//! with RackSched's shortest queue).
//!
//! ```text
//! request ─► admit ─► number ─► group ─► load, shadow ─► request ─► address ─► forward │ forward, and:
//!                                                        second pass ─► address ─► forward
//! reply ───► admit ────────────────────► load, shadow ─────────────────────────► filter ─► forward │ drop
//! cancel ──► admit ───────────► group ──────────────────────────────► address ─► forward
//! ```
//!
//! One module per stage, in packet order (NetClone Algorithm 1, §3.3 to §3.7); [`pools`] has the table of pools. `hold`
//! is the stage of an element that holds hedges.
//!
//! A group is an ordered pair of a pool's servers and is stored in no table: it follows from its number
//! ([`pathcall_wire::clone::pair`]). The registers may be lost or wrong at any time: callers make sure that calls are
//! answered nevertheless.

mod address;
mod admit;
mod filter;
mod group;
mod hold;
mod load;
mod number;
pub mod pools;
pub mod registers;
mod request;

use group::Pair;
pub use hold::CallName;
pub(crate) use hold::Hedges;
use pathcall_wire::clone::{CLONE, ORIGINAL};
use pathcall_wire::{Base, CloneFlags, CloneFrame, CloneHeader, Flags, FrameKind, Instant, Mutant, mutant};
pub use pools::InstalledPool;
pub use registers::{CloneRegisters, CloneSize};
use request::Decision;

use crate::admit::AdmissionRefusal;
use crate::registers::Pass;
use crate::{AdmissionTables, FrameAction, FrameDropReason, FrameVerdict, SwitchProgram};

/// Frame of a call in the pipeline. No stage changes a header field that a later stage reads, except the id of a
/// request.
#[derive(Debug)]
pub(crate) struct CallContext<'a> {
    frame: CloneFrame<&'a mut [u8]>,
    /// Flags with which the frame leaves, if it is admitted.
    flags: u16,
    congested: bool,
    pass: Pass,
}

impl<'a> CallContext<'a> {
    /// Context of a new frame. Flags that only an element may set are masked, and the congestion mark is added; the
    /// frame itself changes after admission.
    pub(crate) fn new(frame: CloneFrame<&'a mut [u8]>, congested: bool) -> Self {
        let mark = if congested { Flags::ECN } else { 0 };
        let flags = frame.base().flags() & !Flags::NOT_ADMITTED | mark;
        Self { frame, flags, congested, pass: Pass::default() }
    }

    fn base(&self) -> Base<&[u8]> {
        self.frame.base()
    }

    fn head(&self) -> CloneHeader<&[u8; CloneHeader::LEN]> {
        self.frame.head()
    }

    fn has(&self, flag: u8) -> bool {
        self.head().flags() & flag != 0
    }
}

/// Pool, and the state that its frames access.
struct Stages<'t> {
    entry: &'t mut pools::PoolEntry,
    endpoints: &'t pools::Endpoints,
    registers: &'t mut CloneRegisters,
    switch_id: u16,
}

impl SwitchProgram {
    /// Runs a frame of a call through the pipeline.
    pub(crate) fn steer(&mut self, now: Instant, mut call: CallContext<'_>) -> FrameAction {
        let AdmissionTables { pools, endpoints, clones: registers, .. } = &mut self.tables;
        let mut gaid = call.base().gaid();
        if mutant::on(Mutant::TogetherApplicationSteered) && !pools.contains_key(&gaid) {
            gaid = pools.keys().min().copied().unwrap_or(gaid);
        }
        let Some(entry) = pools.get_mut(&gaid) else {
            return call.refuse(AdmissionRefusal::NotAdmitted, endpoints, false);
        };
        let key = entry.key;
        let action = match admit::admit(entry, endpoints, now, &call) {
            Err(refused) => call.refuse(refused, endpoints, key.is_some()),
            Ok(()) => {
                call.frame.base_mut().set_flags(call.flags);
                Stages { entry, endpoints, registers, switch_id: self.switch_id.get() }.pass(&mut call)
            }
        };
        if let (Some(key), FrameAction::Forward(_) | FrameAction::Clone(_)) = (key, action) {
            call.frame.sign(&key);
        }
        action
    }

    /// Second pass of a request whose bytes have just been sent with [`FrameAction::Clone`]: makes the clone for the
    /// other server of its pair (Algorithm 1, lines 11 to 13). Only the element itself may call this; pass flags of
    /// hosts are ignored.
    pub fn recirculate(&mut self, bytes: &mut [u8]) -> FrameVerdict {
        let len = bytes.len();
        let action = CloneFrame::new_checked(bytes)
            .map_or(FrameAction::Drop(FrameDropReason::Malformed), |frame| self.second_pass(frame));
        self.counters.verdict(action);
        FrameVerdict { action, len }
    }

    fn second_pass(&mut self, mut frame: CloneFrame<&mut [u8]>) -> FrameAction {
        let AdmissionTables { pools, endpoints, .. } = &self.tables;
        let (gaid, sid) = (frame.base().gaid(), frame.head().sid());
        let Some(entry) = pools.get(&gaid).filter(|_| frame.kind() == FrameKind::CloneRequest) else {
            return FrameAction::Drop(FrameDropReason::NotAdmitted);
        };
        frame.head_mut().set_clo(CLONE);
        let action = address::to_server(&mut frame, entry, endpoints, sid);
        if let (Some(key), FrameAction::Forward(_)) = (entry.key, action) {
            frame.sign(&key);
        }
        action
    }
}

impl Stages<'_> {
    #[inline]
    fn pass(&mut self, call: &mut CallContext<'_>) -> FrameAction {
        // NetClone §3.7: only the first element on the path processes a call.
        let decided = call.head().switch_id();
        let first_switch = decided == 0 || decided == self.switch_id;
        if call.flags & Flags::CROSS != 0 || !(first_switch || mutant::on(Mutant::CloneSwitchIgnored)) {
            self.entry.counters.passed += 1;
            return address::onward(call, self.endpoints);
        }
        match call.frame.kind() {
            FrameKind::CloneRequest => self.request(call),
            FrameKind::CloneReply => self.reply(call),
            FrameKind::CloneCancel => self.cancel(call),
            _ => self.working(call),
        }
    }

    /// Processes a request (Algorithm 1, lines 1 to 10).
    fn request(&mut self, call: &mut CallContext<'_>) -> FrameAction {
        let cloned = call.head().clo() == CLONE && mutant::on(Mutant::CloneBelieved);
        if let Err(reason) = number::number(call, &mut self.registers.numbers) {
            return FrameAction::Drop(reason);
        }
        let mut head = call.frame.head_mut();
        head.set_switch_id(self.switch_id);
        head.set_clo(if cloned { CLONE } else { 0 });
        head.set_sid(0);
        if call.has(CloneFlags::DIRECT) && !mutant::on(Mutant::CloneDirectSteered) {
            self.entry.counters.direct += 1;
            return address::as_addressed(call, self.entry, self.endpoints);
        }
        let Some((pair, current)) = group::of_request(call, &self.entry.pool) else {
            return FrameAction::Drop(FrameDropReason::UnknownEndpoint);
        };
        if !current && mutant::on(Mutant::CloneStaleDropped) {
            return FrameAction::Drop(FrameDropReason::Stale);
        }
        let decision = self.decide(call, pair);
        let counters = &mut self.entry.counters;
        counters.requests += 1;
        counters.stale_groups += u64::from(!current);
        counters.clones += u64::from(decision == Decision::Both);
        counters.shorter += u64::from(decision == Decision::Second);
        let sid = if decision == Decision::Second { pair.second } else { pair.first };
        if decision == Decision::Both && !cloned {
            let mut head = call.frame.head_mut();
            head.set_clo(ORIGINAL);
            head.set_sid(pair.second);
        }
        let action = address::to_server(&mut call.frame, self.entry, self.endpoints, sid);
        match action {
            FrameAction::Forward(endpoint) if decision == Decision::Both => FrameAction::Clone(endpoint),
            _ => {
                if call.base().round() != 0 {
                    hold::request(call, self.entry, action, &mut self.registers.hedges);
                }
                action
            }
        }
    }

    /// Decides which servers of the pair get the request. The first part of a request decides for all parts (NetClone
    /// §3.7).
    fn decide(&mut self, call: &mut CallContext<'_>, pair: Pair) -> Decision {
        let mut decision = Decision::First;
        if call.head().part() == 0 || mutant::on(Mutant::ClonePartsDecided) {
            decision = load::decide(call, pair, self.entry.place, self.registers);
        }
        if call.head().parts() > 1 && !mutant::on(Mutant::ClonePartsDecided) {
            decision = request::recall_decision(call, decision, &mut self.registers.requests);
        }
        decision
    }

    /// Processes an answer (Algorithm 1, lines 14 to 25).
    fn reply(&mut self, call: &mut CallContext<'_>) -> FrameAction {
        self.record_state(call);
        hold::answer(call, &mut self.registers.hedges);
        if filter::is_filtered(call, self.registers) {
            self.entry.counters.filtered += 1;
            return FrameAction::Drop(FrameDropReason::Filtered);
        }
        address::onward(call, self.endpoints)
    }

    /// Processes a report of a server that it works on a call: records the server's state.
    fn working(&mut self, call: &mut CallContext<'_>) -> FrameAction {
        self.record_state(call);
        address::onward(call, self.endpoints)
    }

    fn record_state(&mut self, call: &mut CallContext<'_>) {
        self.entry.counters.replies += 1;
        load::record_state(call, self.entry.place, self.registers);
    }

    /// Processes a cancel: the call is answered, so the other server of its pair need not begin it. The pair is known
    /// as long as the table of groups is unchanged.
    fn cancel(&mut self, call: &mut CallContext<'_>) -> FrameAction {
        let held = hold::cancel(call, self.entry, &mut self.registers.hedges);
        if held.is_some() {
            // Another element on the way would address it to a server of the pair.
            call.frame.head_mut().set_switch_id(self.switch_id);
        }
        let Some(sid) = held.or_else(|| group::other(call, &self.entry.pool)) else {
            self.entry.counters.stale_groups += 1;
            return FrameAction::Drop(FrameDropReason::Stale);
        };
        self.entry.counters.cancels += 1;
        address::to_server(&mut call.frame, self.entry, self.endpoints, sid)
    }
}

#[cfg(test)]
mod tests;
