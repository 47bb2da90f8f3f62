//! Cache of an emulated device's answers: the device should wait instead of using the processor.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use apps_chunk::{ChunkError, ChunkHeader, HEADER_LEN};
use pathcall_place::device::AppError;

/// Cached chunks with their packed or unpacked bytes. Only the header of an answer is new.
#[derive(Debug)]
pub struct AnswerCache {
    answers: Mutex<HashMap<(u8, u32, u32), CachedAnswer>>,
    max: usize,
}

#[derive(Debug)]
struct CachedAnswer {
    chunk: Box<[u8]>,
    answer: Box<[u8]>,
    form: u8,
}

impl AnswerCache {
    /// Creates a cache of at most `max` answers.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { answers: Mutex::default(), max }
    }

    /// Answer to a chunk: from the cache if the bytes are equal, otherwise by `work`.
    ///
    /// # Errors
    /// Returns the error of `work`.
    pub fn get_or_compute(
        &self,
        chunk: &[u8],
        to: &mut [u8],
        work: impl Fn(&[u8], &mut [u8]) -> Result<usize, ChunkError>,
    ) -> Result<usize, AppError> {
        let head = ChunkHeader::parse(chunk).map_err(|error| AppError(error.to_string()))?;
        let key = (head.form as u8, head.raw, head.sum);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pair) = answers.get(&key).filter(|pair| pair.chunk[..] == chunk[HEADER_LEN..])
            && let Some(to) = to.get_mut(..HEADER_LEN + pair.answer.len())
        {
            to[..HEADER_LEN].copy_from_slice(&chunk[..HEADER_LEN]);
            to[apps_chunk::header::FORM_AT] = pair.form;
            to[HEADER_LEN..].copy_from_slice(&pair.answer);
            return Ok(to.len());
        }
        let bytes = work(chunk, to).map_err(|error| AppError(error.to_string()))?;
        if answers.len() < self.max {
            let (answer, form) = (to[HEADER_LEN..bytes].into(), to[apps_chunk::header::FORM_AT]);
            answers.insert(key, CachedAnswer { chunk: chunk[HEADER_LEN..].into(), answer, form });
        }
        Ok(bytes)
    }
}
