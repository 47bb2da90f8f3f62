//! What `pathcall function run` says at its end: what came and left, what ran where, and what was counted by reason.

use std::collections::BTreeMap;
use std::fmt::Write;

use pathcall_function::exec::Execution;
use pathcall_function::handler::{Handler, Reason};
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::{CounterId, Program};
use pathcall_function::run::System;
use pathcall_function::split::Event;

use super::{Machine, Sink};

/// Cells of one counter that are shown: those that counted most.
const CELLS_MAX: usize = 16;
/// Traps that are shown of one server.
const TRAPS_MAX: usize = 4;

/// What came in.
#[derive(Default)]
pub(super) struct Came {
    pub(super) packets: u64,
    /// Of them, those that the capture holds a part of.
    pub(super) cut: u64,
}

pub(super) fn report(came: &Came, sink: &Sink, machine: &Machine, program: &Program) -> String {
    let mut text = format!("in       {} packets", came.packets);
    if came.cut > 0 {
        let _ = write!(text, ", of which the capture has {} in part", came.cut);
    }
    text.push('\n');
    for (port, count) in &sink.ports {
        let _ = writeln!(text, "out      {count} packets at port {port}");
    }
    for (reason, count) in &sink.dropped {
        let _ = writeln!(text, "dropped  {count}: {reason}");
    }
    for (name, count) in &sink.told {
        let _ = writeln!(text, "told     {count} {name}");
    }
    match machine {
        Machine::Alone(element) => counters(&mut text, program, element.as_ref()),
        Machine::Parts(system) => {
            counters(&mut text, program, system.execution());
            parts(&mut text, came.packets, system);
        }
    }
    text
}

/// The program's counters: an element's begin with these, by the same numbers.
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
            let _ = writeln!(text, "counted  less in {more} more cells of {}", counter.name);
        }
    }
}

fn parts(text: &mut String, packets: u64, system: &System<Handler, Interpreter>) {
    let requests = system.events(Event::Request);
    let _ = writeln!(text, "element  {} packets alone, {requests} by servers", packets.saturating_sub(requests));
    for (event, what) in [
        (Event::NoServer, "for servers, of which there was none"),
        (Event::Stray, "that looked like requests or responses and were none"),
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
        for (name, count) in &handler.world().reasons {
            *reasons.entry(name).or_default() += count;
        }
        let traps = Reason::ALL.iter().zip(handler.counts().traps).filter(|(_, count)| *count > 0);
        for (reason, count) in traps {
            let _ = writeln!(text, "trapped  {count}: {reason}, at server {}", at + 1);
        }
        if handler.counts().resting > 0 {
            let _ = writeln!(text, "trapped  {} came while the handler rested after traps", handler.counts().resting);
        }
        for trap in handler.trapped().iter().take(TRAPS_MAX) {
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
