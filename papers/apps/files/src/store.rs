//! Where files are: at the responder, in memory.
//!
//! A write names a version of its file. Its chunks are kept aside until all are there; then it is the file, unless a later
//! one is already. So whoever reads gets one version whole, a chunk that comes twice does no harm, and one that comes late
//! does not undo what was written after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apps_chunk::{Head, check};
use bytes::Bytes;
use pathcall_place::context::Around;
use pathcall_place::context::comm::{Fault, Head as Message};
use pathcall_place::device::AppError;

/// Bytes of a question for a chunk: file, version (0: the one that is there) and index, 0.
pub const ASK: usize = 32;
/// Bytes of the answer to a write: version, chunks that are there of it.
pub const WRITTEN: usize = 16;

/// Files, and versions of them that are not yet whole.
#[derive(Debug)]
pub struct Store {
    files: Mutex<Files>,
    bytes_max: usize,
    /// Places of the types of requests in the application's file.
    write: u16,
    read: u16,
}

#[derive(Debug, Default)]
struct Files {
    whole: HashMap<u64, Version>,
    aside: HashMap<u64, BTreeMap<u64, Version>>,
    bytes: usize,
}

/// Chunks of one version of a file, each with its head.
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

impl Store {
    /// An empty one that holds so many bytes at most. `write`, `read`: places of those types in the application's file.
    #[must_use]
    pub fn new(bytes_max: usize, write: u16, read: u16) -> Self {
        Self { files: Mutex::default(), bytes_max, write, read }
    }

    /// Forgets all files.
    pub fn clear(&self) {
        *self.lock() = Files::default();
    }

    /// A file as it is now, whole.
    #[must_use]
    pub fn file(&self, file: u64) -> Option<Vec<u8>> {
        let files = self.lock();
        let chunks = files.whole.get(&file)?.chunks.values();
        Some(chunks.flat_map(|chunk| chunk[apps_chunk::HEAD..].iter().copied()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a chunk whose bytes are right: how many of its version are there.
    fn keep(&self, head: Head, chunk: &[u8]) -> Result<u32, AppError> {
        let mut files = self.lock();
        let there = files.whole.get(&head.file).filter(|whole| whole.version >= head.version);
        if let Some(whole) = there {
            // It was written before, or something later was.
            return Ok(whole.count);
        }
        if files.bytes + chunk.len() > self.bytes_max {
            return Err(AppError(format!("no room: there are {} bytes of {}", files.bytes, self.bytes_max)));
        }
        let aside = files.aside.entry(head.file).or_default();
        let version = aside.entry(head.version).or_default();
        if version.chunks.is_empty() {
            (version.version, version.count) = (head.version, head.count);
        } else if version.count != head.count {
            let Head { file, version: number, count, .. } = head;
            let said = format!("version {number} of file {file} has {} chunks, not {count}", version.count);
            return Err(AppError(said));
        }
        // The device's memory goes back to it.
        let before = version.chunks.insert(head.index, Bytes::copy_from_slice(chunk));
        let came = version.chunks.len() as u32;
        files.bytes = files.bytes + chunk.len() - before.map_or(0, |before| before.len());
        if came == head.count {
            files.complete(head);
        }
        Ok(came)
    }

    /// A chunk of a file.
    fn chunk(&self, ask: &[u8]) -> Result<Bytes, AppError> {
        let long = |at: usize| Some(u64::from_be_bytes(ask.get(at..at + 8)?.try_into().ok()?));
        let (Some(file), Some(version), Some(index), ASK) = (long(0), long(8), long(16), ask.len()) else {
            return Err(AppError(format!("a question has {ASK} bytes, not {}", ask.len())));
        };
        let files = self.lock();
        let whole = files.whole.get(&file).ok_or_else(|| AppError(format!("there is no file {file}")))?;
        if version != 0 && whole.version != version {
            return Err(AppError(format!("file {file} has version {} now, not {version}", whole.version)));
        }
        let chunk = u32::try_from(index).ok().and_then(|index| whole.chunks.get(&index));
        chunk.cloned().ok_or_else(|| AppError(format!("file {file} has {} chunks, none is {index}", whole.count)))
    }
}

impl Files {
    /// A version is whole: those before it go.
    fn complete(&mut self, head: Head) {
        let Some(aside) = self.aside.get_mut(&head.file) else { return };
        let mut gone = std::mem::take(aside);
        // There may be no version after it.
        *aside = gone.split_off(&head.version);
        let whole = aside.remove(&head.version).unwrap_or_default();
        if aside.is_empty() {
            self.aside.remove(&head.file);
        }
        let last = self.whole.insert(head.file, whole);
        self.bytes -= gone.values().chain(&last).map(Version::bytes).sum::<usize>();
    }
}

/// What asks for a chunk.
#[must_use]
pub fn ask(file: u64, version: u64, index: u32) -> Bytes {
    [file, version, u64::from(index), 0].into_iter().flat_map(u64::to_be_bytes).collect()
}

impl Around for Store {
    fn before(&self, head: Message, request: &Bytes) -> Result<Bytes, Fault> {
        if head.kind == self.read { self.chunk(request).map_err(Fault::App) } else { Ok(request.clone()) }
    }

    fn after(&self, head: Message, _request: &Bytes, made: Result<Bytes, Fault>) -> Result<Bytes, Fault> {
        if head.kind != self.write {
            return made;
        }
        // What does not unpack, or to other bytes, may be so because of the device that has packed it: over another path
        // it may be right.
        let made = made.map_err(|fault| Fault::Failed(fault.to_string()))?;
        let (chunk, _) = check(&made).map_err(|error| Fault::Failed(error.to_string()))?;
        let came = self.keep(chunk, &made).map_err(Fault::App)?;
        Ok([chunk.version, u64::from(came)].into_iter().flat_map(u64::to_be_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use pathcall_place::Role;

    use super::*;

    const WRITE: u16 = 0;
    const READ: u16 = 1;

    fn message(kind: u16) -> Message {
        Message { kind, trip: 0, task: None, role: Role::Cpu }
    }

    fn write(store: &Store, version: u64, index: u32, count: u32, raw: &[u8]) -> Result<u64, String> {
        let chunk = Bytes::from(apps_chunk::plain(7, version, index, count, raw));
        let answer = store.after(message(WRITE), &Bytes::new(), Ok(chunk)).map_err(|fault| fault.to_string())?;
        assert_eq!(answer.len(), WRITTEN);
        Ok(u64::from_be_bytes(answer[8..].try_into().expect("eight bytes")))
    }

    #[test]
    fn a_version_is_read_when_it_is_whole() {
        let store = Store::new(1000, WRITE, READ);
        assert_eq!((write(&store, 1, 0, 2, b"ab"), store.file(7)), (Ok(1), None));
        assert_eq!((write(&store, 1, 0, 2, b"ab"), write(&store, 1, 1, 2, b"c")), (Ok(1), Ok(2)));
        assert_eq!(store.file(7).as_deref(), Some(&b"abc"[..]));
        // Version 2 stays aside, 3 is whole; what comes late changes nothing.
        assert_eq!((write(&store, 2, 0, 2, b"x"), store.file(7).as_deref()), (Ok(1), Some(&b"abc"[..])));
        assert_eq!((write(&store, 3, 0, 1, b"new"), write(&store, 2, 1, 2, b"y")), (Ok(1), Ok(1)));
        assert_eq!(store.file(7).as_deref(), Some(&b"new"[..]));
        let read = |version, index| store.before(message(READ), &ask(7, version, index)).map_err(|e| e.to_string());
        assert_eq!(check(&read(0, 0).expect("it is there")).expect("right").1, b"new");
        assert_eq!(read(1, 0), Err("file 7 has version 3 now, not 1".into()));
        assert_eq!(read(3, 1), Err("file 7 has 1 chunks, none is 1".into()));
        let files = store.lock();
        assert_eq!(files.bytes, files.whole[&7].bytes());
    }

    #[test]
    fn the_last_version_that_there_can_be_is_a_file() {
        let store = Store::new(1000, WRITE, READ);
        assert_eq!((write(&store, 1, 0, 2, b"old"), write(&store, u64::MAX, 0, 2, b"a")), (Ok(1), Ok(1)));
        assert_eq!((write(&store, u64::MAX, 1, 2, b"b"), store.file(7).as_deref()), (Ok(2), Some(&b"ab"[..])));
        assert_eq!((write(&store, 1, 1, 2, b"old"), store.file(7).as_deref()), (Ok(2), Some(&b"ab"[..])));
        let files = store.lock();
        assert!(files.aside.is_empty());
        assert_eq!(files.bytes, files.whole[&7].bytes());
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let store = Store::new(200, WRITE, READ);
        assert_eq!(write(&store, 1, 0, 2, &[0; 100]), Ok(1));
        assert_eq!(write(&store, 1, 1, 3, b"x"), Err("version 1 of file 7 has 2 chunks, not 3".into()));
        assert_eq!(write(&store, 1, 1, 2, &[0; 100]), Err("no room: there are 148 bytes of 200".into()));
        let mut wrong = apps_chunk::plain(1, 1, 0, 1, b"abc");
        wrong[50] = 0;
        for made in [Ok(wrong.into()), Err(Fault::App(AppError("no chunk".into())))] {
            let fault = store.after(message(WRITE), &Bytes::new(), made).expect_err("other bytes");
            assert!(matches!(fault, Fault::Failed(_)), "another path may do better: {fault}");
        }
        assert!(store.before(message(READ), &Bytes::from_static(b"?")).is_err());
    }
}
