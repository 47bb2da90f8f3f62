//! Each mistake that can be planted in the program is found: the steps are deep enough, and nothing
//! that they change is left out of the comparison.

use pathcall_conformance::generate::{Options, SIZE};
use pathcall_conformance::{Execution, Failure, Outcome, State, campaign};
use pathcall_program::{Application, Endpoint, Pool, Program};
use pathcall_wire::{Instant, Mutant, TokenKey, mutant};

/// Frames until a mistake must have been found.
const FRAMES: u64 = 200_000;
/// The mistakes of the program.
const OF_THE_PROGRAM: [Mutant; 38] = [
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
    Mutant::HarvestUnfrozen,
    Mutant::WipeOldGeneration,
    Mutant::WipeForgotten,
    Mutant::GrantsNotRaised,
    Mutant::VoteRepeats,
    Mutant::VoteForAnother,
    Mutant::DecidedUnrecorded,
    Mutant::ClearsUncounted,
    Mutant::CloneShadowKept,
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

/// The program with a mistake in it.
struct Planted(Program, Mutant);

impl Execution for Planted {
    fn install(&mut self, application: Application) -> Result<(), Failure> {
        self.0.install(application)
    }

    fn remove(&mut self, gaid: u32) -> Result<(), Failure> {
        self.0.remove(gaid)
    }

    fn reset(&mut self, gaid: u32) -> Result<(), Failure> {
        self.0.reset(gaid)
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), Failure> {
        self.0.authenticate(gaid, key)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), Failure> {
        self.0.set_endpoint(endpoint)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Failure> {
        self.0.remove_endpoint(endpoint)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Failure> {
        self.0.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &Pool) -> Result<(), Failure> {
        self.0.install_pool(pool)
    }

    fn number_after(&mut self, last: u64) -> Result<(), Failure> {
        Execution::number_after(&mut self.0, last)
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<Outcome, Failure> {
        mutant::plant(Some(self.1));
        let outcome = Execution::process(&mut self.0, now, frame, congested);
        mutant::plant(None);
        outcome
    }

    fn state(&mut self) -> Result<State, Failure> {
        self.0.state()
    }
}

#[test]
fn every_mistake_in_the_program_is_found() {
    for mistake in OF_THE_PROGRAM {
        let tokens = matches!(mistake, Mutant::ElementToken | Mutant::ElementTokenLate);
        let options = Options { tokens, ..Options::default() };
        let planted = &mut Planted(pathcall_conformance::program(SIZE), mistake);
        let found = campaign(&mut pathcall_conformance::program(SIZE), planted, 1, FRAMES, options);
        let found = found.expect_err(&format!("{mistake:?} is not found"));
        println!("{mistake:?}: seed {:?}, {} steps", found.seed, found.steps.len());
        assert!(found.steps.len() <= 30, "{mistake:?}: {found}");
    }
}
