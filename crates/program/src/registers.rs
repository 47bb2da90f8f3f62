//! Register arrays, declared with their sizes, and the proof that a frame uses them as a pipeline can.

use pathcall_wire::pairs::MAX_BALLOT_KEY;

use crate::layout::{ARRAYS, Array};

/// One frame's way through the arrays. A debug build panics when an array is touched twice, or
/// after one of a later stage: no pipeline could do that.
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

/// An array of registers that belongs to one stage.
#[derive(Debug)]
pub struct RegisterArray<T> {
    stage: u8,
    cells: Vec<T>,
}

impl<T: Clone> RegisterArray<T> {
    /// `size` registers of the stage with this number.
    #[must_use]
    pub fn new(stage: u8, size: usize, value: T) -> Self {
        Self { stage, cells: vec![value; size] }
    }

    /// The array that the layout describes.
    fn of(array: &Array, size: &crate::Size, value: T) -> Self {
        Self::new(array.stage, array.registers(size) as usize, value)
    }

    /// The frame's one visit to this array: the registers it works on.
    ///
    /// # Panics
    /// When the range is not inside the array (tables are checked when installed); in debug builds
    /// also on a second visit or one out of stage order.
    #[inline]
    pub fn visit(&mut self, pass: &mut Pass, at: usize, len: usize) -> &mut [T] {
        pass.enter(self.stage);
        &mut self.cells[at..at + len]
    }

    /// Registers as the control service sees them, between frames.
    #[must_use]
    pub fn peek(&self, at: usize, len: usize) -> &[T] {
        &self.cells[at..at + len]
    }

    /// Sets registers back, between frames.
    pub fn reset(&mut self, at: usize, len: usize, value: T) {
        self.cells[at..at + len].fill(value);
    }

    /// Number of registers.
    #[must_use]
    pub fn size(&self) -> usize {
        self.cells.len()
    }
}

/// Where a keyed application stands: its values are added in the open generation's bank, and the
/// server makes one generation after the other its own (NOTES: "Values that only the element holds").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// What is added now.
    pub open: u32,
    /// Generations up to this are the server's.
    pub committed: u32,
    /// Version of the mapping of keys to registers; frames of another are refused.
    pub version: u32,
}

impl Default for Generation {
    fn default() -> Self {
        Self { open: 1, committed: 0, version: 0 }
    }
}

/// A place of the repeat filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The last full sequence number.
    pub seq: u32,
    /// The generation it was applied in.
    pub generation: u32,
    /// Hardware profile: the flip bit of the last frame; starts at 1 (NetRPC §5.1).
    pub clear_flip: bool,
}

/// The state of a row's round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundState {
    /// The round that is open.
    pub round: u32,
    /// Workers that have contributed.
    pub workers: u64,
    /// What their contributions agree on.
    pub tag: u32,
    /// The sticky congestion mark.
    pub ecn: bool,
}

impl Default for RoundState {
    fn default() -> Self {
        Self { round: 1, workers: 0, tag: 0, ecn: false }
    }
}

/// Who holds a lock; endpoint 0 is nobody. A pair of words: what a stage of a pipeline reads,
/// compares and writes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lock {
    /// The endpoint.
    pub owner: u32,
    /// Which of its acquirings, under `LOCK_WANTED` and `LOCK_PARKED`.
    pub tag: u32,
}

/// A ballot: votes for one key. The first key that comes to a row keeps it until the epoch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ballot {
    /// The key, filled up with zeros.
    pub key: [u8; MAX_BALLOT_KEY],
    /// Its length; 0: nobody has the row.
    pub len: u8,
    /// The server counts whatever comes to this row.
    pub moved: bool,
    /// The server has recorded that the threshold was reached.
    pub decided: bool,
    /// Votes since the ballot was cleared.
    pub count: u32,
    /// How often it was cleared.
    pub round: u32,
}

/// All arrays, in stage order.
#[derive(Debug)]
pub struct Registers {
    /// By the application's first row.
    pub generations: RegisterArray<Generation>,
    /// By flow slot, `W_MAX` to each.
    pub places: RegisterArray<Place>,
    /// By row.
    pub rounds: RegisterArray<RoundState>,
    /// By row.
    pub counts: RegisterArray<u32>,
    /// By row. In the stage of counts: a frame is of a round or of a ballot.
    pub ballots: RegisterArray<Ballot>,
    /// By row.
    pub locks: RegisterArray<Lock>,
    /// Beside each lock: how often it was granted, the lower half of its fencing token.
    pub grants: RegisterArray<u32>,
    /// An application's rows, one after the other.
    pub lanes: RegisterArray<i32>,
    /// Beside each place: the lanes of its last frame that overflowed, so that a repeat is answered alike.
    pub overflows: RegisterArray<u32>,
}

impl Registers {
    pub(crate) fn new(size: &crate::Size) -> Self {
        let [generations, places, rounds, counts, ballots, locks, grants, lanes, overflows, ..] = &ARRAYS;
        Self {
            generations: RegisterArray::of(generations, size, Generation::default()),
            places: RegisterArray::of(places, size, Place::default()),
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
    fn an_array_is_not_visited_twice() {
        let mut array = RegisterArray::new(1, 4, 0);
        let mut pass = Pass::default();
        array.visit(&mut pass, 0, 1);
        array.visit(&mut pass, 1, 1);
    }

    #[test]
    #[should_panic(expected = "touched after stage")]
    fn stages_are_visited_in_order() {
        let (mut first, mut second) = (RegisterArray::new(1, 1, 0), RegisterArray::new(2, 1, 0));
        let mut pass = Pass::default();
        second.visit(&mut pass, 0, 1);
        first.visit(&mut pass, 0, 1);
    }
}
