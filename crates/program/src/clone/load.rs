//! Loads: the latest report of each server (StateT; RackSched's load table), with a shadow copy, because a frame visits
//! an array once (NetClone §3.4).

use pathcall_wire::clone::{MAX_SERVERS, ServerReport};
use pathcall_wire::{CloneFlags, Mutant, mutant};

use super::group::Pair;
use super::{CallContext, CloneRegisters, Decision};

/// Decision by load: both servers if both are idle and the request may be cloned (line 6), else the shorter queue if
/// wanted (§3.7), else the first server.
#[inline]
pub(super) fn decide(call: &mut CallContext<'_>, pair: Pair, place: usize, registers: &mut CloneRegisters) -> Decision {
    let may_clone = call.has(CloneFlags::CLONE) || mutant::on(Mutant::CloneUnasked);
    let may_choose = call.has(CloneFlags::SHORTEST);
    if pair.first == pair.second || !(may_clone || may_choose) {
        return Decision::First;
    }
    let at = |sid: u16| place * MAX_SERVERS + usize::from(sid);
    let first = registers.loads.visit(&mut call.pass, at(pair.first), 1)[0].state;
    let second = registers.shadows.visit(&mut call.pass, at(pair.second), 1)[0].state;
    let idle = (first, second) == (0, 0) || mutant::on(Mutant::CloneWhileBusy);
    if may_clone && idle {
        Decision::Both
    } else if may_choose && (second < first) != mutant::on(Mutant::CloneLongest) {
        Decision::Second
    } else {
        Decision::First
    }
}

/// Records the state that a server reports (lines 15 and 16), unless a newer report has overtaken it.
pub(super) fn record_state(call: &mut CallContext<'_>, place: usize, registers: &mut CloneRegisters) {
    let sid = call.head().sid();
    let report = ServerReport { number: call.base().round(), state: call.head().state() };
    let at = place * MAX_SERVERS + usize::from(sid).min(MAX_SERVERS - 1);
    update(&mut registers.loads.visit(&mut call.pass, at, 1)[0], report);
    if !mutant::on(Mutant::CloneShadowKept) {
        update(&mut registers.shadows.visit(&mut call.pass, at, 1)[0], report);
    }
}

fn update(known: &mut ServerReport, report: ServerReport) {
    if !known.is_newer_than(report) || mutant::on(Mutant::CloneOldReportTaken) {
        *known = report;
    }
}
