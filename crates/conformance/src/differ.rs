//! The comparison: the same steps to both, and whether they do the same.
//!
//! ```text
//! steps ─► play: effect against effect, at intervals state against state ─► the first difference
//!             ▲                                                                     │
//!             └──────── fewer steps, as long as there still is one ◄── shrink ◄─────┘
//! ```

use std::collections::BTreeSet;
use std::fmt;

use pathcall_wire::{Base, CloneFrame, CloneHeader, FieldSpec, Instant, MapHeader};

use crate::generate::{Generator, Options};
use crate::shrink::shrink;
use crate::step::{Effect, Step};
use crate::{Execution, Failure, Outcome};

/// Steps after which registers and counters are compared, and always after the last one.
const STATE_INTERVAL: usize = 500;
/// Steps of a run of [`campaign`]; then the tables are empty again.
const RUN_STEPS: usize = 5_000;

/// Where an execution does not do what the reference does.
#[derive(Debug)]
pub struct Difference {
    /// The seed of the run, if it was [`campaign`]'s.
    pub seed: Option<u64>,
    /// The step at which it showed, counted from 0 in what was played.
    pub at: usize,
    /// Few steps, played to two executions with empty tables, that show it; at the last of them.
    pub steps: Vec<Step>,
    /// What differs after those.
    pub what: What,
}

/// What differs.
#[derive(Debug)]
pub enum What {
    /// What a step has done.
    Effect {
        /// In the reference.
        expected: Effect,
        /// In the execution.
        got: Effect,
    },
    /// Registers or counters: the first lines of it.
    State(Vec<String>),
    /// One of them could not do the step at all.
    Failed(Failure),
}

impl std::error::Error for Difference {}

/// Plays steps to the reference and another execution, both with empty tables; empties them after.
///
/// # Errors
/// The first [`Difference`], shrunk.
pub fn differ(
    reference: &mut impl Execution,
    other: &mut impl Execution,
    steps: &[Step],
) -> Result<(), Box<Difference>> {
    let Some((at, what)) = play(reference, other, steps) else { return Ok(()) };
    let (steps, what) = shrink(steps.get(..=at).unwrap_or(steps), what, |fewer| play(reference, other, fewer));
    Err(Box::new(Difference { seed: None, at, steps, what }))
}

/// Plays what seeds from `seed` on give until that are so many frames; how many there were.
///
/// # Errors
/// The first [`Difference`], shrunk.
pub fn campaign(
    reference: &mut impl Execution,
    other: &mut impl Execution,
    seed: u64,
    frames: u64,
    options: Options,
) -> Result<u64, Box<Difference>> {
    let mut played = 0;
    for seed in seed.. {
        let steps: Vec<_> = Generator::new(seed, options).take(RUN_STEPS).collect();
        differ(reference, other, &steps).map_err(|found| Box::new(Difference { seed: Some(seed), ..*found }))?;
        played += steps.iter().filter(|step| matches!(step, Step::Frame { .. })).count() as u64;
        if played >= frames {
            break;
        }
    }
    Ok(played)
}

/// Plays steps to both, then empties their tables; the first step at which they differ, and how.
fn play(reference: &mut impl Execution, other: &mut impl Execution, steps: &[Step]) -> Option<(usize, What)> {
    let found = compare(reference, other, steps);
    // If one of them can't, that shows as soon as it is to do anything else.
    let _ = empty(reference, steps).and_then(|()| empty(other, steps));
    found.err()
}

fn compare(reference: &mut impl Execution, other: &mut impl Execution, steps: &[Step]) -> Result<(), (usize, What)> {
    let failed = |at| move |failure| (at, What::Failed(failure));
    let began = reference.state().map_err(failed(0))?.counters;
    let began = (other.state().map_err(failed(0))?.counters, began);
    for (at, step) in steps.iter().enumerate() {
        let now = Instant(at as u64 + 1);
        let expected = step.apply(now, reference).map_err(failed(at))?;
        let got = step.apply(now, other).map_err(failed(at))?;
        if !got.agrees(&expected) {
            return Err((at, What::Effect { expected, got }));
        }
        if (at + 1) % STATE_INTERVAL == 0 || at + 1 == steps.len() {
            let expected = reference.state().map_err(failed(at))?;
            let got = other.state().map_err(failed(at))?;
            let lines = got.differences(&expected, (&began.0, &began.1));
            if !lines.is_empty() {
                return Err((at, What::State(lines)));
            }
        }
    }
    Ok(())
}

/// Takes out all that steps may have put in.
fn empty(execution: &mut impl Execution, steps: &[Step]) -> Result<(), Failure> {
    let (mut applications, mut endpoints) = (BTreeSet::new(), BTreeSet::new());
    for step in steps {
        match step {
            Step::Install(application) => drop(applications.insert(application.gaid)),
            Step::InstallPool(pool) => drop(applications.insert(pool.gaid)),
            Step::SetEndpoint(endpoint) => drop(endpoints.insert(endpoint.endpoint)),
            _ => {}
        }
    }
    execution.number_after(0)?;
    endpoints.into_iter().try_for_each(|endpoint| execution.remove_endpoint(endpoint))?;
    applications.into_iter().try_for_each(|gaid| match execution.remove(gaid) {
        Err(Failure::Broken(error)) => Err(Failure::Broken(error)),
        Ok(()) | Err(Failure::Refused(_)) => Ok(()),
    })
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the executions differ at step {}", self.at)?;
        if let Some(seed) = self.seed {
            write!(f, " of seed {seed}")?;
        }
        writeln!(f, "; these {} steps show it:", self.steps.len())?;
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>4} {step}", at + 1)?;
        }
        match &self.what {
            What::Failed(failure) => write!(f, "{failure}"),
            What::State(lines) => write!(f, "registers or counters:\n  {}", lines.join("\n  ")),
            What::Effect { expected, got } => {
                write!(f, "expected {expected}\ngot      {got}")?;
                match first_byte(expected, got) {
                    Some((at, name)) => write!(f, "\nfrom byte {at} on: {name}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The first byte in which two frames to one endpoint differ, and the field it is in.
fn first_byte(expected: &Effect, got: &Effect) -> Option<(usize, &'static str)> {
    let (Effect::Frame(Outcome::Forward(_, expected)), Effect::Frame(Outcome::Forward(_, got))) = (expected, got)
    else {
        return None;
    };
    let at = expected
        .iter()
        .zip(got)
        .position(|(a, b)| a != b)
        .or_else(|| (expected.len() != got.len()).then(|| expected.len().min(got.len())))?;
    let of_call = CloneFrame::new_checked(&expected[..]).is_ok();
    let start = Base::new_checked(&expected[..]).map_or(Base::LEN, |base| base.header_len());
    let of = |fields: &'static [FieldSpec], at: usize| {
        fields.iter().find(|field| (field.offset..field.offset + field.len).contains(&at)).map(|field| field.name)
    };
    let layout = if of_call { CloneHeader::LAYOUT } else { MapHeader::LAYOUT };
    let ability = at.checked_sub(start).and_then(|at| of(layout, at));
    Some((
        at,
        of(Base::LAYOUT, at).or(ability).unwrap_or(if at < start { "token" } else { "bitmap, lanes or payload" }),
    ))
}
