//! Registers and counters through the control interface: reset for a new owner, and read.

use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{CounterId, Program, RegisterId};
use pathcall_program::clone::registers::{ClonedRequest, Fingerprint};
use pathcall_program::registers::{Ballot, Generation, Lock, RoundState};
use pathcall_program::{ApplicationCounters, CloneSize, Counters, InstalledApplication, PoolCounters};
use pathcall_wire::clone::{MAX_SERVERS, ServerReport};
use pathcall_wire::{KEYED_LANES, W_MAX};

use super::names::{NameError, Registers, counter};
use crate::{ApplicationState, CallState, PlaceState, RowState};

/// Register and counter arrays of the program.
#[derive(Debug)]
pub(super) struct ProgramRegisters {
    registers: Registers,
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
    pub(super) fn new(program: &Program) -> Result<Self, NameError> {
        let lanes = |name: &str| -> Result<Vec<_>, NameError> {
            (0..KEYED_LANES).map(|lane| counter(program, &format!("lane_{lane}.{name}"))).collect()
        };
        let of_application = |(name, _): (&str, u64)| match name {
            "lanes_added" => lanes("added"),
            "overflow_lanes" => lanes("overflowed"),
            name => Ok(vec![counter(program, &format!("application_counters.{name}"))?]),
        };
        let of_pool = |(name, _): (&str, u64)| Ok(vec![counter(program, &format!("pool_counters.{name}"))?]);
        Ok(Self {
            registers: Registers::new(program)?,
            applications: ApplicationCounters::default().iter().map(of_application).collect::<Result<_, _>>()?,
            pools: PoolCounters::default().iter().map(of_pool).collect::<Result<_, _>>()?,
            frames_in: counter(program, "element_counters.frames_in")?,
            outcomes: counter(program, "element_counters.fates")?,
        })
    }

    /// Zeroes an application's rows; with `generations` its generation as well.
    pub(super) fn reset_rows(&self, machine: &mut Interpreter, application: &InstalledApplication, generations: bool) {
        let r = &self.registers;
        for row in application.row_base..application.row_base + application.rows {
            if generations {
                machine.set_register(r.opens, row, 1);
                machine.set_register(r.commits, row, 0);
                machine.set_register(r.versions, row, 0);
            }
            machine.set_register(r.numbers, row, 1);
            for array in [r.parts, r.marks, r.counts, r.holders, r.ballot_states, r.locks, r.grants] {
                machine.set_register(array, row, 0);
            }
            r.words.iter().for_each(|array| machine.set_register(*array, row, 0));
            for lane in &r.lanes {
                [2 * row, 2 * row + 1].into_iter().for_each(|cell| machine.set_register(*lane, cell, 0));
            }
        }
    }

    /// Resets flow slots.
    pub(super) fn reset_slots(&self, machine: &mut Interpreter, first: u32, count: u32) {
        let r = &self.registers;
        for place in first * W_MAX..(first + count) * W_MAX {
            for array in [r.seqs, r.generations, r.overflows].into_iter().chain(r.flips) {
                machine.set_register(array, place, 0);
            }
        }
    }

    /// Clears the registers of calls, except for the last number.
    pub(super) fn reset_calls(&self, machine: &mut Interpreter, size: CloneSize) {
        let r = &self.registers;
        (0..size.requests).for_each(|slot| machine.set_register(r.requests, slot as u32, 0));
        (0..size.filters * size.slots).for_each(|slot| machine.set_register(r.filters, slot as u32, 0));
    }

    /// Sets the last request number.
    pub(super) fn set_last_number(&self, machine: &mut Interpreter, last: u64) {
        machine.set_register(self.registers.call_numbers, 0, last.into());
    }

    /// Latest reports of a pool's servers, and their shadow.
    pub(super) fn loads(&self, machine: &Interpreter, pool: u32, servers: usize) -> [Vec<ServerReport>; 2] {
        let read = |array: RegisterId| {
            let word = |sid| machine.register(array, pool * MAX_SERVERS as u32 + sid);
            let report = |word| ServerReport { number: (word >> 16) as u32, state: word as u16 };
            (0..servers as u32).map(|sid| report(word(sid))).collect()
        };
        [read(self.registers.loads), read(self.registers.shadows)]
    }

    /// Sets the latest reports; absent servers have none.
    pub(super) fn set_loads(&self, machine: &mut Interpreter, pool: u32, loads: &[Vec<ServerReport>; 2]) {
        for (array, loads) in [self.registers.loads, self.registers.shadows].into_iter().zip(loads) {
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
        let r = &self.registers;
        let word = |array: RegisterId, at: u32| machine.register(array, at) as u32;
        let rows = application.row_base..application.row_base + application.rows;
        let generation = rows.clone().next().map_or_else(Generation::default, |row| Generation {
            open: word(r.opens, row),
            committed: word(r.commits, row),
            version: word(r.versions, row),
        });
        let width = application.width as usize;
        let lanes = rows.clone().flat_map(|row| (0..width).map(move |lane| (row, lane)));
        let lane = |(row, lane): (u32, usize)| {
            let cell = 2 * row + (lane / KEYED_LANES) as u32;
            word(r.lanes[lane % KEYED_LANES], cell).cast_signed()
        };
        ApplicationState {
            generation,
            rows: rows.map(|row| self.row(machine, row)).collect(),
            lanes: lanes.map(lane).collect(),
            counters: ApplicationCounters::default(),
        }
    }

    fn row(&self, machine: &Interpreter, row: u32) -> RowState {
        let r = &self.registers;
        let read = |array: RegisterId| machine.register(array, row);
        let (parts, holder, ballot_state, lock) =
            (read(r.parts), read(r.holders), read(r.ballot_states), read(r.locks));
        let mut key = [0; 32];
        for (word, bytes) in r.words.iter().zip(key.as_chunks_mut().0) {
            *bytes = (read(*word) as u32).to_be_bytes();
        }
        RowState {
            round: RoundState {
                round: read(r.numbers) as u32,
                workers: parts as u64,
                tag: (parts >> 64) as u32,
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

    /// Places of a slot.
    pub(super) fn slot(&self, machine: &Interpreter, slot: u32) -> Vec<PlaceState> {
        let r = &self.registers;
        let place = |at: u32| PlaceState {
            seq: machine.register(r.seqs, at) as u32,
            generation: machine.register(r.generations, at) as u32,
            overflow: machine.register(r.overflows, at) as u32,
        };
        (slot * W_MAX..(slot + 1) * W_MAX).map(place).collect()
    }

    /// Registers of calls.
    pub(super) fn calls(&self, machine: &Interpreter, size: CloneSize) -> CallState {
        let r = &self.registers;
        let request = |at: usize| {
            let slot = machine.register(r.requests, at as u32);
            ClonedRequest { req_id: (slot >> 34) as u64, gaid: (slot >> 2) as u32, to: slot as u8 & 3 }
        };
        let filter = |at: usize| {
            let slot = machine.register(r.filters, at as u32);
            Fingerprint { req_id: (slot >> 48) as u64, gaid: (slot >> 16) as u32, sid: slot as u16 }
        };
        CallState {
            number: machine.register(r.call_numbers, 0) as u64,
            requests: CallState::used(&(0..size.requests).map(request).collect::<Vec<_>>()),
            filters: CallState::used(&(0..size.filters * size.slots).map(filter).collect::<Vec<_>>()),
        }
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
