//! Neural network with one hidden layer on the winequality data set.

/// Wines: measurements, then the score (`data/README.md`).
const WINES: &str = include_str!("../data/winequality-red.csv");

const INPUTS: usize = 11;
const HIDDEN: usize = 96;
const RATE: f64 = 0.1;

/// Standardised samples and targets.
pub(crate) struct Data {
    inputs: Vec<[f64; INPUTS]>,
    targets: Vec<f64>,
}

impl Data {
    /// Loads the included data set: 1,599 wines with 11 measurements and a score.
    pub(crate) fn load() -> Self {
        let number = |cell: &str| -> f64 { cell.parse().expect("the table holds numbers") };
        let wines: Vec<Vec<f64>> = WINES.lines().skip(1).map(|line| line.split(',').map(number).collect()).collect();
        let rows = wines.len();
        let mut inputs = vec![[0.0; INPUTS]; rows];
        for column in 0..INPUTS {
            let values = wines.iter().map(|wine| wine[column]);
            let mean = values.clone().sum::<f64>() / rows as f64;
            let deviation = (values.clone().map(|v| (v - mean) * (v - mean)).sum::<f64>() / rows as f64).sqrt();
            inputs.iter_mut().zip(values).for_each(|(row, v)| row[column] = (v - mean) / deviation);
        }
        // Scores are 3 to 8.
        let targets = wines.iter().map(|wine| (wine[INPUTS] - 5.5) / 2.5).collect();
        Self { inputs, targets }
    }

    pub(crate) fn rows(&self) -> usize {
        self.inputs.len()
    }

    /// Every `of`-th sample, from `index` on.
    pub(crate) fn shard(&self, index: usize, of: usize) -> Self {
        let pick = (index..self.rows()).step_by(of);
        Self {
            inputs: pick.clone().map(|i| self.inputs[i]).collect(),
            targets: pick.map(|i| self.targets[i]).collect(),
        }
    }
}

/// Weights: for each hidden unit of the inputs, bias and output; finally the output's bias.
pub(crate) struct Model(Vec<f64>);

impl Model {
    pub(crate) const SIZE: usize = HIDDEN * (INPUTS + 2) + 1;

    /// Deterministic initial weights.
    pub(crate) fn new() -> Self {
        let mut state = 7u64;
        let weights = (0..Self::SIZE).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * 0.4
        });
        Self(weights.collect())
    }

    fn forward(&self, input: &[f64; INPUTS], hidden: &mut [f64; HIDDEN]) -> f64 {
        let mut output = self.0[Self::SIZE - 1];
        for (unit, weights) in self.0.chunks_exact(INPUTS + 2).enumerate() {
            let sum: f64 = input.iter().zip(weights).map(|(x, w)| x * w).sum();
            hidden[unit] = (sum + weights[INPUTS]).tanh();
            output += hidden[unit] * weights[INPUTS + 1];
        }
        output
    }

    /// Gradient of a shard's part of the mean square error over `rows` samples.
    pub(crate) fn gradient(&self, shard: &Data, rows: usize) -> Vec<f64> {
        let mut gradient = vec![0.0; Self::SIZE];
        let mut hidden = [0.0; HIDDEN];
        for (input, target) in shard.inputs.iter().zip(&shard.targets) {
            let error = 2.0 * (self.forward(input, &mut hidden) - target) / rows as f64;
            gradient[Self::SIZE - 1] += error;
            let units = gradient.chunks_exact_mut(INPUTS + 2).zip(self.0.chunks_exact(INPUTS + 2));
            for ((gradient, weights), active) in units.zip(&hidden) {
                gradient[INPUTS + 1] += error * active;
                let back = error * weights[INPUTS + 1] * (1.0 - active * active);
                gradient[INPUTS] += back;
                gradient[..INPUTS].iter_mut().zip(input).for_each(|(g, x)| *g += back * x);
            }
        }
        gradient
    }

    pub(crate) fn step(&mut self, gradient: &[f64]) {
        self.0.iter_mut().zip(gradient).for_each(|(weight, g)| *weight -= RATE * g);
    }

    pub(crate) fn loss(&self, data: &Data) -> f64 {
        let mut hidden = [0.0; HIDDEN];
        let square = |(input, target): (&[f64; INPUTS], &f64)| {
            let error = self.forward(input, &mut hidden) - target;
            error * error
        };
        data.inputs.iter().zip(&data.targets).map(square).sum::<f64>() / data.rows() as f64
    }
}
