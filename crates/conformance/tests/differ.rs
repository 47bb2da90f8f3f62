//! Tests of the comparison: planted differences are found, and none without a difference.

use pathcall_conformance::generate::{GeneratorOptions, SIZE};
use pathcall_conformance::{
    Difference, DifferenceKind, ExecutionFailure, ExecutionState, ProgramExecution, ProgramOutcome, ProgramStep,
    campaign, differ,
};
use pathcall_program::{Endpoint, FrameDropReason, InstalledApplication, InstalledPool, SwitchProgram};
use pathcall_wire::{Base, Flags, FrameKind, Instant, MapFlags, MapFrame, TokenKey};

/// Number of frames within which a planted mistake must be found.
const FRAMES: u64 = 100_000;

/// Reference with a planted mistake.
struct FaultyReference {
    program: SwitchProgram,
    mistake: Mistake,
    frames: u64,
}

/// Planted mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A lane of a forwarded frame is one too high if it is a bound of the range.
    Lane,
    /// A reflected frame goes to its original destination.
    Egress,
    /// The last copy of a multicast is not sent.
    Copy,
    /// The copies of a multicast all name the first member.
    Address,
    /// The congestion mark of a round is lost.
    Congestion,
    /// A counted frame is not dropped.
    Counted,
    /// The drop reason is stale instead of forged.
    Reason,
    /// A result is forwarded without a clear.
    Clear,
    /// A reset has no effect.
    Reset,
    /// A new incarnation keeps the slots of the old one.
    Slots,
    /// An application that does not fit is installed at another place.
    Install,
    /// Stale frames are not counted.
    Counter,
    /// Occasional failures of the execution.
    Broken,
    /// Registers cannot be read.
    Unreadable,
}

impl FaultyReference {
    fn new(mistake: Mistake) -> Self {
        Self { program: pathcall_conformance::program(SIZE), mistake, frames: 0 }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }
}

impl ProgramExecution for FaultyReference {
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure> {
        match self.program.install(application) {
            Err(_) if self.makes(Mistake::Install) => Ok(()),
            other => other,
        }
    }

    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.program.remove(gaid)
    }

    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        if self.makes(Mistake::Reset) { Ok(()) } else { self.program.reset(gaid) }
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), ExecutionFailure> {
        self.program.authenticate(gaid, key)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure> {
        if self.makes(Mistake::Slots) && self.program.tables().endpoint(endpoint.endpoint).is_some() {
            return Ok(());
        }
        self.program.set_endpoint(endpoint)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure> {
        self.program.remove_endpoint(endpoint)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure> {
        self.program.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure> {
        self.program.install_pool(pool)
    }

    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure> {
        ProgramExecution::set_last_number(&mut self.program, last)
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure> {
        self.frames += 1;
        if self.makes(Mistake::Broken) && self.frames % 3_000 == 2_999 {
            return Err(ExecutionFailure::Broken("out of order".into()));
        }
        let base = Base::new_checked(frame).map(|base| base.repr()).unwrap_or_default();
        let congested = congested && !(self.makes(Mistake::Congestion) && base.kind == FrameKind::MapData as u8);
        let mut came = frame.to_vec();
        if self.makes(Mistake::Clear)
            && base.kind == FrameKind::MapResult as u8
            && let Ok(mut frame) = MapFrame::new_checked(&mut came[..])
        {
            let flags = frame.map().flags();
            frame.map_mut().set_flags(flags & !MapFlags::CLEAR);
        }
        let outcome = ProgramExecution::process(&mut self.program, now, &came, congested)?;
        Ok(self.wrong(frame, outcome))
    }

    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure> {
        if self.makes(Mistake::Unreadable) {
            return Err(ExecutionFailure::Broken("no registers".into()));
        }
        let mut state = self.program.state()?;
        if self.makes(Mistake::Counter) {
            state.applications.values_mut().for_each(|application| application.counters.stale = 0);
        }
        Ok(state)
    }
}

impl FaultyReference {
    fn wrong(&self, came: &[u8], outcome: ProgramOutcome) -> ProgramOutcome {
        match (self.mistake, outcome) {
            (Mistake::Lane, ProgramOutcome::Forward(endpoint, mut frame)) => {
                if let Ok(mut frame) = MapFrame::new_checked(&mut frame[..])
                    && frame.linear(0) == Some(i32::MAX.into())
                {
                    frame.bitmap_and_lanes_mut().1[0] = 0x80;
                }
                ProgramOutcome::Forward(endpoint, frame)
            }
            (Mistake::Egress, ProgramOutcome::Forward(_, frame)) => {
                let to = Base::new_checked(came).map_or(0, |base| base.dst());
                ProgramOutcome::Forward(to, frame)
            }
            (Mistake::Copy, ProgramOutcome::Copies(mut copies)) => {
                copies.pop();
                ProgramOutcome::Copies(copies)
            }
            (Mistake::Address, ProgramOutcome::Copies(mut copies)) => {
                let dst = copies.first().and_then(|(_, copy)| Some(Base::new_checked(&copy[..]).ok()?.dst()));
                for (_, copy) in &mut copies {
                    if let (Some(dst), Ok(mut base)) = (dst, Base::new_checked(&mut copy[..])) {
                        base.set_dst(dst);
                    }
                }
                ProgramOutcome::Copies(copies)
            }
            (Mistake::Counted, ProgramOutcome::Drop(Some(FrameDropReason::Counted))) => {
                ProgramOutcome::Forward(10, came.to_vec())
            }
            (Mistake::Reason, ProgramOutcome::Drop(Some(FrameDropReason::Forged))) => {
                ProgramOutcome::Drop(Some(FrameDropReason::Stale))
            }
            (_, outcome) => outcome,
        }
    }
}

fn found(mistake: Mistake) -> Difference {
    let found = campaign(
        &mut pathcall_conformance::program(SIZE),
        &mut FaultyReference::new(mistake),
        1,
        FRAMES,
        GeneratorOptions::default(),
    );
    *found.expect_err("the mistake is not found")
}

#[test]
fn reference_does_not_differ_from_itself() {
    for tokens in [false, true] {
        let options = GeneratorOptions { tokens, ..GeneratorOptions::default() };
        let played = campaign(
            &mut pathcall_conformance::program(SIZE),
            &mut FaultyReference::new(Mistake::None),
            1,
            50_000,
            options,
        );
        assert!(played.unwrap_or_else(|difference| panic!("{difference}")) >= 50_000);
    }
}

#[test]
fn planted_mistakes_are_found_and_reduced() {
    for mistake in [
        Mistake::Lane,
        Mistake::Egress,
        Mistake::Copy,
        Mistake::Address,
        Mistake::Congestion,
        Mistake::Counted,
        Mistake::Reason,
        Mistake::Clear,
        Mistake::Reset,
        Mistake::Slots,
        Mistake::Install,
        Mistake::Counter,
    ] {
        let difference = found(mistake);
        let frames = difference.steps.iter().filter(|step| matches!(step, ProgramStep::Frame { .. })).count();
        assert!(difference.steps.len() <= 16 && frames <= 6, "{mistake:?}: {difference}");
        // The reduced steps reproduce the difference in fresh executions.
        let again =
            differ(&mut pathcall_conformance::program(SIZE), &mut FaultyReference::new(mistake), &difference.steps);
        let again = again.expect_err("the same difference");
        assert_eq!(again.steps.len(), difference.steps.len(), "a step could be removed: {mistake:?}\n{again}");
        match (mistake, &difference.what) {
            (Mistake::Reset | Mistake::Slots | Mistake::Counter | Mistake::Clear, DifferenceKind::State(_)) => {}
            (_, DifferenceKind::Effect { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn failure_of_execution_is_reported() {
    for mistake in [Mistake::Broken, Mistake::Unreadable] {
        let difference = found(mistake);
        assert!(matches!(difference.what, DifferenceKind::Failed(ExecutionFailure::Broken(_))), "{difference}");
    }
    let nothing = differ(&mut pathcall_conformance::program(SIZE), &mut FaultyReference::new(Mistake::Unreadable), &[]);
    assert!(matches!(nothing.expect_err("no registers").what, DifferenceKind::Failed(_)));
}

#[test]
fn difference_prints_readable_report() {
    let text = found(Mistake::Congestion).to_string();
    let shown = ["of seed 1", "SetEndpoint(Endpoint", "MapData", "(congestion met)", "expected to", "ECN", "flags"];
    for part in shown {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(Flags::ECN, 2, "the named byte");
}
