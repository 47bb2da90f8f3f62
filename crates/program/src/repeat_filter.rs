//! Repeat-filter stage: a frame takes effect at most once (NetRPC §5.1).

use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Mutant, RECORD_PLACES, W_MAX, mutant};

use crate::registers::{Pass, Registers};

/// Content of a repeat-filter entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepeatFilterProfile {
    /// Last full sequence number: correct for repeats of any age.
    #[default]
    FullSequence,
    /// One bit, as in the paper, which fits hardware. Correct if no repeat is a window late, no frame is refused (its
    /// bit would stay, and the next frame with the entry would look like a repeat), and a slot gets another holder only
    /// when no frame of the last one is in flight. Admission by endpoint and incarnation ensures the latter; without it
    /// the controller waits.
    FlipBit,
}

/// Index of a frame's entry in its slot.
pub(crate) fn place(base: &BaseRepr) -> usize {
    base.slot as usize * W_MAX as usize + (base.seq % W_MAX) as usize
}

/// Relation of a frame to its repeat-filter entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatStatus {
    /// New sequence number.
    New,
    /// Repeat of a frame that was applied in this generation.
    Repeat(u32),
    /// New sequence number of a frame that is refused; the entry is unchanged.
    Refused,
    /// Acknowledged long ago.
    Stale,
}

/// Classifies a frame, and records a new one as applied in `generation`, if it is `admissible`.
pub(crate) fn classify(
    profile: RepeatFilterProfile,
    registers: &mut Registers,
    base: &BaseRepr,
    pass: &mut Pass,
    generation: u32,
    admissible: bool,
) -> RepeatStatus {
    let place = &mut registers.places.visit(pass, place(base), 1)[0];
    let new = match profile {
        RepeatFilterProfile::FullSequence if base.seq < place.seq && !mutant::on(Mutant::ElementLateRepeats) => {
            return RepeatStatus::Stale;
        }
        RepeatFilterProfile::FullSequence => base.seq != place.seq || mutant::on(Mutant::ElementRepeats),
        // The bit starts as 1; the first frame with the entry flips it.
        RepeatFilterProfile::FlipBit => (flip(base.seq) != 0) == place.clear_flip,
    };
    if !new {
        return RepeatStatus::Repeat(place.generation);
    }
    if !admissible {
        return RepeatStatus::Refused;
    }
    *place = crate::registers::RepeatFilterEntry { seq: base.seq, generation, clear_flip: !place.clear_flip };
    RepeatStatus::New
}

/// Writes the sequence numbers and generations of `RECORD_PLACES` entries of a slot, from `first` on, into the frame,
/// and leaves room for the masks.
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
    use pathcall_wire::FrameKind;

    use super::*;

    struct Filter(RepeatFilterProfile, Registers);

    impl Filter {
        fn new(profile: RepeatFilterProfile) -> Self {
            Self(profile, Registers::new(&crate::Size { rows: 1, lanes: 1, slots: 1 }))
        }

        fn classify(&mut self, seq: u32) -> RepeatStatus {
            let base = BaseRepr { seq, ..BaseRepr::new(FrameKind::MapData) };
            classify(self.0, &mut self.1, &base, &mut Pass::default(), 1, true)
        }
    }

    /// The controller's quarantine prevents this where admission checks the application only.
    #[test]
    fn late_frame_of_last_slot_holder_costs_next_holder_a_frame() {
        for (profile, becomes) in [
            (RepeatFilterProfile::FlipBit, RepeatStatus::Repeat(1)),
            (RepeatFilterProfile::FullSequence, RepeatStatus::Stale),
        ] {
            // The entries are reset for the next holder; then a frame of the last holder arrives.
            let mut filter = Filter::new(profile);
            assert_eq!(filter.classify(2 * W_MAX + 1), RepeatStatus::New, "taken for a frame of the next holder");
            assert_eq!(filter.classify(1), becomes, "never applied: acknowledged or dropped");
            let mut filter = Filter::new(profile);
            assert_eq!(filter.classify(1), RepeatStatus::New, "no frame of the last holder in flight");
        }
    }

    /// The flip bit alone fails for a repeat that is a window late.
    #[test]
    fn repeat_late_by_window_defeats_only_flip_bit() {
        let late = |profile| {
            let mut filter = Filter::new(profile);
            [1, W_MAX + 1, 1, W_MAX + 1].map(|seq| filter.classify(seq))
        };
        assert_eq!(late(RepeatFilterProfile::FlipBit), [RepeatStatus::New; 4], "late repeats are applied twice");
        assert_eq!(
            late(RepeatFilterProfile::FullSequence),
            [RepeatStatus::New, RepeatStatus::New, RepeatStatus::Stale, RepeatStatus::Repeat(1)]
        );
    }
}
