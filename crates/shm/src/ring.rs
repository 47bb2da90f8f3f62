//! Ring of frames for one producer and one consumer that do not trust each other.
//!
//! ```text
//! push ─► words ─► publish ── WRITTEN ──► pop: copied out, then checked ── READ ──► room for push
//!                     └── is WAITING set? then wake      arm_wakeup: sets WAITING, and checks again
//! ```
//!
//! A frame is its length in bytes, one word, and its bytes, in words of eight. Positions count words and never wrap.
//! Each side keeps its own position in private memory; it checks that the other side's position is possible. The code
//! is generic over the memory, so that it runs between processes, between threads of a test, and in a model checker.

use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64, Ordering};

use crate::words::{WORD_BYTES, read, write};

/// Words of the cache lines that a processor fetches together: each position has its own.
pub(crate) const LINE_WORDS: usize = 16;
/// Positions of the producer and of the consumer, words.
const WRITTEN: usize = 0;
const READ: usize = LINE_WORDS;
/// Not 0: the consumer waits and is to be woken.
const WAITING: usize = 2 * LINE_WORDS;
/// Words before the frames: for each ring, three positions and an unused line.
const HEADER_WORDS: usize = 8 * LINE_WORDS;

/// Word of shared memory.
pub trait RingWord: Send + Sync {
    /// Loads the word as [`AtomicU64::load`] does.
    fn load(&self, order: Ordering) -> u64;
    /// Stores the word as [`AtomicU64::store`] does.
    fn store(&self, value: u64, order: Ordering);
    /// Swaps the word as [`AtomicU64::swap`] does.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Exchanges the word as [`AtomicU64::compare_exchange`] does, with acquire order; the error is its other value.
    ///
    /// # Errors
    /// When the word is not `current`.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
    /// Issues a fence as [`atomic::fence`] does.
    fn fence(order: Ordering);
}

impl RingWord for AtomicU64 {
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
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed)
    }

    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

/// Memory of both sides: the positions of two rings, then their frames.
pub trait RingMemory {
    /// Word of the memory.
    type Word: RingWord;
    /// All words of the memory.
    fn words(&self) -> &[Self::Word];
}

impl<W: RingWord> RingMemory for Box<[W]> {
    type Word = W;
    fn words(&self) -> &[W] {
        self
    }
}

/// Side of a pair of rings: each side writes one ring, and reads the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSide {
    /// The side that created the memory.
    Creator,
    /// The side that received the memory.
    Receiver,
}

/// Words of memory for two rings of `capacity` words each, a power of two.
#[must_use]
pub const fn words_for(capacity: usize) -> usize {
    HEADER_WORDS + 2 * capacity
}

/// Creates the two ends of one side in `memory`, which must be zero, or unused by this side.
///
/// # Panics
/// When the size of the memory is not [`words_for`] a power of two.
#[must_use]
pub fn ring_pair<M: RingMemory>(memory: Arc<M>, side: RingSide) -> (Producer<M>, Consumer<M>) {
    let words = memory.words().len();
    let capacity = words.saturating_sub(HEADER_WORDS) / 2;
    assert!(
        capacity.is_power_of_two() && words == words_for(capacity),
        "{words} words are not the memory of two rings"
    );
    let own = |of| RingLayout { positions: of * (HEADER_WORDS / 2), frames: HEADER_WORDS + of * capacity, capacity };
    let (out, back) = if side == RingSide::Creator { (own(0), own(1)) } else { (own(1), own(0)) };
    let producer = Producer { memory: Arc::clone(&memory), layout: out, written: 0, published: 0, read: 0 };
    (producer, Consumer { memory, layout: back, read: 0, released: 0, written: 0, closed: false })
}

/// Invalid data of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingCorruption {
    /// An impossible position.
    #[error("positions {distance} words apart in a ring of {capacity}")]
    Position {
        /// Words from the reading to the writing position.
        distance: u64,
        /// Words of the ring.
        capacity: u64,
    },
    /// A frame with an invalid length.
    #[error("a frame of {got} bytes, expected 1 to {expected}")]
    Length {
        /// Longest frame that is read.
        expected: usize,
        /// Length in its first word.
        got: u64,
    },
    /// A frame that exceeds the written words.
    #[error("a frame of {expected} words, of which {got} are written")]
    Cut {
        /// Words of the frame.
        expected: u64,
        /// Words that are written.
        got: u64,
    },
}

/// Error of writing a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The ring is full: the frame is lost, as at a full socket.
    #[error("the ring is full")]
    Full,
    /// The frame is empty, or longer than [`Producer::longest`].
    #[error("a frame of {got} bytes, expected 1 to {expected}")]
    Length {
        /// Longest frame.
        expected: usize,
        /// Length of the frame.
        got: usize,
    },
    /// The other side has corrupted the ring.
    #[error(transparent)]
    Corrupt(#[from] RingCorruption),
}

/// Layout of a ring in its memory, words.
#[derive(Debug, Clone, Copy)]
struct RingLayout {
    positions: usize,
    frames: usize,
    capacity: usize,
}

impl RingLayout {
    fn position<'m, M: RingMemory>(&self, memory: &'m M, which: usize) -> &'m M::Word {
        &memory.words()[self.positions + which]
    }

    /// The `count` words from a position: in two slices, because the ring wraps.
    fn words_at<'m, M: RingMemory>(&self, memory: &'m M, from: u64, count: usize) -> (&'m [M::Word], &'m [M::Word]) {
        let frames = &memory.words()[self.frames..self.frames + self.capacity];
        // The low bits of a position are the index.
        let start = from as usize & (self.capacity - 1);
        let first = count.min(self.capacity - start);
        (&frames[start..start + first], &frames[..count - first])
    }

    /// Distance from the reading to the writing position.
    fn used_words(&self, written: u64, read: u64) -> Result<u64, RingCorruption> {
        let (distance, capacity) = (written.wrapping_sub(read), self.capacity as u64);
        if distance <= capacity { Ok(distance) } else { Err(RingCorruption::Position { distance, capacity }) }
    }
}

/// Writing end of a ring.
#[derive(Debug)]
pub struct Producer<M> {
    memory: Arc<M>,
    layout: RingLayout,
    written: u64,
    published: u64,
    /// Last position read from the consumer.
    read: u64,
}

impl<M: RingMemory> Producer<M> {
    /// Returns the memory of both rings.
    #[must_use]
    pub fn into_memory(self) -> Arc<M> {
        self.memory
    }

    /// Longest frame, bytes: a quarter of the ring.
    #[must_use]
    pub fn longest(&self) -> usize {
        (self.layout.capacity / 4 - 1) * WORD_BYTES
    }

    /// Writes a frame, which the consumer sees once it is [published](Self::publish).
    ///
    /// # Errors
    /// [`PushError`]; then nothing was written.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> Result<(), PushError> {
        if frame.is_empty() || frame.len() > self.longest() {
            return Err(PushError::Length { expected: self.longest(), got: frame.len() });
        }
        let words = 1 + frame.len().div_ceil(WORD_BYTES);
        if self.free_words()? < words as u64 {
            return Err(PushError::Full);
        }
        let (head, _) = self.layout.words_at(&*self.memory, self.written, 1);
        head[0].store(frame.len() as u64, Ordering::Relaxed);
        let (first, second) = self.layout.words_at(&*self.memory, self.written + 1, words - 1);
        let (one, other) = frame.split_at(frame.len().min(first.len() * WORD_BYTES));
        write(first, one);
        write(second, other);
        self.written += words as u64;
        Ok(())
    }

    /// Words written and not published yet.
    #[must_use]
    pub fn unpublished_words(&self) -> u64 {
        self.written - self.published
    }

    /// Publishes the written frames; returns whether the consumer waits and the caller has to wake it.
    #[must_use = "a consumer that waits does not look"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.published = self.written;
        self.position(WRITTEN).store(self.written, Ordering::Release);
        // Either the consumer, which sets WAITING and then checks for frames, sees the frames; or this side, which
        // publishes frames and then checks WAITING, sees the flag.
        M::Word::fence(Ordering::SeqCst);
        let waiting = self.position(WAITING);
        waiting.load(Ordering::Relaxed) != 0 && waiting.swap(0, Ordering::AcqRel) != 0
    }

    /// Words that can be written; reads the consumer's position when few seem free.
    fn free_words(&mut self) -> Result<u64, RingCorruption> {
        let capacity = self.layout.capacity as u64;
        let seen = capacity - (self.written - self.read);
        if seen > capacity / 4 {
            return Ok(seen);
        }
        let read = self.position(READ).load(Ordering::Acquire);
        // Unpublished words cannot have been read.
        let fill = self.layout.used_words(self.written, read)?;
        if read.wrapping_sub(self.read) > self.published - self.read {
            return Err(RingCorruption::Position { distance: read.wrapping_sub(self.read), capacity });
        }
        self.read = read;
        Ok(capacity - fill)
    }

    fn position(&self, which: usize) -> &M::Word {
        self.layout.position(&*self.memory, which)
    }
}

/// Reading end of a ring.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: Arc<M>,
    layout: RingLayout,
    read: u64,
    released: u64,
    /// Last position read from the producer.
    written: u64,
    closed: bool,
}

impl<M: RingMemory> Consumer<M> {
    /// Copies the next frame into `frame`, which limits its length; returns its length, or `None` when there is none.
    /// The bytes are whatever the other side wrote.
    ///
    /// # Errors
    /// [`RingCorruption`]: the ring is unusable.
    #[inline]
    pub fn pop(&mut self, frame: &mut [u8]) -> Result<Option<usize>, RingCorruption> {
        if self.read == self.written {
            self.release();
            if !self.closed {
                self.refresh()?;
            }
            if self.read == self.written {
                return Ok(None);
            }
        }
        let available = self.written - self.read;
        let (head, _) = self.layout.words_at(&*self.memory, self.read, 1);
        let got = head[0].load(Ordering::Relaxed);
        let len = usize::try_from(got).ok().filter(|len| (1..=frame.len()).contains(len));
        let len = len.ok_or(RingCorruption::Length { expected: frame.len(), got })?;
        let words = 1 + len.div_ceil(WORD_BYTES);
        if words as u64 > available {
            return Err(RingCorruption::Cut { expected: words as u64, got: available });
        }
        let (first, second) = self.layout.words_at(&*self.memory, self.read + 1, words - 1);
        let (one, other) = frame[..len].split_at_mut(len.min(first.len() * WORD_BYTES));
        read(first, one);
        read(second, other);
        self.read += words as u64;
        // Release early, so that the other side does not run out of space.
        if self.read - self.released > self.layout.capacity as u64 / 8 {
            self.release();
        }
        Ok(Some(len))
    }

    /// Closes the ring after the producer has ended: the present frames can be read, later ones are ignored.
    ///
    /// # Errors
    /// As [`pop`](Self::pop).
    pub fn close(&mut self) -> Result<(), RingCorruption> {
        self.closed = true;
        self.refresh()
    }

    /// Returns whether the ring is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reads the producer's position.
    fn refresh(&mut self) -> Result<(), RingCorruption> {
        let written = self.position(WRITTEN).load(Ordering::Acquire);
        self.layout.used_words(written, self.read)?;
        self.written = written;
        Ok(())
    }

    /// Returns whether the ring was at least half full when the producer's position was last read.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.written - self.read >= self.layout.capacity as u64 / 2
    }

    /// Asks the producer for one wake-up; false if there are frames, or invalid positions, already.
    #[must_use = "there may be frames"]
    pub fn arm_wakeup(&self) -> bool {
        // An exchange: it is ordered after the producer's last one, whose zero must not count as its answer.
        self.position(WAITING).swap(1, Ordering::AcqRel);
        // See `Producer::publish`.
        M::Word::fence(Ordering::SeqCst);
        self.read == self.written && self.position(WRITTEN).load(Ordering::Acquire) == self.read
    }

    /// Disarms the wake-up, because this side polls.
    pub fn disarm_wakeup(&self) {
        self.position(WAITING).store(0, Ordering::Relaxed);
    }

    /// Releases the space of the frames that were read.
    fn release(&mut self) {
        if self.released != self.read {
            self.released = self.read;
            self.position(READ).store(self.read, Ordering::Release);
        }
    }

    fn position(&self, which: usize) -> &M::Word {
        self.layout.position(&*self.memory, which)
    }
}

#[cfg(test)]
mod tests;
