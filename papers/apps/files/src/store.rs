//! In-memory file store of the responder.
//!
//! A write names a version of its file. The store keeps the chunks of an incomplete version separately. A complete
//! version replaces the file, unless the file is already newer. So a reader gets one complete version, repeated chunks
//! have no effect, and late chunks do not undo newer writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apps_chunk::{ChunkHeader, check};
use bytes::Bytes;
use pathcall_place::context::TaskHooks;
use pathcall_place::context::comm::{AnswerError, RequestHead};
use pathcall_place::device::AppError;

/// Bytes of a read request: file, version (0: current one), index, 0.
pub const ASK: usize = 32;
/// Bytes of the answer to a write: version, and number of stored chunks of the version.
pub const WRITTEN: usize = 16;

/// Files, and incomplete versions of files.
#[derive(Debug)]
pub struct FileStore {
    files: Mutex<Files>,
    bytes_max: usize,
    /// Indices of the request types in the application file.
    write: u16,
    read: u16,
}

#[derive(Debug, Default)]
struct Files {
    current: HashMap<u64, Version>,
    incomplete: HashMap<u64, BTreeMap<u64, Version>>,
    bytes: usize,
}

/// Chunks of one version of a file, each with its header.
#[derive(Debug, Clone, Default)]
struct Version {
    version: u64,
    count: u32,
    chunks: BTreeMap<u32, Bytes>,
}

impl Version {
    fn bytes(&self) -> usize {
        self.chunks.values().map(Bytes::len).sum()
    }
}

impl FileStore {
    /// Creates a store of at most `bytes_max` bytes. `write`, `read`: indices of the request types in the application
    /// file.
    #[must_use]
    pub fn new(bytes_max: usize, write: u16, read: u16) -> Self {
        Self { files: Mutex::default(), bytes_max, write, read }
    }

    /// Deletes all files.
    pub fn clear(&self) {
        *self.lock() = Files::default();
    }

    /// Current complete version of a file.
    #[must_use]
    pub fn file(&self, file: u64) -> Option<Vec<u8>> {
        let files = self.lock();
        let chunks = files.current.get(&file)?.chunks.values();
        Some(chunks.flat_map(|chunk| chunk[apps_chunk::HEADER_LEN..].iter().copied()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a chunk with a correct checksum; returns the number of stored chunks of its version.
    fn store_chunk(&self, head: ChunkHeader, chunk: &[u8]) -> Result<u32, AppError> {
        let mut files = self.lock();
        let there = files.current.get(&head.file).filter(|current| current.version >= head.version);
        if let Some(current) = there {
            // This version or a later one is already complete.
            return Ok(current.count);
        }
        if files.bytes + chunk.len() > self.bytes_max {
            return Err(AppError(format!("store is full: {} of {} bytes used", files.bytes, self.bytes_max)));
        }
        let incomplete = files.incomplete.entry(head.file).or_default();
        let version = incomplete.entry(head.version).or_default();
        if version.chunks.is_empty() {
            (version.version, version.count) = (head.version, head.count);
        } else if version.count != head.count {
            let ChunkHeader { file, version: number, count, .. } = head;
            let said = format!("version {number} of file {file} has {} chunks, not {count}", version.count);
            return Err(AppError(said));
        }
        // Copies the bytes, because the device reuses its memory.
        let before = version.chunks.insert(head.index, Bytes::copy_from_slice(chunk));
        let came = version.chunks.len() as u32;
        files.bytes = files.bytes + chunk.len() - before.map_or(0, |before| before.len());
        if came == head.count {
            files.complete(head);
        }
        Ok(came)
    }

    /// Chunk of a file.
    fn chunk(&self, ask: &[u8]) -> Result<Bytes, AppError> {
        let long = |at: usize| Some(u64::from_be_bytes(ask.get(at..at + 8)?.try_into().ok()?));
        let (Some(file), Some(version), Some(index), ASK) = (long(0), long(8), long(16), ask.len()) else {
            return Err(AppError(format!("read request of {} bytes, expected {ASK}", ask.len())));
        };
        let files = self.lock();
        let current = files.current.get(&file).ok_or_else(|| AppError(format!("file {file} does not exist")))?;
        if version != 0 && current.version != version {
            return Err(AppError(format!("file {file} has version {}, not {version}", current.version)));
        }
        let chunk = u32::try_from(index).ok().and_then(|index| current.chunks.get(&index));
        chunk.cloned().ok_or_else(|| AppError(format!("no chunk {index}: file {file} has {} chunks", current.count)))
    }
}

impl Files {
    /// Replaces the file by a complete version, and drops earlier ones.
    fn complete(&mut self, head: ChunkHeader) {
        let Some(incomplete) = self.incomplete.get_mut(&head.file) else { return };
        let mut gone = std::mem::take(incomplete);
        // No later version may exist.
        *incomplete = gone.split_off(&head.version);
        let current = incomplete.remove(&head.version).unwrap_or_default();
        if incomplete.is_empty() {
            self.incomplete.remove(&head.file);
        }
        let last = self.current.insert(head.file, current);
        self.bytes -= gone.values().chain(&last).map(Version::bytes).sum::<usize>();
    }
}

/// Encodes a read request.
#[must_use]
pub fn ask(file: u64, version: u64, index: u32) -> Bytes {
    [file, version, u64::from(index), 0].into_iter().flat_map(u64::to_be_bytes).collect()
}

impl TaskHooks for FileStore {
    fn before(&self, head: RequestHead, request: &Bytes) -> Result<Bytes, AnswerError> {
        if head.kind == self.read { self.chunk(request).map_err(AnswerError::App) } else { Ok(request.clone()) }
    }

    fn after(
        &self,
        head: RequestHead,
        _request: &Bytes,
        made: Result<Bytes, AnswerError>,
    ) -> Result<Bytes, AnswerError> {
        if head.kind != self.write {
            return made;
        }
        // The device that packed the chunk may have caused a failure or a wrong checksum. Another path may succeed.
        let made = made.map_err(|fault| AnswerError::Failed(fault.to_string()))?;
        let (chunk, _) = check(&made).map_err(|error| AnswerError::Failed(error.to_string()))?;
        let came = self.store_chunk(chunk, &made).map_err(AnswerError::App)?;
        Ok([chunk.version, u64::from(came)].into_iter().flat_map(u64::to_be_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use pathcall_place::DeviceRole;

    use super::*;

    const WRITE: u16 = 0;
    const READ: u16 = 1;

    fn message(kind: u16) -> RequestHead {
        RequestHead { kind, trip: 0, task: None, role: DeviceRole::Cpu }
    }

    fn write(store: &FileStore, version: u64, index: u32, count: u32, raw: &[u8]) -> Result<u64, String> {
        let chunk = Bytes::from(apps_chunk::plain(7, version, index, count, raw));
        let answer = store.after(message(WRITE), &Bytes::new(), Ok(chunk)).map_err(|fault| fault.to_string())?;
        assert_eq!(answer.len(), WRITTEN);
        Ok(u64::from_be_bytes(answer[8..].try_into().expect("eight bytes")))
    }

    #[test]
    fn version_is_readable_once_complete() {
        let store = FileStore::new(1000, WRITE, READ);
        assert_eq!((write(&store, 1, 0, 2, b"ab"), store.file(7)), (Ok(1), None));
        assert_eq!((write(&store, 1, 0, 2, b"ab"), write(&store, 1, 1, 2, b"c")), (Ok(1), Ok(2)));
        assert_eq!(store.file(7).as_deref(), Some(&b"abc"[..]));
        // Version 2 is incomplete, version 3 complete; a late chunk has no effect.
        assert_eq!((write(&store, 2, 0, 2, b"x"), store.file(7).as_deref()), (Ok(1), Some(&b"abc"[..])));
        assert_eq!((write(&store, 3, 0, 1, b"new"), write(&store, 2, 1, 2, b"y")), (Ok(1), Ok(1)));
        assert_eq!(store.file(7).as_deref(), Some(&b"new"[..]));
        let read = |version, index| store.before(message(READ), &ask(7, version, index)).map_err(|e| e.to_string());
        assert_eq!(check(&read(0, 0).expect("a chunk")).expect("a valid chunk").1, b"new");
        assert_eq!(read(1, 0), Err("file 7 has version 3, not 1".into()));
        assert_eq!(read(3, 1), Err("no chunk 1: file 7 has 1 chunks".into()));
        let files = store.lock();
        assert_eq!(files.bytes, files.current[&7].bytes());
    }

    #[test]
    fn maximum_version_number_is_readable() {
        let store = FileStore::new(1000, WRITE, READ);
        assert_eq!((write(&store, 1, 0, 2, b"old"), write(&store, u64::MAX, 0, 2, b"a")), (Ok(1), Ok(1)));
        assert_eq!((write(&store, u64::MAX, 1, 2, b"b"), store.file(7).as_deref()), (Ok(2), Some(&b"ab"[..])));
        assert_eq!((write(&store, 1, 1, 2, b"old"), store.file(7).as_deref()), (Ok(2), Some(&b"ab"[..])));
        let files = store.lock();
        assert!(files.incomplete.is_empty());
        assert_eq!(files.bytes, files.current[&7].bytes());
    }

    #[test]
    fn invalid_chunks_are_rejected() {
        let store = FileStore::new(200, WRITE, READ);
        assert_eq!(write(&store, 1, 0, 2, &[0; 100]), Ok(1));
        assert_eq!(write(&store, 1, 1, 3, b"x"), Err("version 1 of file 7 has 2 chunks, not 3".into()));
        assert_eq!(write(&store, 1, 1, 2, &[0; 100]), Err("store is full: 148 of 200 bytes used".into()));
        let mut wrong = apps_chunk::plain(1, 1, 0, 1, b"abc");
        wrong[50] = 0;
        for made in [Ok(wrong.into()), Err(AnswerError::App(AppError("no chunk".into())))] {
            let fault = store.after(message(WRITE), &Bytes::new(), made).expect_err("other bytes");
            assert!(matches!(fault, AnswerError::Failed(_)), "another path may succeed: {fault}");
        }
        assert!(store.before(message(READ), &Bytes::from_static(b"?")).is_err());
    }
}
