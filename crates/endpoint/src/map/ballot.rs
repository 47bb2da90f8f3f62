//! Ballots, common part of caller and owner: row of a key in the element, and encoding of claims.

use pathcall_wire::pairs::MAX_BALLOT_KEY;

use super::logical_address;

/// Row of a key's ballot in the element, among `rows`; `None` if the element does not count this key.
pub(super) fn row_of(key: &[u8], rows: u32) -> Option<u32> {
    (rows > 0 && key.len() <= MAX_BALLOT_KEY).then(|| logical_address(key) % rows)
}

/// Claim of what only the element had, for one round of a ballot: votes, and its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// Number of clearings of the ballot in its epoch: 31 bits.
    pub(super) round: u32,
    /// Whether the element has announced the decision.
    pub(super) decided: bool,
    /// Number of votes, at most [`VOTES_MAX`](Self::VOTES_MAX).
    pub(super) votes: u32,
}

impl Claim {
    /// Maximum number of votes in a claim: 31 bits.
    pub(super) const VOTES_MAX: u32 = u32::MAX >> 1;

    /// Claim without votes.
    pub(super) fn new(round: u32) -> Self {
        Self { round, decided: false, votes: 0 }
    }

    /// Encodes the claim as the value of a pair.
    pub(super) fn to_value(self) -> i64 {
        i64::from(self.round) << 32 | i64::from(self.decided) << 31 | i64::from(self.votes)
    }

    pub(super) fn from_value(value: i64) -> Self {
        let low = value as u32;
        Self { round: (value >> 32) as u32, decided: low > Self::VOTES_MAX, votes: low & Self::VOTES_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_encoding_round_trips() {
        for claim in [
            Claim::new(0),
            Claim { round: 3, decided: true, votes: 0 },
            Claim { round: u32::MAX >> 1, decided: false, votes: Claim::VOTES_MAX },
            Claim { round: 1, decided: true, votes: Claim::VOTES_MAX },
        ] {
            assert_eq!(Claim::from_value(claim.to_value()), claim);
        }
    }
}
