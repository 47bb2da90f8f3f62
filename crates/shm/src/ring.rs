//! A ring of frames for one producer and one consumer that do not trust each other.
//!
//! ```text
//! push ─► words ─► publish ── WRITTEN ──► pop: copied out, then checked ── READ ──► room for push
//!                     └── is WAITING set? then wake it        wait: sets WAITING, and looks again
//! ```
//!
//! A frame is its length in bytes, one word, and its bytes, in words of eight. Positions count words, for
//! ever. Each side believes only the position that it keeps itself; of the other's it believes what is
//! possible. Generic over the memory, so that the same code runs between processes, between two threads
//! of a test, and in a model checker.

use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64, Ordering};

/// Words of the cache lines that a processor fetches together: each position has them to itself.
const LINES: usize = 16;
/// How far the producer has written, and the consumer read, words.
const WRITTEN: usize = 0;
const READ: usize = LINES;
/// Not 0: the consumer waits and is to be woken.
const WAITING: usize = 2 * LINES;
/// Words before the frames: three positions, and a place that is free, of each ring.
const HEAD: usize = 8 * LINES;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A word of shared memory.
pub trait Word: Send + Sync {
    /// As [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// As [`AtomicU64::swap`].
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// As [`atomic::fence`].
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }

    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

/// Memory that both sides have: the positions of two rings, then their frames.
pub trait Memory {
    /// What it is made of.
    type Word: Word;
    /// All of it.
    fn words(&self) -> &[Self::Word];
}

impl<W: Word> Memory for Box<[W]> {
    type Word = W;
    fn words(&self) -> &[W] {
        self
    }
}

/// Which of the two rings a side writes; it reads the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that made the memory.
    Maker,
    /// The one that was given it.
    Taker,
}

/// Words of memory for two rings of so many words each, a power of two.
#[must_use]
pub const fn words_for(capacity: usize) -> usize {
    HEAD + 2 * capacity
}

/// One side's ends of both rings in `memory`, which is zero or was used by nobody on this side.
///
/// # Panics
/// When the memory is not of [`words_for`] some power of two.
#[must_use]
pub fn pair<M: Memory>(memory: Arc<M>, side: Side) -> (Producer<M>, Consumer<M>) {
    let words = memory.words().len();
    let capacity = words.saturating_sub(HEAD) / 2;
    assert!(capacity.is_power_of_two() && words == words_for(capacity), "{words} words are no memory of two rings");
    let own = |of| Place { positions: of * (HEAD / 2), frames: HEAD + of * capacity, capacity };
    let (out, back) = if side == Side::Maker { (own(0), own(1)) } else { (own(1), own(0)) };
    let producer = Producer { memory: Arc::clone(&memory), place: out, written: 0, published: 0, read: 0 };
    (producer, Consumer { memory, place: back, read: 0, released: 0, written: 0, closed: false })
}

/// The other side has written what no right one would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// A position that can't be.
    #[error("positions {distance} words apart in a ring of {capacity}")]
    Position {
        /// Words from the reading to the writing position.
        distance: u64,
        /// Words of the ring.
        capacity: u64,
    },
    /// A frame without a length that a frame may have.
    #[error("a frame of {got} bytes, expected 1 to {expected}")]
    Length {
        /// The longest that is read.
        expected: usize,
        /// What its first word says.
        got: u64,
    },
    /// A frame that goes on after the last word that was written.
    #[error("a frame of {expected} words, of which {got} are written")]
    Cut {
        /// Words that its length takes.
        expected: u64,
        /// Words that are there.
        got: u64,
    },
}

/// Why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The consumer has not made room: a frame is lost, as from a full socket.
    #[error("the ring is full")]
    Full,
    /// Empty, or longer than [`Producer::longest`].
    #[error("a frame of {got} bytes, expected 1 to {expected}")]
    Length {
        /// The longest that is taken.
        expected: usize,
        /// Its length.
        got: usize,
    },
    /// The other side's fault.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Where a ring is in its memory, words.
#[derive(Debug, Clone, Copy)]
struct Place {
    positions: usize,
    frames: usize,
    capacity: usize,
}

impl Place {
    fn position<'m, M: Memory>(&self, memory: &'m M, which: usize) -> &'m M::Word {
        &memory.words()[self.positions + which]
    }

    /// The `count` words from a position on: as they lie in the memory, in two runs.
    fn run<'m, M: Memory>(&self, memory: &'m M, from: u64, count: usize) -> (&'m [M::Word], &'m [M::Word]) {
        let frames = &memory.words()[self.frames..self.frames + self.capacity];
        // The low bits of a position are its place.
        let start = from as usize & (self.capacity - 1);
        let first = count.min(self.capacity - start);
        (&frames[start..start + first], &frames[..count - first])
    }

    /// How far the writing position is ahead of the reading one.
    fn fill(&self, written: u64, read: u64) -> Result<u64, Corrupt> {
        let (distance, capacity) = (written.wrapping_sub(read), self.capacity as u64);
        if distance <= capacity { Ok(distance) } else { Err(Corrupt::Position { distance, capacity }) }
    }
}

/// The end that frames go in by.
#[derive(Debug)]
pub struct Producer<M> {
    memory: Arc<M>,
    place: Place,
    written: u64,
    published: u64,
    /// What the consumer said last.
    read: u64,
}

impl<M: Memory> Producer<M> {
    /// The memory of both rings.
    #[must_use]
    pub fn into_memory(self) -> Arc<M> {
        self.memory
    }

    /// The longest frame that it takes, bytes: a quarter of the ring.
    #[must_use]
    pub fn longest(&self) -> usize {
        (self.place.capacity / 4 - 1) * WORD
    }

    /// Writes a frame, which the consumer sees when it is [published](Self::publish).
    ///
    /// # Errors
    /// [`Refused`]; nothing was written then.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> Result<(), Refused> {
        if frame.is_empty() || frame.len() > self.longest() {
            return Err(Refused::Length { expected: self.longest(), got: frame.len() });
        }
        let words = 1 + frame.len().div_ceil(WORD);
        if self.room()? < words as u64 {
            return Err(Refused::Full);
        }
        let (head, _) = self.place.run(&*self.memory, self.written, 1);
        head[0].store(frame.len() as u64, Ordering::Relaxed);
        let (first, second) = self.place.run(&*self.memory, self.written + 1, words - 1);
        let (one, other) = frame.split_at(frame.len().min(first.len() * WORD));
        write(first, one);
        write(second, other);
        self.written += words as u64;
        Ok(())
    }

    /// Words written and not published yet.
    #[must_use]
    pub fn unpublished(&self) -> u64 {
        self.written - self.published
    }

    /// Shows the consumer what was pushed; whether it waits, and the caller is to wake it.
    #[must_use = "a consumer that waits does not look"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.published = self.written;
        self.position(WRITTEN).store(self.written, Ordering::Release);
        // Either the consumer, which says that it waits and then looks, sees the frames; or this, which
        // writes them and then looks whether it waits, sees that.
        M::Word::fence(Ordering::SeqCst);
        let waiting = self.position(WAITING);
        waiting.load(Ordering::Relaxed) != 0 && waiting.swap(0, Ordering::AcqRel) != 0
    }

    /// Words that can be written; asks the consumer's position when there seem to be few.
    fn room(&mut self) -> Result<u64, Corrupt> {
        let capacity = self.place.capacity as u64;
        let seen = capacity - (self.written - self.read);
        if seen > capacity / 4 {
            return Ok(seen);
        }
        let read = self.position(READ).load(Ordering::Acquire);
        // What is not published can't have been read.
        let fill = self.place.fill(self.written, read)?;
        if read.wrapping_sub(self.read) > self.published - self.read {
            return Err(Corrupt::Position { distance: read.wrapping_sub(self.read), capacity });
        }
        self.read = read;
        Ok(capacity - fill)
    }

    fn position(&self, which: usize) -> &M::Word {
        self.place.position(&*self.memory, which)
    }
}

/// The end that frames come out by.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: Arc<M>,
    place: Place,
    read: u64,
    released: u64,
    /// What the producer said last.
    written: u64,
    closed: bool,
}

impl<M: Memory> Consumer<M> {
    /// Copies the next frame into `frame`, which bounds its length; how long it is, or `None` when there
    /// is none. Its bytes are whatever the other side wrote.
    ///
    /// # Errors
    /// [`Corrupt`]: the ring is of no use any more.
    #[inline]
    pub fn pop(&mut self, frame: &mut [u8]) -> Result<Option<usize>, Corrupt> {
        if self.read == self.written {
            self.release();
            if !self.closed {
                self.ask()?;
            }
            if self.read == self.written {
                return Ok(None);
            }
        }
        let there = self.written - self.read;
        let (head, _) = self.place.run(&*self.memory, self.read, 1);
        let got = head[0].load(Ordering::Relaxed);
        let len = usize::try_from(got).ok().filter(|len| (1..=frame.len()).contains(len));
        let len = len.ok_or(Corrupt::Length { expected: frame.len(), got })?;
        let words = 1 + len.div_ceil(WORD);
        if words as u64 > there {
            return Err(Corrupt::Cut { expected: words as u64, got: there });
        }
        let (first, second) = self.place.run(&*self.memory, self.read + 1, words - 1);
        let (one, other) = frame[..len].split_at_mut(len.min(first.len() * WORD));
        read(first, one);
        read(second, other);
        self.read += words as u64;
        // The other side sees room well before it runs out of it.
        if self.read - self.released > self.place.capacity as u64 / 8 {
            self.release();
        }
        Ok(Some(len))
    }

    /// The producer is gone: takes what there is now, and nothing that is written later.
    ///
    /// # Errors
    /// As [`pop`](Self::pop).
    pub fn close(&mut self) -> Result<(), Corrupt> {
        self.closed = true;
        self.ask()
    }

    /// Whether it is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Asks how far the producer has written.
    fn ask(&mut self) -> Result<(), Corrupt> {
        let written = self.position(WRITTEN).load(Ordering::Acquire);
        self.place.fill(written, self.read)?;
        self.written = written;
        Ok(())
    }

    /// Whether the ring was at least half full when the producer's position was last asked.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.written - self.read >= self.place.capacity as u64 / 2
    }

    /// Says that it waits; false if there are frames, or nonsense, after all. The producer wakes it once.
    #[must_use = "there may be frames"]
    pub fn wait(&self) -> bool {
        // An exchange: it comes after the producer's last one, whose zero is not taken for an answer to it.
        self.position(WAITING).swap(1, Ordering::AcqRel);
        // See `Producer::publish`.
        M::Word::fence(Ordering::SeqCst);
        self.read == self.written && self.position(WRITTEN).load(Ordering::Acquire) == self.read
    }

    /// Says that it looks by itself.
    pub fn look(&self) {
        self.position(WAITING).store(0, Ordering::Relaxed);
    }

    /// Gives back the room of what was popped.
    fn release(&mut self) {
        if self.released != self.read {
            self.released = self.read;
            self.position(READ).store(self.read, Ordering::Release);
        }
    }

    fn position(&self, which: usize) -> &M::Word {
        self.place.position(&*self.memory, which)
    }
}

/// Writes bytes into as many words as they take.
#[inline]
fn write<W: Word>(words: &[W], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Reads bytes out of as many words as they take.
#[inline]
fn read<W: Word>(words: &[W], bytes: &mut [u8]) {
    let (whole, rest) = bytes.as_chunks_mut::<WORD>();
    let wholes = whole.len();
    for (word, bytes) in words.iter().zip(whole) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !rest.is_empty() {
        let last = words[wholes].load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(test)]
mod tests;
