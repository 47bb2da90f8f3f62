//! Admission: a caller asks, a server answers, each in its own name, and both with the pool's token.

use pathcall_wire::{Flags, Instant, Kind, Mutant, mutant, token};

use super::Call;
use super::pools::{Endpoints, Entry};
use crate::admit::Refused;
use crate::{Action, Reason};

/// Admits a frame, or does not. Nothing but a counter has changed before its token was looked at.
#[inline]
pub(crate) fn admit(entry: &mut Entry, endpoints: &Endpoints, now: Instant, call: &Call<'_>) -> Result<(), Refused> {
    let base = call.base();
    if !token::admits(entry.key.as_ref(), call.frame.as_bytes()) && !mutant::on(Mutant::ElementToken) {
        entry.counters.unauthentic += 1;
        return Err(Refused::Unauthentic);
    }
    let lives = endpoints
        .get(&base.src())
        .is_some_and(|sender| sender.gaid == base.gaid() && sender.incarnation == base.src_incarnation());
    if !lives {
        entry.counters.not_admitted += 1;
        return Err(Refused::NotAdmitted);
    }
    let answers = matches!(call.frame.kind(), Kind::CloneReply | Kind::CloneWorking);
    if answers != base.has(Flags::FROM_SERVER) {
        return Err(Refused::Forged);
    }
    // The state of a server is what it says itself.
    let itself = match answers {
        true => entry.server(call.head().sid()) == Some(base.src()) || mutant::on(Mutant::CloneSidUnchecked),
        false => !entry.pool.servers.contains(&base.src()),
    };
    if !itself {
        return Err(Refused::Forged);
    }
    entry.last_seen = Some(now);
    entry.counters.admitted += 1;
    entry.counters.ecn_marked += u64::from(call.congested);
    Ok(())
}

impl Call<'_> {
    /// What becomes of a frame that is not admitted: it goes on, unless it is not what it says. `signs`:
    /// whether the element can sign it again.
    pub(crate) fn refuse(&mut self, refused: Refused, endpoints: &Endpoints, signs: bool) -> Action {
        let (dst, gaid) = (self.base().dst(), self.base().gaid());
        let known = endpoints.get(&dst).is_some_and(|to| to.gaid == gaid);
        match refused {
            Refused::Forged => Action::Drop(Reason::Forged),
            Refused::Unauthentic => Action::Drop(Reason::Unauthentic),
            Refused::NotAdmitted if !known => Action::Drop(Reason::NotAdmitted),
            Refused::NotAdmitted => {
                // Who can't sign it again leaves it as it came.
                if signs || self.flags & Flags::TOKEN == 0 {
                    self.frame.base_mut().set_flags(self.flags | Flags::NOT_ADMITTED);
                }
                Action::Forward(dst)
            }
        }
    }
}
