//! Report of `pathcall function run`: packets in and out, place of processing, and counters by reason.

use std::collections::BTreeMap;
use std::fmt::Write;

use pathcall_netfn::handler::{CHandler, TrapReason};
use pathcall_netfn::run::System;
use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{CounterId, Program};
use pathcall_p4::split::ElementEvent;

use super::{FunctionRun, Sink};

/// Limit of the shown cells of one counter: the largest ones.
const CELLS_MAX: usize = 16;
/// Limit of the shown traps of one server.
const TRAPS_MAX: usize = 4;

/// Counts of input packets.
#[derive(Default)]
pub(super) struct InputCounts {
    pub(super) packets: u64,
    /// Packets of which the capture has only a part.
    pub(super) cut: u64,
}

pub(super) fn report(came: &InputCounts, sink: &Sink, machine: &FunctionRun, program: &Program) -> String {
    let mut text = format!("in       {} packets", came.packets);
    if came.cut > 0 {
        let _ = write!(text, ", {} of them truncated in the capture", came.cut);
    }
    text.push('\n');
    for (port, count) in &sink.ports {
        let _ = writeln!(text, "out      {count} packets at port {port}");
    }
    for (reason, count) in &sink.dropped {
        let _ = writeln!(text, "dropped  {count}: {reason}");
    }
    for (name, count) in &sink.digests_by_name {
        let _ = writeln!(text, "digests  {count} {name}");
    }
    match machine {
        FunctionRun::Alone(element) => counters(&mut text, program, element.as_ref()),
        FunctionRun::Parts(system) => {
            counters(&mut text, program, system.execution());
            parts(&mut text, came.packets, system);
        }
    }
    text
}

/// Counters of the program, which come first in an element and have the same numbers there.
fn counters(text: &mut String, program: &Program, element: &impl Execution) {
    for (id, counter) in program.counters.iter().enumerate() {
        let count = |index| (index, element.counter(CounterId(id as u32), index).packets);
        let mut cells: Vec<_> = (0..counter.size).map(count).filter(|(_, count)| *count > 0).collect();
        cells.sort_by_key(|(index, count)| (std::cmp::Reverse(*count), *index));
        let more = cells.split_off(cells.len().min(CELLS_MAX)).len();
        cells.sort_unstable();
        for (index, count) in cells {
            let _ = writeln!(text, "counted  {count} in {}[{index}]", counter.name);
        }
        if more > 0 {
            let _ = writeln!(text, "counted  fewer in {more} more cells of {}", counter.name);
        }
    }
}

fn parts(text: &mut String, packets: u64, system: &System<CHandler, Interpreter>) {
    let requests = system.events(ElementEvent::Request);
    let _ = writeln!(text, "element  {} packets alone, {requests} by servers", packets.saturating_sub(requests));
    for (event, what) in [
        (ElementEvent::NoServer, "for servers, but none was available"),
        (ElementEvent::Stray, "with a malformed request or response header"),
    ] {
        let count = system.events(event);
        if count > 0 {
            let _ = writeln!(text, "element  {count} packets {what}");
        }
    }
    let mut reasons = BTreeMap::<&str, u64>::new();
    for (at, server) in system.servers().enumerate() {
        let (stats, handler) = (server.stats(), server.handler());
        let _ = writeln!(
            text,
            "server {} {} requests, {} ended by the handler, {} lost in traps",
            at + 1,
            stats.requests,
            stats.ended,
            stats.trapped
        );
        for (name, count) in &handler.state().reasons {
            *reasons.entry(name).or_default() += count;
        }
        let traps = TrapReason::ALL.iter().zip(handler.counts().traps).filter(|(_, count)| *count > 0);
        for (reason, count) in traps {
            let _ = writeln!(text, "trapped  {count}: {reason}, at server {}", at + 1);
        }
        if handler.counts().paused > 0 {
            let _ = writeln!(text, "trapped  {} arrived while the handler paused after traps", handler.counts().paused);
        }
        for trap in handler.trap_reports().iter().take(TRAPS_MAX) {
            let _ = writeln!(text, "         {trap}");
        }
    }
    for (name, count) in reasons {
        let _ = writeln!(text, "handler  {count}: {name}");
    }
    let placed = system.placed();
    let _ = writeln!(
        text,
        "placed   {} entries; {} left unused, {} for larger flows",
        placed.placed, placed.aged, placed.replaced
    );
}
