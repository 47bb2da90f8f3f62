//! Ballots, common part of caller and owner: row of a key in the element, and encoding of claims.

use pathcall_wire::pairs::MAX_BALLOT_KEY;

use super::logical_address;

/// Row of a key's ballot in the element, among `rows`; `None` if the element does not count this key.
pub(super) fn row_of(key: &[u8], rows: u32) -> Option<u32> {
    (rows > 0 && key.len() <= MAX_BALLOT_KEY).then(|| logical_address(key) % rows)
}

/// Claim of votes that only the element had, for one round of a ballot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// Number of clearings of the ballot in its epoch.
    pub(super) round: u32,
    pub(super) votes: u32,
}

impl Claim {
    /// Encodes the claim as the value of a pair.
    pub(super) fn to_value(self) -> i64 {
        i64::from(self.round) << 32 | i64::from(self.votes)
    }

    pub(super) fn from_value(value: i64) -> Self {
        Self { round: (value >> 32) as u32, votes: value as u32 }
    }
}
