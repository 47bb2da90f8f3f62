//! Sums of arrays, in 64 bits.
//!
//! Where a worker's process is killed and another takes its place, a chunk is summed with the part of
//! the one or of the other: wholly, and the same for all. One that began in the middle of its
//! predecessor's array, though, contributes to later chunks than that did.

use std::collections::BTreeMap;

use pathcall_endpoint::map::{Lanes, Operation};

use super::Failure;
use crate::party::Node;
use crate::scenario::{ApplicationPlan, CallerPlan, Work, modified};

/// The sums of the steps that were asked about, by step; and of which of them a chunk was, by step and
/// chunk, as far as that shows.
#[derive(Default)]
pub(super) struct Sums {
    expected: BTreeMap<usize, Vec<Vec<i64>>>,
    seen: BTreeMap<(usize, usize), usize>,
}

impl Sums {
    /// Compares what a worker got for a step with the sum of what all workers put in. `aligned`: all
    /// workers count chunks alike.
    pub(super) fn check(
        &mut self,
        plan: &ApplicationPlan,
        node: Node,
        step: usize,
        got: &Lanes,
        aligned: bool,
    ) -> Result<(), Failure> {
        let expected = self.expected.entry(step).or_insert_with(|| sums(plan, step));
        if expected[0].len() != got.len() {
            let got = format!("{} of {}", got.len(), expected[0].len());
            return Err(Failure::Output { node, step, expected: "a sum for each lane", got });
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
                let wrong = |(expected, got): (&i64, &i64)| expected != got;
                let lane = lanes(of).iter().zip(got).position(wrong).unwrap_or(0);
                let (expected, got) = (lanes(of)[lane], got[lane]);
                return Err(Failure::Sum { node, step, lane: chunk * width + lane, expected, got });
            }
        }
        Ok(())
    }
}

/// The sum of a step; two where one worker succeeds another.
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

fn sum(workers: &[&CallerPlan], step: usize) -> Vec<i64> {
    let mut sums = Vec::new();
    for work in workers.iter().filter_map(|caller| caller.steps.get(step)).map(|step| &step.work) {
        if let Work::Call(Operation::Sum { lanes, modify, .. }) = work {
            sums.resize(lanes.len(), 0);
            for (sum, value) in sums.iter_mut().zip(lanes.iter()) {
                *sum += modified(value, *modify);
            }
        }
    }
    sums
}
