//! Whole keys for the software path: payload of `MapPairs` and of its answer.
//!
//! ```text
//! request entry │ key length u16 │ key │ value i64 │
//! answer entry  │ status u8 │ lane u8 │ row u32 │ value i64 │     in the request's order
//! ```
//!
//! A key is a tag byte and its bytes: `s` and UTF-8, `i` and a big-endian i64, or `n` and the
//! big-endian u64 by which the server knows a string that is longer than a frame carries.

/// Longest key that a frame carries, with its tag.
pub const MAX_KEY: usize = 1024;
/// Entries of one frame: so many that their answer fits a frame as well.
pub const MAX_ENTRIES: usize = 80;
/// Longest key, with its tag, that a ballot in the element has: its register keeps it whole.
pub const MAX_BALLOT_KEY: usize = 32;
/// Bytes of an answer entry.
pub const ANSWER_LEN: usize = 14;

/// Bytes of a request entry with a key of this length.
#[must_use]
pub const fn entry_len(key: usize) -> usize {
    2 + key + 8
}

/// What the server says of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done; the key has no place of its own: send the whole key again next time.
    Whole = 0,
    /// Done; from now on the key's logical address will do.
    Logical = 1,
    /// Done; the element holds the key at `lane`, `row`.
    Mapped = 2,
    /// Test-and-set: somebody else holds it (NOTES: an answer, not a silence).
    Denied = 3,
    /// Counted; the threshold is not reached yet. Of a ballot: ask again, the vote is not needed again.
    Held = 4,
    /// Not done: the sum would leave 64 bits.
    Overflow = 5,
    /// Not done: the server's table of keys is full.
    Full = 6,
    /// Not done: the element counts this key. `row` is the number of rows that it does so in; 0: ask
    /// again later, under a new number.
    Moved = 7,
    /// Test-and-set: somebody else holds it, and the frame stands in line: an answer follows when it
    /// is its turn.
    InLine = 9,
}

impl Status {
    /// The status with this number, if there is one.
    #[must_use]
    pub const fn parse(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Whole,
            1 => Self::Logical,
            2 => Self::Mapped,
            3 => Self::Denied,
            4 => Self::Held,
            5 => Self::Overflow,
            6 => Self::Full,
            7 => Self::Moved,
            9 => Self::InLine,
            _ => return None,
        })
    }
}

/// One entry of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub status: Status,
    /// Position in the row, when mapped.
    pub lane: u8,
    /// Register row, when mapped.
    pub row: u32,
    /// The value after the operation, when asked for.
    pub value: i64,
}

/// Appends a request entry; returns the rest of the buffer, `None` when it does not fit.
pub fn put<'a>(out: &'a mut [u8], key: &[u8], value: i64) -> Option<&'a mut [u8]> {
    let len = u16::try_from(key.len()).ok().filter(|n| usize::from(*n) <= MAX_KEY)?;
    let (entry, rest) = out.split_at_mut_checked(entry_len(key.len()))?;
    entry[..2].copy_from_slice(&len.to_be_bytes());
    entry[2..2 + key.len()].copy_from_slice(key);
    entry[2 + key.len()..].copy_from_slice(&value.to_be_bytes());
    Some(rest)
}

/// Appends an answer entry; returns the rest of the buffer, `None` when it does not fit.
pub fn put_answer<'a>(out: &'a mut [u8], answer: &Answer) -> Option<&'a mut [u8]> {
    let (entry, rest) = out.split_at_mut_checked(ANSWER_LEN)?;
    entry[0] = answer.status as u8;
    entry[1] = answer.lane;
    entry[2..6].copy_from_slice(&answer.row.to_be_bytes());
    entry[6..].copy_from_slice(&answer.value.to_be_bytes());
    Some(rest)
}

/// The request entries of a payload; stops at the first malformed one.
#[must_use]
pub const fn entries(payload: &[u8]) -> Entries<'_> {
    Entries { rest: payload }
}

/// Iterator over request entries.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl Entries<'_> {
    /// Whether everything up to the end was well formed: to be asked after the last entry.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], i64);

    fn next(&mut self) -> Option<Self::Item> {
        let (len, rest) = self.rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*len));
        if len > MAX_KEY {
            return None;
        }
        let (key, rest) = rest.split_at_checked(len)?;
        let (value, rest) = rest.split_first_chunk()?;
        self.rest = rest;
        Some((key, i64::from_be_bytes(*value)))
    }
}

/// The answer entries of a payload; stops at the first malformed one.
pub fn answers(payload: &[u8]) -> impl Iterator<Item = Answer> + '_ {
    payload.chunks_exact(ANSWER_LEN).map_while(|entry| {
        let (head, value) = entry.split_last_chunk::<8>()?;
        Some(Answer {
            status: Status::parse(head[0])?,
            lane: head[1],
            row: u32::from_be_bytes(*head[2..].first_chunk()?),
            value: i64::from_be_bytes(*value),
        })
    })
}
