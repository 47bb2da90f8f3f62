//! Calls with ids: each is applied whole and once, however often it is sent.
//!
//! ```text
//! open ─► a book, by a number that only its caller knows
//! apply(book, try, id, pairs) ─► late, or met before: nothing │ else: all pairs, or none and the reason
//! ```
//!
//! So a caller that was killed, and knows from its journal which calls it had begun, can send them
//! again. The price is that such calls go past the element. A book remembers the ids that its caller
//! has not noted as done; one that nobody writes in for [`BOOK_KEPT`] is forgotten, and who asks for it
//! then is told so: what took effect of its calls is not known any more.
//!
//! What a killed process, or a broken connection, left on its way may come after the id was made again, done and
//! forgotten. So each try has a number, and says which of those before it are under way: another one is late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_wire::Instant;

use super::super::{CallError, Key, Modify};
use super::MapServer;

/// Books of one application.
const BOOKS_MAX: usize = 4096;
/// Ids that one book remembers.
pub const IDS_MAX: usize = 4096;
/// Ids that all books of one application remember.
const ALL_IDS_MAX: usize = 1 << 18;
/// A book is kept so long after its caller was last heard of.
pub const BOOK_KEPT: Duration = Duration::from_secs(3600);
/// Longest id, bytes.
pub const ID_BYTES_MAX: usize = 128;
/// Tries that are under way beside all from a number on.
pub const STRAGGLERS_MAX: usize = 64;

/// A call with an id.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The number of its caller's book.
    pub book: u64,
    /// Which try of its caller's this is.
    pub nth: &'a Try,
    /// Its id, at most [`ID_BYTES_MAX`] bytes.
    pub id: &'a [u8],
    /// Ids that the caller has noted as done: it will not send those again, and has no try of theirs under way.
    pub completed: &'a [Vec<u8>],
}

/// One try to have a call take effect, and which of its caller's tries are under way beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Try {
    /// Its number; later ones have greater numbers. 0: its caller does not count, and nothing of its is late.
    pub number: u64,
    /// Tries from this number on are under way, for all that is known,
    pub under_way_from: u64,
    /// and these, at most [`STRAGGLERS_MAX`].
    pub stragglers: Vec<u64>,
}

impl Try {
    /// Whether a try is not under way any more, says this one.
    fn outdates(&self, number: u64) -> bool {
        number > 0 && number < self.under_way_from && !self.stragglers.contains(&number)
    }
}

/// What became of a call with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It took effect now.
    Now,
    /// It had taken effect before.
    Before,
}

#[derive(Default)]
pub(super) struct Books {
    books: BTreeMap<u64, Book>,
    /// Of all books together.
    ids: usize,
}

struct Book {
    ids: BTreeSet<Box<[u8]>>,
    heard: Instant,
    /// The latest of its tries: what it says of others holds.
    latest: Try,
}

impl Books {
    fn open(&mut self, now: Instant, number: u64) -> Result<(), CallError> {
        let ids = &mut self.ids;
        self.books.retain(|_, book| {
            let keep = now.since(book.heard) < BOOK_KEPT;
            *ids -= if keep { 0 } else { book.ids.len() };
            keep
        });
        if self.books.len() >= BOOKS_MAX {
            return Err(CallError::BooksFull);
        }
        self.books.entry(number).or_insert(Book { ids: BTreeSet::new(), heard: now, latest: Try::default() });
        Ok(())
    }

    /// Forgets what is completed; whether the id was met before.
    fn meet(&mut self, now: Instant, entry: &Entry<'_>) -> Result<bool, CallError> {
        let book = self.books.get_mut(&entry.book).filter(|book| now.since(book.heard) < BOOK_KEPT);
        let book = book.ok_or(CallError::Forgotten)?;
        if book.latest.outdates(entry.nth.number) {
            return Err(CallError::Late);
        }
        if entry.nth.number > book.latest.number {
            book.latest.clone_from(entry.nth);
        }
        book.heard = now;
        for id in entry.completed {
            self.ids -= usize::from(book.ids.remove(&id[..]));
        }
        let met = book.ids.contains(entry.id);
        if !met && (book.ids.len() >= IDS_MAX || self.ids >= ALL_IDS_MAX) {
            return Err(CallError::BooksFull);
        }
        Ok(met)
    }

    fn note(&mut self, entry: &Entry<'_>) {
        if let Some(book) = self.books.get_mut(&entry.book) {
            self.ids += usize::from(book.ids.insert(entry.id.into()));
        }
    }
}

impl MapServer {
    /// Opens a book for a caller's calls with ids. The number should be drawn at random: who knows it
    /// may write in the book.
    ///
    /// # Errors
    /// [`CallError::BooksFull`].
    pub fn open_book(&mut self, now: Instant, number: u64) -> Result<(), CallError> {
        self.books.open(now, number)
    }

    /// Adds each value to its key, whole or not at all, unless the call took effect before.
    ///
    /// # Errors
    /// Nothing was added: [`CallError::Forgotten`], [`CallError::Late`], [`CallError::BooksFull`],
    /// [`CallError::KeysFull`], [`CallError::Overflow`], [`CallError::Range`], [`CallError::KeyLength`].
    pub fn apply(
        &mut self,
        now: Instant,
        entry: &Entry<'_>,
        pairs: &[(Key, i64)],
        modify: Modify,
    ) -> Result<Entered, CallError> {
        if self.books.meet(now, entry)? {
            self.shared.stats.calls_repeated += 1;
            return Ok(Entered::Before);
        }
        self.keyed.add_whole(pairs, modify)?;
        self.books.note(entry);
        self.shared.stats.calls_applied += 1;
        self.shared.stats.software_adds += pairs.len() as u64;
        Ok(Entered::Now)
    }
}
