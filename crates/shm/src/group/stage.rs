//! Staging of private values: they pass through memory that all ranks have mapped, a piece at a time.
//!
//! ```text
//! two ranks:   step s:   piece s       ── copied in ───────────────────────▶ own row
//!                        piece s-lag   ── theirs, and own ─────────────────▶ own values
//!
//! more:        step s:   piece s       ── others' shares copied in ────────▶ own row
//!                        piece s-lag   ── own share: theirs, and own ──────▶ own row, and own values
//!                        piece s-2lag  ◀─ others' shares copied out ──────── their rows
//! ```
//!
//! With two ranks, reading the other's values costs as much as reading its results: so both reduce all values, and need
//! not wait for results. A step needs the results of steps some time before, the *lag*: so ranks rarely wait for each
//! other, and ranks that share a processor do many steps per time slice. Pieces use the slots of the rows in turn,
//! which stay in the cores' private caches; a slot is reused when no rank needs its content, which the same wait
//! ensures.

use std::marker::PhantomData;
use std::ops::Range;

use super::Group;
use super::buffer::rank_share;
use super::error::GroupError;
use super::shared_memory::SharedRows;
use super::task::{GroupTask, PlainNumber, ReduceOp};

/// Bytes of a piece.
const PIECE_BYTES: usize = 128 << 10;
/// Steps from one phase of a piece to the next, if there are several pieces; and the same if ranks share processors.
const LAG: usize = 2;
const LAG_CROWDED: usize = 8;
/// Most pieces in a row at a time.
const SLOTS: usize = 2 * LAG_CROWDED;
/// Bytes of a rank's row.
pub(super) const ROW_BYTES: usize = SLOTS * PIECE_BYTES;

/// Share of a piece, of one rank.
#[derive(Debug)]
pub struct SliceShare<'a, T: PlainNumber> {
    /// Values of this rank, which become the results.
    pub mine: &'a mut [T],
    /// Destination of the results for the other ranks, of equal length; empty if the other ranks reduce the same
    /// values.
    pub out: &'a mut [T],
    /// Values of the other ranks.
    pub others: OtherRanks<'a, T>,
}

/// Values of the other ranks.
#[derive(Debug)]
pub struct OtherRanks<'a, T: PlainNumber> {
    rows: &'a SharedRows,
    rank: usize,
    ranks: usize,
    byte: usize,
    len: usize,
    _values: PhantomData<&'a [T]>,
}

impl<T: PlainNumber> OtherRanks<'_, T> {
    /// Number of ranks, including this one.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Rank of this process.
    #[must_use]
    pub fn own_rank(&self) -> usize {
        self.rank
    }

    /// Values of another rank.
    ///
    /// # Panics
    /// When there is no such rank, or it is this one.
    #[must_use]
    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    pub fn row(&self, rank: usize) -> &[T] {
        assert!(rank != self.rank && rank < self.ranks, "rank {rank} is no other of {}", self.ranks);
        // SAFETY: `at` checks bounds and alignment, and any bits are values. The other rank wrote them LAG steps
        // before, and writes there again only after this rank has done this step.
        unsafe { std::slice::from_raw_parts(self.rows.at(rank, self.byte, self.len), self.len) }
    }
}

impl Group {
    /// Processes each share of some values on its rank, with the values of all ranks, and distributes the results to
    /// all.
    ///
    /// # Errors
    /// When the requests of ranks differ: then nothing is done. When a rank is lost: then some of the values are
    /// results.
    pub fn process_slice<T: PlainNumber>(
        &mut self,
        values: &mut [T],
        op: ReduceOp,
        mut work: impl FnMut(SliceShare<'_, T>),
    ) -> Result<(), GroupError> {
        let mut slice = StagedSlice::new(self, values);
        let (pieces, lag) = (slice.pieces(), slice.lag());
        let task = GroupTask::Slice { op, kind: T::TYPE, values: slice.values.len() as u64 };
        // A rank may still copy out the previous results.
        slice.group.ready()?;
        let begun = slice.group.step;
        if pieces > 0 {
            slice.copy_in(0);
        }
        slice.group.begin(task)?;
        for step in 1..slice.steps() {
            if step > lag {
                slice.group.wait_all(begun.wrapping_add((step - lag) as u32 + 1))?;
            }
            if step >= 2 * lag && !slice.reduces_all() {
                slice.copy_out(step - 2 * lag);
            }
            if (lag..lag + pieces).contains(&step) {
                work(slice.own_share(step - lag));
            }
            if step < pieces {
                slice.copy_in(step);
            }
            slice.group.advance();
        }
        slice.group.end();
        Ok(())
    }
}

/// Values that pass through the stage.
struct StagedSlice<'a, T> {
    group: &'a mut Group,
    values: &'a mut [T],
}

impl<'a, T: PlainNumber> StagedSlice<'a, T> {
    /// Values of a full piece.
    const PIECE_LEN: usize = PIECE_BYTES / size_of::<T>();

    fn new(group: &'a mut Group, values: &'a mut [T]) -> Self {
        Self { group, values }
    }

    /// Returns whether each rank reduces all values.
    fn reduces_all(&self) -> bool {
        self.group.ranks <= 2
    }

    fn pieces(&self) -> usize {
        self.values.len().div_ceil(Self::PIECE_LEN)
    }

    /// Lag, equal at all ranks. A single piece leaves nothing to overlap.
    fn lag(&self) -> usize {
        match self.group.spins {
            _ if self.pieces() < 2 => 1,
            true => LAG,
            false => LAG_CROWDED,
        }
    }

    /// Number of steps.
    fn steps(&self) -> usize {
        match self.pieces() {
            0 => 0,
            pieces => pieces + if self.reduces_all() { self.lag() } else { 2 * self.lag() },
        }
    }

    /// Range of the values of a piece, and its first byte in the rows.
    fn piece(&self, piece: usize) -> (Range<usize>, usize) {
        let range = piece * Self::PIECE_LEN..self.values.len().min((piece + 1) * Self::PIECE_LEN);
        (range, piece % (2 * self.lag()) * PIECE_BYTES)
    }

    /// Range of a rank's share of a piece, and its first byte in the rows. The byte is the same in the smaller last
    /// piece: a rank's share of one piece never overlaps another rank's share of the next piece in the slot.
    fn share_range(&self, piece: usize, rank: usize) -> (Range<usize>, usize) {
        let (all, byte) = self.piece(piece);
        if self.reduces_all() {
            return (all, byte);
        }
        let share = rank_share::<T>(rank, self.group.ranks, all.len());
        let full = rank_share::<T>(rank, self.group.ranks, Self::PIECE_LEN);
        (all.start + share.start..all.start + share.end, byte + full.start * size_of::<T>())
    }

    fn other_ranks(&self) -> impl Iterator<Item = usize> + use<T> {
        self.group.other_ranks()
    }

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn copy_in(&mut self, piece: usize) {
        for other in self.other_ranks() {
            let (range, byte) = self.share_range(piece, other);
            let row = self.group.stage.at::<T>(self.group.rank, byte, range.len());
            // SAFETY: `at` checks bounds and alignment, and any bits are values. This is the row of this rank, and the
            // ranks that read the slot's previous content have done so: the wait ensures that.
            unsafe { std::slice::from_raw_parts_mut(row, range.len()) }.copy_from_slice(&self.values[range]);
        }
    }

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn own_share(&mut self, piece: usize) -> SliceShare<'_, T> {
        let Group { rank, ranks, ref stage, .. } = *self.group;
        let (range, byte) = self.share_range(piece, rank);
        let len = range.len();
        let results = if self.reduces_all() { 0 } else { len };
        let out = stage.at::<T>(rank, byte, results);
        // SAFETY: as above; this rank's own share of its row contains results only, and the ranks that read the
        // previous ones have done so.
        let out = unsafe { std::slice::from_raw_parts_mut(out, results) };
        let others = OtherRanks { rows: stage, rank, ranks, byte, len, _values: PhantomData };
        SliceShare { mine: &mut self.values[range], out, others }
    }

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn copy_out(&mut self, piece: usize) {
        for other in self.other_ranks() {
            let (range, byte) = self.share_range(piece, other);
            let row = self.group.stage.at::<T>(other, byte, range.len());
            // SAFETY: `at` checks bounds and alignment, and any bits are values. The other rank wrote its results, and
            // writes there again only after this rank has done this step.
            let results = unsafe { std::slice::from_raw_parts(row, range.len()) };
            self.values[range].copy_from_slice(results);
        }
    }
}
