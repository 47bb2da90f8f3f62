//! Model of array sums, in 64 bits.
//!
//! If a worker's process is killed and another one replaces it, each chunk contains the part of one of the two, the
//! same for all receivers. A worker that began in the middle of its predecessor's array contributes to later chunks
//! than the predecessor.

use std::collections::BTreeMap;

use pathcall_endpoint::map::{CallError, Lanes, Operation, Output};
use pathcall_wire::ForwardTarget;

use super::MapViolation;
use crate::map::handler::result;
use crate::map::node::MapNodeId;
use crate::map::scenario::{ApplicationPlan, ExpectedError, MapCallerPlan, StepWork, modified};
use crate::trace::brief;

/// Expected sums by step, and which variant of them a chunk had, by step and chunk, if that is certain.
#[derive(Default)]
pub(super) struct Sums {
    expected: BTreeMap<usize, Vec<Vec<i64>>>,
    seen: BTreeMap<(usize, usize), usize>,
}

impl Sums {
    /// Compares a worker's result with the sum of all workers' inputs. `aligned`: all workers count chunks alike.
    pub(super) fn check(
        &mut self,
        plan: &ApplicationPlan,
        node: MapNodeId,
        step: usize,
        got: &Lanes,
        aligned: bool,
    ) -> Result<(), MapViolation> {
        let expected = self.expected.entry(step).or_insert_with(|| sums(plan, step));
        if expected[0].len() != got.len() {
            let got = format!("{} of {}", got.len(), expected[0].len());
            return Err(MapViolation::Output { node, step, expected: "a sum for each lane", got });
        }
        let width = usize::from(plan.width.max(1));
        for (chunk, got) in got.wide().chunks(width).enumerate() {
            let lanes = |of: usize| &expected[of][chunk * width..chunk * width + got.len()];
            let fitting: Vec<usize> = (0..expected.len()).filter(|of| lanes(*of) == got).collect();
            let seen = self.seen.get(&(step, chunk)).copied().filter(|_| aligned);
            if let (true, [only], None) = (aligned, fitting.as_slice(), seen) {
                self.seen.insert((step, chunk), *only);
            }
            let of = seen.unwrap_or(0);
            if fitting.is_empty() || seen.is_some() && !fitting.contains(&of) {
                let differs = |(expected, got): (&i64, &i64)| expected != got;
                let lane = lanes(of).iter().zip(got).position(differs).unwrap_or(0);
                let (expected, got) = (lanes(of)[lane], got[lane]);
                return Err(MapViolation::Sum { node, step, lane: chunk * width + lane, expected, got });
            }
        }
        Ok(())
    }
}

/// Expected sums of a step; two variants if one worker replaces another.
fn sums(plan: &ApplicationPlan, step: usize) -> Vec<Vec<i64>> {
    let successor = plan.callers.iter().find(|caller| caller.succeeds.is_some());
    let before = successor.and_then(|caller| caller.succeeds).map(|number| &plan.callers[number]);
    let first = plan.callers.iter().filter(|caller| caller.succeeds.is_none()).collect::<Vec<_>>();
    let mut sums = vec![sum(&first, step)];
    if let (Some(successor), Some(before)) = (successor, before) {
        let others = first.into_iter().filter(|caller| !std::ptr::eq(*caller, before));
        sums.push(sum(&others.chain([successor]).collect::<Vec<_>>(), step));
    }
    sums
}

fn sum(workers: &[&MapCallerPlan], step: usize) -> Vec<i64> {
    let mut sums = Vec::new();
    let mut handled = false;
    for work in workers.iter().filter_map(|caller| caller.steps.get(step)).map(|step| &step.work) {
        if let StepWork::Call(Operation::Sum { lanes, modify, to, .. }) = work {
            handled = *to == ForwardTarget::Server;
            sums.resize(lanes.len(), 0);
            for (sum, value) in sums.iter_mut().zip(lanes.iter()) {
                *sum += modified(value, *modify);
            }
        }
    }
    if handled { sums.into_iter().map(result).collect() } else { sums }
}

impl super::Application<'_> {
    /// Checks the end of a call in an application whose last calls must fail: right sums before them, and the
    /// expected error for them.
    pub(super) fn check_expected_error(
        &mut self,
        node: MapNodeId,
        caller: usize,
        step: usize,
        expected_error: ExpectedError,
        outcome: &Result<Output, CallError>,
    ) -> Result<(), MapViolation> {
        let last = step + 1 == self.plan.callers[caller].steps.len();
        let output = |expected| MapViolation::Output { node, step, expected, got: brief(outcome, 100) };
        match (expected_error, outcome) {
            (ExpectedError::Disagree, Err(CallError::Disagree { .. }))
            | (ExpectedError::Overflow, Err(CallError::Overflow { .. })) => Ok(()),
            (_, Ok(Output::Sums(sums))) if !last => self.sums.check(self.plan, node, step, sums, !self.may_disagree),
            (ExpectedError::Disagree, _) => Err(output("to hear that the workers disagree")),
            (ExpectedError::Overflow, _) => Err(output("to hear that a sum leaves 64 bits")),
        }
    }
}
