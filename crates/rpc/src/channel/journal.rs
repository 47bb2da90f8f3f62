//! What a channel must still know after its process was killed: which calls with ids it had begun, in
//! which of the server's books, and which were done.
//!
//! ```text
//! HEAD, then records: length (2 bytes), kind, application (length, name), book or server, id; check (4 bytes)
//! ```
//!
//! A record is written before what it says is done, and in one piece. It is in the system's page cache
//! then, so `kill -9` loses nothing; the loss of the whole machine may, for it is not synchronised with
//! the disk. A record that is not whole, as the process was killed or the disk was full, was never acted upon, and is cut
//! off before another one follows. The file grows by one to three records a call: a run that is over can remove it.
//!
//! Each opening has a number, which is the upper part of the numbers of its tries: what a process before left on its way
//! has smaller ones, and the server knows it by them. It is the time, so that it grows also where the file has gone back,
//! as after the loss of the machine; and it is written, so that it grows also where the clock has.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pathcall_endpoint::map::server::books::{ID_BYTES_MAX, IDS_MAX, STRAGGLERS_MAX, Try};

/// What a journal begins with.
const HEAD: &[u8] = b"pathcall journal 1\n";
/// Kinds of records.
const BOOK: u8 = 1;
const BEGUN: u8 = 2;
const DONE: u8 = 3;
const APPLIED: u8 = 4;
const OPENED: u8 = 5;
/// Bits of a try's number below that of the opening, in microseconds; nobody makes so many tries in one.
const TRY_BITS: u32 = 12;

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// What the system says.
    #[error("the journal {}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("the journal {} is in use: two channels can't share it", path.display())]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// It is another file.
    #[error("{} is not a journal: it does not begin with {:?}", path.display(), "pathcall journal 1")]
    Foreign {
        /// Its path.
        path: PathBuf,
    },
}

/// A book that the server keeps for this journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Book {
    pub(super) number: u64,
    /// Incarnation of the server that keeps it.
    pub(super) server: u32,
}

/// Where a call with an id stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    /// It was never begun.
    New,
    /// It may have taken effect, as the book with this number says.
    Begun(u64),
    /// It has taken effect; what its handler came to is not known.
    Applied,
    /// It has taken effect, and its handler, if it has one, has answered.
    Done,
    /// Another call with the id is under way.
    UnderWay,
}

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// Where the whole records end.
    end: u64,
    /// A part of a record may stand behind them.
    torn: bool,
    applications: HashMap<String, Known>,
    /// The number of the next try.
    next: u64,
    /// Numbers of tries that are under way.
    under_way: BTreeSet<u64>,
}

/// What is known of an application's calls.
#[derive(Debug, Default)]
struct Known {
    book: Option<Book>,
    /// Calls that are not done, with their books.
    begun: HashMap<Vec<u8>, u64>,
    /// Calls that took effect, and whose handlers have not answered.
    applied: HashSet<Vec<u8>>,
    done: HashSet<Vec<u8>>,
    under_way: HashSet<Vec<u8>>,
    /// They took effect, and the server may still remember them; and the number that every try of theirs is below.
    untold: VecDeque<(u64, Vec<u8>)>,
}

/// A try to have a call take effect, while it is under way.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    journal: &'a Journal,
    application: &'a str,
    book: u64,
    pub(super) nth: Try,
    /// Ids that the server is told it need not remember. Those that are left here when this is dropped it may not have
    /// heard, and they are told again.
    pub(super) telling: Vec<Vec<u8>>,
}

impl Journal {
    /// Opens a journal, or makes one.
    pub(super) fn open(path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (mut applications, mut last) = (HashMap::new(), 0);
        // A process that was killed while it made the file has left a part of the head.
        let whole = if HEAD.starts_with(&bytes) && bytes.len() < HEAD.len() {
            file.rewind().and_then(|()| file.write_all(HEAD)).map_err(failed)?;
            HEAD.len()
        } else {
            let records = bytes.strip_prefix(HEAD).ok_or_else(|| JournalError::Foreign { path: path.to_owned() })?;
            HEAD.len() + replay(records, &mut applications, &mut last)
        };
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let (opening, under_way) = (clock.max(last + 1), BTreeSet::new());
        let mut state =
            State { file, end: whole as u64, torn: true, applications, next: opening << TRY_BITS, under_way };
        state.write(&record(OPENED, "", opening, &[])).map_err(failed)?;
        Ok(Self { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// The book that new calls of an application are written in.
    pub(super) fn book(&self, application: &str) -> Option<Book> {
        self.lock().applications.get(application)?.book
    }

    /// Notes a new book.
    pub(super) fn opened(&self, application: &str, book: Book) -> Result<(), JournalError> {
        let mut state = self.lock();
        let server = book.server.to_be_bytes();
        self.append(&mut state, BOOK, application, book.number, &server)?;
        let known = state.known(application);
        known.book = Some(book);
        known.untold.clear();
        Ok(())
    }

    /// Where a call stands; one that is not done is under way from now on.
    pub(super) fn take(&self, application: &str, id: &[u8]) -> Stands {
        let mut state = self.lock();
        let known = state.known(application);
        if known.done.contains(id) {
            return Stands::Done;
        }
        if !known.under_way.insert(id.to_vec()) {
            return Stands::UnderWay;
        }
        if known.applied.contains(id) {
            return Stands::Applied;
        }
        known.begun.get(id).map_or(Stands::New, |book| Stands::Begun(*book))
    }

    /// Notes that a call is begun, in this book.
    pub(super) fn begin(&self, application: &str, id: &[u8], book: u64) -> Result<(), JournalError> {
        let mut state = self.lock();
        self.append(&mut state, BEGUN, application, book, id)?;
        state.known(application).begun.insert(id.to_vec(), book);
        Ok(())
    }

    /// Notes that a call took effect, and that its handler is to see it.
    pub(super) fn applied(&self, application: &str, id: &[u8]) -> Result<(), JournalError> {
        let mut state = self.lock();
        self.append(&mut state, APPLIED, application, 0, id)?;
        let next = state.next;
        state.known(application).applied(id, next);
        Ok(())
    }

    /// Notes that a call took effect, and that its handler, if it has one, has answered.
    pub(super) fn done(&self, application: &str, id: &[u8]) -> Result<(), JournalError> {
        let mut state = self.lock();
        self.append(&mut state, DONE, application, 0, id)?;
        let next = state.next;
        state.known(application).done(id, next);
        Ok(())
    }

    /// The call is not under way any more, whatever became of it.
    pub(super) fn give_back(&self, application: &str, id: &[u8]) {
        self.lock().known(application).under_way.remove(id);
    }

    /// A call of this book is sent; what its server need not remember any more is told with it.
    pub(super) fn send<'a>(&'a self, application: &'a str, book: u64) -> Sending<'a> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let mut before = state.under_way.iter().copied();
        // One that hangs keeps the server from forgetting no call of others.
        let stragglers = before.by_ref().take(STRAGGLERS_MAX).collect();
        let under_way_from = before.next().unwrap_or(number);
        state.under_way.insert(number);
        let telling = state.known(application).tell(book, under_way_from);
        Sending { journal: self, application, book, nth: Try { number, under_way_from, stragglers }, telling }
    }

    /// Writes one record, in one piece.
    fn append(
        &self,
        state: &mut State,
        kind: u8,
        application: &str,
        number: u64,
        id: &[u8],
    ) -> Result<(), JournalError> {
        let written = state.write(&record(kind, application, number, id));
        written.map_err(|source| JournalError::Io { path: self.path.clone(), source })
    }

    /// Held for as long as a record takes, by code that does not panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        if self.torn {
            self.cut()?;
        }
        self.torn = true;
        self.file.write_all(record)?;
        self.torn = false;
        self.end += record.len() as u64;
        Ok(())
    }

    /// Cuts off what stands behind the whole records.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.torn = false;
        Ok(())
    }

    fn known(&mut self, application: &str) -> &mut Known {
        if !self.applications.contains_key(application) {
            self.applications.insert(application.to_owned(), Known::default());
        }
        self.applications.get_mut(application).expect("inserted above")
    }
}

/// `next` is the number of the next try: those of the call are below it.
impl Known {
    fn done(&mut self, id: &[u8], next: u64) {
        self.took_effect(id, next);
        self.applied.remove(id);
        self.done.insert(id.to_vec());
    }

    fn applied(&mut self, id: &[u8], next: u64) {
        self.took_effect(id, next);
        self.applied.insert(id.to_vec());
    }

    /// The server need not remember it any more.
    fn took_effect(&mut self, id: &[u8], next: u64) {
        let book = self.begun.remove(id);
        if book.is_some() && book == self.book.map(|book| book.number) {
            self.untold.push_back((next, id.to_vec()));
            if self.untold.len() > IDS_MAX {
                self.untold.pop_front();
            }
        }
    }

    /// What the server of this book can forget: what it will know to be late if it comes again.
    fn tell(&mut self, book: u64, under_way_from: u64) -> Vec<Vec<u8>> {
        if self.book.is_none_or(|current| current.number != book) {
            return Vec::new();
        }
        let (mut told, mut later) = (Vec::new(), VecDeque::new());
        for (next, id) in self.untold.drain(..) {
            if next <= under_way_from && told.len() < IDS_MAX { told.push(id) } else { later.push_back((next, id)) }
        }
        self.untold = later;
        told
    }
}

/// However it ends.
impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.lock();
        state.under_way.remove(&self.nth.number);
        let known = state.known(self.application);
        if known.book.is_some_and(|current| current.number == self.book) {
            // All of their tries are over.
            known.untold.extend(self.telling.drain(..).map(|id| (0, id)));
        }
    }
}

fn record(kind: u8, application: &str, number: u64, id: &[u8]) -> Vec<u8> {
    let name = &application.as_bytes()[..application.len().min(usize::from(u8::MAX))];
    let mut body = vec![kind, name.len() as u8];
    body.extend_from_slice(name);
    body.extend_from_slice(&number.to_be_bytes());
    body.extend_from_slice(&id[..id.len().min(ID_BYTES_MAX)]);
    let mut record = (body.len() as u16).to_be_bytes().to_vec();
    record.extend_from_slice(&body);
    record.extend_from_slice(&check(&body).to_be_bytes());
    record
}

/// FNV-1a: tells a record that is not whole.
fn check(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Takes in the records that are whole; how many bytes they are. Tries of processes before are below all numbers of this
/// one.
fn replay(bytes: &[u8], applications: &mut HashMap<String, Known>, opening: &mut u64) -> usize {
    let mut rest = bytes;
    while let Some((entry, after)) = next(rest) {
        rest = after;
        if entry.kind == OPENED {
            *opening = entry.number;
            continue;
        }
        let known: &mut Known = applications.entry(entry.application.to_owned()).or_default();
        match entry.kind {
            BOOK => {
                let server = entry.id.try_into().map_or(0, u32::from_be_bytes);
                known.book = Some(Book { number: entry.number, server });
                known.untold.clear();
            }
            BEGUN => drop(known.begun.insert(entry.id.to_vec(), entry.number)),
            APPLIED => known.applied(entry.id, 0),
            DONE => known.done(entry.id, 0),
            _ => {}
        }
    }
    bytes.len() - rest.len()
}

struct Record<'a> {
    kind: u8,
    application: &'a str,
    number: u64,
    id: &'a [u8],
}

fn next(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let (sum, rest) = rest.split_first_chunk()?;
    if u32::from_be_bytes(*sum) != check(body) {
        return None;
    }
    let (&[kind, len], body) = body.split_first_chunk()?;
    let (name, body) = body.split_at_checked(usize::from(len))?;
    let (number, id) = body.split_first_chunk()?;
    let application = std::str::from_utf8(name).ok()?;
    Some((Record { kind, application, number: u64::from_be_bytes(*number), id }, rest))
}

#[cfg(test)]
mod tests;
