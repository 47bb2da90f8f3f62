//! The comparison finds what differs, and nothing where nothing does.

use pathcall_conformance::generate::{Options, SIZE};
use pathcall_conformance::{Difference, Execution, Failure, Outcome, State, Step, What, campaign, differ};
use pathcall_program::{Application, Endpoint, Pool, Program, Reason};
use pathcall_wire::{Base, Flags, Instant, Kind, MapFlags, MapFrame, TokenKey};

/// Frames until a mistake must have been found.
const FRAMES: u64 = 100_000;

/// The reference, with a mistake.
struct Mistaken {
    program: Program,
    mistake: Mistake,
    frames: u64,
}

/// What it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A lane of a forwarded frame is one too high, when it is an end of the range.
    Lane,
    /// What is reflected goes to where it was addressed.
    Egress,
    /// The last copy of a multicast is not sent.
    Copy,
    /// The addressed copies still name the first member.
    Address,
    /// The congestion mark does not stick to a round: it is not seen.
    Congestion,
    /// A frame that is counted is not dropped.
    Counted,
    /// It says stale where it should say forged.
    Reason,
    /// A result is passed on and clears nothing.
    Clear,
    /// A reset zeroes nothing.
    Reset,
    /// A new incarnation starts with the old one's slots.
    Slots,
    /// What does not fit is installed somewhere else.
    Install,
    /// It counts no stale frames.
    Counter,
    /// It breaks down now and then.
    Broken,
    /// Its registers can't be read.
    Unreadable,
}

impl Mistaken {
    fn new(mistake: Mistake) -> Self {
        Self { program: pathcall_conformance::program(SIZE), mistake, frames: 0 }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }
}

impl Execution for Mistaken {
    fn install(&mut self, application: Application) -> Result<(), Failure> {
        match self.program.install(application) {
            Err(_) if self.makes(Mistake::Install) => Ok(()),
            other => other,
        }
    }

    fn remove(&mut self, gaid: u32) -> Result<(), Failure> {
        self.program.remove(gaid)
    }

    fn reset(&mut self, gaid: u32) -> Result<(), Failure> {
        if self.makes(Mistake::Reset) { Ok(()) } else { self.program.reset(gaid) }
    }

    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), Failure> {
        self.program.authenticate(gaid, key)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), Failure> {
        if self.makes(Mistake::Slots) && self.program.tables().endpoint(endpoint.endpoint).is_some() {
            return Ok(());
        }
        self.program.set_endpoint(endpoint)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Failure> {
        self.program.remove_endpoint(endpoint)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Failure> {
        self.program.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &Pool) -> Result<(), Failure> {
        self.program.install_pool(pool)
    }

    fn number_after(&mut self, last: u64) -> Result<(), Failure> {
        Execution::number_after(&mut self.program, last)
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<Outcome, Failure> {
        self.frames += 1;
        if self.makes(Mistake::Broken) && self.frames % 3_000 == 2_999 {
            return Err(Failure::Broken("out of order".into()));
        }
        let base = Base::new_checked(frame).map(|base| base.repr()).unwrap_or_default();
        let congested = congested && !(self.makes(Mistake::Congestion) && base.kind == Kind::MapData as u8);
        let mut came = frame.to_vec();
        if self.makes(Mistake::Clear)
            && base.kind == Kind::MapResult as u8
            && let Ok(mut frame) = MapFrame::new_checked(&mut came[..])
        {
            let flags = frame.map().flags();
            frame.map_mut().set_flags(flags & !MapFlags::CLEAR);
        }
        let outcome = Execution::process(&mut self.program, now, &came, congested)?;
        Ok(self.wrong(frame, outcome))
    }

    fn state(&mut self) -> Result<State, Failure> {
        if self.makes(Mistake::Unreadable) {
            return Err(Failure::Broken("no registers".into()));
        }
        let mut state = self.program.state()?;
        if self.makes(Mistake::Counter) {
            state.applications.values_mut().for_each(|application| application.counters.stale = 0);
        }
        Ok(state)
    }
}

impl Mistaken {
    fn wrong(&self, came: &[u8], outcome: Outcome) -> Outcome {
        match (self.mistake, outcome) {
            (Mistake::Lane, Outcome::Forward(endpoint, mut frame)) => {
                if let Ok(mut frame) = MapFrame::new_checked(&mut frame[..])
                    && frame.linear(0) == Some(i32::MAX.into())
                {
                    frame.bitmap_and_lanes_mut().1[0] = 0x80;
                }
                Outcome::Forward(endpoint, frame)
            }
            (Mistake::Egress, Outcome::Forward(_, frame)) => {
                let to = Base::new_checked(came).map_or(0, |base| base.dst());
                Outcome::Forward(to, frame)
            }
            (Mistake::Copy, Outcome::Copies(mut copies)) => {
                copies.pop();
                Outcome::Copies(copies)
            }
            (Mistake::Address, Outcome::Copies(mut copies)) => {
                let dst = copies.first().and_then(|(_, copy)| Some(Base::new_checked(&copy[..]).ok()?.dst()));
                for (_, copy) in &mut copies {
                    if let (Some(dst), Ok(mut base)) = (dst, Base::new_checked(&mut copy[..])) {
                        base.set_dst(dst);
                    }
                }
                Outcome::Copies(copies)
            }
            (Mistake::Counted, Outcome::Drop(Some(Reason::Counted))) => Outcome::Forward(10, came.to_vec()),
            (Mistake::Reason, Outcome::Drop(Some(Reason::Forged))) => Outcome::Drop(Some(Reason::Stale)),
            (_, outcome) => outcome,
        }
    }
}

fn found(mistake: Mistake) -> Difference {
    let found =
        campaign(&mut pathcall_conformance::program(SIZE), &mut Mistaken::new(mistake), 1, FRAMES, Options::default());
    *found.expect_err("the mistake is not found")
}

#[test]
fn the_reference_does_what_it_does() {
    for tokens in [false, true] {
        let options = Options { tokens, ..Options::default() };
        let played =
            campaign(&mut pathcall_conformance::program(SIZE), &mut Mistaken::new(Mistake::None), 1, 50_000, options);
        assert!(played.unwrap_or_else(|difference| panic!("{difference}")) >= 50_000);
    }
}

#[test]
fn planted_mistakes_are_found_and_shown_in_few_steps() {
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
        let frames = difference.steps.iter().filter(|step| matches!(step, Step::Frame { .. })).count();
        assert!(difference.steps.len() <= 16 && frames <= 6, "{mistake:?}: {difference}");
        // The steps alone show it again, in fresh executions.
        let again = differ(&mut pathcall_conformance::program(SIZE), &mut Mistaken::new(mistake), &difference.steps);
        let again = again.expect_err("the same difference");
        assert_eq!(again.steps.len(), difference.steps.len(), "nothing more can go: {mistake:?}\n{again}");
        match (mistake, &difference.what) {
            (Mistake::Reset | Mistake::Slots | Mistake::Counter | Mistake::Clear, What::State(_)) => {}
            (_, What::Effect { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_execution_that_breaks_down_is_said_to() {
    for mistake in [Mistake::Broken, Mistake::Unreadable] {
        let difference = found(mistake);
        assert!(matches!(difference.what, What::Failed(Failure::Broken(_))), "{difference}");
    }
    let nothing = differ(&mut pathcall_conformance::program(SIZE), &mut Mistaken::new(Mistake::Unreadable), &[]);
    assert!(matches!(nothing.expect_err("no registers").what, What::Failed(_)));
}

#[test]
fn a_difference_can_be_read() {
    let text = found(Mistake::Congestion).to_string();
    let shown = ["of seed 1", "SetEndpoint(Endpoint", "MapData", "(congestion met)", "expected to", "ECN", "flags"];
    for part in shown {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(Flags::ECN, 2, "the byte that is named");
}
