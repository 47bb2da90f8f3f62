//! One ballot as the server knows it.

use pathcall_wire::{Mutant, mutant};

use super::super::super::ballot::Claim;

#[derive(Debug, Default)]
pub(super) struct Ballot {
    /// Votes counted here, or claimed.
    pub(super) count: i64,
    decided: bool,
    /// How often the element has cleared it in this epoch, as far as heard of.
    pub(super) round: u32,
    standing: Standing,
}

/// Votes in the element whose callers have left, of the last round that there were any in.
#[derive(Debug, Default)]
struct Standing {
    round: u32,
    votes: u32,
}

impl Ballot {
    /// Counts a vote here; whether it is the one that decides.
    pub(super) fn vote(&mut self, threshold: u32) -> bool {
        self.count += 1;
        let decides = self.count == i64::from(threshold) && !self.decided;
        self.decided |= decides;
        decides
    }

    /// Records that the threshold is reached.
    pub(super) fn decide(&mut self, threshold: u32) {
        self.count = self.count.max(threshold.into());
        self.decided = true;
    }

    pub(super) fn is_decided(&self) -> bool {
        self.decided
    }

    /// Whether those who wait for this threshold may go on: methods may name different ones.
    pub(super) fn has_reached(&self, threshold: u32) -> bool {
        self.count >= i64::from(threshold)
    }

    /// Whether votes for it are here that the element would not count.
    pub(super) fn is_open(&self) -> bool {
        self.count > 0 && !self.decided
    }

    /// Counts from zero again. Who waits goes on waiting: its vote is gone with the ballot.
    pub(super) fn clear(&mut self) {
        (self.count, self.decided) = (0, false);
    }

    /// Counts votes that the element had, unless their round was cleared.
    ///
    /// Of an undecided ballot no claims reach the threshold: a vote that did was not acknowledged
    /// before it was recorded here.
    pub(super) fn claim(&mut self, claim: Claim) {
        self.observe(claim.round);
        if self.round == claim.round || mutant::on(Mutant::ClaimOfCleared) {
            self.count += i64::from(claim.votes);
        }
    }

    /// Keeps votes that the element has until the epoch ends.
    pub(super) fn stand(&mut self, Claim { round, votes }: Claim) {
        let standing = &mut self.standing;
        if round > standing.round {
            *standing = Standing { round, votes: 0 };
        }
        if round == standing.round || mutant::on(Mutant::ClaimOfCleared) {
            standing.votes = standing.votes.saturating_add(votes);
        }
    }

    /// The epoch has ended: the element's votes are no more.
    pub(super) fn count_standing(&mut self) {
        let Standing { round, votes } = std::mem::take(&mut self.standing);
        if votes > 0 {
            self.claim(Claim { round, votes });
        }
    }

    /// Hears of a round in the element: every further one is a clearing.
    pub(super) fn observe(&mut self, round: u32) {
        if round > self.round {
            self.round = round;
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_that_stand_are_counted_once_unless_their_round_was_cleared() {
        let stand = |ballot: &mut Ballot, claims: &[(u32, u32)]| {
            claims.iter().for_each(|&(round, votes)| ballot.stand(Claim { round, votes }));
        };
        let mut ballot = Ballot::default();
        stand(&mut ballot, &[(0, 4), (1, 2), (0, 8), (1, 1)]);
        assert_eq!((ballot.round, ballot.count), (0, 0), "the element has them");
        (0..2).for_each(|_| ballot.count_standing());
        assert_eq!((ballot.round, ballot.count), (1, 3));
        stand(&mut ballot, &[(1, 5)]);
        ballot.observe(2);
        ballot.count_standing();
        assert_eq!((ballot.round, ballot.count), (2, 0));
    }
}
