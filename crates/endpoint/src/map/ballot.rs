//! What both ends know of ballots: which keys the element may count, in which row, and how votes
//! are claimed.

use pathcall_wire::pairs::MAX_BALLOT_KEY;

use super::logical_address;

/// The row in the element of a key's ballot, among `rows`; `None` when the element does not count it.
pub(super) fn row_of(key: &[u8], rows: u32) -> Option<u32> {
    (rows > 0 && key.len() <= MAX_BALLOT_KEY).then(|| logical_address(key) % rows)
}

/// Votes that only the element had, of one round of a ballot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// How often the ballot had been cleared in its epoch.
    pub(super) round: u32,
    pub(super) votes: u32,
}

impl Claim {
    /// As the value of a pair.
    pub(super) fn to_value(self) -> i64 {
        i64::from(self.round) << 32 | i64::from(self.votes)
    }

    pub(super) fn from_value(value: i64) -> Self {
        Self { round: (value >> 32) as u32, votes: value as u32 }
    }
}
