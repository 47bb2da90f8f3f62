//! The table of cloned requests: all parts of a request take the way of its first (NetClone §3.7).

use super::Call;
use super::registers::{Cloned, place_of};
use crate::registers::RegisterArray;

/// Which servers of its pair a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    First,
    Second,
    Both,
}

/// What holds for a part of a request of several: what its first part has left here; of a first part,
/// `decided`, which is left here. Without either it goes to the first server, as if it were alone.
pub(super) fn meet(call: &mut Call<'_>, decided: Decision, requests: &mut RegisterArray<Cloned>) -> Decision {
    let (req_id, gaid) = (call.head().req_id(), call.base().gaid());
    let at = place_of(req_id, requests.size());
    let slot = &mut requests.visit(&mut call.pass, at, 1)[0];
    if (slot.req_id, slot.gaid) == (req_id, gaid) {
        // Of a first part that comes again, too: the others have gone that way.
        return Decision::of(slot.to);
    }
    if call.head().part() == 0 {
        *slot = Cloned { req_id, gaid, to: decided.bits() };
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
