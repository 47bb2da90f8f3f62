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
    /// One bit, as in the paper: what hardware has room for. Right as long as no repeat is a window late, no
    /// frame is refused (its bit would stay, and the next at its place look like a repeat), and a slot gets
    /// another holder only when nothing of the last one is on its way: an element that admits by endpoint
    /// and incarnation sees to that itself, for others the controller waits.
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

#[cfg(test)]
mod tests {
    use pathcall_wire::Kind;

    use super::*;

    struct Filter(Profile, Registers);

    impl Filter {
        fn new(profile: Profile) -> Self {
            Self(profile, Registers::new(&crate::Size { rows: 1, lanes: 1, slots: 1 }))
        }

        fn meet(&mut self, seq: u32) -> Met {
            let base = BaseRepr { seq, ..BaseRepr::new(Kind::MapData) };
            meet(self.0, &mut self.1, &base, &mut Pass::default(), 1, true)
        }
    }

    /// What the controller's quarantine is for, where admission asks for no more than the application.
    #[test]
    fn a_late_frame_of_a_slots_last_holder_costs_the_next_holder_a_frame() {
        for (profile, becomes) in [(Profile::FlipBit, Met::Repeat(1)), (Profile::FullSequence, Met::Stale)] {
            // Set back for the next holder; then something of the last one still comes.
            let mut filter = Filter::new(profile);
            assert_eq!(filter.meet(2 * W_MAX + 1), Met::New, "it is taken for the next holder's");
            assert_eq!(filter.meet(1), becomes, "never applied, and acknowledged or dropped for ever");
            let mut filter = Filter::new(profile);
            assert_eq!(filter.meet(1), Met::New, "nothing on its way");
        }
    }

    /// The flip bit alone fails when a repeat arrives a window late.
    #[test]
    fn a_repeat_that_is_late_by_a_window_fools_the_flip_bit_only() {
        let late = |profile| {
            let mut filter = Filter::new(profile);
            [1, W_MAX + 1, 1, W_MAX + 1].map(|seq| filter.meet(seq))
        };
        assert_eq!(late(Profile::FlipBit), [Met::New; 4], "both are applied twice");
        assert_eq!(late(Profile::FullSequence), [Met::New, Met::New, Met::Stale, Met::Repeat(1)]);
    }
}
