//! Bytes in shared memory under a sequence lock, with a journal that undoes a write whose process has ended.
//!
//! ```text
//! words: state │ holder's process │ journal: sequence, first word, count │ the bytes │ the journal's old words
//! read:  state, copy, state: the same and free? else again
//! write: state := locked ─► old words to the journal ─► new bytes ─► state := free, next sequence
//! undo:  state := locked by another ─► old words back ─► state := free, next sequence
//! ```
//!
//! The state is one word, the number of changes and the holder of the lock, so that both change at once. The code
//! neither waits nor reads a clock. The other side may write anything into the memory: positions that come from it are
//! checked, so the worst that it can do is to spoil the bytes, or to keep the lock.

use std::sync::atomic::Ordering;

use crate::ring::{LINE_WORDS, RingMemory, RingWord};
use crate::words::{self, WORD_BYTES};

/// Number of changes in the high bits, holder in the low ones.
const STATE: usize = 0;
/// Process id of the last holder, for messages only.
const PROCESS: usize = 1;
/// Number of changes at which the journal was written.
const JOURNAL_STATE: usize = 2;
/// First word in the journal, and number of words.
const JOURNAL_FIRST: usize = 3;
const JOURNAL_COUNT: usize = 4;
/// Not 0: a process has waited for the lock for long, and others give way.
const WANTED: usize = 5;
const HEADER_WORDS: usize = LINE_WORDS;
/// Bits of the state that name the holder.
const HOLDER_BITS: u32 = 16;
const HOLDER_MASK: u64 = (1 << HOLDER_BITS) - 1;

/// Number of a process that may hold the lock.
pub(super) type Holder = u16;
/// Holder of a free lock.
const FREE: Holder = 0;

/// Words of memory for `len` bytes.
pub(super) const fn words_for(len: usize) -> usize {
    HEADER_WORDS + 2 * len.div_ceil(WORD_BYTES)
}

/// Held lock: its state. Whoever loses it leaves the memory locked, as a process that has ended does.
#[derive(Debug)]
#[must_use = "the memory stays locked"]
pub(super) struct Locked(u64);

/// Words of the memory of `M`.
type Words<'m, M> = &'m [<M as RingMemory>::Word];

/// Bytes in the memory of `M`.
#[derive(Debug)]
pub(super) struct LockedBytes<M> {
    memory: M,
    len: usize,
}

impl<M: RingMemory> LockedBytes<M> {
    /// Takes memory of [`words_for`] `len` bytes, which is zero or already in use.
    ///
    /// # Panics
    /// When the memory has another size.
    pub(super) fn new(memory: M, len: usize) -> Self {
        assert_eq!(memory.words().len(), words_for(len));
        Self { memory, len }
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether an access is within the bytes.
    #[inline]
    pub(super) fn contains(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Reads bytes, unless a process holds the lock or changes the memory meanwhile: then false, and `to` has no
    /// meaning.
    #[inline]
    #[must_use]
    pub(super) fn try_read(&self, at: usize, to: &mut [u8]) -> bool {
        let before = self.word(STATE).load(Ordering::Acquire);
        if holder(before) != FREE {
            return false;
        }
        self.copy_out(at, to);
        // Pairs with the fence of `write`: who has read one of its bytes sees its lock in the next line.
        M::Word::fence(Ordering::Acquire);
        self.word(STATE).load(Ordering::Relaxed) == before
    }

    /// Takes the lock; the error is its holder.
    #[inline]
    pub(super) fn try_lock(&self, by: Holder, process: u32) -> Result<Locked, Holder> {
        let state = self.word(STATE);
        let before = state.load(Ordering::Relaxed);
        if holder(before) != FREE {
            return Err(holder(before));
        }
        state.compare_exchange(before, before | u64::from(by)).map_err(holder)?;
        self.word(PROCESS).store(process.into(), Ordering::Relaxed);
        Ok(Locked(before | u64::from(by)))
    }

    /// Takes the lock from a holder that has ended, undoes its write, and releases the lock; false when that holder
    /// does not have it.
    pub(super) fn undo(&self, ended: Holder, by: Holder) -> bool {
        let state = self.word(STATE);
        let before = state.load(Ordering::Acquire);
        let own = (before & !HOLDER_MASK) | u64::from(by);
        if holder(before) != ended || state.compare_exchange(before, own).is_err() {
            return false;
        }
        // The journal of an earlier lock is of a write that has ended.
        if self.word(JOURNAL_STATE).load(Ordering::Acquire) == journal_state(before) {
            let first = self.word(JOURNAL_FIRST).load(Ordering::Relaxed);
            let count = self.word(JOURNAL_COUNT).load(Ordering::Relaxed);
            if let Some((bytes, journal)) = self.journaled(first, count) {
                // A read that began before the write may see them: they are what it was to see.
                copy(journal, bytes);
            }
        }
        self.release(Locked(own));
        true
    }

    /// Writes bytes, and releases the lock.
    pub(super) fn write(&self, locked: Locked, at: usize, from: &[u8]) {
        let first = at / WORD_BYTES;
        let count = (at + from.len()).div_ceil(WORD_BYTES) - first;
        let (bytes, journal) = self.journaled(first as u64, count as u64).expect("the caller has checked the range");
        copy(bytes, journal);
        self.word(JOURNAL_FIRST).store(first as u64, Ordering::Relaxed);
        self.word(JOURNAL_COUNT).store(count as u64, Ordering::Relaxed);
        self.word(JOURNAL_STATE).store(journal_state(locked.0), Ordering::Release);
        // No byte is written before the lock and the journal are.
        M::Word::fence(Ordering::Release);
        copy_in(bytes, at % WORD_BYTES, from);
        self.release(locked);
    }

    /// Reads bytes under the lock, and releases it.
    pub(super) fn read_locked(&self, locked: Locked, at: usize, to: &mut [u8]) {
        self.copy_out(at, to);
        // Nothing has changed: the sequence stays.
        self.word(STATE).store(locked.0 & !HOLDER_MASK, Ordering::Release);
    }

    /// Returns whether a process has waited for the lock for long.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.word(WANTED).load(Ordering::Relaxed) != 0
    }

    /// Sets whether a process has waited for the lock for long.
    pub(super) fn set_wanted(&self, wanted: bool) {
        self.word(WANTED).store(wanted.into(), Ordering::Relaxed);
    }

    /// Process id of the last holder, as it has written it.
    pub(super) fn process(&self) -> u64 {
        self.word(PROCESS).load(Ordering::Relaxed)
    }

    fn release(&self, locked: Locked) {
        let next = (locked.0 & !HOLDER_MASK).wrapping_add(1 << HOLDER_BITS);
        self.word(STATE).store(next, Ordering::Release);
    }

    #[inline]
    fn word(&self, which: usize) -> &M::Word {
        &self.memory.words()[which]
    }

    /// Words of the bytes, and of the journal.
    #[inline]
    fn halves(&self) -> (Words<'_, M>, Words<'_, M>) {
        self.memory.words()[HEADER_WORDS..].split_at(self.len.div_ceil(WORD_BYTES))
    }

    /// Words from `first`, and their place in the journal; `None` when they are outside.
    fn journaled(&self, first: u64, count: u64) -> Option<(Words<'_, M>, Words<'_, M>)> {
        let (bytes, journal) = self.halves();
        let (first, count) = (usize::try_from(first).ok()?, usize::try_from(count).ok()?);
        Some((bytes.get(first..first.checked_add(count)?)?, journal.get(..count)?))
    }

    #[inline]
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        let from = &self.halves().0[at / WORD_BYTES..];
        let skip = at % WORD_BYTES;
        if skip == 0 {
            return words::read(from, to);
        }
        let (head, rest) = to.split_at_mut(to.len().min(WORD_BYTES - skip));
        let word = from[0].load(Ordering::Relaxed).to_ne_bytes();
        head.copy_from_slice(&word[skip..skip + head.len()]);
        words::read(&from[1..], rest);
    }
}

#[inline]
fn holder(state: u64) -> Holder {
    (state & HOLDER_MASK) as Holder
}

/// Number of changes as the journal has it, which differs from the zero of new memory.
fn journal_state(state: u64) -> u64 {
    state | HOLDER_MASK
}

fn copy<W: RingWord>(from: &[W], to: &[W]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Writes bytes into words, from byte `skip` of the first, and keeps the bytes around them.
fn copy_in<W: RingWord>(to: &[W], skip: usize, from: &[u8]) {
    let (head, rest) = from.split_at(if skip == 0 { 0 } else { from.len().min(WORD_BYTES - skip) });
    if !head.is_empty() {
        merge(&to[0], skip, head);
    }
    let to = &to[usize::from(!head.is_empty())..];
    let (whole, tail) = rest.split_at(rest.len() - rest.len() % WORD_BYTES);
    words::write(to, whole);
    if !tail.is_empty() {
        merge(&to[whole.len() / WORD_BYTES], 0, tail);
    }
}

/// Replaces bytes of a word.
fn merge<W: RingWord>(word: &W, skip: usize, bytes: &[u8]) {
    let mut all = word.load(Ordering::Relaxed).to_ne_bytes();
    all[skip..skip + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(all), Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
