//! Registered buffers: values in memory that all ranks have mapped, which a task reads and writes in place.
//!
//! ```text
//!             share of rank 0        share of rank 1
//! row of 0  [ part | part | …    ][ part | part | …    ]
//! row of 1  [ part | part | …    ][ part | part | …    ]      one rank claims and processes a part of all rows
//! ```
//!
//! A rank claims the parts of its own share first, and then the remaining parts of others: a rank whose processor is
//! busy delays the others by at most one part.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use super::error::GroupError;
use super::shared_memory::{SharedRows, SharedWords};
use super::task::{GroupTask, PlainNumber, ReduceOp};
use super::{Group, Steps};

/// Bytes of a part in each row: six of them fit a core's private cache.
const PART_BYTES: usize = 64 << 10;
/// Alignment of shares: cache lines that a processor fetches together.
const LINE_BYTES: usize = 128;

/// Row of registered values of one rank, zero at first. [`Group::buffer`] creates buffers.
///
/// When the group fails while the buffer is processed, its values are undefined: then they become zero. A panic during
/// the processing leaves an empty buffer.
#[derive(Debug)]
pub struct SharedBuffer<T: PlainNumber> {
    rows: SharedRows,
    len: usize,
    rank: usize,
    /// Steps of the group to which the buffer belongs.
    group: Steps<SharedWords>,
    pub(super) number: u32,
    storage: Storage<T>,
}

/// Storage of the values.
#[derive(Debug)]
enum Storage<T> {
    /// The shared row, which only this rank accesses.
    Shared,
    /// Unavailable: other ranks may still write the row.
    Unavailable,
    /// Private values, because the group has failed.
    Private(Vec<T>),
}

impl<T: PlainNumber> SharedBuffer<T> {
    pub(super) fn new(rows: SharedRows, len: usize, rank: usize, group: Steps<SharedWords>, number: u32) -> Self {
        Self { rows, len, rank, group, number, storage: Storage::Shared }
    }

    /// Returns whether the buffer belongs to this group.
    pub(super) fn belongs_to(&self, group: &Steps<SharedWords>) -> bool {
        self.group.is_same(group)
    }
}

impl<T: PlainNumber> Deref for SharedBuffer<T> {
    type Target = [T];

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn deref(&self) -> &[T] {
        match &self.storage {
            // SAFETY: `at` checks bounds and alignment, and any bits are values. Only this rank accesses the row,
            // except while `Group::process_buffer` runs, which borrows the buffer exclusively and restores shared
            // storage only after all ranks have finished. Other ranks are processes of this user that run the same
            // code.
            Storage::Shared => unsafe { std::slice::from_raw_parts(self.rows.at(self.rank, 0, self.len), self.len) },
            Storage::Unavailable => &[],
            Storage::Private(values) => values,
        }
    }
}

impl<T: PlainNumber> DerefMut for SharedBuffer<T> {
    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.storage {
            // SAFETY: as above; and the buffer is borrowed mutably.
            Storage::Shared => unsafe {
                std::slice::from_raw_parts_mut(self.rows.at(self.rank, 0, self.len), self.len)
            },
            Storage::Unavailable => &mut [],
            Storage::Private(values) => values,
        }
    }
}

/// The same part of all ranks' rows, exclusively for its holder.
#[derive(Debug)]
pub struct BufferPart<'a, T: PlainNumber> {
    rows: &'a SharedRows,
    ranks: usize,
    range: Range<usize>,
    _values: PhantomData<&'a mut [T]>,
}

impl<T: PlainNumber> BufferPart<'_, T> {
    /// Number of rows.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Row of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    pub fn row(&mut self, rank: usize) -> &mut [T] {
        // SAFETY: `at` checks bounds and alignment, and any bits are values. Only the rank that claimed the part
        // creates a `BufferPart` of it, once, after all ranks have begun the task and before any ends it; the borrow of
        // `self` excludes another slice of it.
        unsafe { std::slice::from_raw_parts_mut(self.at(rank), self.range.len()) }
    }

    /// Rows of two ranks.
    ///
    /// # Panics
    /// When there is no such rank, or both are the same.
    #[allow(unsafe_code, reason = "rows of shared memory become values")]
    pub fn two_rows(&mut self, one: usize, other: usize) -> (&mut [T], &mut [T]) {
        assert_ne!(one, other, "a row twice");
        let (one, other, len) = (self.at(one), self.at(other), self.range.len());
        // SAFETY: as above; rows of two ranks do not overlap.
        unsafe { (std::slice::from_raw_parts_mut(one, len), std::slice::from_raw_parts_mut(other, len)) }
    }

    fn at(&self, rank: usize) -> *mut T {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        self.rows.at(rank, self.range.start * size_of::<T>(), self.range.len())
    }
}

impl Group {
    /// Creates a buffer of `len` values. All ranks create the same buffers in the same order.
    ///
    /// # Errors
    /// When the requests of ranks differ, a rank is lost, or a rank cannot get the memory.
    pub fn buffer<T: PlainNumber>(&mut self, len: usize) -> Result<SharedBuffer<T>, GroupError> {
        self.begin(GroupTask::CreateBuffer { kind: T::TYPE, values: len as u64 })?;
        let bytes = len.saturating_mul(size_of::<T>());
        let rows = self.create_shared_rows(bytes)?;
        self.buffers = self.buffers.wrapping_add(1);
        self.end();
        Ok(SharedBuffer::new(rows, len, self.rank, self.steps.clone(), self.buffers))
    }

    /// Processes each part of a buffer once, on any free rank, with the rows of all ranks. When the call returns, all
    /// parts of all rows are done.
    ///
    /// # Errors
    /// When the requests of ranks differ, or a rank is lost: then the values become zero.
    pub fn process_buffer<T: PlainNumber>(
        &mut self,
        buffer: &mut SharedBuffer<T>,
        op: ReduceOp,
        mut work: impl FnMut(BufferPart<'_, T>),
    ) -> Result<(), GroupError> {
        if !buffer.belongs_to(&self.steps) {
            return Err(GroupError::Foreign);
        }
        if self.steps.failure().is_some() {
            // No rank begins another task: the values stay as they are.
            return Err(self.loss_error());
        }
        let (len, number) = (buffer.len, buffer.number);
        buffer.storage = Storage::Unavailable;
        let done = self.begin(GroupTask::Buffer { op, kind: T::TYPE, values: len as u64, number }).and_then(|()| {
            let turn = self.shares;
            self.shares = turn.wrapping_add(1);
            self.steps.reset_claims(turn);
            for owner in (0..self.ranks).map(|k| (self.rank + k) % self.ranks) {
                let share = rank_share::<T>(owner, self.ranks, len);
                while let Some(range) = self.claim::<T>(owner, turn, &share) {
                    work(BufferPart { rows: &buffer.rows, ranks: self.ranks, range, _values: PhantomData });
                }
            }
            self.advance();
            self.wait_all(self.step)?;
            self.end();
            Ok(())
        });
        buffer.storage = match &done {
            // No rank has accessed the values.
            Ok(()) | Err(GroupError::Differs { .. }) => Storage::Shared,
            Err(_) => Storage::Private(vec![T::default(); len]),
        };
        done
    }

    /// Claims the next part of a rank's share for this rank.
    fn claim<T>(&self, owner: usize, turn: u32, share: &Range<usize>) -> Option<Range<usize>> {
        let values = PART_BYTES / size_of::<T>();
        let parts = share.len().div_ceil(values);
        // Check first: most shares are done by their owners, whose cache keeps the word.
        if self.steps.is_claimed(owner, turn, u32::try_from(parts).expect("no memory has so many parts")) {
            return None;
        }
        let part = self.steps.claim(owner, turn) as usize;
        let from = share.start + part * values;
        (part < parts).then(|| from..share.end.min(from + values))
    }
}

/// Range of the share of a rank, of `len` values.
pub(super) fn rank_share<T>(rank: usize, ranks: usize, len: usize) -> Range<usize> {
    let each = len.div_ceil(ranks).next_multiple_of(LINE_BYTES / size_of::<T>());
    len.min(rank * each)..len.min((rank + 1) * each)
}

impl Steps<SharedWords> {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.memory(), other.memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_values_once() {
        for ranks in 1..9 {
            for len in (0..300).chain([1 << 20, (1 << 20) + 1]) {
                let shares: Vec<_> = (0..ranks).map(|rank| rank_share::<f64>(rank, ranks, len)).collect();
                assert_eq!(shares[0].start, 0);
                assert_eq!(shares[ranks - 1].end, len);
                assert!(shares.windows(2).all(|two| two[0].end == two[1].start), "{shares:?}");
                assert!(shares.iter().all(|share| share.start.is_multiple_of(16) || share.start == len));
            }
        }
    }
}
