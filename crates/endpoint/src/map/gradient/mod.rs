//! Sum of gradients in small values: quantised with scales that blocks of values share, with error feedback, and with a
//! choice of the largest values (top-k). A state machine between a call and its [`Operation::Sum`]s.
//!
//! ```text
//! gradient + kept ─► weights ─► sum │ chosen groups        (only with `topk`)
//!                    blocks  ─► sum │ all used one scale?  ─► sums × unit: the result; the rest is kept
//!                                   └ else: counts ─► sum, the largest scale; blocks ─► sum
//! ```
//!
//! Each array is summed as any other one: by the element, or by the server's software path. A block is
//! [`BLOCK_WORDS`] lanes: a header, and packed values (`pack`). The header shows whether all workers used the same scale
//! (`scale`); only then do the values count. So no agreement is needed before: a worker that joins, or that misses the
//! end of a step, has another scale or none, and all workers see that in the same sums.
//!
//! The kept rest changes only when the whole sum is complete ([`GradientSum::finish`]): the caller of a failed sum
//! repeats it.

mod pack;
mod scale;
mod select;

use pathcall_wire::policy::{LaneFormat, Modify};
use pathcall_wire::{ForwardTarget, Mutant, OpType, mutant};

use super::{Lanes, Operation};
use scale::{COUNT_WORDS, HEADER_WORDS, NO_CODE};
use select::GROUP;

/// Lanes of a block, its header included: those of a frame.
pub const BLOCK_WORDS: usize = 256;
/// Values that are quantised at a time.
const BATCH: usize = 4 * (BLOCK_WORDS - HEADER_WORDS);

/// Format of an application's gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientFormat {
    /// Size of a value; not [`LaneFormat::Int32`].
    pub lanes: LaneFormat,
    /// Number of workers of a sum.
    pub workers: u32,
    /// Share of the values that travel in a step, in millionths; 0: all.
    pub topk: u32,
}

impl GradientFormat {
    /// Values of a block.
    fn block(self) -> usize {
        (BLOCK_WORDS - HEADER_WORDS) * pack::per_lane(self.lanes)
    }
}

/// What a worker keeps between the sums of one gradient: the error feedback, and the scales.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GradientState {
    /// Values that have not travelled yet.
    kept: Vec<f32>,
    /// Scale of each block; 0: none.
    codes: Vec<u8>,
}

impl GradientState {
    /// Values that have not travelled yet; empty before the first sum.
    #[must_use]
    pub fn kept(&self) -> &[f32] {
        &self.kept
    }
}

/// Error of a sum of gradients.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum GradientError {
    /// A value is no finite number.
    #[error("index {index} holds {value}: gradients must be finite")]
    Value {
        /// Index of the value.
        index: usize,
        /// The value, with what was kept of it.
        value: f32,
    },
    /// The workers used different scales after they had counted them; or a sum has another length.
    #[error("a worker does not keep to the scales that the sums gave: all workers must use the same release")]
    Scale,
}

/// Array that is being summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Weights,
    Blocks,
    Counts,
    /// Blocks whose scales differed.
    BlocksAgain,
    Done,
}

/// Sum of one gradient.
#[derive(Debug)]
pub struct GradientSum {
    format: GradientFormat,
    phase: Phase,
    /// The gradient and what was kept. In the values that travelled: the rest.
    values: Vec<f32>,
    /// Groups that travel, ascending; `None`: all values do.
    groups: Option<Vec<u32>>,
    /// Values that travel, if not all do.
    chosen: Vec<f32>,
    /// Scale of each block that travels.
    codes: Vec<u8>,
    /// Blocks without a result.
    open: Vec<u32>,
    /// Results of the values that travel.
    sums: Vec<f32>,
}

impl GradientSum {
    /// Sum of this gradient.
    ///
    /// # Errors
    /// A value is no finite number.
    pub fn new(format: GradientFormat, state: &GradientState, mut gradient: Vec<f32>) -> Result<Self, GradientError> {
        let keeps = state.kept.len() == gradient.len();
        if keeps {
            gradient.iter_mut().zip(&state.kept).for_each(|(value, kept)| *value += kept);
        }
        if let Some(index) = gradient.iter().position(|value| !value.is_finite()) {
            return Err(GradientError::Value { index, value: gradient[index] });
        }
        let mut sum = Self {
            format,
            phase: Phase::Weights,
            values: gradient,
            groups: None,
            chosen: Vec::new(),
            codes: if keeps { state.codes.clone() } else { Vec::new() },
            open: Vec::new(),
            sums: Vec::new(),
        };
        if sum.values.is_empty() {
            sum.phase = Phase::Done;
        } else if format.topk == 0 || select::groups(sum.values.len()) == 1 {
            sum.begin_blocks();
        }
        Ok(sum)
    }

    /// Array to sum next; `None` if the sum is complete.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        let lanes = match self.phase {
            Phase::Weights => select::weights(self.format.lanes, self.format.workers, &self.values),
            Phase::Blocks | Phase::BlocksAgain => self.blocks(),
            Phase::Counts => self.open.iter().flat_map(|block| scale::count(self.needed(*block))).collect(),
            Phase::Done => return None,
        };
        // The operand has no effect without an operator, but parts of a round must have the same one: parts of
        // different phases never add up.
        let modify = Modify { op: OpType::Nop, para: self.phase as i32 + 1 };
        Some(Operation::Sum {
            lanes: Lanes::Narrow(lanes),
            modify,
            threshold: self.format.workers,
            to: ForwardTarget::All,
        })
    }

    /// Takes the sums of [`operation`](Self::operation).
    ///
    /// # Errors
    /// A worker is wrong.
    pub fn take(&mut self, sums: &Lanes) -> Result<(), GradientError> {
        let narrow: Option<Vec<i32>> = match sums {
            Lanes::Narrow(lanes) => Some(lanes.clone()),
            Lanes::Wide(lanes) => lanes.iter().map(|lane| i32::try_from(*lane).ok()).collect(),
        };
        let sums = narrow.ok_or(GradientError::Scale)?;
        match self.phase {
            Phase::Weights => self.choose(&sums)?,
            Phase::Blocks | Phase::BlocksAgain => self.take_blocks(&sums)?,
            Phase::Counts => self.take_counts(&sums)?,
            Phase::Done => {}
        }
        Ok(())
    }

    /// Ends a complete sum: returns one sum per value, and stores in `state` what is kept for the next one.
    ///
    /// # Panics
    /// If the sum is not complete.
    #[must_use]
    pub fn finish(self, state: &mut GradientState) -> Vec<f32> {
        assert_eq!(self.phase, Phase::Done, "phase of a sum that ends");
        let Self { mut values, groups, chosen, codes, sums, .. } = self;
        let sums = match groups {
            None => sums,
            Some(groups) => {
                let mut all = vec![0.0; values.len()];
                scatter(&groups, &sums, &mut all);
                scatter(&groups, &chosen, &mut values);
                all
            }
        };
        if mutant::on(Mutant::FeedbackDropped) {
            values.fill(0.0);
        }
        *state = GradientState { kept: values, codes };
        sums
    }

    /// Values that travel.
    fn travelling(&self) -> &[f32] {
        if self.groups.is_some() { &self.chosen } else { &self.values }
    }

    /// Values of a block.
    fn block(&self, block: u32) -> &[f32] {
        let (values, size) = (self.travelling(), self.format.block());
        let at = block as usize * size;
        &values[at..values.len().min(at + size)]
    }

    /// Scale that a block's values need.
    fn needed(&self, block: u32) -> u8 {
        let largest = self.block(block).iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        scale::needed(largest, self.limit())
    }

    fn limit(&self) -> i32 {
        pack::limit(self.format.lanes, self.format.workers)
    }

    fn choose(&mut self, sums: &[i32]) -> Result<(), GradientError> {
        let groups = select::groups(self.values.len());
        if sums.len() != groups.div_ceil(pack::per_lane(self.format.lanes)) {
            return Err(GradientError::Scale);
        }
        let groups = select::heaviest(self.format.lanes, sums, groups, self.format.topk);
        for group in &groups {
            let at = *group as usize * GROUP;
            self.chosen.extend_from_slice(&self.values[at..self.values.len().min(at + GROUP)]);
        }
        self.groups = Some(groups);
        self.begin_blocks();
        Ok(())
    }

    fn begin_blocks(&mut self) {
        let values = self.travelling().len();
        let blocks = values.div_ceil(self.format.block());
        self.codes.resize(blocks, NO_CODE);
        self.open = (0..blocks as u32).collect();
        self.sums = vec![0.0; values];
        self.phase = Phase::Blocks;
    }

    /// Headers and packed values of the open blocks.
    fn blocks(&self) -> Vec<i32> {
        let mut lanes = Vec::with_capacity(self.open.len() * BLOCK_WORDS);
        let mut batch = [0; BATCH];
        for block in &self.open {
            let (needed, values) = (self.needed(*block), self.block(*block));
            let code = self.used(*block, needed);
            lanes.extend(scale::header(code, needed));
            let quantised = &mut batch[..values.len()];
            quantise(values, code, self.limit(), quantised);
            pack::pack(self.format.lanes, quantised, &mut lanes);
        }
        lanes
    }

    /// Scale that this worker uses for a block.
    fn used(&self, block: u32, needed: u8) -> u8 {
        let code = self.codes[block as usize];
        if self.phase == Phase::BlocksAgain || scale::fits(code, needed) { code } else { NO_CODE }
    }

    fn take_blocks(&mut self, sums: &[i32]) -> Result<(), GradientError> {
        let (limit, workers) = (self.limit(), self.format.workers);
        let (mut rest, mut batch, mut own) = (sums, [0; BATCH], [0; BATCH]);
        let mut again = Vec::new();
        for block in std::mem::take(&mut self.open) {
            let needed = self.needed(block);
            let range = block as usize * self.format.block();
            let range = range..range + self.block(block).len();
            let lanes = range.len().div_ceil(pack::per_lane(self.format.lanes));
            let (header, values) =
                rest.split_at_checked(HEADER_WORDS).filter(|(_, v)| v.len() >= lanes).ok_or(GradientError::Scale)?;
            rest = &values[lanes..];
            let header: Vec<i64> = header.iter().map(|word| i64::from(*word)).collect();
            let Some(code) = scale::agreed(&header, workers) else {
                again.push(block);
                continue;
            };
            let (summed, own) = (&mut batch[..range.len()], &mut own[..range.len()]);
            pack::unpack(self.format.lanes, &values[..lanes], summed);
            quantise(self.block(block), self.used(block, needed), limit, own);
            let unit = scale::unit(code);
            for (sum, quantised) in self.sums[range.clone()].iter_mut().zip(&*summed) {
                *sum = (f64::from(*quantised) * unit) as f32;
            }
            let values = if self.groups.is_some() { &mut self.chosen } else { &mut self.values };
            for (value, quantised) in values[range].iter_mut().zip(&*own) {
                // Exact: the difference has no more digits than the value.
                *value = (f64::from(*value) - f64::from(*quantised) * unit) as f32;
            }
            self.codes[block as usize] = scale::moved(code, &header, workers);
        }
        if !rest.is_empty() || !again.is_empty() && self.phase == Phase::BlocksAgain {
            return Err(GradientError::Scale);
        }
        self.phase = if again.is_empty() { Phase::Done } else { Phase::Counts };
        self.open = again;
        Ok(())
    }

    fn take_counts(&mut self, sums: &[i32]) -> Result<(), GradientError> {
        let (counts, rest) = sums.as_chunks::<COUNT_WORDS>();
        if !rest.is_empty() || counts.len() != self.open.len() {
            return Err(GradientError::Scale);
        }
        for (block, counts) in self.open.iter().zip(counts) {
            let counts = counts.map(i64::from);
            self.codes[*block as usize] = scale::largest(&counts).ok_or(GradientError::Scale)?;
        }
        self.phase = Phase::BlocksAgain;
        Ok(())
    }
}

/// Writes the values in units of the code, at most `limit` of them: halves away from zero, zero without a code.
fn quantise(values: &[f32], code: u8, limit: i32, out: &mut [i32]) {
    if code == NO_CODE {
        return out.fill(0);
    }
    let (per, limit) = (scale::unit(code).recip(), f64::from(limit));
    for (quantised, value) in out.iter_mut().zip(values) {
        let scaled = (f64::from(*value) * per).clamp(-limit, limit);
        *quantised = (scaled + 0.5f64.copysign(scaled)) as i32;
    }
}

/// Writes the values of groups to their places in `all`.
fn scatter(groups: &[u32], values: &[f32], all: &mut [f32]) {
    let mut rest = values;
    for group in groups {
        let at = *group as usize * GROUP;
        let (these, later) = rest.split_at(rest.len().min(GROUP.min(all.len() - at)));
        all[at..at + these.len()].copy_from_slice(these);
        rest = later;
    }
}

#[cfg(test)]
mod tests;
