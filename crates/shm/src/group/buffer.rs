//! Registered values: they lie in memory that all ranks have mapped, so that a task reads and writes them where they
//! are.
//!
//! ```text
//!             share of rank 0        share of rank 1
//! row of 0  [ part | part | …    ][ part | part | …    ]
//! row of 1  [ part | part | …    ][ part | part | …    ]      a part of all rows is claimed, and worked on, by one rank
//! ```
//!
//! A rank claims the parts of its own share first and then what others have left of theirs: one whose processor is
//! busy with something else holds the others up by a part only.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use super::area::{Rows, Words};
use super::error::GroupError;
use super::task::{Op, Plain, Task};
use super::{Group, Steps};

/// Bytes of a part in each row: half a dozen fit a core's own cache.
const PART_BYTES: usize = 64 << 10;
/// Shares begin at lines that a processor fetches together.
const LINE_BYTES: usize = 128;

/// A rank's row of registered values, all zero at first. [`Group::buffer`] makes them.
///
/// When the group fails while they are worked on, nobody knows what they are: they are zero then. A panic in the middle of
/// the work leaves an empty buffer.
#[derive(Debug)]
pub struct Buffer<T: Plain> {
    rows: Rows,
    len: usize,
    rank: usize,
    /// Of this group.
    group: Steps<Words>,
    pub(super) number: u32,
    place: Place<T>,
}

/// Where the values are.
#[derive(Debug)]
enum Place<T> {
    /// In the row, which only this rank touches.
    Row,
    /// Nowhere: others may still write the row.
    Nowhere,
    /// Here, since the group has failed.
    Here(Vec<T>),
}

impl<T: Plain> Buffer<T> {
    pub(super) fn new(rows: Rows, len: usize, rank: usize, group: Steps<Words>, number: u32) -> Self {
        Self { rows, len, rank, group, number, place: Place::Row }
    }

    /// Whether it is of this group.
    pub(super) fn is_of(&self, group: &Steps<Words>) -> bool {
        self.group.is_same(group)
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn deref(&self) -> &[T] {
        match &self.place {
            // SAFETY: `at` checks bounds and alignment, and any bits are values. The row is this rank's alone but
            // while `Group::share` runs, which has the buffer for itself and leaves its place a row only if all
            // ranks have finished with it. Other ranks are processes of this user that run the same code.
            Place::Row => unsafe { std::slice::from_raw_parts(self.rows.at(self.rank, 0, self.len), self.len) },
            Place::Nowhere => &[],
            Place::Here(values) => values,
        }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.place {
            // SAFETY: as above; and the buffer is borrowed for writing.
            Place::Row => unsafe { std::slice::from_raw_parts_mut(self.rows.at(self.rank, 0, self.len), self.len) },
            Place::Nowhere => &mut [],
            Place::Here(values) => values,
        }
    }
}

/// The same part of all ranks' rows, which is the holder's alone.
#[derive(Debug)]
pub struct Part<'a, T: Plain> {
    rows: &'a Rows,
    ranks: usize,
    range: Range<usize>,
    _values: PhantomData<&'a mut [T]>,
}

impl<T: Plain> Part<'_, T> {
    /// How many rows there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// A rank's row.
    ///
    /// # Panics
    /// When there is no such rank.
    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    pub fn row(&mut self, rank: usize) -> &mut [T] {
        // SAFETY: `at` checks bounds and alignment, and any bits are values. Only the claimer of a part makes a
        // `Part` of it, once, after all ranks have come to the task and before any goes on; the borrow of `self`
        // keeps another slice of it from being there.
        unsafe { std::slice::from_raw_parts_mut(self.at(rank), self.range.len()) }
    }

    /// Two ranks' rows.
    ///
    /// # Panics
    /// When there is no such rank, or both are the same.
    #[allow(unsafe_code, reason = "rows of shared memory become values")]
    pub fn two(&mut self, one: usize, other: usize) -> (&mut [T], &mut [T]) {
        assert_ne!(one, other, "a row twice");
        let (one, other, len) = (self.at(one), self.at(other), self.range.len());
        // SAFETY: as above; rows of two ranks don't touch each other.
        unsafe { (std::slice::from_raw_parts_mut(one, len), std::slice::from_raw_parts_mut(other, len)) }
    }

    fn at(&self, rank: usize) -> *mut T {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        self.rows.at(rank, self.range.start * size_of::<T>(), self.range.len())
    }
}

impl Group {
    /// Makes a buffer of so many values. All ranks make the same ones in the same order.
    ///
    /// # Errors
    /// When ranks differ, a rank is lost or can't have the memory.
    pub fn buffer<T: Plain>(&mut self, len: usize) -> Result<Buffer<T>, GroupError> {
        self.begin(Task::Make { kind: T::TYPE, values: len as u64 })?;
        let bytes = len.saturating_mul(size_of::<T>());
        let rows = self.spread(bytes)?;
        self.buffers = self.buffers.wrapping_add(1);
        self.end();
        Ok(Buffer::new(rows, len, self.rank, self.steps.clone(), self.buffers))
    }

    /// Has each part of a buffer worked on once, by whichever rank is free, with the rows of all ranks at hand. When this
    /// returns, all parts of all rows are done.
    ///
    /// # Errors
    /// When ranks differ, or a rank is lost: the buffer's values are zero then.
    pub fn share<T: Plain>(
        &mut self,
        buffer: &mut Buffer<T>,
        op: Op,
        mut work: impl FnMut(Part<'_, T>),
    ) -> Result<(), GroupError> {
        if !buffer.is_of(&self.steps) {
            return Err(GroupError::Foreign);
        }
        if self.steps.failure().is_some() {
            // Nobody begins another task: the values stay what they are.
            return Err(self.lost());
        }
        let (len, number) = (buffer.len, buffer.number);
        buffer.place = Place::Nowhere;
        let done = self.begin(Task::Buffer { op, kind: T::TYPE, values: len as u64, number }).and_then(|()| {
            let turn = self.shares;
            self.shares = turn.wrapping_add(1);
            self.steps.reset_claims(turn);
            for owner in (0..self.ranks).map(|k| (self.rank + k) % self.ranks) {
                let share = share_of::<T>(owner, self.ranks, len);
                while let Some(range) = self.claim::<T>(owner, turn, &share) {
                    work(Part { rows: &buffer.rows, ranks: self.ranks, range, _values: PhantomData });
                }
            }
            self.advance();
            self.wait_all(self.step)?;
            self.end();
            Ok(())
        });
        buffer.place = match &done {
            // Nobody has touched anything.
            Ok(()) | Err(GroupError::Differs { .. }) => Place::Row,
            Err(_) => Place::Here(vec![T::default(); len]),
        };
        done
    }

    /// A part of a rank's share that is now for this one to work on.
    fn claim<T>(&self, owner: usize, turn: u32, share: &Range<usize>) -> Option<Range<usize>> {
        let values = PART_BYTES / size_of::<T>();
        let parts = share.len().div_ceil(values);
        // Looked at first: most shares are done by their owners, whose word it stays.
        if self.steps.is_claimed(owner, turn, u32::try_from(parts).expect("no memory has so many parts")) {
            return None;
        }
        let part = self.steps.claim(owner, turn) as usize;
        let from = share.start + part * values;
        (part < parts).then(|| from..share.end.min(from + values))
    }
}

/// Which of `len` values a rank works on.
pub(super) fn share_of<T>(rank: usize, ranks: usize, len: usize) -> Range<usize> {
    let each = len.div_ceil(ranks).next_multiple_of(LINE_BYTES / size_of::<T>());
    len.min(rank * each)..len.min((rank + 1) * each)
}

impl Steps<Words> {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.memory(), other.memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_values_once() {
        for ranks in 1..9 {
            for len in (0..300).chain([1 << 20, (1 << 20) + 1]) {
                let shares: Vec<_> = (0..ranks).map(|rank| share_of::<f64>(rank, ranks, len)).collect();
                assert_eq!(shares[0].start, 0);
                assert_eq!(shares[ranks - 1].end, len);
                assert!(shares.windows(2).all(|two| two[0].end == two[1].start), "{shares:?}");
                assert!(shares.iter().all(|share| share.start.is_multiple_of(16) || share.start == len));
            }
        }
    }
}
