//! Network with one hidden layer.

use pathcall_wire::SplitMix64;

use super::data::{CLASSES, PIXELS};
use super::{Network, classify, weights};

const HIDDEN: usize = 32;
const FIRST: usize = HIDDEN * PIXELS;
/// Weights of the second layer, then the biases of both.
const SECOND: usize = FIRST + CLASSES * HIDDEN;
const BIASES: usize = SECOND + HIDDEN;

/// Network with one hidden layer of 32 units.
#[derive(Debug, Clone)]
pub struct Mlp(Vec<f32>);

impl Network for Mlp {
    fn new(random: &mut SplitMix64) -> Self {
        let mut all: Vec<f32> = weights(random, FIRST, PIXELS).collect();
        all.extend(weights(random, SECOND - FIRST, HIDDEN));
        all.resize(BIASES + CLASSES, 0.0);
        Self(all)
    }

    fn weights(&mut self) -> &mut Vec<f32> {
        &mut self.0
    }

    fn learn(&self, image: &[f32], label: u8, gradient: Option<&mut [f32]>) -> u8 {
        let mut hidden = [0.0f32; HIDDEN];
        for (unit, (value, weights)) in hidden.iter_mut().zip(self.0[..FIRST].chunks_exact(PIXELS)).enumerate() {
            *value = (dot(weights, image) + self.0[SECOND + unit]).max(0.0);
        }
        let mut scores = [0.0f32; CLASSES];
        for (class, (score, weights)) in scores.iter_mut().zip(self.0[FIRST..SECOND].chunks_exact(HIDDEN)).enumerate() {
            *score = dot(weights, &hidden) + self.0[BIASES + class];
        }
        let class = classify(&mut scores, label);
        let Some(gradient) = gradient else { return class };
        let mut back = [0.0f32; HIDDEN];
        for (class, error) in scores.iter().enumerate() {
            let at = FIRST + class * HIDDEN;
            gradient[BIASES + class] += error;
            gradient[at..at + HIDDEN].iter_mut().zip(&hidden).for_each(|(g, h)| *g += error * h);
            back.iter_mut().zip(&self.0[at..at + HIDDEN]).for_each(|(b, w)| *b += error * w);
        }
        for (unit, error) in back.iter().enumerate().filter(|(unit, _)| hidden[*unit] > 0.0) {
            gradient[SECOND + unit] += error;
            let at = unit * PIXELS;
            gradient[at..at + PIXELS].iter_mut().zip(image).for_each(|(g, x)| *g += error * x);
        }
        class
    }
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    // Eight sums, so that the compiler can use vectors.
    let (ones, rest) = one.as_chunks::<8>();
    let (others, more) = other.as_chunks::<8>();
    let mut sums = [0.0f32; 8];
    for (one, other) in ones.iter().zip(others) {
        sums.iter_mut().zip(one.iter().zip(other)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + rest.iter().zip(more).map(|(a, b)| a * b).sum::<f32>()
}
