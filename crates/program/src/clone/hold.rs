//! Hold stage: copies of requests that an element keeps, to send them to another server later.
//!
//! ```text
//! request ─► … ─► hold: keep a copy, mark the request ─► forward        time ─► send_hedges ─► forward
//! reply ───► … ─► hold: drop the copy, tell the caller ─► filter
//! cancel ──► … ─► hold: drop the copy, or address the server that has it
//! ```
//!
//! A pipeline cannot hold a frame. So only an element in user space has [`HeldHedges`]
//! ([`SwitchProgram::hold_hedges`]); without them, the program forwards such a request like any other.

use pathcall_wire::clone::{CLONE, MAX_SERVERS, ORIGINAL, ServerReport, groups, pair};
use pathcall_wire::{CloneFlags, CloneFrame, FrameKind, Instant, Mutant, mutant};

use super::pools::{Endpoints, PoolEntry};
use super::{CallContext, address};
use crate::{AdmissionTables, FrameAction, FrameDropReason, HeldHedges, HeldHedgesSize, SwitchProgram};

/// Name of a call, the same in its requests, answers and cancellations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallName {
    /// Pool.
    pub gaid: u32,
    /// Endpoint of the caller.
    pub caller: u32,
    /// Incarnation of the caller's process.
    pub incarnation: u32,
    /// Number of the call at its caller.
    pub seq: u32,
}

/// Hedges of an element; a pipeline has none.
pub(crate) type Hedges = Option<Box<HeldHedges>>;

/// Keeps a copy of a request that leaves for one server, and marks the request as one that may have a second answer.
#[cold]
pub(super) fn request(call: &mut CallContext<'_>, entry: &PoolEntry, action: FrameAction, hedges: &mut Hedges) {
    let FrameAction::Forward(first) = action else { return };
    let Some(held) = hedges.as_mut().filter(|_| call.head().parts() == 1 && entry.pool.servers.len() > 1) else {
        return;
    };
    let (base, now) = (call.base(), entry.last_seen.unwrap_or_default());
    let name = CallName { gaid: base.gaid(), caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
    if held.hold(now, name, base.round(), first, call.frame.as_bytes()) {
        let flags = call.head().flags() & !CloneFlags::CLONE;
        let mut head = call.frame.head_mut();
        head.set_clo(ORIGINAL);
        head.set_flags(flags);
    }
}

/// Drops the copy of an answered call. The answer says that the call was not cloned, if no copy was sent.
#[inline]
pub(super) fn answer(call: &mut CallContext<'_>, hedges: &mut Hedges) {
    let head = call.head();
    let is_plain = head.clo() == 0 && head.attempt() == 0 && head.flags() & CloneFlags::FAILED == 0;
    if !is_plain && let Some(held) = hedges.as_mut().filter(|held| !held.is_empty()) {
        answer_known(call, held);
    }
}

#[cold]
fn answer_known(call: &mut CallContext<'_>, held: &mut HeldHedges) {
    let (base, head) = (call.base(), call.head().repr());
    let name = CallName { gaid: base.gaid(), caller: base.dst(), incarnation: base.dst_incarnation(), seq: base.seq() };
    let failed = head.flags & CloneFlags::FAILED != 0;
    // The caller itself asks another server after a failed answer. That of a repeat says nothing of the first server.
    if failed && head.attempt != 0 || !held.answer(name) || mutant::on(Mutant::CloneHedgeHidden) {
        return;
    }
    let mut out = call.frame.head_mut();
    if failed {
        out.set_flags(head.flags & !CloneFlags::CLONE);
    } else if head.attempt == 0 && head.flags & CloneFlags::CLONE == 0 {
        // A repeat, and a duplicate that was cloned at once, have clones of their own.
        out.set_clo(0);
    }
}

/// Drops the copy of a cancelled call. Returns the SID of the server that has the copy, or the request if the named server
/// has the copy.
pub(super) fn cancel(call: &CallContext<'_>, entry: &PoolEntry, hedges: &mut Hedges) -> Option<u16> {
    let held = hedges.as_mut().filter(|held| !held.is_empty())?;
    let base = call.base();
    let name = CallName { gaid: base.gaid(), caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
    let server = entry.server(call.head().sid()).filter(|_| base.epoch() == entry.pool.version);
    let other = held.cancel(name, server.unwrap_or_default())?;
    entry.pool.servers.iter().position(|server| *server == other).map(|sid| sid as u16)
}

impl SwitchProgram {
    /// Makes this the program of an element that holds hedges.
    pub fn hold_hedges(&mut self, size: HeldHedgesSize) {
        self.tables.clones.hedges = Some(Box::new(HeldHedges::new(size)));
    }

    /// Held hedges; `None`: the element holds none.
    #[must_use]
    pub fn hedges(&self) -> Option<&HeldHedges> {
        self.tables.clones.hedges.as_deref()
    }

    /// Sends the held hedges whose time has come, each to the idlest other server at this moment. `send` gets the endpoint
    /// and the frame; it returns whether it could send.
    pub fn send_hedges(&mut self, now: Instant, mut send: impl FnMut(u32, &mut [u8]) -> bool) {
        let Some(mut held) = self.tables.clones.hedges.take() else { return };
        held.send_due(now, |frame, first| {
            let action = CloneFrame::new_checked(&mut *frame)
                .map_or(FrameAction::Drop(FrameDropReason::Malformed), |frame| self.hedge(frame, first));
            self.counters.verdict(action);
            let FrameAction::Forward(endpoint) = action else { return None };
            send(endpoint, frame).then_some(endpoint)
        });
        self.tables.clones.hedges = Some(held);
    }

    /// Makes the hedge of a held request, for the idlest of the servers other than `first`, by their latest reports.
    fn hedge(&self, mut frame: CloneFrame<&mut [u8]>, first: u32) -> FrameAction {
        let AdmissionTables { pools, endpoints, clones: registers, .. } = &self.tables;
        let base = frame.base();
        let lives = endpoints
            .get(&base.src())
            .is_some_and(|caller| caller.gaid == base.gaid() && caller.incarnation == base.src_incarnation());
        let Some(entry) = pools.get(&base.gaid()).filter(|_| lives && frame.kind() == FrameKind::CloneRequest) else {
            return FrameAction::Drop(FrameDropReason::NotAdmitted);
        };
        let loads = registers.loads.peek(entry.place * MAX_SERVERS, entry.pool.servers.len());
        let Some(sid) = idlest(&frame, entry, endpoints, loads, first) else {
            return FrameAction::Drop(FrameDropReason::UnknownEndpoint);
        };
        let flags = frame.head().flags() & !CloneFlags::CLONE;
        let mut head = frame.head_mut();
        head.set_clo(CLONE);
        head.set_sid(0);
        head.set_flags(flags);
        let action = address::to_server(&mut frame, entry, endpoints, sid);
        if let (Some(key), FrameAction::Forward(_)) = (entry.key, action) {
            frame.sign(&key);
        }
        action
    }
}

/// Idlest server other than `first`. Of equal ones, the one that follows the second server of the caller's pair.
fn idlest<T: AsRef<[u8]>>(
    frame: &CloneFrame<T>,
    entry: &PoolEntry,
    endpoints: &Endpoints,
    loads: &[ServerReport],
    first: u32,
) -> Option<u16> {
    let servers = &entry.pool.servers;
    let begin = frame.head().grp().checked_rem(groups(servers.len())).and_then(|grp| pair(grp, servers.len()))?.1;
    let same = mutant::on(Mutant::CloneHedgeToFirst);
    let busiest = mutant::on(Mutant::CloneHedgeToBusy);
    let is_candidate = |sid: &usize| {
        let server = servers[*sid];
        (server != first || same) && endpoints.get(&server).is_some_and(|to| to.gaid == entry.pool.gaid)
    };
    let in_turn = (0..servers.len()).map(|nth| (usize::from(begin) + nth) % servers.len()).filter(is_candidate);
    let state = |sid: &usize| if busiest { u16::MAX - loads[*sid].state } else { loads[*sid].state };
    in_turn.min_by_key(state).map(|sid| sid as u16)
}
