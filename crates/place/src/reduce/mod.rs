//! All-reduce among the processes of one host, over shared memory.
//!
//! ```text
//! Group::join(name, rank, ranks) ─┬─ buffer::<f32>(len) ── all_reduce(&mut buffer, ReduceOp::Sum)   in place
//!                                 └─ all_reduce_slice(&mut values, ReduceOp::Sum)   through the group's memory
//! ```
//!
//! A *registered* buffer lies in memory that every rank has mapped (see [`pathcall_shm::group`]). One rank reduces a
//! value: it reads the value of each rank in the order of ranks, and writes the result to all of them, in one pass
//! over each array and without copies. *Private* values are copied in and out, in pieces that stay in the cores' own
//! caches, while others are reduced.
//!
//! As one rank reduces a value in the order of ranks, results are equal bit by bit at all ranks, in every run, and
//! with any number of vector units (`fold`). They equal those of a plain loop over the ranks.
//!
//! Waiting reads the clock, as in drivers.

mod fold;

use pathcall_shm::group::{BufferPart, SliceShare};

pub use fold::ReducibleNumber;
pub use pathcall_shm::group::{
    Config, Group, GroupError, NumberType, PlainNumber, RankLossReason, ReduceOp, SharedBuffer,
};

/// Reductions of a group of ranks.
pub trait AllReduce {
    /// Reduces a registered buffer: each value becomes the reduction of all ranks' values at its index.
    ///
    /// # Errors
    /// Ranks request different reductions: no value changes. A rank is lost: the values become zero.
    fn all_reduce<T: ReducibleNumber>(&mut self, buffer: &mut SharedBuffer<T>, op: ReduceOp) -> Result<(), GroupError>;

    /// Reduces private values.
    ///
    /// # Errors
    /// Ranks request different reductions: no value changes. A rank is lost: some values are results, others are not.
    fn all_reduce_slice<T: ReducibleNumber>(&mut self, values: &mut [T], op: ReduceOp) -> Result<(), GroupError>;
}

impl AllReduce for Group {
    fn all_reduce<T: ReducibleNumber>(&mut self, buffer: &mut SharedBuffer<T>, op: ReduceOp) -> Result<(), GroupError> {
        self.process_buffer(buffer, op, |part| registered(part, op))
    }

    fn all_reduce_slice<T: ReducibleNumber>(&mut self, values: &mut [T], op: ReduceOp) -> Result<(), GroupError> {
        self.process_slice(values, op, |share| private(share, op))
    }
}

/// Block size for more than two ranks; a block stays in the first-level cache.
const BLOCK_BYTES: usize = 4096;

fn registered<T: ReducibleNumber>(mut part: BufferPart<'_, T>, op: ReduceOp) {
    let last = part.ranks() - 1;
    if last == 0 {
        return;
    }
    if last == 1 {
        let (first, second) = part.two_rows(0, 1);
        return fold::both(op, first, second);
    }
    for block in blocks::<T>(part.row(0).len()) {
        for rank in 1..last {
            let (all, next) = part.two_rows(0, rank);
            fold::into(op, &mut all[block.clone()], &next[block.clone()]);
        }
        let (all, next) = part.two_rows(0, last);
        fold::both(op, &mut all[block.clone()], &mut next[block.clone()]);
        for rank in 1..last {
            let (all, row) = part.two_rows(0, rank);
            row[block.clone()].copy_from_slice(&all[block.clone()]);
        }
    }
}

fn private<T: ReducibleNumber>(share: SliceShare<'_, T>, op: ReduceOp) {
    let SliceShare { mine, out, others } = share;
    if others.ranks() == 1 {
        return;
    }
    // Even where each rank reduces all values, the order of operands and the instructions are the same, so that NaNs
    // are equal, too.
    let mut scratch = [T::default(); BLOCK_BYTES / size_of::<i32>()];
    for block in blocks::<T>(mine.len()) {
        let row =
            |rank| if rank == others.own_rank() { &mine[block.clone()] } else { &others.row(rank)[block.clone()] };
        let all = if out.is_empty() { &mut scratch[..block.len()] } else { &mut out[block.clone()] };
        fold::to(op, row(0), row(1), all);
        (2..others.ranks()).for_each(|rank| fold::into(op, all, row(rank)));
        mine[block].copy_from_slice(all);
    }
}

fn blocks<T>(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let block = BLOCK_BYTES / size_of::<T>();
    (0..len).step_by(block).map(move |from| from..len.min(from + block))
}
