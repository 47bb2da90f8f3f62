//! Workload of writes and reads of files.

use std::sync::Arc;

use apps_chunk::{Codec, check, plain, unpack};
use apps_offload::{AppWorkload, MessageSpec, Task};
use bytes::Bytes;
use pathcall_place::context::{PlaceContext, TaskHooks};

use crate::store::{FileStore, WRITTEN, ask};
use crate::{CHUNK, tasks};

/// Files written together before they are read.
const BATCH: usize = 8;
/// Different contents of files.
const CONTENTS: usize = 4;
/// Capacity of the store in bytes.
const STORE: usize = 1 << 30;

/// Workload that writes batches of files, each a new version of the batch before, and optionally reads them.
#[derive(Debug)]
pub struct FileLoad {
    codec: Codec,
    files: usize,
    file_bytes: usize,
    reads: bool,
    contents: Vec<Vec<u8>>,
    store: Arc<FileStore>,
    buffer: Vec<u8>,
}

/// Message of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    read: bool,
    /// Number of the file, counted over all batches.
    written: usize,
    index: usize,
}

impl FileLoad {
    /// Creates a workload of `files` files of `file_bytes` bytes. `reads`: files are read after they are written.
    #[must_use]
    pub fn new(codec: Codec, files: usize, file_bytes: usize, reads: bool) -> Self {
        let contents = (0..CONTENTS as u64).map(|seed| content(seed, file_bytes)).collect();
        // Type indices as in the application file.
        let store = Arc::new(FileStore::new(STORE, 0, 1));
        let files = files.max(1).next_multiple_of(BATCH);
        Self { codec, files, file_bytes, reads, contents, store, buffer: Vec::new() }
    }

    /// Store of the files.
    #[must_use]
    pub fn store(&self) -> &Arc<FileStore> {
        &self.store
    }

    /// Content of a file after all messages.
    #[must_use]
    pub fn last(&self, file: u64) -> &[u8] {
        self.content(self.files - BATCH + file as usize)
    }

    fn chunks(&self) -> usize {
        self.file_bytes.div_ceil(CHUNK).max(1)
    }

    fn step(&self, at: usize) -> Step {
        // Chunks of a batch's files alternate, because chunks of one file wait for each other.
        let (passes, of_pass) = (1 + usize::from(self.reads), BATCH * self.chunks());
        let (pass, place) = (at / of_pass, at % of_pass);
        let (batch, read) = (pass / passes, pass % passes == 1);
        Step { read, written: batch * BATCH + place % BATCH, index: place / BATCH }
    }

    fn content(&self, written: usize) -> &[u8] {
        // Each version of a file has another content.
        &self.contents[(written / BATCH + written % BATCH) % CONTENTS]
    }

    fn raw(&self, step: Step) -> &[u8] {
        self.content(step.written).chunks(CHUNK).nth(step.index).unwrap_or_default()
    }

    fn chunk(&self, step: Step) -> Vec<u8> {
        let (file, version) = file_and_version(step);
        plain(file, version, step.index as u32, self.chunks() as u32, self.raw(step))
    }
}

/// File number and version.
const fn file_and_version(step: Step) -> (u64, u64) {
    ((step.written % BATCH) as u64, (step.written / BATCH) as u64 + 1)
}

impl AppWorkload for FileLoad {
    fn name(&self) -> &'static str {
        "files"
    }

    fn tasks(&self) -> Vec<Task> {
        let chunk = self.chunk(Step { read: false, written: 0, index: 0 });
        let mut packed = vec![0; chunk.len()];
        let bytes = apps_chunk::pack(self.codec, &chunk, &mut packed).expect("a plain chunk");
        packed.truncate(bytes);
        let answer_max = chunk.len();
        // Every chunk of every content.
        let cached = CONTENTS * self.chunks();
        vec![
            Task {
                name: "compress",
                cpu: tasks::compress(self.codec),
                acc: tasks::compress_on_accelerators(self.codec, cached),
                answer_max,
                sample: chunk.into(),
            },
            Task {
                name: "decompress",
                cpu: tasks::decompress(),
                acc: tasks::decompress_on_accelerators(2 * cached),
                answer_max,
                sample: packed.into(),
            },
        ]
    }

    fn hooks(&self) -> Option<Arc<dyn TaskHooks>> {
        Some(Arc::clone(&self.store) as Arc<dyn TaskHooks>)
    }

    fn answers_alike(&self, task: &str) -> bool {
        // Kernels pack only words.
        task != "compress" || self.codec == Codec::Words
    }

    fn reset(&mut self, _: &PlaceContext) -> Result<(), anyhow::Error> {
        self.store.clear();
        Ok(())
    }

    fn messages(&self) -> usize {
        self.files * self.chunks() * (1 + usize::from(self.reads))
    }

    fn ask(&self, at: usize) -> MessageSpec {
        let step = self.step(at);
        let (file, version) = file_and_version(step);
        let (kind, payload) = if step.read {
            ("READ", ask(file, version, step.index as u32))
        } else {
            ("WRITE", self.chunk(step).into())
        };
        MessageSpec { kind, address: file, message: file, payload, operations: 1 }
    }

    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String> {
        let step = self.step(at);
        let version = file_and_version(step).1;
        if !step.read {
            let said: Bytes = [version, step.index as u64 + 1].into_iter().flat_map(u64::to_be_bytes).collect();
            debug_assert_eq!(said.len(), WRITTEN);
            return if answer == said { Ok(()) } else { Err(format!("{answer:?}, expected {said:?}")) };
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(apps_chunk::HEADER_LEN + CHUNK, 0);
        let bytes = unpack(answer, &mut buffer).map_err(|error| error.to_string())?;
        let (head, raw) = check(&buffer[..bytes]).map_err(|error| error.to_string())?;
        let same = (head.version, head.index as usize) == (version, step.index) && raw == self.raw(step);
        self.buffer = buffer;
        if same {
            Ok(())
        } else {
            Err(format!("{} bytes differ from the written ones", bytes - apps_chunk::HEADER_LEN))
        }
    }
}

/// Content like records of measurements: most records repeat an earlier one with one changed word, the others are new,
/// and all values are close. Either codec packs the content to about half.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    const RECORD: usize = 8;
    const BACK: usize = 64;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let mut words: Vec<u32> = Vec::with_capacity(bytes / 4 + RECORD);
    while words.len() * 4 < bytes {
        let records = words.len() / RECORD;
        if records > 0 && draw(8) > 2 {
            let earlier = (records - 1 - draw(BACK.min(records))) * RECORD;
            words.extend_from_within(earlier..earlier + RECORD);
            let changed = words.len() - 1 - draw(RECORD);
            words[changed] = measured(&mut draw);
        } else {
            words.extend(std::iter::repeat_with(|| measured(&mut draw)).take(RECORD));
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).take(bytes).collect()
}

fn measured(draw: &mut impl FnMut(usize) -> usize) -> u32 {
    1_000_000 + draw(1 << 15) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_content_packs_to_about_half() {
        let raw = content(3, CHUNK);
        let chunk = plain(1, 1, 0, 1, &raw);
        for codec in [Codec::Lz4, Codec::Words] {
            let mut packed = vec![0; chunk.len()];
            let bytes = apps_chunk::pack(codec, &chunk, &mut packed).expect("a plain chunk");
            let share = bytes as f64 / raw.len() as f64;
            assert!((0.4..0.6).contains(&share), "{codec:?}: {share:.3}");
        }
    }
}
