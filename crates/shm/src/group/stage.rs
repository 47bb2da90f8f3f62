//! Private values: they pass through memory that all ranks have mapped, a piece at a time.
//!
//! ```text
//! two ranks:   step s:   piece s       ── copied in ───────────────────────▶ my row
//!                        piece s-lag   ── theirs, and mine ────────────────▶ my values
//!
//! more:        step s:   piece s       ── others' shares copied in ────────▶ my row
//!                        piece s-lag   ── my share: theirs, and mine ──────▶ my row, and my values
//!                        piece s-2lag  ◀─ others' shares copied out ──────── their rows
//! ```
//!
//! Two ranks had as much to read of each other if each reduced a share: so both reduce all, and need not wait for
//! results. A step needs what others did some steps before, the *lag*: they rarely wait for each other, and ranks that
//! share a processor do many steps in a turn of theirs. Pieces take turns in the slots of the rows, which stay in the
//! cores' own caches; a slot is used again when nobody needs what is in it, which the same wait makes sure of.

use std::marker::PhantomData;
use std::ops::Range;

use super::Group;
use super::area::Rows;
use super::buffer::share_of;
use super::error::GroupError;
use super::task::{Op, Plain, Task};

/// Bytes of a piece.
const PIECE_BYTES: usize = 128 << 10;
/// Steps from one stage of a piece to the next, where there are several pieces; and where ranks share processors.
const LAG: usize = 2;
const LAG_CROWDED: usize = 8;
/// Pieces that are in a row at a time, at most.
const SLOTS: usize = 2 * LAG_CROWDED;
/// Bytes of a rank's row.
pub(super) const ROW_BYTES: usize = SLOTS * PIECE_BYTES;

/// A rank's share of a piece.
#[derive(Debug)]
pub struct Share<'a, T: Plain> {
    /// This rank's values, which become the results.
    pub mine: &'a mut [T],
    /// Where the results go for the others, as many; nothing where the others reduce the same.
    pub out: &'a mut [T],
    /// What the others have there.
    pub others: Others<'a, T>,
}

/// Values of other ranks.
#[derive(Debug)]
pub struct Others<'a, T: Plain> {
    rows: &'a Rows,
    rank: usize,
    ranks: usize,
    byte: usize,
    len: usize,
    _values: PhantomData<&'a [T]>,
}

impl<T: Plain> Others<'_, T> {
    /// How many ranks there are, this one counted.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Which rank this is.
    #[must_use]
    pub fn own(&self) -> usize {
        self.rank
    }

    /// What another rank has.
    ///
    /// # Panics
    /// When there is no such rank, or it is this one.
    #[must_use]
    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    pub fn row(&self, rank: usize) -> &[T] {
        assert!(rank != self.rank && rank < self.ranks, "rank {rank} is no other of {}", self.ranks);
        // SAFETY: `at` checks bounds and alignment, and any bits are values. The other rank has written them LAG
        // steps before, and writes there again only when this rank has done this step.
        unsafe { std::slice::from_raw_parts(self.rows.at(rank, self.byte, self.len), self.len) }
    }
}

impl Group {
    /// Has each share of some values worked on by its rank, with those of all ranks at hand, and gives the results to all.
    ///
    /// # Errors
    /// When ranks differ: nothing is done then. When a rank is lost: some of the values are results then.
    pub fn pass<T: Plain>(
        &mut self,
        values: &mut [T],
        op: Op,
        mut work: impl FnMut(Share<'_, T>),
    ) -> Result<(), GroupError> {
        let mut pass = Pass::new(self, values);
        let (pieces, lag) = (pass.pieces(), pass.lag());
        let task = Task::Slice { op, kind: T::TYPE, values: pass.values.len() as u64 };
        // Somebody may still copy out what was before.
        pass.group.ready()?;
        let begun = pass.group.step;
        if pieces > 0 {
            pass.copy_in(0);
        }
        pass.group.begin(task)?;
        for step in 1..pass.steps() {
            if step > lag {
                pass.group.wait_all(begun.wrapping_add((step - lag) as u32 + 1))?;
            }
            if step >= 2 * lag && !pass.whole() {
                pass.copy_out(step - 2 * lag);
            }
            if (lag..lag + pieces).contains(&step) {
                work(pass.share(step - lag));
            }
            if step < pieces {
                pass.copy_in(step);
            }
            pass.group.advance();
        }
        pass.group.end();
        Ok(())
    }
}

/// Values on their way.
struct Pass<'a, T> {
    group: &'a mut Group,
    values: &'a mut [T],
}

impl<'a, T: Plain> Pass<'a, T> {
    /// Values of a full piece.
    const FULL: usize = PIECE_BYTES / size_of::<T>();

    fn new(group: &'a mut Group, values: &'a mut [T]) -> Self {
        Self { group, values }
    }

    /// Whether each rank reduces all.
    fn whole(&self) -> bool {
        self.group.ranks <= 2
    }

    fn pieces(&self) -> usize {
        self.values.len().div_ceil(Self::FULL)
    }

    /// The same at all ranks. With one piece there is nothing to do in between.
    fn lag(&self) -> usize {
        match self.group.spins {
            _ if self.pieces() < 2 => 1,
            true => LAG,
            false => LAG_CROWDED,
        }
    }

    /// How many steps it takes.
    fn steps(&self) -> usize {
        match self.pieces() {
            0 => 0,
            pieces => pieces + if self.whole() { self.lag() } else { 2 * self.lag() },
        }
    }

    /// The values of a piece, and from which byte of rows on it lies.
    fn piece(&self, piece: usize) -> (Range<usize>, usize) {
        let range = piece * Self::FULL..self.values.len().min((piece + 1) * Self::FULL);
        (range, piece % (2 * self.lag()) * PIECE_BYTES)
    }

    /// A rank's share of a piece: of the values, and from which byte of rows on. That is the same in a last piece, whose
    /// shares are smaller: what is somebody's share of one piece is never another's of the next in its slot.
    fn place(&self, piece: usize, rank: usize) -> (Range<usize>, usize) {
        let (all, byte) = self.piece(piece);
        if self.whole() {
            return (all, byte);
        }
        let share = share_of::<T>(rank, self.group.ranks, all.len());
        let full = share_of::<T>(rank, self.group.ranks, Self::FULL);
        (all.start + share.start..all.start + share.end, byte + full.start * size_of::<T>())
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<T> {
        self.group.others()
    }

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn copy_in(&mut self, piece: usize) {
        for other in self.others() {
            let (range, byte) = self.place(piece, other);
            let row = self.group.stage.at::<T>(self.group.rank, byte, range.len());
            // SAFETY: `at` checks bounds and alignment, and any bits are values. This is the row of this rank, and
            // those who read there what was in the slot before have done so: that is what was waited for.
            unsafe { std::slice::from_raw_parts_mut(row, range.len()) }.copy_from_slice(&self.values[range]);
        }
    }

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn share(&mut self, piece: usize) -> Share<'_, T> {
        let Group { rank, ranks, ref stage, .. } = *self.group;
        let (range, byte) = self.place(piece, rank);
        let len = range.len();
        let results = if self.whole() { 0 } else { len };
        let out = stage.at::<T>(rank, byte, results);
        // SAFETY: as above; this rank's own share of its row has results only, and those who read what were there
        // before have done so.
        let out = unsafe { std::slice::from_raw_parts_mut(out, results) };
        let others = Others { rows: stage, rank, ranks, byte, len, _values: PhantomData };
        Share { mine: &mut self.values[range], out, others }
    }

    #[allow(unsafe_code, reason = "a row of shared memory becomes values")]
    fn copy_out(&mut self, piece: usize) {
        for other in self.others() {
            let (range, byte) = self.place(piece, other);
            let row = self.group.stage.at::<T>(other, byte, range.len());
            // SAFETY: `at` checks bounds and alignment, and any bits are values. The other rank has written its
            // results, and writes there again only when this rank has done this step.
            let results = unsafe { std::slice::from_raw_parts(row, range.len()) };
            self.values[range].copy_from_slice(results);
        }
    }
}
