//! Table of cloned requests: all parts of a request go to the same servers as its first part (NetClone §3.7).

use super::CallContext;
use super::registers::{ClonedRequest, slot_of};
use crate::registers::RegisterArray;

/// Servers of the pair that get a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    First,
    Second,
    Both,
}

/// Decision for a part of a multi-part request: the recorded decision of its first part, or for a first part `decided`,
/// which is recorded. Without a record the part goes to the first server.
pub(super) fn recall_decision(
    call: &mut CallContext<'_>,
    decided: Decision,
    requests: &mut RegisterArray<ClonedRequest>,
) -> Decision {
    let (req_id, gaid) = (call.head().req_id(), call.base().gaid());
    let at = slot_of(req_id, requests.size());
    let slot = &mut requests.visit(&mut call.pass, at, 1)[0];
    if (slot.req_id, slot.gaid) == (req_id, gaid) {
        // Also for a repeated first part, because the other parts went there.
        return Decision::of(slot.to);
    }
    if call.head().part() == 0 {
        *slot = ClonedRequest { req_id, gaid, to: decided.bits() };
    }
    decided
}

impl Decision {
    fn bits(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Second => 2,
            Self::Both => 3,
        }
    }

    fn of(bits: u8) -> Self {
        match bits {
            3 => Self::Both,
            2 => Self::Second,
            _ => Self::First,
        }
    }
}
