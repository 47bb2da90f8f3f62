//! Sums of arrays, in 64 bits.

use std::collections::BTreeMap;

use pathcall_endpoint::map::{Lanes, Operation};

use super::Failure;
use crate::party::Node;
use crate::scenario::{ApplicationPlan, Work, modified};

/// The sums of the steps that were asked about, by step.
#[derive(Default)]
pub(super) struct Sums(BTreeMap<usize, Vec<i64>>);

impl Sums {
    /// Compares what a worker got for a step with the sum of what all workers put in.
    pub(super) fn check(
        &mut self,
        plan: &ApplicationPlan,
        node: Node,
        step: usize,
        got: &Lanes,
    ) -> Result<(), Failure> {
        let expected = self.0.entry(step).or_insert_with(|| sum(plan, step));
        if expected.len() != got.len() {
            let got = format!("{} of {}", got.len(), expected.len());
            return Err(Failure::Output { node, step, expected: "a sum for each lane", got });
        }
        match expected.iter().zip(got.iter()).position(|(expected, got)| *expected != got) {
            None => Ok(()),
            Some(lane) => {
                Err(Failure::Sum { node, step, lane, expected: expected[lane], got: got.get(lane).unwrap_or_default() })
            }
        }
    }
}

fn sum(plan: &ApplicationPlan, step: usize) -> Vec<i64> {
    let mut sums = Vec::new();
    for work in plan.callers.iter().filter_map(|caller| caller.steps.get(step)).map(|step| &step.work) {
        if let Work::Call(Operation::Sum { lanes, modify, .. }) = work {
            sums.resize(lanes.len(), 0);
            for (sum, value) in sums.iter_mut().zip(lanes.iter()) {
                *sum += modified(value, *modify);
            }
        }
    }
    sums
}
