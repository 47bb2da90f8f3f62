//! Registers and counters through the control interface: reset for a new owner, and read.

use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{CounterId, Program, RegisterId};
use pathcall_program::clone::registers::{ClonedRequest, Fingerprint};
use pathcall_program::pipeline::PipelineProfile;
use pathcall_program::registers::{Ballot, Generation, Lock, RoundState};
use pathcall_program::{ApplicationCounters, CloneSize, Counters, InstalledApplication, PoolCounters};
use pathcall_wire::clone::{MAX_SERVERS, ServerReport};
use pathcall_wire::{KEYED_WIDTH, W_MAX};

use super::names::{CallRegisters, MapRegisters, NameError, counter};
use crate::{ApplicationState, CallState, PlaceState, RowState};

/// Register and counter arrays of the program.
#[derive(Debug)]
pub(super) struct ProgramRegisters {
    /// Registers of *map* and of calls, as far as the profile has them.
    map: Option<MapRegisters>,
    calls: Option<CallRegisters>,
    /// Counters in the order of [`ApplicationCounters`] and [`PoolCounters`]; each is the sum of its arrays.
    applications: Vec<Vec<CounterId>>,
    pools: Vec<Vec<CounterId>>,
    frames_in: CounterId,
    outcomes: CounterId,
}

/// Counted outcomes of packets (`FATE_*` in p4/constants.p4).
pub(super) mod outcome {
    pub(in crate::p4) const FORWARD: u32 = 2;
    pub(in crate::p4) const TWICE: u32 = 4;
    pub(in crate::p4) const MULTICAST: u32 = 6;
    pub(in crate::p4) const MALFORMED: u32 = 16;
    pub(in crate::p4) const FILTERED: u32 = 23;
    /// End of the range.
    pub(in crate::p4) const END: u32 = 32;
}

macro_rules! counters {
    ($of:ident from $values:ident: $($field:ident)*) => {{
        let mut values = $values.iter().copied();
        $of { $($field: values.next().unwrap_or(0),)* }
    }};
}

impl ProgramRegisters {
    pub(super) fn new(program: &Program, profile: PipelineProfile) -> Result<Self, NameError> {
        let lane_arrays = profile.lane_arrays();
        let lanes = |name: &str| -> Result<Vec<_>, NameError> {
            (0..lane_arrays).map(|lane| counter(program, &format!("lane_{lane}.{name}"))).collect()
        };
        let of_application = |(name, _): (&str, u64)| match name {
            _ if !profile.has_map() => Ok(Vec::new()),
            "lanes_added" => lanes("added"),
            "overflow_lanes" => lanes("overflowed"),
            name => Ok(vec![counter(program, &format!("application_counters.{name}"))?]),
        };
        let of_pool = |(name, _): (&str, u64)| match profile.has_calls() {
            true => Ok(vec![counter(program, &format!("pool_counters.{name}"))?]),
            false => Ok(Vec::new()),
        };
        Ok(Self {
            map: profile.has_map().then(|| MapRegisters::new(program, lane_arrays)).transpose()?,
            calls: profile.has_calls().then(|| CallRegisters::new(program)).transpose()?,
            applications: ApplicationCounters::default().iter().map(of_application).collect::<Result<_, _>>()?,
            pools: PoolCounters::default().iter().map(of_pool).collect::<Result<_, _>>()?,
            frames_in: counter(program, "element_counters.frames_in")?,
            outcomes: counter(program, "element_counters.fates")?,
        })
    }

    /// Zeroes an application's rows; with `generations` its generation as well.
    pub(super) fn reset_rows(&self, machine: &mut Interpreter, application: &InstalledApplication, generations: bool) {
        let Some(r) = &self.map else { return };
        for row in application.row_base..application.row_base + application.rows {
            if generations {
                // Generation 1 is open.
                machine.set_register(r.opens, row, 1 << 32);
                machine.set_register(r.versions, row, 1 << 32);
            }
            machine.set_register(r.numbers, row, 1);
            for array in [r.marks, r.counts, r.holders, r.ballot_states, r.locks, r.grants] {
                machine.set_register(array, row, 0);
            }
            r.parts.iter().chain(&r.words).for_each(|array| machine.set_register(*array, row, 0));
            for (array, cell) in (0..KEYED_WIDTH).map(|lane| r.cell(row, lane)) {
                machine.set_register(array, cell, 0);
            }
        }
    }

    /// Resets flow slots.
    pub(super) fn reset_slots(&self, machine: &mut Interpreter, first: u32, count: u32) {
        let Some(r) = &self.map else { return };
        for place in first * W_MAX..(first + count) * W_MAX {
            for array in [r.seqs, r.generations, r.overflows].into_iter().chain(r.flips) {
                machine.set_register(array, place, 0);
            }
        }
    }

    /// Clears the registers of calls, except for the last number.
    pub(super) fn reset_calls(&self, machine: &mut Interpreter, size: CloneSize) {
        let Some(r) = &self.calls else { return };
        for slot in 0..size.requests as u32 {
            [r.request_ids, r.decisions].into_iter().for_each(|array| machine.set_register(array, slot, 0));
        }
        for slot in 0..(size.filters * size.slots) as u32 {
            [r.filter_ids, r.winners].into_iter().for_each(|array| machine.set_register(array, slot, 0));
        }
    }

    /// Sets the last request number.
    pub(super) fn set_last_number(&self, machine: &mut Interpreter, last: u64) {
        if let Some(r) = &self.calls {
            machine.set_register(r.numbers, 0, last.into());
        }
    }

    /// Latest reports of a pool's servers, and their shadow.
    pub(super) fn loads(&self, machine: &Interpreter, pool: u32, servers: usize) -> [Vec<ServerReport>; 2] {
        let Some(r) = &self.calls else { return [Vec::new(), Vec::new()] };
        let read = |array: RegisterId| {
            let word = |sid| machine.register(array, pool * MAX_SERVERS as u32 + sid);
            let report = |word| ServerReport { number: (word >> 16) as u32, state: word as u16 };
            (0..servers as u32).map(|sid| report(word(sid))).collect()
        };
        [read(r.loads), read(r.shadows)]
    }

    /// Sets the latest reports; absent servers have none.
    pub(super) fn set_loads(&self, machine: &mut Interpreter, pool: u32, loads: &[Vec<ServerReport>; 2]) {
        let Some(r) = &self.calls else { return };
        for (array, loads) in [r.loads, r.shadows].into_iter().zip(loads) {
            for sid in 0..MAX_SERVERS {
                let ServerReport { number, state } = loads.get(sid).copied().unwrap_or_default();
                let word = u64::from(number) << 16 | u64::from(state);
                machine.set_register(array, (pool as usize * MAX_SERVERS + sid) as u32, word.into());
            }
        }
    }

    /// Counters of an application in order, since the program was loaded.
    pub(super) fn application(&self, machine: &Interpreter, index: u32) -> Vec<u64> {
        super::names::counted(machine, &self.applications, index)
    }

    /// Counters of a pool in order, since the program was loaded.
    pub(super) fn pool(&self, machine: &Interpreter, index: u32) -> Vec<u64> {
        super::names::counted(machine, &self.pools, index)
    }

    /// Numbers of packets by outcome.
    pub(super) fn outcomes(&self, machine: &Interpreter) -> Vec<u64> {
        (0..outcome::END).map(|outcome| machine.counter(self.outcomes, outcome).packets).collect()
    }

    /// Element-wide counters.
    pub(super) fn counters(&self, machine: &Interpreter) -> Counters {
        let outcomes = self.outcomes(machine);
        let out = outcomes[outcome::FORWARD as usize..=outcome::MULTICAST as usize].iter().sum();
        let frames_in = machine.counter(self.frames_in, 0).packets;
        let values = [&[frames_in, out], &outcomes[outcome::MALFORMED as usize..]].concat();
        counters!(Counters from values: frames_in frames_out drop_malformed drop_forged drop_stale drop_counted
            drop_not_admitted drop_unknown_endpoint drop_unauthentic drop_filtered)
    }

    /// Registers of an application.
    pub(super) fn registers(&self, machine: &Interpreter, application: &InstalledApplication) -> ApplicationState {
        let rows = application.row_base..application.row_base + application.rows;
        let mut state = ApplicationState {
            generation: Generation::default(),
            rows: Vec::new(),
            lanes: Vec::new(),
            counters: ApplicationCounters::default(),
        };
        let Some(r) = &self.map else { return state };
        if let Some(row) = rows.clone().next() {
            let [opens, versions] = [r.opens, r.versions].map(|array| machine.register(array, row));
            state.generation =
                Generation { open: (opens >> 32) as u32, committed: opens as u32, version: versions as u32 };
        }
        for row in rows {
            state.rows.push(row_state(r, machine, row));
            let cells = (0..application.width as usize).map(|lane| r.cell(row, lane));
            state.lanes.extend(cells.map(|(array, cell)| (machine.register(array, cell) as u32).cast_signed()));
        }
        state
    }

    /// Places of a slot.
    pub(super) fn slot(&self, machine: &Interpreter, slot: u32) -> Vec<PlaceState> {
        let Some(r) = &self.map else { return vec![PlaceState::default(); W_MAX as usize] };
        let place = |at: u32| PlaceState {
            seq: machine.register(r.seqs, at) as u32,
            generation: machine.register(r.generations, at) as u32,
            overflow: machine.register(r.overflows, at) as u32,
        };
        (slot * W_MAX..(slot + 1) * W_MAX).map(place).collect()
    }

    /// Registers of calls. A slot without a pool is free, whatever id it still has.
    pub(super) fn calls(&self, machine: &Interpreter, size: CloneSize) -> CallState {
        let Some(r) = &self.calls else { return CallState::default() };
        let id = |array: RegisterId, at: usize| machine.register(array, at as u32) as u64;
        let request = |at: usize| {
            let slot = id(r.decisions, at);
            let request = ClonedRequest { req_id: id(r.request_ids, at), gaid: (slot >> 2) as u32, to: slot as u8 & 3 };
            Some(request).filter(|request| request.gaid != 0).unwrap_or_default()
        };
        let filter = |at: usize| {
            let slot = id(r.winners, at);
            let winner = Fingerprint { req_id: id(r.filter_ids, at), gaid: (slot >> 16) as u32, sid: slot as u16 };
            Some(winner).filter(|winner| winner.gaid != 0).unwrap_or_default()
        };
        CallState {
            number: machine.register(r.numbers, 0) as u64,
            requests: CallState::used(&(0..size.requests).map(request).collect::<Vec<_>>()),
            filters: CallState::used(&(0..size.filters * size.slots).map(filter).collect::<Vec<_>>()),
        }
    }
}

/// Registers of a row without its lanes.
fn row_state(r: &MapRegisters, machine: &Interpreter, row: u32) -> RowState {
    let read = |array: RegisterId| machine.register(array, row);
    let (holder, ballot_state, lock) = (read(r.holders), read(r.ballot_states), read(r.locks));
    let [low, high] = r.parts.map(read);
    let mut key = [0; 32];
    for (words, bytes) in r.words.iter().zip(key.as_chunks_mut().0) {
        *bytes = (read(*words) as u64).to_be_bytes();
    }
    RowState {
        round: RoundState {
            round: read(r.numbers) as u32,
            workers: (high as u64) << 32 | low as u64 & u64::from(u32::MAX),
            tag: (low >> 32) as u32,
            ecn: read(r.marks) == 1,
        },
        count: read(r.counts) as u32,
        ballot: Ballot {
            key,
            len: holder as u8,
            moved: holder >> 8 == 1,
            decided: ballot_state >> 31 & 1 == 1,
            count: (ballot_state >> 32) as u32,
            round: ballot_state as u32 & (u32::MAX >> 1),
        },
        lock: Lock { owner: (lock >> 32) as u32, tag: lock as u32 },
        grants: read(r.grants) as u32,
    }
}

/// Counters of an application from their values in order.
pub(super) fn of_application(values: &[u64]) -> ApplicationCounters {
    counters!(ApplicationCounters from values: admitted not_admitted unauthentic applied lanes_added repeats stale
        refused old diverted held denied reached overflow_lanes results clears reads harvests ecn_marked cross)
}

/// Counters of a pool from their values in order.
pub(super) fn of_pool(values: &[u64]) -> PoolCounters {
    counters!(PoolCounters from values: admitted not_admitted unauthentic passed requests clones shorter direct
        stale_groups replies filtered cancels ecn_marked)
}
