//! What ranks tell each other by words of memory: how many steps each has done, which task it is at, what of
//! its share is claimed, and that the group has failed.
//!
//! ```text
//! publish: PROGRESS of mine = step ──▶ is anybody ASLEEP on it? then wake them
//! sleep:   ASLEEP of theirs + 1, look again, sleep while PROGRESS is what was seen
//! ```
//!
//! Steps count up together: a rank may be ahead of another by what the task allows, and it waits by itself for
//! those whose steps it needs. Nobody writes what another writes, but for claims and who sleeps, so that there
//! is nothing to fight for. Generic over the words, so that the same code runs between processes and in a
//! model checker.

use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use super::error::How;

/// Ranks of a group, at most.
pub const RANKS_MAX: usize = 64;

/// Words of the cache lines that a processor fetches together: what is written by different ranks does not
/// share them.
const LINE: usize = 32;
/// The group's own line: not 0 once it has failed.
const FAILED: usize = 0;
/// Lines of a rank's slot: its progress; its tasks; what is claimed of its share; where it may run.
const SLOT: usize = 4 * LINE;
const PROGRESS: usize = 0;
const ASLEEP: usize = 1;
const LEFT: usize = 2;
const TASKS: usize = LINE;
const CLAIMS: usize = 2 * LINE;
const CPUS: usize = 3 * LINE;

/// Words that say what a task is.
pub(super) const TASK_WORDS: usize = 4;

/// Words of memory for a group of so many ranks.
pub(super) const fn words_for(ranks: usize) -> usize {
    LINE + ranks * SLOT
}

/// A word of shared memory on which one can sleep.
pub(super) trait Cell: Send + Sync {
    /// As [`AtomicU32::load`].
    fn load(&self, order: Ordering) -> u32;
    /// As [`AtomicU32::store`].
    fn store(&self, value: u32, order: Ordering);
    /// As [`AtomicU32::fetch_add`].
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// As [`AtomicU32::compare_exchange`]; whether it was `from`.
    fn exchange(&self, from: u32, to: u32, order: Ordering) -> bool;
    /// As [`atomic::fence`].
    fn fence(order: Ordering);
    /// Sleeps until it is woken, or so long; not at all unless the word is `value`. May return sooner.
    fn sleep_while(&self, value: u32, at_most: Duration);
    /// Wakes all who sleep on it.
    fn wake(&self);
}

impl Cell for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }

    fn exchange(&self, from: u32, to: u32, order: Ordering) -> bool {
        self.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    fn sleep_while(&self, value: u32, at_most: Duration) {
        let at_most = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        // Whatever ends the sleep, the caller looks at the word again.
        let _ = futex::wait(self, futex::Flags::empty(), value, Some(&at_most));
    }

    fn wake(&self) {
        // It can't fail on a word that is there.
        let _ = futex::wake(self, futex::Flags::empty(), i32::MAX as u32);
    }
}

/// Memory that all ranks have: [`words_for`] them.
pub(super) trait Cells {
    /// What it is made of.
    type Cell: Cell;
    /// All of it.
    fn cells(&self) -> &[Self::Cell];
}

/// One rank's view of it.
#[derive(Debug)]
pub(super) struct Steps<M> {
    memory: Arc<M>,
    rank: usize,
}

impl<M> Clone for Steps<M> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), rank: self.rank }
    }
}

impl<M: Cells> Steps<M> {
    pub(super) fn new(memory: Arc<M>, rank: usize) -> Self {
        Self { memory, rank }
    }

    pub(super) fn memory(&self) -> &Arc<M> {
        &self.memory
    }

    fn of(&self, rank: usize, which: usize) -> &M::Cell {
        &self.memory.cells()[LINE + rank * SLOT + which]
    }

    /// Says that this rank has done so many steps, and with them whatever it has written to any memory.
    #[inline]
    pub(super) fn publish(&self, step: u32) {
        let progress = self.of(self.rank, PROGRESS);
        progress.store(step, Ordering::Release);
        // Either this sees who sleeps, or who goes to sleep sees the step.
        M::Cell::fence(Ordering::SeqCst);
        if self.of(self.rank, ASLEEP).load(Ordering::Relaxed) != 0 {
            progress.wake();
        }
    }

    /// Whether a rank has done so many steps; if so, what it wrote before is seen.
    #[inline]
    pub(super) fn reached(&self, rank: usize, step: u32) -> bool {
        is_reached(self.of(rank, PROGRESS).load(Ordering::Acquire), step)
    }

    /// Sleeps until a rank has done so many steps, or so long, or until something happens that has to be looked at.
    pub(super) fn sleep(&self, rank: usize, step: u32, at_most: Duration) {
        let progress = self.of(rank, PROGRESS);
        let asleep = self.of(rank, ASLEEP);
        asleep.fetch_add(1, Ordering::Relaxed);
        M::Cell::fence(Ordering::SeqCst);
        let seen = progress.load(Ordering::Acquire);
        if !is_reached(seen, step) {
            progress.sleep_while(seen, at_most);
        }
        // One that is killed here leaves a count behind, and with it wake-ups that nobody needs.
        asleep.fetch_add(u32::MAX, Ordering::Relaxed);
    }

    /// Says that the group has failed, unless somebody has; which failure it is then.
    pub(super) fn fail(&self, ranks: usize, rank: usize, how: How) -> (usize, How) {
        let word = (how as u32) << 16 | rank as u32;
        if self.memory.cells()[FAILED].exchange(0, word, Ordering::SeqCst) {
            (0..ranks).for_each(|rank| self.of(rank, PROGRESS).wake());
        }
        self.failure().unwrap_or((rank, how))
    }

    /// By which rank the group has failed, and how.
    #[inline]
    pub(super) fn failure(&self) -> Option<(usize, How)> {
        let word = self.memory.cells()[FAILED].load(Ordering::Acquire);
        (word != 0).then(|| ((word & 0xffff) as usize, How::from_word(word >> 16)))
    }

    /// Says that this rank does no more steps.
    pub(super) fn leave(&self) {
        self.of(self.rank, LEFT).store(1, Ordering::SeqCst);
        self.of(self.rank, PROGRESS).wake();
    }

    /// Whether a rank does no more steps than it has done.
    pub(super) fn has_left(&self, rank: usize) -> bool {
        self.of(rank, LEFT).load(Ordering::Acquire) != 0
    }

    /// Says what this rank does from its next step on. There is room for two, the next and the one before, which
    /// somebody may still look at.
    pub(super) fn set_task(&self, number: u32, task: [u32; TASK_WORDS]) {
        let from = TASKS + (number as usize % 2) * TASK_WORDS;
        for (i, word) in task.into_iter().enumerate() {
            self.of(self.rank, from + i).store(word, Ordering::Relaxed);
        }
    }

    /// What a rank does.
    pub(super) fn task(&self, rank: usize, number: u32) -> [u32; TASK_WORDS] {
        let from = TASKS + (number as usize % 2) * TASK_WORDS;
        std::array::from_fn(|i| self.of(rank, from + i).load(Ordering::Relaxed))
    }

    /// The next part of a rank's share that nobody has claimed, counted from 0.
    #[inline]
    pub(super) fn claim(&self, rank: usize, number: u32) -> u32 {
        self.of(rank, CLAIMS + number as usize % 2).fetch_add(1, Ordering::Relaxed)
    }

    /// Whether so many parts of a rank's share are claimed.
    #[inline]
    pub(super) fn is_claimed(&self, rank: usize, number: u32, parts: u32) -> bool {
        self.of(rank, CLAIMS + number as usize % 2).load(Ordering::Relaxed) >= parts
    }

    /// Nothing of this rank's share in the task after this one is claimed. To be called while this one is
    /// worked on: nobody is at another then.
    pub(super) fn reset_claims(&self, number: u32) {
        self.of(self.rank, CLAIMS + (number as usize + 1) % 2).store(0, Ordering::Relaxed);
    }

    /// Says on which processors this rank may run; as many are told apart as the system's sets hold.
    pub(super) fn set_cpus(&self, is_set: impl Fn(usize) -> bool) {
        for i in 0..LINE {
            let word = (0..32).fold(0, |word, bit| word | u32::from(is_set(i * 32 + bit)) << bit);
            self.of(self.rank, CPUS + i).store(word, Ordering::Relaxed);
        }
    }

    /// Whether there are as many processors for these ranks as there are ranks.
    pub(super) fn cpus_suffice(&self, ranks: usize) -> bool {
        let union = |i| (0..ranks).fold(0, |word, rank| word | self.of(rank, CPUS + i).load(Ordering::Relaxed));
        (0..LINE).map(|i| union(i).count_ones() as usize).sum::<usize>() >= ranks
    }
}

/// Steps count around.
fn is_reached(progress: u32, step: u32) -> bool {
    progress.wrapping_sub(step) as i32 >= 0
}

#[cfg(test)]
mod tests;
