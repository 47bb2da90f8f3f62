//! Admission of calls: a caller sends requests, a server answers, each under its own id, and both with the pool's
//! token.

use pathcall_wire::{Flags, FrameKind, Instant, Mutant, mutant, token};

use super::CallContext;
use super::pools::{Endpoints, PoolEntry};
use crate::admit::AdmissionRefusal;
use crate::{FrameAction, FrameDropReason};

/// Admits or refuses a frame. Before the token is checked only a counter changes.
#[inline]
pub(crate) fn admit(
    entry: &mut PoolEntry,
    endpoints: &Endpoints,
    now: Instant,
    call: &CallContext<'_>,
) -> Result<(), AdmissionRefusal> {
    let base = call.base();
    if !token::admits(entry.key.as_ref(), call.frame.as_bytes()) && !mutant::on(Mutant::ElementToken) {
        entry.counters.unauthentic += 1;
        return Err(AdmissionRefusal::Unauthentic);
    }
    let lives = endpoints
        .get(&base.src())
        .is_some_and(|sender| sender.gaid == base.gaid() && sender.incarnation == base.src_incarnation());
    if !lives {
        entry.counters.not_admitted += 1;
        return Err(AdmissionRefusal::NotAdmitted);
    }
    let answers = matches!(call.frame.kind(), FrameKind::CloneReply | FrameKind::CloneWorking);
    if answers != base.has(Flags::FROM_SERVER) {
        return Err(AdmissionRefusal::Forged);
    }
    // A server may report only its own state.
    let itself = match answers {
        true => entry.server(call.head().sid()) == Some(base.src()) || mutant::on(Mutant::CloneSidUnchecked),
        false => !entry.pool.servers.contains(&base.src()),
    };
    if !itself {
        return Err(AdmissionRefusal::Forged);
    }
    entry.last_seen = Some(now);
    entry.counters.admitted += 1;
    entry.counters.ecn_marked += u64::from(call.congested);
    Ok(())
}

impl CallContext<'_> {
    /// Handles a refused frame: forwards it with a flag, or drops it if it is forged or unauthentic. `signs`: whether
    /// the element has the key to sign it again.
    pub(crate) fn refuse(&mut self, refused: AdmissionRefusal, endpoints: &Endpoints, signs: bool) -> FrameAction {
        let (dst, gaid) = (self.base().dst(), self.base().gaid());
        let known = endpoints.get(&dst).is_some_and(|to| to.gaid == gaid);
        match refused {
            AdmissionRefusal::Forged => FrameAction::Drop(FrameDropReason::Forged),
            AdmissionRefusal::Unauthentic => FrameAction::Drop(FrameDropReason::Unauthentic),
            AdmissionRefusal::NotAdmitted if !known => FrameAction::Drop(FrameDropReason::NotAdmitted),
            AdmissionRefusal::NotAdmitted => {
                // An element without the key cannot sign a changed frame, so the frame is left unchanged.
                if signs || self.flags & Flags::TOKEN == 0 {
                    self.frame.base_mut().set_flags(self.flags | Flags::NOT_ADMITTED);
                }
                FrameAction::Forward(dst)
            }
        }
    }
}
