//! Answers that an emulated device has given before: it is to wait in place of the processor, not to keep it busy.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use apps_chunk::{ChunkError, HEAD, Head};
use pathcall_place::device::AppError;

/// Chunks, and what became of their bytes. Of an answer only the head is new.
#[derive(Debug)]
pub struct Remembered {
    answers: Mutex<HashMap<(u8, u32, u32), Pair>>,
    max: usize,
}

#[derive(Debug)]
struct Pair {
    chunk: Box<[u8]>,
    answer: Box<[u8]>,
    form: u8,
}

impl Remembered {
    /// At most so many.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { answers: Mutex::default(), max }
    }

    /// The answer to a chunk: from memory if its bytes are the same, to the last, else by doing it.
    ///
    /// # Errors
    /// As `work` says.
    pub fn or(
        &self,
        chunk: &[u8],
        to: &mut [u8],
        work: impl Fn(&[u8], &mut [u8]) -> Result<usize, ChunkError>,
    ) -> Result<usize, AppError> {
        let head = Head::parse(chunk).map_err(|error| AppError(error.to_string()))?;
        let key = (head.form as u8, head.raw, head.sum);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pair) = answers.get(&key).filter(|pair| pair.chunk[..] == chunk[HEAD..])
            && let Some(to) = to.get_mut(..HEAD + pair.answer.len())
        {
            to[..HEAD].copy_from_slice(&chunk[..HEAD]);
            to[apps_chunk::head::FORM_AT] = pair.form;
            to[HEAD..].copy_from_slice(&pair.answer);
            return Ok(to.len());
        }
        let bytes = work(chunk, to).map_err(|error| AppError(error.to_string()))?;
        if answers.len() < self.max {
            let (answer, form) = (to[HEAD..bytes].into(), to[apps_chunk::head::FORM_AT]);
            answers.insert(key, Pair { chunk: chunk[HEAD..].into(), answer, form });
        }
        Ok(bytes)
    }
}
