//! Register arrays with fixed sizes, and the check that a frame uses them as a pipeline can.

use pathcall_wire::pairs::MAX_BALLOT_KEY;

use crate::layout::{ARRAYS, Array};

/// Pass of one frame through the arrays. A debug build panics if an array is visited twice, or after one of a later
/// stage, which no pipeline could do.
#[derive(Debug, Default)]
pub struct Pass {
    #[cfg(debug_assertions)]
    next: u8,
}

impl Pass {
    #[inline]
    #[cfg_attr(not(debug_assertions), allow(unused_variables, clippy::unused_self))]
    fn enter(&mut self, stage: u8) {
        #[cfg(debug_assertions)]
        {
            assert!(stage >= self.next, "register array of stage {stage} touched after stage {}", self.next - 1);
            self.next = stage + 1;
        }
    }
}

/// Array of registers in one stage.
#[derive(Debug)]
pub struct RegisterArray<T> {
    stage: u8,
    cells: Vec<T>,
}

impl<T: Clone> RegisterArray<T> {
    /// Array of `size` registers in this stage.
    #[must_use]
    pub fn new(stage: u8, size: usize, value: T) -> Self {
        Self { stage, cells: vec![value; size] }
    }

    /// Array as described by the layout.
    fn of(array: &Array, size: &crate::Size, value: T) -> Self {
        Self::new(array.stage, array.registers(size) as usize, value)
    }

    /// Visits the array once per frame, and returns the registers of a range.
    ///
    /// # Panics
    /// If the range is out of bounds (tables are checked at installation); in debug builds also on a second visit or
    /// one out of stage order.
    #[inline]
    pub fn visit(&mut self, pass: &mut Pass, at: usize, len: usize) -> &mut [T] {
        pass.enter(self.stage);
        &mut self.cells[at..at + len]
    }

    /// Registers as seen by the control service, between frames.
    #[must_use]
    pub fn peek(&self, at: usize, len: usize) -> &[T] {
        &self.cells[at..at + len]
    }

    /// Resets registers, between frames.
    pub fn reset(&mut self, at: usize, len: usize, value: T) {
        self.cells[at..at + len].fill(value);
    }

    /// Number of registers.
    #[must_use]
    pub fn size(&self) -> usize {
        self.cells.len()
    }
}

/// Generation state of a keyed application: values are added to the open generation's bank, and the server harvests one
/// closed generation after the other (docs/map.md, *Generations*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// Open generation.
    pub open: u32,
    /// Last harvested generation.
    pub committed: u32,
    /// Version of the mapping of keys to registers; frames of another version are refused.
    pub version: u32,
}

impl Default for Generation {
    fn default() -> Self {
        Self { open: 1, committed: 0, version: 0 }
    }
}

/// Entry of the repeat filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepeatFilterEntry {
    /// Last full sequence number.
    pub seq: u32,
    /// Generation in which the frame was applied.
    pub generation: u32,
    /// Hardware profile: flip bit of the last frame; starts at 1 (NetRPC §5.1).
    pub clear_flip: bool,
}

/// State of a row's round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundState {
    /// Open round.
    pub round: u32,
    /// Bitmap of the workers that have contributed.
    pub workers: u64,
    /// Tag that all contributions share.
    pub tag: u32,
    /// Sticky congestion mark.
    pub ecn: bool,
}

impl Default for RoundState {
    fn default() -> Self {
        Self { round: 1, workers: 0, tag: 0, ecn: false }
    }
}

/// Owner of a lock; endpoint 0 means free. A pair of words, which a pipeline stage can read, compare and write at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lock {
    /// Endpoint of the owner.
    pub owner: u32,
    /// Tag of the owner's acquisition, with the bits `LOCK_WANTED` and `LOCK_PARKED`.
    pub tag: u32,
}

/// Ballot: votes for one key. The first key in a row keeps the row until the epoch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ballot {
    /// Key, padded with zeros.
    pub key: [u8; MAX_BALLOT_KEY],
    /// Length of the key; 0: the row is free.
    pub len: u8,
    /// Whether the server counts all votes of this row.
    pub moved: bool,
    /// Whether the ballot is decided, by the element or, as far as it has seen, by the server.
    pub decided: bool,
    /// Votes since the last clear.
    pub count: u32,
    /// Number of clears.
    pub round: u32,
}

/// All register arrays, in stage order.
#[derive(Debug)]
pub struct Registers {
    /// By the first row of an application.
    pub generations: RegisterArray<Generation>,
    /// By flow slot, `W_MAX` for each.
    pub places: RegisterArray<RepeatFilterEntry>,
    /// By row.
    pub rounds: RegisterArray<RoundState>,
    /// By row.
    pub counts: RegisterArray<u32>,
    /// By row, in the stage of counts, because a frame belongs to a round or to a ballot.
    pub ballots: RegisterArray<Ballot>,
    /// By row.
    pub locks: RegisterArray<Lock>,
    /// Number of grants of each lock, the lower half of its fencing token.
    pub grants: RegisterArray<u32>,
    /// Rows of each application, one after the other.
    pub lanes: RegisterArray<i32>,
    /// For each repeat-filter entry, the overflowed lanes of its last frame, so that a repeat gets the same answer.
    pub overflows: RegisterArray<u32>,
}

impl Registers {
    pub(crate) fn new(size: &crate::Size) -> Self {
        let [generations, places, rounds, counts, ballots, locks, grants, lanes, overflows, ..] = &ARRAYS;
        Self {
            generations: RegisterArray::of(generations, size, Generation::default()),
            places: RegisterArray::of(places, size, RepeatFilterEntry::default()),
            rounds: RegisterArray::of(rounds, size, RoundState::default()),
            counts: RegisterArray::of(counts, size, 0),
            ballots: RegisterArray::of(ballots, size, Ballot::default()),
            locks: RegisterArray::of(locks, size, Lock::default()),
            grants: RegisterArray::of(grants, size, 0),
            lanes: RegisterArray::of(lanes, size, 0),
            overflows: RegisterArray::of(overflows, size, 0),
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "touched after stage")]
    fn second_visit_of_array_panics() {
        let mut array = RegisterArray::new(1, 4, 0);
        let mut pass = Pass::default();
        array.visit(&mut pass, 0, 1);
        array.visit(&mut pass, 1, 1);
    }

    #[test]
    #[should_panic(expected = "touched after stage")]
    fn visit_out_of_stage_order_panics() {
        let (mut first, mut second) = (RegisterArray::new(1, 1, 0), RegisterArray::new(2, 1, 0));
        let mut pass = Pass::default();
        second.visit(&mut pass, 0, 1);
        first.visit(&mut pass, 0, 1);
    }
}
