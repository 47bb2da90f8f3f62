//! State of one ballot at the server, and claims of votes and decisions that only the element has had.
//!
//! Callers claim these at the end of an epoch. A leaving caller claims them before, in case the epoch ends later. Each
//! vote is claimed once, since callers drop claimed votes. A decision may be claimed by any number of callers; the one
//! whose vote decided claims it at once, so that the server has it soon.

use pathcall_wire::pairs::{self, PairStatus};
use pathcall_wire::{MapFrame, Mutant, mutant};

use super::super::super::FrameSink;
use super::super::super::ballot::Claim;
use super::super::OwnerContext;
use super::{BallotStore, FrameId, VoteAnswers, VoteRequest};
use crate::flow::SeqClass;

/// Ballot at the server.
#[derive(Debug, Default)]
pub(super) struct Ballot {
    /// Number of votes counted by the server or claimed.
    pub(super) count: i64,
    decided: bool,
    /// Number of clears by the element in this epoch, as far as known.
    pub(super) round: u32,
    departed: DepartedVotes,
}

/// Votes in the element of callers that have left, of the last such round.
#[derive(Debug, Default)]
struct DepartedVotes {
    round: u32,
    votes: u32,
}

impl Ballot {
    /// Counts a vote. Returns whether it decides the ballot.
    pub(super) fn vote(&mut self, threshold: u32) -> bool {
        self.count += 1;
        // Claims of votes above the threshold come before the deciding vote, if that one was lost.
        let decides = self.has_reached(threshold) && !self.decided;
        self.decided |= decides;
        decides
    }

    /// Records a decision by the element.
    pub(super) fn decide(&mut self, threshold: u32) {
        self.count = self.count.max(threshold.into());
        self.decided = true;
    }

    pub(super) fn is_decided(&self) -> bool {
        self.decided
    }

    /// Whether the count has reached this threshold; methods may have different thresholds.
    pub(super) fn has_reached(&self, threshold: u32) -> bool {
        self.count >= i64::from(threshold)
    }

    /// Whether the ballot is undecided and has votes at the server.
    pub(super) fn is_open(&self) -> bool {
        self.count > 0 && !self.decided
    }

    /// Clears the ballot. Waiting callers continue to wait; their votes are dropped.
    pub(super) fn clear(&mut self) {
        (self.count, self.decided) = (0, false);
    }

    /// Adds claimed votes of the element, unless their round was cleared.
    pub(super) fn claim(&mut self, claim: Claim) {
        self.observe_round(claim.round);
        if self.round == claim.round || mutant::on(Mutant::ClaimOfCleared) {
            self.count += i64::from(claim.votes);
        }
    }

    /// Records a claimed decision, unless its round was cleared.
    pub(super) fn claim_decision(&mut self, claim: Claim, threshold: u32) {
        self.observe_round(claim.round);
        let is_current = self.round == claim.round || mutant::on(Mutant::ClaimOfCleared);
        if claim.decided && is_current && !mutant::on(Mutant::DecisionUnclaimed) {
            self.decide(threshold);
        }
    }

    /// Stores claimed votes of a leaving caller, which the element counts until the epoch ends.
    pub(super) fn add_departed(&mut self, Claim { round, votes, .. }: Claim) {
        let departed = &mut self.departed;
        if round > departed.round {
            *departed = DepartedVotes { round, votes: 0 };
        }
        if round == departed.round || mutant::on(Mutant::ClaimOfCleared) {
            departed.votes = departed.votes.saturating_add(votes);
        }
    }

    /// Adds the stored votes at the end of an epoch.
    pub(super) fn count_departed(&mut self) {
        let DepartedVotes { round, votes } = std::mem::take(&mut self.departed);
        if votes > 0 {
            self.claim(Claim { votes, ..Claim::new(round) });
        }
    }

    /// Records a round in the element; a higher round clears the ballot.
    pub(super) fn observe_round(&mut self, round: u32) {
        if round > self.round {
            self.round = round;
            self.clear();
        }
    }
}

impl BallotStore {
    /// Handles claims of a caller.
    pub(super) fn claim(
        &mut self,
        frame: &MapFrame<&[u8]>,
        frame_id: FrameId,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let request = VoteRequest::parse(frame, frame_id, shared)?;
        let new = request.seen == SeqClass::New || mutant::on(Mutant::ClaimTwice);
        // A settled caller claims votes of the current epoch.
        let is_current = shared.members.get(&frame_id.endpoint)?.settled;
        let mut answers = VoteAnswers::default();
        for (key, value) in pairs::entries(frame.payload()) {
            let claim = Claim::from_value(value);
            let Some(ballot) = self.ballot(key) else {
                // Memory is never freed, so this ballot can never be decided.
                answers.push((PairStatus::Full, 0, 0))?;
                continue;
            };
            if claim.decided && new {
                ballot.claim_decision(claim, request.threshold);
            }
            match (new, is_current) {
                (true, true) => ballot.add_departed(claim),
                (true, false) => ballot.claim(claim),
                (false, _) => {}
            }
            answers.push((PairStatus::Whole, 0, 0))?;
        }
        answers.send(frame, None, shared, out)
    }

    /// Applies a change of epoch.
    pub(in super::super) fn renew(&mut self) {
        self.return_to_software();
        self.ballots.values_mut().for_each(Ballot::count_departed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_of_departed_callers_count_once_unless_cleared() {
        let add = |ballot: &mut Ballot, claims: &[(u32, u32)]| {
            claims.iter().for_each(|&(round, votes)| ballot.add_departed(Claim { votes, ..Claim::new(round) }));
        };
        let mut ballot = Ballot::default();
        add(&mut ballot, &[(0, 4), (1, 2), (0, 8), (1, 1)]);
        assert_eq!((ballot.round, ballot.count), (0, 0), "the element counts these votes");
        (0..2).for_each(|_| ballot.count_departed());
        assert_eq!((ballot.round, ballot.count), (1, 3));
        add(&mut ballot, &[(1, 5)]);
        ballot.observe_round(2);
        ballot.count_departed();
        assert_eq!((ballot.round, ballot.count), (2, 0));
    }
    #[test]
    fn claimed_decision_counts_unless_cleared() {
        let decided = |round| Claim { decided: true, ..Claim::new(round) };
        let mut ballot = Ballot::default();
        ballot.claim_decision(decided(0), 3);
        assert!(ballot.is_decided() && ballot.has_reached(3));
        assert!(!ballot.vote(3), "the ballot has a decision");
        ballot.observe_round(2);
        ballot.claim_decision(decided(1), 3);
        assert!(!ballot.is_decided(), "the decided round was cleared");
        ballot.claim_decision(decided(3), 3);
        assert!(ballot.is_decided(), "the claim is the first message of its round");
    }

    #[test]
    fn vote_after_claims_at_threshold_decides_once() {
        let mut ballot = Ballot::default();
        ballot.claim(Claim { votes: 3, ..Claim::new(0) });
        assert_eq!([ballot.vote(2), ballot.vote(2)], [true, false]);
    }
}
