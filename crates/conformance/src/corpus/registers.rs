//! Registers and counters in a corpus file, without those that have their initial values.

use std::collections::BTreeMap;
use std::fmt;

use pathcall_program::Counters;
use pathcall_program::registers::{Ballot, Lock, RoundState};
use pathcall_wire::clone::ServerReport;
use serde::{Deserialize, Serialize};

use super::format::hex;
use crate::state::{ApplicationState, CallState, ExecutionState, PlaceState, PoolRegisters, RowState};

/// Registers and counters that differ from their values at the installation of the application or the admission of the
/// endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateLine {
    /// Element-wide counters that are not 0.
    counters: BTreeMap<String, u64>,
    applications: Vec<ApplicationLine>,
    slots: Vec<SlotLine>,
    #[serde(default, skip_serializing_if = "is_default")]
    pools: Vec<PoolLine>,
    #[serde(default, skip_serializing_if = "is_default")]
    calls: CallsLine,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolLine {
    gaid: u32,
    counters: BTreeMap<String, u64>,
    /// Number and queue length of each server's latest report.
    loads: Vec<(u32, u16)>,
    shadows: Vec<(u32, u16)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallsLine {
    number: u64,
    /// Slot, id, pool, servers.
    requests: Vec<(usize, u64, u32, u8)>,
    /// Slot, id, pool, server.
    filters: Vec<(usize, u64, u32, u16)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationLine {
    gaid: u32,
    generation: GenerationLine,
    counters: BTreeMap<String, u64>,
    rows: Vec<RowLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerationLine {
    open: u32,
    committed: u32,
    version: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowLine {
    row: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round: Option<RoundLine>,
    #[serde(default, skip_serializing_if = "is_default")]
    count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ballot: Option<BallotLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock: Option<LockLine>,
    #[serde(default, skip_serializing_if = "is_default")]
    grants: u32,
    /// Lanes that are not 0, with their values.
    #[serde(default, skip_serializing_if = "is_default")]
    lanes: Vec<(usize, i32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundLine {
    round: u32,
    /// Workers whose bit is set.
    workers: Vec<u32>,
    tag: u32,
    ecn: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BallotLine {
    key: String,
    moved: bool,
    decided: bool,
    count: u32,
    round: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockLine {
    owner: u32,
    tag: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotLine {
    slot: u32,
    places: Vec<PlaceLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceLine {
    place: usize,
    seq: u32,
    generation: u32,
    overflow: u32,
}

impl StateLine {
    /// State of an execution, counters relative to `began`.
    #[must_use]
    pub fn new(state: &ExecutionState, began: &Counters) -> Self {
        let since =
            state.counters.iter().zip(began.iter()).map(|((name, now), (_, then))| (name, now.wrapping_sub(then)));
        let places = |places: &[PlaceState]| {
            let used = places.iter().enumerate().filter(|(_, place)| !is_default(*place));
            used.map(|(place, &PlaceState { seq, generation, overflow })| PlaceLine {
                place,
                seq,
                generation,
                overflow,
            })
            .collect::<Vec<_>>()
        };
        let slots = state.slots.iter().map(|(slot, of)| SlotLine { slot: *slot, places: places(of) });
        Self {
            counters: counted(since),
            applications: state.applications.iter().map(|(gaid, of)| ApplicationLine::new(*gaid, of)).collect(),
            slots: slots.filter(|slot| !slot.places.is_empty()).collect(),
            pools: state.pools.iter().map(|(gaid, of)| PoolLine::new(*gaid, of)).collect(),
            calls: CallsLine::new(&state.calls),
        }
    }
}

impl fmt::Display for StateLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl ApplicationLine {
    fn new(gaid: u32, state: &ApplicationState) -> Self {
        let generation = state.generation;
        let width = state.lanes.len().checked_div(state.rows.len()).unwrap_or(0);
        let rows = state.rows.iter().enumerate().map(|(row, of)| {
            let lanes = state.lanes[row * width..(row + 1) * width].iter().copied().enumerate();
            RowLine::new(row, of, lanes.filter(|(_, value)| *value != 0).collect())
        });
        Self {
            gaid,
            generation: GenerationLine {
                open: generation.open,
                committed: generation.committed,
                version: generation.version,
            },
            counters: counted(state.counters.iter()),
            rows: rows.flatten().collect(),
        }
    }
}

impl PoolLine {
    fn new(gaid: u32, state: &PoolRegisters) -> Self {
        let reports = |reports: &[ServerReport]| reports.iter().map(|report| (report.number, report.state)).collect();
        let (loads, shadows) = (reports(&state.loads), reports(&state.shadows));
        Self { gaid, counters: counted(state.counters.iter()), loads, shadows }
    }
}

impl CallsLine {
    fn new(state: &CallState) -> Self {
        let requests = state.requests.iter().map(|(at, slot)| (*at, slot.req_id, slot.gaid, slot.to));
        let filters = state.filters.iter().map(|(at, slot)| (*at, slot.req_id, slot.gaid, slot.sid));
        Self { number: state.number, requests: requests.collect(), filters: filters.collect() }
    }
}

impl RowLine {
    /// Row, if it differs from its initial value.
    fn new(row: usize, state: &RowState, lanes: Vec<(usize, i32)>) -> Option<Self> {
        let used = !is_default(state) || !lanes.is_empty();
        used.then(|| Self {
            row,
            round: (!is_default(&state.round)).then(|| RoundLine::new(&state.round)),
            count: state.count,
            ballot: (!is_default(&state.ballot)).then(|| BallotLine::new(&state.ballot)),
            lock: (!is_default(&state.lock)).then(|| LockLine::new(state.lock)),
            grants: state.grants,
            lanes,
        })
    }
}

impl RoundLine {
    fn new(state: &RoundState) -> Self {
        let workers = (0..u64::BITS).filter(|worker| state.workers >> worker & 1 == 1);
        Self { round: state.round, workers: workers.collect(), tag: state.tag, ecn: state.ecn }
    }
}

impl BallotLine {
    fn new(ballot: &Ballot) -> Self {
        let &Ballot { ref key, len, moved, decided, count, round } = ballot;
        Self { key: hex(&key[..usize::from(len).min(key.len())]), moved, decided, count, round }
    }
}

impl LockLine {
    const fn new(lock: Lock) -> Self {
        Self { owner: lock.owner, tag: lock.tag }
    }
}

/// Counters that are not 0, by name.
fn counted(counters: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counters.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// True for the default value.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
