//! Registers and counters of an execution, and their comparison.

use std::collections::BTreeMap;
use std::fmt::Debug;

use pathcall_program::clone::registers::{ClonedRequest, Fingerprint};
use pathcall_program::registers::{Ballot, Generation, Lock, RepeatFilterEntry, RoundState};
use pathcall_program::{ApplicationCounters, Counters, PoolCounters};
use pathcall_wire::clone::ServerReport;

/// Registers and counters between two frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecutionState {
    /// Installed applications, by GAID.
    pub applications: BTreeMap<u32, ApplicationState>,
    /// Flow slots of endpoints, `W_MAX` places each, by number.
    pub slots: BTreeMap<u32, Vec<PlaceState>>,
    /// Pools, by GAID.
    pub pools: BTreeMap<u32, PoolRegisters>,
    /// Registers of calls.
    pub calls: CallState,
    /// Element-wide counters since the start of the execution.
    pub counters: Counters,
}

/// State of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolRegisters {
    /// Latest reports of the servers, by SID.
    pub loads: Vec<ServerReport>,
    /// Shadow copies of the reports.
    pub shadows: Vec<ServerReport>,
    /// Counters since the first installation.
    pub counters: PoolCounters,
}

/// Registers of calls that are in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallState {
    /// Last request number.
    pub number: u64,
    /// Table of cloned requests, by slot.
    pub requests: BTreeMap<usize, ClonedRequest>,
    /// Response filter tables, concatenated, by slot.
    pub filters: BTreeMap<usize, Fingerprint>,
}

impl CallState {
    /// Slots in use, by their index.
    #[must_use]
    pub fn used<T: Copy + Default + PartialEq>(slots: &[T]) -> BTreeMap<usize, T> {
        slots.iter().copied().enumerate().filter(|(_, slot)| *slot != T::default()).collect()
    }
}

/// State of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationState {
    /// Generation; [`Generation::default`] for an application without rows.
    pub generation: Generation,
    /// Rows.
    pub rows: Vec<RowState>,
    /// Lanes, row after row.
    pub lanes: Vec<i32>,
    /// Counters since the first installation.
    pub counters: ApplicationCounters,
}

/// State of a row, without its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowState {
    /// Open round.
    pub round: RoundState,
    /// Counter of `CntFwd`.
    pub count: u32,
    /// Ballot.
    pub ballot: Ballot,
    /// Lock.
    pub lock: Lock,
    /// Number of grants.
    pub grants: u32,
}

/// Entry of the repeat filter. The flip bit of [`RepeatFilterEntry`] is left out: an execution that stores whole
/// sequence numbers need not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlaceState {
    /// Last full sequence number.
    pub seq: u32,
    /// Generation in which the frame was applied.
    pub generation: u32,
    /// Lanes of the last frame that overflowed; for a vote, its destination.
    pub overflow: u32,
}

impl PlaceState {
    /// Entry from the program's two registers.
    #[must_use]
    pub const fn new(place: &RepeatFilterEntry, overflow: u32) -> Self {
        Self { seq: place.seq, generation: place.generation, overflow }
    }
}

/// Largest number of lines in a report of differences.
const LINES_MAX: usize = 20;

impl ExecutionState {
    /// Lines that describe differences from the reference. Element-wide counters are compared relative to `since`: the
    /// counters of both at the beginning of the comparison.
    #[must_use]
    pub fn differences(&self, reference: &Self, since: (&Counters, &Counters)) -> Vec<String> {
        let mut lines = Vec::new();
        let grown = |now: &Counters, then: &Counters| -> Vec<_> {
            now.iter().zip(then.iter()).map(|((name, now), (_, then))| (name, now.wrapping_sub(then))).collect()
        };
        let (ours, theirs) = (grown(&self.counters, since.0), grown(&reference.counters, since.1));
        for ((name, got), (_, expected)) in ours.iter().zip(&theirs) {
            note(&mut lines, || format!("counter {name}"), expected, got);
        }
        keys(&mut lines, "applications", &self.applications, &reference.applications);
        for (gaid, theirs) in &reference.applications {
            if let Some(ours) = self.applications.get(gaid) {
                ours.differences(theirs, *gaid, &mut lines);
            }
        }
        keys(&mut lines, "pools", &self.pools, &reference.pools);
        for (gaid, theirs) in &reference.pools {
            if let Some(ours) = self.pools.get(gaid) {
                ours.differences(theirs, *gaid, &mut lines);
            }
        }
        note(&mut lines, || "registers of calls".to_owned(), &reference.calls, &self.calls);
        keys(&mut lines, "slots", &self.slots, &reference.slots);
        for (slot, theirs) in &reference.slots {
            if let Some(ours) = self.slots.get(slot) {
                each(&mut lines, |at| format!("slot {slot} place {at}"), ours, theirs);
            }
        }
        lines.truncate(LINES_MAX);
        lines
    }
}

impl ApplicationState {
    fn differences(&self, reference: &Self, gaid: u32, lines: &mut Vec<String>) {
        for ((name, got), (_, expected)) in self.counters.iter().zip(reference.counters.iter()) {
            note(lines, || format!("application {gaid} counter {name}"), &expected, &got);
        }
        note(lines, || format!("application {gaid} generation"), &reference.generation, &self.generation);
        each(lines, |row| format!("application {gaid} row {row}"), &self.rows, &reference.rows);
        let width = reference.lanes.len().checked_div(reference.rows.len()).unwrap_or(0).max(1);
        let name = |at| format!("application {gaid} row {} lane {}", at / width, at % width);
        each(lines, name, &self.lanes, &reference.lanes);
    }
}

impl PoolRegisters {
    fn differences(&self, reference: &Self, gaid: u32, lines: &mut Vec<String>) {
        for ((name, got), (_, expected)) in self.counters.iter().zip(reference.counters.iter()) {
            note(lines, || format!("pool {gaid} counter {name}"), &expected, &got);
        }
        each(lines, |sid| format!("pool {gaid} load {sid}"), &self.loads, &reference.loads);
        each(lines, |sid| format!("pool {gaid} shadow {sid}"), &self.shadows, &reference.shadows);
    }
}

fn keys<V, W>(lines: &mut Vec<String>, what: &str, ours: &BTreeMap<u32, V>, theirs: &BTreeMap<u32, W>) {
    if !ours.keys().eq(theirs.keys()) {
        let (theirs, ours) = (theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
        lines.push(format!("{what}: expected {theirs:?}, got {ours:?}"));
    }
}

fn each<T: PartialEq + Debug>(lines: &mut Vec<String>, name: impl Fn(usize) -> String, ours: &[T], theirs: &[T]) {
    if ours == theirs {
        return;
    }
    note(lines, || format!("{} and on: their number", name(0)), &theirs.len(), &ours.len());
    for (at, (got, expected)) in ours.iter().zip(theirs).enumerate() {
        note(lines, || name(at), expected, got);
    }
}

fn note<T: PartialEq + Debug>(lines: &mut Vec<String>, name: impl FnOnce() -> String, expected: &T, got: &T) {
    if expected != got && lines.len() < LINES_MAX {
        lines.push(format!("{}: expected {expected:?}, got {got:?}", name()));
    }
}
