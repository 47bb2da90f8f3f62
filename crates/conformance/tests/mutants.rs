//! Tests that each mutant of the program is found: the random steps are deep enough, and the comparison is complete.

use pathcall_conformance::generate::{GeneratorOptions, SIZE};
use pathcall_conformance::{ExecutionFailure, ExecutionState, ProgramExecution, ProgramOutcome, campaign};
use pathcall_program::{Endpoint, InstalledApplication, InstalledPool, SwitchProgram};
use pathcall_wire::{Instant, Mutant, TokenKey, mutant};

/// Number of frames within which a mutant must be found.
const FRAMES: u64 = 200_000;
/// Mutants of the program.
const OF_THE_PROGRAM: [Mutant; 42] = [
    Mutant::ElementRepeats,
    Mutant::ElementLateRepeats,
    Mutant::ElementWorkers,
    Mutant::ElementEpoch,
    Mutant::ElementIncarnation,
    Mutant::ElementApplication,
    Mutant::ElementToken,
    Mutant::ElementTokenLate,
    Mutant::ElementTag,
    Mutant::ClearBeforeBackup,
    Mutant::ClearOnOldResult,
    Mutant::LastRoundAdded,
    Mutant::ClampOverflow,
    Mutant::OverflowSaidOnce,
    Mutant::ReadNamesFirstGeneration,
    Mutant::HarvestUnfrozen,
    Mutant::WipeOldGeneration,
    Mutant::WipeForgotten,
    Mutant::GrantsNotRaised,
    Mutant::VoteRepeats,
    Mutant::VoteForAnother,
    Mutant::DecidedUnrecorded,
    Mutant::DecidedForgotten,
    Mutant::DecisionSaidOnce,
    Mutant::ClearsUncounted,
    Mutant::CloneShadowKept,
    Mutant::CloneOldReportTaken,
    Mutant::CloneFilterKept,
    Mutant::CloneUnfiltered,
    Mutant::ClonePartsFiltered,
    Mutant::CloneAnswersMixed,
    Mutant::CloneWhileBusy,
    Mutant::CloneUnasked,
    Mutant::ClonePartsDecided,
    Mutant::CloneStaleDropped,
    Mutant::CloneCancelStale,
    Mutant::CloneBelieved,
    Mutant::CloneSwitchIgnored,
    Mutant::CloneSidUnchecked,
    Mutant::CloneIdUnchecked,
    Mutant::CloneLongest,
    Mutant::CloneDirectSteered,
];

/// Program with a mutant.
struct MutantProgram(SwitchProgram, Mutant);

impl ProgramExecution for MutantProgram {
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure> {
        self.0.install(application)
    }

    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.0.remove(gaid)
    }

    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.0.reset(gaid)
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), ExecutionFailure> {
        self.0.authenticate(gaid, key)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure> {
        self.0.set_endpoint(endpoint)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure> {
        self.0.remove_endpoint(endpoint)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure> {
        self.0.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure> {
        self.0.install_pool(pool)
    }

    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure> {
        ProgramExecution::set_last_number(&mut self.0, last)
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure> {
        mutant::plant(Some(self.1));
        let outcome = ProgramExecution::process(&mut self.0, now, frame, congested);
        mutant::plant(None);
        outcome
    }

    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure> {
        self.0.state()
    }
}

#[test]
fn every_mutant_of_the_program_is_found() {
    for mistake in OF_THE_PROGRAM {
        let tokens = matches!(mistake, Mutant::ElementToken | Mutant::ElementTokenLate);
        let options = GeneratorOptions { tokens, ..GeneratorOptions::default() };
        let planted = &mut MutantProgram(pathcall_conformance::program(SIZE), mistake);
        let found = campaign(&mut pathcall_conformance::program(SIZE), planted, 1, FRAMES, options);
        let found = found.expect_err(&format!("{mistake:?} is not found"));
        println!("{mistake:?}: seed {:?}, {} steps", found.seed, found.steps.len());
        assert!(found.steps.len() <= 30, "{mistake:?}: {found}");
    }
}
