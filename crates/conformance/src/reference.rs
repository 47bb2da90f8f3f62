//! Reference program as an execution.

use pathcall_program::registers::Generation;
use pathcall_program::{
    Endpoint, FrameAction, InstalledApplication, InstalledPool, RepeatFilterProfile, Size, SwitchProgram,
};
use pathcall_wire::{Instant, TokenKey, W_MAX};

use crate::generate::CLONES;
use crate::state::{ApplicationState, CallState, PlaceState, PoolRegisters, RowState};
use crate::{ExecutionFailure, ExecutionState, ProgramExecution, ProgramOutcome};

impl ProgramExecution for SwitchProgram {
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().install(application)?)
    }

    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().remove(gaid)?)
    }

    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().reset(gaid)?)
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().authenticate(gaid, key)?)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().set_endpoint(endpoint)?)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure> {
        self.tables_mut().remove_endpoint(endpoint);
        Ok(())
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().set_group(gaid, endpoints)?)
    }

    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure> {
        Ok(self.tables_mut().install_pool(pool.clone())?)
    }

    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure> {
        Self::set_last_number(self, last);
        Ok(())
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure> {
        let mut frame = frame.to_vec();
        let verdict = Self::process(self, now, &mut frame, congested);
        frame.truncate(verdict.len);
        Ok(match verdict.action {
            FrameAction::Forward(endpoint) => ProgramOutcome::Forward(endpoint, frame),
            FrameAction::Drop(reason) => ProgramOutcome::Drop(Some(reason)),
            FrameAction::Clone(endpoint) => {
                let mut copies = vec![(endpoint, frame.clone())];
                if let FrameAction::Forward(other) = self.recirculate(&mut frame).action {
                    copies.push((other, frame));
                }
                ProgramOutcome::Copies(copies)
            }
            FrameAction::Multicast(gaid) => {
                let mut copies = Vec::new();
                self.tables().copies(gaid, &mut frame, |endpoint, copy| copies.push((endpoint, copy.to_vec())));
                ProgramOutcome::Copies(copies)
            }
        })
    }

    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure> {
        let applications = self.tables().applications();
        let applications = applications.map(|(application, _, counters)| {
            (application.gaid, ApplicationState { counters, ..registers_of(self, &application) })
        });
        let slots = self.tables().endpoints().flat_map(|e| e.slot_base..e.slot_base + e.slots);
        let slots = slots.map(|slot| (slot, slot_of(self, slot)));
        let pools = self.tables().pools().map(|(pool, _, counters)| {
            let (loads, shadows) = self.tables().loads(pool.gaid).unwrap_or_default();
            (pool.gaid, PoolRegisters { loads: loads.to_vec(), shadows: shadows.to_vec(), counters })
        });
        Ok(ExecutionState {
            applications: applications.collect(),
            slots: slots.collect(),
            pools: pools.collect(),
            calls: calls_of(self),
            counters: *self.counters(),
        })
    }
}

/// Reference with memory of this size for applications, and the call tables that comparisons use.
#[must_use]
pub fn program(size: Size) -> SwitchProgram {
    SwitchProgram::with_clones(size, CLONES, RepeatFilterProfile::FullSequence)
}

fn calls_of(program: &SwitchProgram) -> CallState {
    let registers = program.tables().clones();
    let (requests, filters) = (&registers.requests, &registers.filters);
    CallState {
        number: registers.numbers.peek(0, 1)[0],
        requests: CallState::used(requests.peek(0, requests.size())),
        filters: CallState::used(filters.peek(0, filters.size())),
    }
}

fn registers_of(program: &SwitchProgram, application: &InstalledApplication) -> ApplicationState {
    let registers = program.tables().registers();
    let (first, count) = (application.row_base as usize, application.rows as usize);
    let row = |at| RowState {
        round: registers.rounds.peek(at, 1)[0],
        count: registers.counts.peek(at, 1)[0],
        ballot: registers.ballots.peek(at, 1)[0],
        lock: registers.locks.peek(at, 1)[0],
        grants: registers.grants.peek(at, 1)[0],
    };
    let generation = if count > 0 { registers.generations.peek(first, 1)[0] } else { Generation::default() };
    let lanes = registers.lanes.peek(application.lane_base as usize, count * application.width as usize);
    ApplicationState {
        generation,
        rows: (first..first + count).map(row).collect(),
        lanes: lanes.to_vec(),
        counters: pathcall_program::ApplicationCounters::default(),
    }
}

fn slot_of(program: &SwitchProgram, slot: u32) -> Vec<PlaceState> {
    let registers = program.tables().registers();
    let (at, len) = (slot as usize * W_MAX as usize, W_MAX as usize);
    let (places, overflows) = (registers.places.peek(at, len), registers.overflows.peek(at, len));
    places.iter().zip(overflows).map(|(place, overflow)| PlaceState::new(place, *overflow)).collect()
}
