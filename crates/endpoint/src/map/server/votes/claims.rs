//! Claims: votes that the element had acknowledged and the server never saw.
//!
//! When an epoch ends, its callers claim them; a caller that leaves does before, in case the epoch
//! ends later. Either way each vote is claimed once: a caller forgets what it has claimed.

use pathcall_wire::pairs::{self, Status};
use pathcall_wire::{MapFrame, Mutant, mutant};

use super::super::super::ballot::Claim;
use super::super::super::{Key, Outbox};
use super::super::Shared;
use super::{Answers, FrameName, Request, VoteTruth};
use crate::flow::Seen;

/// Claims that count when the epoch ends.
#[derive(Debug, Default)]
pub(super) struct Standing(Vec<(Key, Claim)>);

impl VoteTruth {
    /// Takes claims of a caller.
    pub(super) fn claim(
        &mut self,
        frame: &MapFrame<&[u8]>,
        name: FrameName,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let new = Request::of(frame, name, shared)?.seen == Seen::New || mutant::on(Mutant::ClaimTwice);
        // It has settled: what it claims is of this epoch.
        let stands = shared.members.get(&name.endpoint)?.settled;
        let mut answers = Answers::default();
        for (key, value) in pairs::entries(frame.payload()) {
            let claim = Claim::from_value(value);
            match Key::from_bytes(key).filter(|_| new) {
                Some(key) if stands => self.standing.0.push((key, claim)),
                Some(key) => self.count_claim(&key, claim),
                None => {}
            }
            answers.push((Status::Whole, 0, 0))?;
        }
        answers.send(frame, None, shared, out)
    }

    /// The epoch has ended.
    pub(in super::super) fn renew(&mut self) {
        self.come_back();
        for (key, claim) in std::mem::take(&mut self.standing.0) {
            self.count_claim(&key, claim);
        }
    }

    /// Of an undecided ballot no claims reach the threshold: a vote that did was not acknowledged
    /// before it was recorded here.
    fn count_claim(&mut self, key: &Key, claim: Claim) {
        let Some(ballot) = self.ballot(key.as_bytes()) else { return };
        ballot.observe(claim.round);
        if ballot.round == claim.round || mutant::on(Mutant::ClaimOfCleared) {
            ballot.count += i64::from(claim.votes);
        }
    }
}
