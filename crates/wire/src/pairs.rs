//! Payload of `MapPairs` and of its answer: whole keys for the software path.
//!
//! ```text
//! request entry │ key length u16 │ key │ value i64 │
//! answer entry  │ status u8 │ lane u8 │ row u32 │ value i64 │     in the request's order
//! ```
//!
//! A key is a tag byte and its bytes: `s` and UTF-8; `i` and a big-endian i64; or `n` and a big-endian u64, the number
//! that the server assigned to a string too long for a frame.

/// Maximum length of a key in a frame, with its tag.
pub const MAX_KEY: usize = 1024;
/// Maximum number of entries in a frame, such that the answer also fits a frame.
pub const MAX_ENTRIES: usize = 80;
/// Maximum length of a key, with its tag, for a ballot in the element: the register stores the whole key.
pub const MAX_BALLOT_KEY: usize = 32;
/// Length of an answer entry.
pub const ANSWER_LEN: usize = 14;

/// Length of a request entry with a key of this length.
#[must_use]
pub const fn entry_len(key: usize) -> usize {
    2 + key + 8
}

/// Status of one entry in the server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PairStatus {
    /// Done; the key has no logical address: send the whole key the next time.
    Whole = 0,
    /// Done; the caller may use the key's logical address from now on.
    Logical = 1,
    /// Done; the key has the register `lane`, `row` in the element.
    Mapped = 2,
    /// Test-and-set: another caller holds the lock. Read: not possible yet; ask again.
    Denied = 3,
    /// Counted; the threshold is not reached yet. For a ballot: ask again; the vote itself is counted.
    Held = 4,
    /// Not done: the sum would exceed 64 bits.
    Overflow = 5,
    /// Not done: the server's table of keys is full.
    Full = 6,
    /// Not done: the element counts this key. `row` is the number of rows for ballots in the element; 0: ask again
    /// later, with a new sequence number.
    Moved = 7,
    /// Test-and-set: another caller holds the lock, and the frame is in the queue. An answer follows with the grant.
    Queued = 9,
}

impl PairStatus {
    /// Status with this number, if any.
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
            9 => Self::Queued,
            _ => return None,
        })
    }
}

/// Entry of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairAnswer {
    /// Outcome of the entry.
    pub status: PairStatus,
    /// Lane of the register, if mapped.
    pub lane: u8,
    /// Row of the register, if mapped.
    pub row: u32,
    /// Value after the operation, if requested.
    pub value: i64,
}

/// Writes a request entry. Returns the rest of the buffer, or `None` if the entry does not fit.
pub fn put<'a>(out: &'a mut [u8], key: &[u8], value: i64) -> Option<&'a mut [u8]> {
    let len = u16::try_from(key.len()).ok().filter(|n| usize::from(*n) <= MAX_KEY)?;
    let (entry, rest) = out.split_at_mut_checked(entry_len(key.len()))?;
    entry[..2].copy_from_slice(&len.to_be_bytes());
    entry[2..2 + key.len()].copy_from_slice(key);
    entry[2 + key.len()..].copy_from_slice(&value.to_be_bytes());
    Some(rest)
}

/// Writes an answer entry. Returns the rest of the buffer, or `None` if the entry does not fit.
pub fn put_answer<'a>(out: &'a mut [u8], answer: &PairAnswer) -> Option<&'a mut [u8]> {
    let (entry, rest) = out.split_at_mut_checked(ANSWER_LEN)?;
    entry[0] = answer.status as u8;
    entry[1] = answer.lane;
    entry[2..6].copy_from_slice(&answer.row.to_be_bytes());
    entry[6..].copy_from_slice(&answer.value.to_be_bytes());
    Some(rest)
}

/// Iterator over the request entries of a payload; it stops at the first malformed entry.
#[must_use]
pub const fn entries(payload: &[u8]) -> PairEntries<'_> {
    PairEntries { rest: payload }
}

/// Iterator over request entries.
#[derive(Debug, Clone)]
pub struct PairEntries<'a> {
    rest: &'a [u8],
}

impl PairEntries<'_> {
    /// Whether the payload is consumed: true after the last entry of a well-formed payload.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for PairEntries<'a> {
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

/// Iterator over the answer entries of a payload; it stops at the first malformed entry.
pub fn answers(payload: &[u8]) -> impl Iterator<Item = PairAnswer> + '_ {
    payload.chunks_exact(ANSWER_LEN).map_while(|entry| {
        let (head, value) = entry.split_last_chunk::<8>()?;
        Some(PairAnswer {
            status: PairStatus::parse(head[0])?,
            lane: head[1],
            row: u32::from_be_bytes(*head[2..].first_chunk()?),
            value: i64::from_be_bytes(*value),
        })
    })
}
