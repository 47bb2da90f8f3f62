//! Differential test: the same steps on reference and execution, compared step by step.
//!
//! ```text
//! steps ─► play: compare each effect, and at intervals the state ─► first difference
//!             ▲                                                             │
//!             └──────── fewer steps with a difference ◄── shrink ◄──────────┘
//! ```

use std::collections::BTreeSet;
use std::fmt;

use pathcall_wire::{Base, CloneFrame, CloneHeader, FieldSpec, Instant, MapHeader};

use crate::generate::{Generator, GeneratorOptions};
use crate::shrink::shrink;
use crate::step::{ProgramStep, StepEffect};
use crate::{ExecutionFailure, ProgramExecution, ProgramOutcome};

/// Number of steps between comparisons of registers and counters, which also follow the last step.
const STATE_INTERVAL: usize = 500;
/// Steps of a run of [`campaign`], after which the tables are emptied.
const RUN_STEPS: usize = 5_000;

/// Difference between an execution and the reference.
#[derive(Debug)]
pub struct Difference {
    /// Seed of the run, if from [`campaign`].
    pub seed: Option<u64>,
    /// Index of the step at which the difference appeared.
    pub at: usize,
    /// Reduced sequence of steps that shows the difference at its last step, from empty tables.
    pub steps: Vec<ProgramStep>,
    /// Difference after those steps.
    pub what: DifferenceKind,
}

/// Kind of a difference.
#[derive(Debug)]
pub enum DifferenceKind {
    /// Different effects of a step.
    Effect {
        /// Effect in the reference.
        expected: StepEffect,
        /// Effect in the execution.
        got: StepEffect,
    },
    /// Different registers or counters: the first lines.
    State(Vec<String>),
    /// Failure of one of both.
    Failed(ExecutionFailure),
}

impl std::error::Error for Difference {}

/// Runs steps on the reference and on another execution, both with empty tables; empties the tables afterwards.
///
/// # Errors
/// The first [`Difference`], reduced.
pub fn differ(
    reference: &mut impl ProgramExecution,
    other: &mut impl ProgramExecution,
    steps: &[ProgramStep],
) -> Result<(), Box<Difference>> {
    let Some((at, what)) = play(reference, other, steps) else { return Ok(()) };
    let (steps, what) = shrink(steps.get(..=at).unwrap_or(steps), what, |fewer| play(reference, other, fewer));
    Err(Box::new(Difference { seed: None, at, steps, what }))
}

/// Runs random steps of successive seeds from `seed` until `frames` frames are processed; returns their number.
///
/// # Errors
/// The first [`Difference`], reduced.
pub fn campaign(
    reference: &mut impl ProgramExecution,
    other: &mut impl ProgramExecution,
    seed: u64,
    frames: u64,
    options: GeneratorOptions,
) -> Result<u64, Box<Difference>> {
    let mut played = 0;
    for seed in seed.. {
        let steps: Vec<_> = Generator::new(seed, options).take(RUN_STEPS).collect();
        differ(reference, other, &steps).map_err(|found| Box::new(Difference { seed: Some(seed), ..*found }))?;
        played += steps.iter().filter(|step| matches!(step, ProgramStep::Frame { .. })).count() as u64;
        if played >= frames {
            break;
        }
    }
    Ok(played)
}

/// Runs steps on both, then empties their tables; returns the index and kind of the first difference.
fn play(
    reference: &mut impl ProgramExecution,
    other: &mut impl ProgramExecution,
    steps: &[ProgramStep],
) -> Option<(usize, DifferenceKind)> {
    let found = compare(reference, other, steps);
    // A failure here shows again in the next run.
    let _ = empty(reference, steps).and_then(|()| empty(other, steps));
    found.err()
}

fn compare(
    reference: &mut impl ProgramExecution,
    other: &mut impl ProgramExecution,
    steps: &[ProgramStep],
) -> Result<(), (usize, DifferenceKind)> {
    let failed = |at| move |failure| (at, DifferenceKind::Failed(failure));
    let began = reference.state().map_err(failed(0))?.counters;
    let began = (other.state().map_err(failed(0))?.counters, began);
    for (at, step) in steps.iter().enumerate() {
        let now = Instant(at as u64 + 1);
        let expected = step.apply(now, reference).map_err(failed(at))?;
        let got = step.apply(now, other).map_err(failed(at))?;
        if !got.agrees(&expected) {
            return Err((at, DifferenceKind::Effect { expected, got }));
        }
        if (at + 1) % STATE_INTERVAL == 0 || at + 1 == steps.len() {
            let expected = reference.state().map_err(failed(at))?;
            let got = other.state().map_err(failed(at))?;
            let lines = got.differences(&expected, (&began.0, &began.1));
            if !lines.is_empty() {
                return Err((at, DifferenceKind::State(lines)));
            }
        }
    }
    Ok(())
}

/// Removes everything that the steps may have installed.
fn empty(execution: &mut impl ProgramExecution, steps: &[ProgramStep]) -> Result<(), ExecutionFailure> {
    let (mut applications, mut endpoints) = (BTreeSet::new(), BTreeSet::new());
    for step in steps {
        match step {
            ProgramStep::Install(application) => drop(applications.insert(application.gaid)),
            ProgramStep::InstallPool(pool) => drop(applications.insert(pool.gaid)),
            ProgramStep::SetEndpoint(endpoint) => drop(endpoints.insert(endpoint.endpoint)),
            _ => {}
        }
    }
    execution.set_last_number(0)?;
    endpoints.into_iter().try_for_each(|endpoint| execution.remove_endpoint(endpoint))?;
    applications.into_iter().try_for_each(|gaid| match execution.remove(gaid) {
        Err(ExecutionFailure::Broken(error)) => Err(ExecutionFailure::Broken(error)),
        Ok(()) | Err(ExecutionFailure::Refused(_)) => Ok(()),
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
            DifferenceKind::Failed(failure) => write!(f, "{failure}"),
            DifferenceKind::State(lines) => write!(f, "registers or counters:\n  {}", lines.join("\n  ")),
            DifferenceKind::Effect { expected, got } => {
                write!(f, "expected {expected}\ngot      {got}")?;
                match first_byte(expected, got) {
                    Some((at, name)) => write!(f, "\nfrom byte {at} on: {name}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Offset of the first different byte of two frames to one endpoint, and its field.
fn first_byte(expected: &StepEffect, got: &StepEffect) -> Option<(usize, &'static str)> {
    let (StepEffect::Frame(ProgramOutcome::Forward(_, expected)), StepEffect::Frame(ProgramOutcome::Forward(_, got))) =
        (expected, got)
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
