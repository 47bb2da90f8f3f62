//! Claims of votes that only the element has counted.
//!
//! Callers claim these votes at the end of an epoch. A leaving caller claims them before, in case the epoch ends later.
//! Each vote is claimed once, since callers drop claimed votes.

use pathcall_wire::pairs::{self, PairStatus};
use pathcall_wire::{MapFrame, Mutant, mutant};

use super::super::super::FrameSink;
use super::super::super::ballot::Claim;
use super::super::OwnerContext;
use super::ballot::Ballot;
use super::{BallotStore, FrameId, VoteAnswers, VoteRequest};
use crate::flow::SeqClass;

impl BallotStore {
    /// Handles claims of a caller.
    pub(super) fn claim(
        &mut self,
        frame: &MapFrame<&[u8]>,
        frame_id: FrameId,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let new = VoteRequest::parse(frame, frame_id, shared)?.seen == SeqClass::New || mutant::on(Mutant::ClaimTwice);
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
