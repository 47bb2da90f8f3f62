//! Convolutional network: 3 × 3 filters, the largest of each 2 × 2 values, and one layer of classes.

use pathcall_wire::SplitMix64;

use super::data::{CLASSES, PIXELS};
use super::{Network, classify, weights};

const SIDE: usize = 28;
const KERNEL: usize = 3;
const FILTERS: usize = 8;
const CONVOLVED: usize = SIDE - KERNEL + 1;
const POOLED: usize = CONVOLVED / 2;
const MAP: usize = POOLED * POOLED;
const FEATURES: usize = FILTERS * MAP;
const KERNELS: usize = FILTERS * KERNEL * KERNEL;
/// Weights of the classes, then the biases of filters and classes.
const DENSE: usize = KERNELS + CLASSES * FEATURES;
const BIASES: usize = DENSE + FILTERS;

/// Convolutional network with eight filters.
#[derive(Debug, Clone)]
pub struct Cnn(Vec<f32>);

impl Cnn {
    /// Features of an image, and the position in the convolved image that each comes from.
    fn features(&self, image: &[f32], features: &mut [f32; FEATURES], from: &mut [u16; FEATURES]) {
        let mut convolved = [0.0f32; CONVOLVED * CONVOLVED];
        for filter in 0..FILTERS {
            convolved.fill(self.0[DENSE + filter]);
            let kernel = &self.0[filter * KERNEL * KERNEL..(filter + 1) * KERNEL * KERNEL];
            for (at, weight) in kernel.iter().enumerate() {
                let (down, right) = (at / KERNEL, at % KERNEL);
                for (y, row) in convolved.chunks_exact_mut(CONVOLVED).enumerate() {
                    let start = (y + down) * SIDE + right;
                    row.iter_mut().zip(&image[start..start + CONVOLVED]).for_each(|(out, x)| *out += weight * x);
                }
            }
            for cell in 0..MAP {
                let corner = cell / POOLED * 2 * CONVOLVED + cell % POOLED * 2;
                let four = [corner, corner + 1, corner + CONVOLVED, corner + CONVOLVED + 1];
                let best =
                    four.into_iter().fold(corner, |best, at| if convolved[at] > convolved[best] { at } else { best });
                features[filter * MAP + cell] = convolved[best].max(0.0);
                from[filter * MAP + cell] = best as u16;
            }
        }
    }
}

impl Network for Cnn {
    fn new(random: &mut SplitMix64) -> Self {
        let mut all: Vec<f32> = weights(random, KERNELS, KERNEL * KERNEL).collect();
        all.extend(weights(random, CLASSES * FEATURES, FEATURES));
        all.resize(BIASES + CLASSES, 0.0);
        Self(all)
    }

    fn weights(&mut self) -> &mut Vec<f32> {
        &mut self.0
    }

    fn learn(&self, image: &[f32], label: u8, gradient: Option<&mut [f32]>) -> u8 {
        debug_assert_eq!(image.len(), PIXELS);
        let (mut features, mut from) = ([0.0f32; FEATURES], [0u16; FEATURES]);
        self.features(image, &mut features, &mut from);
        let mut scores = [0.0f32; CLASSES];
        for (class, (score, weights)) in
            scores.iter_mut().zip(self.0[KERNELS..DENSE].chunks_exact(FEATURES)).enumerate()
        {
            let mut sums = [0.0f32; 8];
            for (weights, features) in weights.as_chunks::<8>().0.iter().zip(features.as_chunks::<8>().0) {
                sums.iter_mut().zip(weights.iter().zip(features)).for_each(|(sum, (w, f))| *sum += w * f);
            }
            *score = sums.iter().sum::<f32>() + self.0[BIASES + class];
        }
        let class = classify(&mut scores, label);
        let Some(gradient) = gradient else { return class };
        let mut back = [0.0f32; FEATURES];
        for (class, error) in scores.iter().enumerate() {
            let at = KERNELS + class * FEATURES;
            gradient[BIASES + class] += error;
            gradient[at..at + FEATURES].iter_mut().zip(&features).for_each(|(g, f)| *g += error * f);
            back.iter_mut().zip(&self.0[at..at + FEATURES]).for_each(|(b, w)| *b += error * w);
        }
        for (at, error) in back.iter().enumerate().filter(|(at, _)| features[*at] > 0.0) {
            let (filter, position) = (at / MAP, usize::from(from[at]));
            gradient[DENSE + filter] += error;
            let corner = position / CONVOLVED * SIDE + position % CONVOLVED;
            for down in 0..KERNEL {
                let kernel = filter * KERNEL * KERNEL + down * KERNEL;
                let row = corner + down * SIDE;
                let pixels = &image[row..row + KERNEL];
                gradient[kernel..kernel + KERNEL].iter_mut().zip(pixels).for_each(|(g, x)| *g += error * x);
            }
        }
        class
    }
}
