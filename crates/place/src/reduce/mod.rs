//! All-reduce among the processes of one host: each has an array, and all get the sums, over memory that they share.
//!
//! ```text
//! Group::join(name, rank, ranks) ─┬─ buffer::<f32>(len) ── all_reduce(&mut buffer, Op::Sum)       where the values are
//!                                 └─ all_reduce_slice(&mut values, Op::Sum)                       through the group's memory
//! ```
//!
//! A *registered* buffer lies in memory that every rank has mapped (see [`pathcall_shm::group`]). A value is reduced by
//! one rank, which reads it where each rank has it, in the order of ranks, and writes the result to all of them: one pass
//! over each array, no copy. *Private* values are copied in and out, in pieces that stay in the cores' own caches, while
//! others are reduced.
//!
//! Since one rank reduces a value, and in the order of ranks, results are the same bits at all ranks, in every run, with
//! any number of vector units (`fold`); and the same as those of a plain loop over ranks.
//!
//! It reads the clock while it waits, as drivers do.

mod fold;

use pathcall_shm::group::{Part, Share};

pub use fold::Number;
pub use pathcall_shm::group::{Buffer, Config, Group, GroupError, How, Op, Plain, Type};

/// What a group of ranks does with values.
pub trait AllReduce {
    /// Reduces a registered buffer: each of its values becomes that of all ranks' values in its place.
    ///
    /// # Errors
    /// When ranks ask for different things: nothing is done then. When a rank is lost: the values are zero then.
    fn all_reduce<T: Number>(&mut self, buffer: &mut Buffer<T>, op: Op) -> Result<(), GroupError>;

    /// Reduces private values.
    ///
    /// # Errors
    /// When ranks ask for different things: nothing is done then. When a rank is lost: some of the values are results
    /// then, and some are not.
    fn all_reduce_slice<T: Number>(&mut self, values: &mut [T], op: Op) -> Result<(), GroupError>;
}

impl AllReduce for Group {
    fn all_reduce<T: Number>(&mut self, buffer: &mut Buffer<T>, op: Op) -> Result<(), GroupError> {
        self.share(buffer, op, |part| registered(part, op))
    }

    fn all_reduce_slice<T: Number>(&mut self, values: &mut [T], op: Op) -> Result<(), GroupError> {
        self.pass(values, op, |share| private(share, op))
    }
}

/// Values that are worked on at a time where there are more than two ranks: they stay in the first-level cache.
const BLOCK_BYTES: usize = 4096;

fn registered<T: Number>(mut part: Part<'_, T>, op: Op) {
    let last = part.ranks() - 1;
    if last == 0 {
        return;
    }
    if last == 1 {
        let (first, second) = part.two(0, 1);
        return fold::both(op, first, second);
    }
    for block in blocks::<T>(part.row(0).len()) {
        for rank in 1..last {
            let (all, next) = part.two(0, rank);
            fold::into(op, &mut all[block.clone()], &next[block.clone()]);
        }
        let (all, next) = part.two(0, last);
        fold::both(op, &mut all[block.clone()], &mut next[block.clone()]);
        for rank in 1..last {
            let (all, row) = part.two(0, rank);
            row[block.clone()].copy_from_slice(&all[block.clone()]);
        }
    }
}

fn private<T: Number>(share: Share<'_, T>, op: Op) {
    let Share { mine, out, others } = share;
    if others.ranks() == 1 {
        return;
    }
    // Also where each rank reduces all it takes its operands in one order and by the same instructions, so that even
    // what is not a number comes out alike.
    let mut scratch = [T::default(); BLOCK_BYTES / size_of::<i32>()];
    for block in blocks::<T>(mine.len()) {
        let row = |rank| if rank == others.own() { &mine[block.clone()] } else { &others.row(rank)[block.clone()] };
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
