//! The repeat filter: a frame takes effect at most once (NetRPC §5.1).

use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Mutant, RECORD_PLACES, W_MAX, mutant};

use crate::registers::{Pass, Registers};

/// What a place remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// The last full sequence number: right however late a repeat comes.
    #[default]
    FullSequence,
    /// One bit, as in the paper: right as long as no repeat is a window late, and no frame is refused:
    /// the bit of one that is would stay, and the next at its place look like a repeat.
    FlipBit,
}

/// The place of a frame in the arrays of its slot.
pub(crate) fn place(base: &BaseRepr) -> usize {
    base.slot as usize * W_MAX as usize + (base.seq % W_MAX) as usize
}

/// What a frame is to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// The first of its number.
    New,
    /// The same again, applied in this generation.
    Repeat(u32),
    /// The first of its number, and not to be applied: the place is as it was.
    Refused,
    /// Acknowledged long ago.
    Stale,
}

/// Classifies a frame, and remembers a new one as applied in `generation`, if it is `admissible`.
pub(crate) fn meet(
    profile: Profile,
    registers: &mut Registers,
    base: &BaseRepr,
    pass: &mut Pass,
    generation: u32,
    admissible: bool,
) -> Met {
    let place = &mut registers.places.visit(pass, place(base), 1)[0];
    let new = match profile {
        Profile::FullSequence if base.seq < place.seq && !mutant::on(Mutant::ElementLateRepeats) => return Met::Stale,
        Profile::FullSequence => base.seq != place.seq || mutant::on(Mutant::ElementRepeats),
        // The bit starts as 1; a first appearance flips it.
        Profile::FlipBit => (flip(base.seq) != 0) == place.clear_flip,
    };
    if !new {
        return Met::Repeat(place.generation);
    }
    if !admissible {
        return Met::Refused;
    }
    *place = crate::registers::Place { seq: base.seq, generation, clear_flip: !place.clear_flip };
    Met::New
}

/// Puts what a slot's places hold into the frame: numbers and generations of `RECORD_PLACES` from
/// place `first` on, and leaves room for the masks.
pub(crate) fn record(registers: &mut Registers, pass: &mut Pass, slot: u32, first: usize, lanes: &mut [u8]) {
    let at = slot as usize * W_MAX as usize + first;
    let (seqs, rest) = lanes.split_at_mut(RECORD_PLACES * 4);
    let places = registers.places.visit(pass, at, RECORD_PLACES);
    for ((place, seq), generation) in places.iter().zip(seqs.chunks_exact_mut(4)).zip(rest.chunks_exact_mut(4)) {
        seq.copy_from_slice(&place.seq.to_be_bytes());
        generation.copy_from_slice(&place.generation.to_be_bytes());
    }
}
