//! Calls to a pool of servers: the element steers each, may clone it, and stops the slower answer
//! (NetClone, with RackSched's shorter queue).
//!
//! ```text
//! request ─► admit ─► number ─► group ─► load, shadow ─► request ─► address ─► forward │ forward, and:
//!                                                        second pass ─► address ─► forward
//! reply ───► admit ────────────────────► load, shadow ─────────────────────────► filter ─► forward │ drop
//! cancel ──► admit ───────────► group ──────────────────────────────► address ─► forward
//! ```
//!
//! One module per stage, in packet order (NetClone Algorithm 1, §3.3 to §3.7); [`pools`] has who serves.
//! A group is an ordered pair of a pool's servers and stands in no table: it follows from its number
//! ([`pathcall_wire::clone::pair`]). What the registers hold may be lost or wrong at any time: calls are
//! answered all the same, by their callers' care.

mod address;
mod admit;
mod filter;
mod group;
mod load;
mod number;
pub mod pools;
pub mod registers;
mod request;

use group::Pair;
use pathcall_wire::clone::{CLONE, ORIGINAL};
use pathcall_wire::{Base, CloneFlags, CloneFrame, CloneHeader, Flags, Instant, Kind, Mutant, mutant};
pub use pools::Pool;
pub use registers::{CloneRegisters, CloneSize};
use request::Decision;

use crate::admit::Refused;
use crate::registers::Pass;
use crate::{Action, Program, Reason, Tables, Verdict};

/// A frame on its way through the stages. What a stage reads of its headers no stage before has changed, but for
/// the id that a request is given.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    frame: CloneFrame<&'a mut [u8]>,
    /// As the frame leaves with them, if it is admitted.
    flags: u16,
    congested: bool,
    pass: Pass,
}

impl<'a> Call<'a> {
    /// A frame that has just come. Its flags are read without what only an element may say, and with
    /// its mark; in the frame nothing changes before it is admitted.
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

/// A pool and what its frames touch.
struct Stages<'t> {
    entry: &'t mut pools::Entry,
    endpoints: &'t pools::Endpoints,
    registers: &'t mut CloneRegisters,
    switch_id: u16,
}

impl Program {
    /// Takes a frame of a call through the pipeline.
    pub(crate) fn steer(&mut self, now: Instant, mut call: Call<'_>) -> Action {
        let Tables { pools, endpoints, clones: registers, .. } = &mut self.tables;
        let mut gaid = call.base().gaid();
        if mutant::on(Mutant::TogetherApplicationSteered) && !pools.contains_key(&gaid) {
            gaid = pools.keys().min().copied().unwrap_or(gaid);
        }
        let Some(entry) = pools.get_mut(&gaid) else {
            return call.refuse(Refused::NotAdmitted, endpoints, false);
        };
        let key = entry.key;
        let action = match admit::admit(entry, endpoints, now, &call) {
            Err(refused) => call.refuse(refused, endpoints, key.is_some()),
            Ok(()) => {
                call.frame.base_mut().set_flags(call.flags);
                Stages { entry, endpoints, registers, switch_id: self.switch_id.get() }.pass(&mut call)
            }
        };
        if let (Some(key), Action::Forward(_) | Action::Clone(_)) = (key, action) {
            call.frame.sign(&key);
        }
        action
    }

    /// The second pass of a request, the bytes of which have just left under [`Action::Clone`]: makes of
    /// them the clone, for the other server of its pair (Algorithm 1, lines 11 to 13). Only the element
    /// itself may ask for it; what a host says of passes is not believed.
    pub fn recirculate(&mut self, bytes: &mut [u8]) -> Verdict {
        let len = bytes.len();
        let action = CloneFrame::new_checked(bytes).map_or(Action::Drop(Reason::Malformed), |frame| self.again(frame));
        self.counters.verdict(action);
        Verdict { action, len }
    }

    fn again(&mut self, mut frame: CloneFrame<&mut [u8]>) -> Action {
        let Tables { pools, endpoints, .. } = &self.tables;
        let (gaid, sid) = (frame.base().gaid(), frame.head().sid());
        let Some(entry) = pools.get(&gaid).filter(|_| frame.kind() == Kind::CloneRequest) else {
            return Action::Drop(Reason::NotAdmitted);
        };
        frame.head_mut().set_clo(CLONE);
        let action = address::to_server(&mut frame, entry, endpoints, sid);
        if let (Some(key), Action::Forward(_)) = (entry.key, action) {
            frame.sign(&key);
        }
        action
    }
}

impl Stages<'_> {
    #[inline]
    fn pass(&mut self, call: &mut Call<'_>) -> Action {
        // NetClone §3.7: only one element on the way works on a call, the first.
        let decided = call.head().switch_id();
        let ours = decided == 0 || decided == self.switch_id;
        if call.flags & Flags::CROSS != 0 || !(ours || mutant::on(Mutant::CloneSwitchIgnored)) {
            self.entry.counters.passed += 1;
            return address::onward(call, self.endpoints);
        }
        match call.frame.kind() {
            Kind::CloneRequest => self.request(call),
            Kind::CloneReply => self.reply(call),
            Kind::CloneCancel => self.cancel(call),
            _ => self.working(call),
        }
    }

    /// Algorithm 1, lines 1 to 10.
    fn request(&mut self, call: &mut Call<'_>) -> Action {
        let cloned = call.head().clo() == CLONE && mutant::on(Mutant::CloneBelieved);
        if let Err(reason) = number::number(call, &mut self.registers.numbers) {
            return Action::Drop(reason);
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
            return Action::Drop(Reason::UnknownEndpoint);
        };
        if !current && mutant::on(Mutant::CloneStaleDropped) {
            return Action::Drop(Reason::Stale);
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
            Action::Forward(endpoint) if decision == Decision::Both => Action::Clone(endpoint),
            _ => action,
        }
    }

    /// Which of the pair gets it. The first part of a request decides for all (NetClone §3.7).
    fn decide(&mut self, call: &mut Call<'_>, pair: Pair) -> Decision {
        let mut decision = Decision::First;
        if call.head().part() == 0 || mutant::on(Mutant::ClonePartsDecided) {
            decision = load::decide(call, pair, self.entry.place, self.registers);
        }
        if call.head().parts() > 1 && !mutant::on(Mutant::ClonePartsDecided) {
            decision = request::meet(call, decision, &mut self.registers.requests);
        }
        decision
    }

    /// Algorithm 1, lines 14 to 25.
    fn reply(&mut self, call: &mut Call<'_>) -> Action {
        self.note(call);
        if filter::stops(call, self.registers) {
            self.entry.counters.filtered += 1;
            return Action::Drop(Reason::Filtered);
        }
        address::onward(call, self.endpoints)
    }

    /// A server says that it has a call and has not answered it yet: its state is noted.
    fn working(&mut self, call: &mut Call<'_>) -> Action {
        self.note(call);
        address::onward(call, self.endpoints)
    }

    fn note(&mut self, call: &mut Call<'_>) {
        self.entry.counters.replies += 1;
        load::note(call, self.entry.place, self.registers);
    }

    /// A call is answered: the other of its pair need not begin it. Who was that is known as long as the
    /// table of groups is the same.
    fn cancel(&mut self, call: &mut Call<'_>) -> Action {
        let Some(sid) = group::other(call, &self.entry.pool) else {
            self.entry.counters.stale_groups += 1;
            return Action::Drop(Reason::Stale);
        };
        self.entry.counters.cancels += 1;
        address::to_server(&mut call.frame, self.entry, self.endpoints, sid)
    }
}

#[cfg(test)]
mod tests;
