//! Claims of a caller: votes that only the element has counted, and decisions that it has announced.
//!
//! They are kept until the epoch ends or this caller leaves; then the caller claims them at the server, once. If a vote
//! of this caller decided a ballot in the element, the caller reports the decision at once, so that it outlives the
//! element and the other callers that know it.

use std::collections::BTreeMap;

use pathcall_wire::{Mutant, mutant};

use super::super::super::Key;
use super::super::super::ballot::Claim;
use super::super::{CallId, ClientConfig};
use super::VoteCalls;
use super::call::{VoteCall, VoteOp};

/// Bit in the ids of claims, which the client makes itself.
const OWN_CALLS: u64 = 1 << 63;

/// Votes and decisions of the element that the server may not have recorded. At most one key per row.
#[derive(Default)]
pub(super) struct UnrecordedVotes {
    claims: BTreeMap<Key, Claim>,
    /// Operation of the counted votes, equal for all calls.
    counted: Option<VoteOp>,
}

impl VoteCalls {
    /// Starts a call that claims all votes that the element had acknowledged, and all decisions that it had announced.
    /// Each vote is claimed once.
    pub(super) fn claim(&mut self, config: &ClientConfig) {
        let claims = std::mem::take(&mut self.unrecorded.claims);
        let Some(op) = self.unrecorded.counted else { return };
        if !claims.is_empty() && !mutant::on(Mutant::VoteForgotten) {
            self.start_claim(op, claims.into_iter(), config);
        }
    }

    /// Reports to the server that a vote of this caller has decided a ballot in the element.
    pub(super) fn report_decision(&mut self, op: VoteOp, key: Key, round: u32, config: &ClientConfig) {
        if !mutant::on(Mutant::DecisionUnreported) {
            self.start_claim(op, std::iter::once((key, Claim { decided: true, ..Claim::new(round) })), config);
        }
    }

    fn start_claim(&mut self, op: VoteOp, claims: impl Iterator<Item = (Key, Claim)>, config: &ClientConfig) {
        let VoteOp::Count { threshold, to, .. } = op else { return };
        let (keys, values) = claims.map(|(key, claim)| (key, claim.to_value())).unzip();
        let call = VoteCall { detached: true, ..VoteCall::with_values(VoteOp::Claim { threshold, to }, keys, values) };
        self.own += 1;
        self.queue_call(CallId(OWN_CALLS | self.own), call, config);
        // First: the server counts no vote before all claims.
        self.ready.rotate_right(1);
    }

    /// Starts closing.
    pub(in super::super) fn close(&mut self, config: &ClientConfig) {
        self.closing = true;
        self.claim_if_closing(config);
    }

    /// Claims the remaining votes if the caller is closing.
    pub(super) fn claim_if_closing(&mut self, config: &ClientConfig) {
        if self.closing && self.calls.is_empty() {
            self.claim(config);
        }
    }

    /// Whether claims are open.
    pub(in super::super) fn is_claiming(&self) -> bool {
        self.calls.values().any(|call| matches!(call.op, VoteOp::Claim { .. }))
    }
}

impl UnrecordedVotes {
    /// Adds a vote of a round. Votes of earlier rounds are dropped, since their ballot was cleared.
    pub(super) fn add_vote(&mut self, op: VoteOp, key: &Key, round: u32) {
        if let Some(claim) = self.of_round(op, key, round) {
            claim.votes = claim.votes.saturating_add(1).min(Claim::VOTES_MAX);
        }
    }

    /// Adds the decision of a round.
    pub(super) fn add_decision(&mut self, op: VoteOp, key: &Key, round: u32) {
        if let Some(claim) = self.of_round(op, key, round) {
            claim.decided = true;
        }
    }

    /// Claim for this round of a ballot; `None` if a later round is known.
    fn of_round(&mut self, op: VoteOp, key: &Key, round: u32) -> Option<&mut Claim> {
        self.counted = Some(op);
        let claim = self.claims.entry(key.clone()).or_insert(Claim::new(round));
        if round > claim.round {
            *claim = Claim::new(round);
        }
        (round == claim.round).then_some(claim)
    }
}
