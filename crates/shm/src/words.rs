//! Copies of bytes between private memory and words of shared memory.

use std::sync::atomic::Ordering;

use crate::ring::RingWord;

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();

/// Writes bytes into words.
#[inline]
pub(crate) fn write<W: RingWord>(words: &[W], bytes: &[u8]) {
    let (whole_words, rest) = bytes.as_chunks::<WORD_BYTES>();
    for (word, bytes) in words.iter().zip(whole_words) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        words[whole_words.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Reads bytes from words.
#[inline]
pub(crate) fn read<W: RingWord>(words: &[W], bytes: &mut [u8]) {
    let (whole_words, rest) = bytes.as_chunks_mut::<WORD_BYTES>();
    let full = whole_words.len();
    for (word, bytes) in words.iter().zip(whole_words) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !rest.is_empty() {
        let last = words[full].load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}
