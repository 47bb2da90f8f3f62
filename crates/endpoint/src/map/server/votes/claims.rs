//! Claims: votes that the element had acknowledged and the server never saw.
//!
//! When an epoch ends, its callers claim them; a caller that leaves does before, in case the epoch
//! ends later. Either way each vote is claimed once: a caller forgets what it has claimed.

use pathcall_wire::pairs::{self, Status};
use pathcall_wire::{MapFrame, Mutant, mutant};

use super::super::super::Outbox;
use super::super::super::ballot::Claim;
use super::super::Shared;
use super::ballot::Ballot;
use super::{Answers, FrameName, Request, VoteTruth};
use crate::flow::Seen;

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
            let Some(ballot) = self.ballot(key) else {
                // Room never comes back, so it is decided by nobody: there is nothing to lose.
                answers.push((Status::Full, 0, 0))?;
                continue;
            };
            match (new, stands) {
                (true, true) => ballot.stand(claim),
                (true, false) => ballot.claim(claim),
                (false, _) => {}
            }
            answers.push((Status::Whole, 0, 0))?;
        }
        answers.send(frame, None, shared, out)
    }

    /// The epoch has ended.
    pub(in super::super) fn renew(&mut self) {
        self.come_back();
        self.ballots.values_mut().for_each(Ballot::count_standing);
    }
}
