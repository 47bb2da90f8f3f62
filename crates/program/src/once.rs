//! The repeat filter: a frame takes effect at most once (NetRPC §5.1).

use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, W_MAX};

use crate::registers::{Pass, Registers};

/// What a place remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// The last full sequence number: right however late a repeat comes.
    #[default]
    FullSequence,
    /// One bit, as in the paper: right as long as no repeat is a window late.
    FlipBit,
}

/// The place of a frame in the arrays of its slot.
pub(crate) fn place(base: &BaseRepr) -> usize {
    base.slot as usize * W_MAX as usize + (base.seq % W_MAX) as usize
}

/// Whether a frame is the first of its number; `None` when it is stale.
pub(crate) fn meet(profile: Profile, registers: &mut Registers, base: &BaseRepr, pass: &mut Pass) -> Option<bool> {
    let place = &mut registers.places.visit(pass, place(base), 1)[0];
    let new = match profile {
        Profile::FullSequence if base.seq < place.seq => return None,
        Profile::FullSequence => base.seq > place.seq,
        // The bit starts as 1; a first appearance flips it.
        Profile::FlipBit => {
            let bit = flip(base.seq) != 0;
            let new = bit == place.clear_flip;
            place.clear_flip = !bit;
            new
        }
    };
    place.seq = base.seq;
    Some(new)
}
