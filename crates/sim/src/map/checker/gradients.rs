//! Model of sums of gradients: when all workers have ended a step, each result is the sum of what left the workers.

use std::collections::BTreeMap;

use pathcall_endpoint::map::Lanes;

use super::MapViolation;
use crate::map::node::MapNodeId;

/// Steps that not all workers have ended.
#[derive(Default)]
pub(super) struct Gradients(BTreeMap<usize, GradientStep>);

#[derive(Default)]
struct GradientStep {
    /// Sum of what left the workers.
    sent: Vec<f64>,
    results: Vec<(MapNodeId, Vec<f32>)>,
}

impl Gradients {
    /// Records what the sum of a step takes from a worker.
    pub(super) fn sent(&mut self, step: usize, values: &[f64]) {
        let sent = &mut self.0.entry(step).or_default().sent;
        sent.resize(values.len().max(sent.len()), 0.0);
        sent.iter_mut().zip(values).for_each(|(sent, value)| *sent += value);
    }

    /// Records a worker's result, and compares all of them when the last one is there.
    pub(super) fn check(
        &mut self,
        workers: u32,
        node: MapNodeId,
        step: usize,
        got: &Lanes,
    ) -> Result<(), MapViolation> {
        let results = &mut self.0.entry(step).or_default().results;
        results.push((node, got.iter().map(|bits| f32::from_bits(bits as i32 as u32)).collect()));
        if results.len() < workers as usize {
            return Ok(());
        }
        let GradientStep { sent, results } = self.0.remove(&step).unwrap_or_default();
        for (node, result) in results {
            // Values of at most 16 bits and a common unit: no sum is rounded.
            let differs = |(sent, got): (&f64, &f32)| *sent != f64::from(*got);
            let wrong = sent.iter().zip(&result).position(differs);
            if let Some(value) = wrong.or((result.len() != sent.len()).then_some(0)) {
                let number = |value: Option<f64>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                let got = number(result.get(value).map(|value| f64::from(*value)));
                return Err(MapViolation::Gradient { node, step, value, sent: number(sent.get(value).copied()), got });
            }
        }
        Ok(())
    }
}
