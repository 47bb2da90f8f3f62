//! Journal of the calls with ids of a channel: it tells a restarted process which calls were begun, in which log of the
//! server, and which are done.
//!
//! ```text
//! HEAD, then records: length (2 bytes), kind, application (length, name), log or server, id; checksum (4 bytes)
//! ```
//!
//! A record is written in one piece, before its action is taken. It is then in the system's page cache, so `kill -9`
//! loses nothing; a failure of the machine may, because the file is not synchronised with the disk. An incomplete
//! record (process killed, disk full) has had no effect; it is cut off before the next record is written. The file
//! grows by one to three records per call.
//!
//! Each opening has a number, the upper part of the numbers of its attempts. Attempts of an earlier process have
//! smaller numbers, so the server can tell that they are late. The number is the time in microseconds, so that it grows
//! even if the file has been lost or restored; it is also written to the file, so that it grows even if the clock has
//! been set back.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pathcall_endpoint::map::server::idempotency::{CALL_ID_BYTES_MAX, CALL_IDS_MAX, CallAttempt, EARLIER_PENDING_MAX};

/// First bytes of a journal.
const HEAD: &[u8] = b"pathcall journal 1\n";
/// Kinds of records.
const LOG_OPENED: u8 = 1;
const BEGUN: u8 = 2;
const DONE: u8 = 3;
const APPLIED: u8 = 4;
const OPENED: u8 = 5;
/// Bits of an attempt's number below the number of the opening, which is in microseconds: more attempts than fit in one
/// microsecond are not possible.
const TRY_BITS: u32 = 12;

/// Error of a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// I/O error.
    #[error("cannot use the journal {}: {source}", path.display())]
    Io {
        /// Path of the journal.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another channel has the journal open.
    #[error("the journal {} is in use: channels cannot share a journal", path.display())]
    InUse {
        /// Path of the journal.
        path: PathBuf,
    },
    /// The file is not a journal.
    #[error("{} is not a journal: it does not begin with {:?}", path.display(), "pathcall journal 1")]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Log of call ids that the server keeps for this journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdLog {
    pub(super) number: u64,
    /// Incarnation of the server that keeps the log.
    pub(super) server: u32,
}

/// Status of a call with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStatus {
    /// Never begun.
    New,
    /// May have taken effect; the server's log with this number has the answer.
    Begun(u64),
    /// Has taken effect; the result of its handler is not known.
    Applied,
    /// Has taken effect, and its handler, if any, has answered.
    Done,
    /// Another call with this id is in progress.
    InProgress,
}

/// Open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// End of the complete records, bytes.
    end: u64,
    /// Whether a part of a record may follow the complete ones.
    torn: bool,
    applications: HashMap<String, ApplicationCalls>,
    /// Number of the next attempt.
    next: u64,
    /// Numbers of the attempts in progress.
    in_progress: BTreeSet<u64>,
}

/// Calls with ids of one application.
#[derive(Debug, Default)]
struct ApplicationCalls {
    log: Option<IdLog>,
    /// Calls that are not done, with the numbers of their logs.
    begun: HashMap<Vec<u8>, u64>,
    /// Calls that have taken effect and whose handlers have not answered.
    applied: HashSet<Vec<u8>>,
    done: HashSet<Vec<u8>>,
    in_progress: HashSet<Vec<u8>>,
    /// Calls that have taken effect and whose ids the server may still hold, each with a number that is above those of
    /// all its attempts.
    unconfirmed: VecDeque<(u64, Vec<u8>)>,
}

/// Attempt to apply a call, while it is in progress.
#[derive(Debug)]
pub(super) struct AttemptGuard<'a> {
    journal: &'a Journal,
    application: &'a str,
    log: u64,
    pub(super) attempt: CallAttempt,
    /// Ids that the request lets the server forget. If the attempt is dropped with ids left here, the server may not
    /// have received them, and a later attempt sends them again.
    pub(super) forgettable: Vec<Vec<u8>>,
}

impl Journal {
    /// Opens a journal; creates it if it does not exist.
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
        // A process that was killed while it created the file has left a part of the head.
        let whole = if HEAD.starts_with(&bytes) && bytes.len() < HEAD.len() {
            file.rewind().and_then(|()| file.write_all(HEAD)).map_err(failed)?;
            HEAD.len()
        } else {
            let records = bytes.strip_prefix(HEAD).ok_or_else(|| JournalError::Foreign { path: path.to_owned() })?;
            HEAD.len() + replay(records, &mut applications, &mut last)
        };
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let (opening, in_progress) = (clock.max(last + 1), BTreeSet::new());
        let mut state =
            State { file, end: whole as u64, torn: true, applications, next: opening << TRY_BITS, in_progress };
        state.write(&record(OPENED, "", opening, &[])).map_err(failed)?;
        Ok(Self { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// Log in which new calls of an application are recorded.
    pub(super) fn id_log(&self, application: &str) -> Option<IdLog> {
        self.lock().applications.get(application)?.log
    }

    /// Records a new log.
    pub(super) fn opened(&self, application: &str, log: IdLog) -> Result<(), JournalError> {
        let mut state = self.lock();
        let server = log.server.to_be_bytes();
        self.append(&mut state, LOG_OPENED, application, log.number, &server)?;
        let known = state.known(application);
        known.log = Some(log);
        known.unconfirmed.clear();
        Ok(())
    }

    /// Status of a call. A call that is not done is then in progress.
    pub(super) fn claim(&self, application: &str, id: &[u8]) -> CallStatus {
        let mut state = self.lock();
        let known = state.known(application);
        if known.done.contains(id) {
            return CallStatus::Done;
        }
        if !known.in_progress.insert(id.to_vec()) {
            return CallStatus::InProgress;
        }
        if known.applied.contains(id) {
            return CallStatus::Applied;
        }
        known.begun.get(id).map_or(CallStatus::New, |log| CallStatus::Begun(*log))
    }

    /// Records that a call has begun, in this log.
    pub(super) fn begin(&self, application: &str, id: &[u8], log: u64) -> Result<(), JournalError> {
        let mut state = self.lock();
        self.append(&mut state, BEGUN, application, log, id)?;
        state.known(application).begun.insert(id.to_vec(), log);
        Ok(())
    }

    /// Records that a call has taken effect and that its handler has to run.
    pub(super) fn applied(&self, application: &str, id: &[u8]) -> Result<(), JournalError> {
        let mut state = self.lock();
        self.append(&mut state, APPLIED, application, 0, id)?;
        let next = state.next;
        state.known(application).applied(id, next);
        Ok(())
    }

    /// Records that a call has taken effect and that its handler, if any, has answered.
    pub(super) fn done(&self, application: &str, id: &[u8]) -> Result<(), JournalError> {
        let mut state = self.lock();
        self.append(&mut state, DONE, application, 0, id)?;
        let next = state.next;
        state.known(application).done(id, next);
        Ok(())
    }

    /// Marks a call as no longer in progress.
    pub(super) fn release_id(&self, application: &str, id: &[u8]) {
        self.lock().known(application).in_progress.remove(id);
    }

    /// Starts an attempt of a call of this log, with the ids that the server may forget.
    pub(super) fn send<'a>(&'a self, application: &'a str, log: u64) -> AttemptGuard<'a> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let mut before = state.in_progress.iter().copied();
        // A slow attempt must not keep the server from forgetting other calls.
        let earlier_pending = before.by_ref().take(EARLIER_PENDING_MAX).collect();
        let pending_from = before.next().unwrap_or(number);
        state.in_progress.insert(number);
        let forgettable = state.known(application).take_forgettable(log, pending_from);
        AttemptGuard {
            journal: self,
            application,
            log,
            attempt: CallAttempt { number, pending_from, earlier_pending },
            forgettable,
        }
    }

    /// Writes one record in one piece.
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

    /// Held while a record is written, by code that does not panic.
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

    /// Cuts off an incomplete record.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.torn = false;
        Ok(())
    }

    fn known(&mut self, application: &str) -> &mut ApplicationCalls {
        if !self.applications.contains_key(application) {
            self.applications.insert(application.to_owned(), ApplicationCalls::default());
        }
        self.applications.get_mut(application).expect("inserted above")
    }
}

/// Parameter `next`: number of the next attempt, above those of the call.
impl ApplicationCalls {
    fn done(&mut self, id: &[u8], next: u64) {
        self.mark_forgettable(id, next);
        self.applied.remove(id);
        self.done.insert(id.to_vec());
    }

    fn applied(&mut self, id: &[u8], next: u64) {
        self.mark_forgettable(id, next);
        self.applied.insert(id.to_vec());
    }

    /// Marks the id as one that the server may forget.
    fn mark_forgettable(&mut self, id: &[u8], next: u64) {
        let log = self.begun.remove(id);
        if log.is_some() && log == self.log.map(|log| log.number) {
            self.unconfirmed.push_back((next, id.to_vec()));
            if self.unconfirmed.len() > CALL_IDS_MAX {
                self.unconfirmed.pop_front();
            }
        }
    }

    /// Ids that the server of this log may forget: a late repeat of them has a number below `pending_from`.
    fn take_forgettable(&mut self, log: u64, pending_from: u64) -> Vec<Vec<u8>> {
        if self.log.is_none_or(|current| current.number != log) {
            return Vec::new();
        }
        let (mut told, mut later) = (Vec::new(), VecDeque::new());
        for (next, id) in self.unconfirmed.drain(..) {
            if next <= pending_from && told.len() < CALL_IDS_MAX { told.push(id) } else { later.push_back((next, id)) }
        }
        self.unconfirmed = later;
        told
    }
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.lock();
        state.in_progress.remove(&self.attempt.number);
        let known = state.known(self.application);
        if known.log.is_some_and(|current| current.number == self.log) {
            // All attempts of these calls have ended.
            known.unconfirmed.extend(self.forgettable.drain(..).map(|id| (0, id)));
        }
    }
}

fn record(kind: u8, application: &str, number: u64, id: &[u8]) -> Vec<u8> {
    let name = &application.as_bytes()[..application.len().min(usize::from(u8::MAX))];
    let mut body = vec![kind, name.len() as u8];
    body.extend_from_slice(name);
    body.extend_from_slice(&number.to_be_bytes());
    body.extend_from_slice(&id[..id.len().min(CALL_ID_BYTES_MAX)]);
    let mut record = (body.len() as u16).to_be_bytes().to_vec();
    record.extend_from_slice(&body);
    record.extend_from_slice(&checksum(&body).to_be_bytes());
    record
}

/// FNV-1a checksum, which detects an incomplete record.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Applies all complete records and returns their length in bytes. Attempts of earlier processes have numbers below
/// those of this process.
fn replay(bytes: &[u8], applications: &mut HashMap<String, ApplicationCalls>, opening: &mut u64) -> usize {
    let mut rest = bytes;
    while let Some((entry, after)) = next(rest) {
        rest = after;
        if entry.kind == OPENED {
            *opening = entry.number;
            continue;
        }
        let known: &mut ApplicationCalls = applications.entry(entry.application.to_owned()).or_default();
        match entry.kind {
            LOG_OPENED => {
                let server = entry.id.try_into().map_or(0, u32::from_be_bytes);
                known.log = Some(IdLog { number: entry.number, server });
                known.unconfirmed.clear();
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
    if u32::from_be_bytes(*sum) != checksum(body) {
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
