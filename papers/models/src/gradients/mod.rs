//! Training of two networks on MNIST with data-parallel workers, whose gradients are summed in 32 bits or by the
//! product's sums of small values. The sums are exact integers, added here instead of in an element.
//!
//! Everything but the sum is the same in a pair of runs: the first weights, the order of the samples, and the steps.

mod cnn;
pub mod data;
mod mlp;

use pathcall_endpoint::map::gradient::{GradientError, GradientFormat, GradientState, GradientSum};
use pathcall_endpoint::map::{Lanes, Operation};
use pathcall_wire::SplitMix64;

pub use cnn::Cnn;
use data::Images;
pub use mlp::Mlp;

/// Network that is trained.
pub trait Network {
    /// Network with random weights.
    fn new(random: &mut SplitMix64) -> Self;

    /// Weights, in the order of the gradient.
    fn weights(&mut self) -> &mut Vec<f32>;

    /// Adds the gradient of one image's loss to `gradient`, and returns the class that the network gives it.
    fn learn(&self, image: &[f32], label: u8, gradient: Option<&mut [f32]>) -> u8;
}

/// Settings of a training run.
#[derive(Debug, Clone, Copy)]
pub struct Training {
    /// Format of the sums; `None`: 32-bit floating-point values.
    pub format: Option<GradientFormat>,
    /// Number of workers.
    pub workers: usize,
    /// Images of a worker in a step.
    pub batch: usize,
    /// Passes over the images.
    pub epochs: usize,
    /// Step size.
    pub rate: f32,
}

/// Result of a training run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trained {
    /// Share of the test images that are recognised, in percent.
    pub accuracy: f64,
    /// Bytes of lanes that a worker sent, for each byte of its gradients in 32 bits.
    pub bytes: f64,
}

impl Training {
    /// Trains a network.
    ///
    /// # Errors
    /// A gradient is not finite.
    pub fn run<N: Network>(&self, seed: u64, train: &Images, test: &Images) -> Result<Trained, GradientError> {
        let mut random = SplitMix64::new(seed);
        let mut network = N::new(&mut random);
        let mut states = vec![GradientState::default(); self.workers];
        let mut velocity = vec![0.0f32; network.weights().len()];
        let mut order: Vec<u32> = (0..train.len() as u32).collect();
        let (mut lanes, mut values) = (0, 0);
        for _ in 0..self.epochs {
            (1..order.len()).rev().for_each(|at| order.swap(at, random.index(at + 1)));
            for step in order.chunks_exact(self.workers * self.batch) {
                let gradient = |images: &[u32]| {
                    let mut gradient = vec![0.0; velocity.len()];
                    for image in images {
                        let (pixels, label) = train.get(*image as usize);
                        network.learn(pixels, label, Some(&mut gradient));
                    }
                    let share = 1.0 / (self.workers * self.batch) as f32;
                    gradient.iter_mut().for_each(|value| *value *= share);
                    gradient
                };
                let gradients: Vec<Vec<f32>> = step.chunks(self.batch).map(gradient).collect();
                let (sum, sent) = match self.format {
                    Some(format) => sum_small(format, &mut states, gradients)?,
                    None => (sum_floats(&gradients), velocity.len()),
                };
                (lanes, values) = (lanes + sent, values + velocity.len());
                for ((weight, velocity), sum) in network.weights().iter_mut().zip(&mut velocity).zip(&sum) {
                    *velocity = 0.9 * *velocity + sum;
                    *weight -= self.rate * *velocity;
                }
            }
        }
        let right = (0..test.len()).filter(|image| {
            let (pixels, label) = test.get(*image);
            network.learn(pixels, label, None) == label
        });
        let accuracy = right.count() as f64 * 100.0 / test.len() as f64;
        Ok(Trained { accuracy, bytes: lanes as f64 / values as f64 })
    }
}

fn sum_floats(gradients: &[Vec<f32>]) -> Vec<f32> {
    let mut sum = vec![0.0; gradients[0].len()];
    for gradient in gradients {
        sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// Sums gradients of workers in small values; also returns the lanes that each of them sent.
fn sum_small(
    format: GradientFormat,
    states: &mut [GradientState],
    gradients: Vec<Vec<f32>>,
) -> Result<(Vec<f32>, usize), GradientError> {
    let begin = |(state, gradient): (&GradientState, Vec<f32>)| GradientSum::new(format, state, gradient);
    let mut workers = states.iter().zip(gradients).map(begin).collect::<Result<Vec<_>, _>>()?;
    let mut sent = 0;
    loop {
        let parts = workers.iter().filter_map(|worker| match worker.operation() {
            Some(Operation::Sum { lanes, .. }) => Some(lanes),
            _ => None,
        });
        let mut sums: Vec<i64> = Vec::new();
        for part in parts {
            sums.resize(part.len(), 0);
            sums.iter_mut().zip(part.iter()).for_each(|(sum, lane)| *sum += lane);
        }
        if sums.is_empty() {
            break;
        }
        sent += sums.len();
        let sums = Lanes::from(sums);
        workers.iter_mut().try_for_each(|worker| worker.take(&sums))?;
    }
    let results = workers.into_iter().zip(states).map(|(worker, state)| worker.finish(state));
    Ok((results.last().unwrap_or_default(), sent))
}

/// Random weights of a layer with so many inputs (He initialisation, from a triangular distribution).
fn weights(random: &mut SplitMix64, count: usize, inputs: usize) -> impl Iterator<Item = f32> {
    let size = (6.0 / inputs as f32).sqrt();
    let mut unit = move || (random.bits() >> 40) as f32 / (1u64 << 24) as f32;
    let drawn: Vec<f32> = (0..count).map(|_| (unit() + unit() - 1.0) * size).collect();
    drawn.into_iter()
}

/// Class with the largest score; turns the scores into the gradient of the cross entropy.
fn classify(scores: &mut [f32], label: u8) -> u8 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let class = scores.iter().position(|score| *score == largest).unwrap_or_default();
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
    scores[usize::from(label)] -= 1.0;
    class as u8
}
