//! Gradients of a simulated caller: it makes the sums of each call, as a channel does.

use std::collections::BTreeMap;

use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::gradient::{GradientFormat, GradientState, GradientSum};
use pathcall_endpoint::map::{CallError, Lanes, Operation, Output};

use super::node::{Effects, NodeReport};

/// Gradients of a caller, by length.
pub(super) struct Gradients {
    format: GradientFormat,
    kept: BTreeMap<usize, GradientState>,
    /// Sum in progress, and its values before it.
    sum: Option<(CallId, GradientSum, Vec<f32>)>,
}

/// What follows a sum of a gradient.
pub(super) enum NextSum {
    /// Another sum.
    Sum(Operation),
    /// The end of the call.
    Done(Result<Output, CallError>),
}

impl Gradients {
    pub(super) fn new(format: GradientFormat) -> Self {
        Self { format, kept: BTreeMap::new(), sum: None }
    }

    /// First sum of a step's array.
    pub(super) fn begin(&mut self, id: CallId, step: &Operation) -> Option<Operation> {
        let Operation::Sum { lanes, .. } = step else { return None };
        let gradient: Vec<f32> = lanes.iter().map(|lane| lane as f32).collect();
        let state = self.kept.entry(gradient.len()).or_default();
        let kept = state.kept().iter().copied().chain(std::iter::repeat(0.0));
        let before = gradient.iter().zip(kept).map(|(value, kept)| value + kept).collect();
        let sum = GradientSum::new(self.format, state, gradient).ok()?;
        let first = sum.operation();
        self.sum = Some((id, sum, before));
        first
    }

    /// What follows this outcome.
    pub(super) fn next(&mut self, id: CallId, outcome: Result<Output, CallError>, effects: &mut Effects) -> NextSum {
        let (Some((_, sum, _)), Ok(Output::Sums(sums))) = (self.sum.as_mut().filter(|(of, ..)| *of == id), &outcome)
        else {
            return NextSum::Done(outcome);
        };
        if sum.take(sums).is_err() {
            return NextSum::Done(Err(CallError::Closed));
        }
        if let Some(next) = sum.operation() {
            return NextSum::Sum(next);
        }
        let Some((_, sum, before)) = self.sum.take() else { return NextSum::Done(outcome) };
        let state = self.kept.entry(before.len()).or_default();
        let result = sum.finish(state);
        let left = before.iter().zip(state.kept()).map(|(value, kept)| f64::from(*value) - f64::from(*kept));
        effects.reports.push(NodeReport::Sent(id, left.collect()));
        let bits = result.iter().map(|value| value.to_bits() as i32).collect();
        NextSum::Done(Ok(Output::Sums(Lanes::Narrow(bits))))
    }
}
