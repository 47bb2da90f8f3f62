//! What an execution holds: registers by who has them, and counters; and how two of them differ.

use std::collections::BTreeMap;
use std::fmt::Debug;

use pathcall_program::clone::registers::{Cloned, Fingerprint};
use pathcall_program::registers::{Ballot, Generation, Lock, Place, RoundState};
use pathcall_program::{ApplicationCounters, Counters, PoolCounters};

/// Registers and counters, as they are between two frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// By GAID: of every installed application.
    pub applications: BTreeMap<u32, ApplicationState>,
    /// By number: every flow slot that an endpoint has, `W_MAX` places to each.
    pub slots: BTreeMap<u32, Vec<PlaceState>>,
    /// By GAID: of every pool.
    pub pools: BTreeMap<u32, PoolState>,
    /// What calls have left.
    pub calls: CallState,
    /// Element-wide, since the start of the execution.
    pub counters: Counters,
}

/// What a pool has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolState {
    /// By SID: requests that wait there.
    pub loads: Vec<u16>,
    /// The same again.
    pub shadows: Vec<u16>,
    /// Since it was installed first.
    pub counters: PoolCounters,
}

/// Registers of calls, those that are not free.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallState {
    /// The last number given.
    pub number: u64,
    /// The table of cloned requests, by slot.
    pub requests: BTreeMap<usize, Cloned>,
    /// The filter tables, one after the other, by slot.
    pub filters: BTreeMap<usize, Fingerprint>,
}

impl CallState {
    /// The slots that are used, by their number.
    #[must_use]
    pub fn used<T: Copy + Default + PartialEq>(slots: &[T]) -> BTreeMap<usize, T> {
        slots.iter().copied().enumerate().filter(|(_, slot)| *slot != T::default()).collect()
    }
}

/// What an application has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationState {
    /// Where its generations stand; that of an application without rows is [`Generation::default`].
    pub generation: Generation,
    /// Its rows.
    pub rows: Vec<RowState>,
    /// Its lanes, row after row.
    pub lanes: Vec<i32>,
    /// Since it was installed first.
    pub counters: ApplicationCounters,
}

/// What is kept of a row, its lanes aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowState {
    /// The round that is open.
    pub round: RoundState,
    /// `CntFwd`'s counter.
    pub count: u32,
    /// Votes for a key.
    pub ballot: Ballot,
    /// Who holds the lock.
    pub lock: Lock,
    /// How often it was granted.
    pub grants: u32,
}

/// A place of the repeat filter. Of [`Place`], the flip bit is of the hardware profile: an execution
/// that keeps whole sequence numbers need not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlaceState {
    /// The last full sequence number.
    pub seq: u32,
    /// The generation it was applied in.
    pub generation: u32,
    /// The lanes of the last frame that were left out; of a vote, where it went.
    pub overflow: u32,
}

impl PlaceState {
    /// Of the program's two registers.
    #[must_use]
    pub const fn new(place: &Place, overflow: u32) -> Self {
        Self { seq: place.seq, generation: place.generation, overflow }
    }
}

/// At most so many lines are made of what two states differ in.
const LINES_MAX: usize = 20;

impl State {
    /// What this state has otherwise than the reference's, line by line, the first of them. Element-wide
    /// counters are compared from `since` on: ours and theirs when the comparison began.
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

impl PoolState {
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
