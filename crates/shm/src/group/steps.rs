//! Synchronisation of ranks by shared words: steps done, current task, claimed parts, and the failure of the group.
//!
//! ```text
//! publish: own PROGRESS = step ──▶ is a rank ASLEEP on it? then wake it
//! sleep:   their ASLEEP + 1, check again, sleep while PROGRESS is unchanged
//! ```
//!
//! All ranks count the same steps: a rank may be ahead of another as far as the task allows, and waits for the ranks
//! whose steps it needs. Each word has one writer, except claims and sleeper counts, so there is little contention. The
//! code is generic over the words, so that it runs between processes and in a model checker.

use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use super::error::RankLossReason;

/// Most ranks of a group.
pub const RANKS_MAX: usize = 64;

/// Words of the cache lines that a processor fetches together: words with different writers do not share them.
const LINE: usize = 32;
/// Index of the failure word, in the group's own line: not 0 once the group has failed.
const FAILED: usize = 0;
/// Words of a rank's slot, a line each: its progress, its tasks, the claims of its share, its processors.
const SLOT: usize = 4 * LINE;
const PROGRESS: usize = 0;
const ASLEEP: usize = 1;
const LEFT: usize = 2;
const TASKS: usize = LINE;
const CLAIMS: usize = 2 * LINE;
const CPUS: usize = 3 * LINE;

/// Words that describe a task.
pub(super) const TASK_WORDS: usize = 4;

/// Words of memory for a group of `ranks` ranks.
pub(super) const fn words_for(ranks: usize) -> usize {
    LINE + ranks * SLOT
}

/// Word of shared memory on which a thread can sleep.
pub(super) trait StepWord: Send + Sync {
    /// Loads the word as [`AtomicU32::load`] does.
    fn load(&self, order: Ordering) -> u32;
    /// Stores the word as [`AtomicU32::store`] does.
    fn store(&self, value: u32, order: Ordering);
    /// Adds to the word as [`AtomicU32::fetch_add`] does.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Exchanges the word as [`AtomicU32::compare_exchange`] does; returns whether it was `from`.
    fn exchange(&self, from: u32, to: u32, order: Ordering) -> bool;
    /// Issues a fence as [`atomic::fence`] does.
    fn fence(order: Ordering);
    /// Sleeps while the word is `value`, until woken or for `at_most`. May return sooner.
    fn sleep_while(&self, value: u32, at_most: Duration);
    /// Wakes all threads that sleep on the word.
    fn wake(&self);
}

impl StepWord for AtomicU32 {
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
        // After any return, the caller checks the word again.
        let _ = futex::wait(self, futex::Flags::empty(), value, Some(&at_most));
    }

    fn wake(&self) {
        // A wake-up of a mapped word cannot fail.
        let _ = futex::wake(self, futex::Flags::empty(), i32::MAX as u32);
    }
}

/// Memory that all ranks have mapped, of [`words_for`] words.
pub(super) trait StepMemory {
    /// Word of the memory.
    type StepWord: StepWord;
    /// All words.
    fn cells(&self) -> &[Self::StepWord];
}

/// One rank's view of the shared words.
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

impl<M: StepMemory> Steps<M> {
    pub(super) fn new(memory: Arc<M>, rank: usize) -> Self {
        Self { memory, rank }
    }

    pub(super) fn memory(&self) -> &Arc<M> {
        &self.memory
    }

    fn word(&self, rank: usize, which: usize) -> &M::StepWord {
        &self.memory.cells()[LINE + rank * SLOT + which]
    }

    /// Publishes that this rank has done `step` steps, and all its writes before.
    #[inline]
    pub(super) fn publish(&self, step: u32) {
        let progress = self.word(self.rank, PROGRESS);
        progress.store(step, Ordering::Release);
        // Either this rank sees the sleeper count, or the sleeping rank sees the step.
        M::StepWord::fence(Ordering::SeqCst);
        if self.word(self.rank, ASLEEP).load(Ordering::Relaxed) != 0 {
            progress.wake();
        }
    }

    /// Returns whether a rank has done `step` steps; if so, its earlier writes are visible.
    #[inline]
    pub(super) fn has_reached(&self, rank: usize, step: u32) -> bool {
        is_reached(self.word(rank, PROGRESS).load(Ordering::Acquire), step)
    }

    /// Sleeps until a rank has done `step` steps, for `at_most`, or until another event needs a check.
    pub(super) fn sleep(&self, rank: usize, step: u32, at_most: Duration) {
        let progress = self.word(rank, PROGRESS);
        let asleep = self.word(rank, ASLEEP);
        asleep.fetch_add(1, Ordering::Relaxed);
        M::StepWord::fence(Ordering::SeqCst);
        let seen = progress.load(Ordering::Acquire);
        if !is_reached(seen, step) {
            progress.sleep_while(seen, at_most);
        }
        // A rank that is killed here leaves a count behind, which causes needless wake-ups only.
        asleep.fetch_add(u32::MAX, Ordering::Relaxed);
    }

    /// Fails the group, unless it has failed before; returns the first failure.
    pub(super) fn fail(&self, ranks: usize, rank: usize, how: RankLossReason) -> (usize, RankLossReason) {
        let word = (how as u32) << 16 | rank as u32;
        if self.memory.cells()[FAILED].exchange(0, word, Ordering::SeqCst) {
            (0..ranks).for_each(|rank| self.word(rank, PROGRESS).wake());
        }
        self.failure().unwrap_or((rank, how))
    }

    /// Failure of the group: lost rank and reason.
    #[inline]
    pub(super) fn failure(&self) -> Option<(usize, RankLossReason)> {
        let word = self.memory.cells()[FAILED].load(Ordering::Acquire);
        (word != 0).then(|| ((word & 0xffff) as usize, RankLossReason::from_word(word >> 16)))
    }

    /// Records that this rank does no more steps.
    pub(super) fn leave(&self) {
        self.word(self.rank, LEFT).store(1, Ordering::SeqCst);
        self.word(self.rank, PROGRESS).wake();
    }

    /// Returns whether a rank does no more steps.
    pub(super) fn has_left(&self, rank: usize) -> bool {
        self.word(rank, LEFT).load(Ordering::Acquire) != 0
    }

    /// Sets the task of this rank's next step. There are two places: for the next task, and for the previous one, which
    /// other ranks may still compare.
    pub(super) fn set_task(&self, number: u32, task: [u32; TASK_WORDS]) {
        let from = TASKS + (number as usize % 2) * TASK_WORDS;
        for (i, word) in task.into_iter().enumerate() {
            self.word(self.rank, from + i).store(word, Ordering::Relaxed);
        }
    }

    /// Task of a rank.
    pub(super) fn task(&self, rank: usize, number: u32) -> [u32; TASK_WORDS] {
        let from = TASKS + (number as usize % 2) * TASK_WORDS;
        std::array::from_fn(|i| self.word(rank, from + i).load(Ordering::Relaxed))
    }

    /// Claims the next part of a rank's share; parts count from 0.
    #[inline]
    pub(super) fn claim(&self, rank: usize, number: u32) -> u32 {
        self.word(rank, CLAIMS + number as usize % 2).fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether `parts` parts of a rank's share are claimed.
    #[inline]
    pub(super) fn is_claimed(&self, rank: usize, number: u32, parts: u32) -> bool {
        self.word(rank, CLAIMS + number as usize % 2).load(Ordering::Relaxed) >= parts
    }

    /// Resets the claims of this rank's share for the task after this one. Call it during this task, while no rank is
    /// at another one.
    pub(super) fn reset_claims(&self, number: u32) {
        self.word(self.rank, CLAIMS + (number as usize + 1) % 2).store(0, Ordering::Relaxed);
    }

    /// Records the processors on which this rank may run.
    pub(super) fn set_cpus(&self, is_set: impl Fn(usize) -> bool) {
        for i in 0..LINE {
            let word = (0..32).fold(0, |word, bit| word | u32::from(is_set(i * 32 + bit)) << bit);
            self.word(self.rank, CPUS + i).store(word, Ordering::Relaxed);
        }
    }

    /// Returns whether there are at least as many processors as ranks.
    pub(super) fn cpus_suffice(&self, ranks: usize) -> bool {
        let union = |i| (0..ranks).fold(0, |word, rank| word | self.word(rank, CPUS + i).load(Ordering::Relaxed));
        (0..LINE).map(|i| union(i).count_ones() as usize).sum::<usize>() >= ranks
    }
}

/// Compares step counts that wrap around.
fn is_reached(progress: u32, step: u32) -> bool {
    progress.wrapping_sub(step) as i32 >= 0
}

#[cfg(test)]
mod tests;
