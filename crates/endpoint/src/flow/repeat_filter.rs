//! Repeat filter of the receiving side: sequence numbers that have taken effect.

use std::collections::BTreeMap;

use pathcall_wire::{Mutant, W_MAX, mutant};

/// Class of a received sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeqClass {
    /// First time.
    New,
    /// Repeat of the latest number at its window position: the receiver must repeat the answer.
    Repeat,
    /// Older than the latest number at its window position: acknowledged long ago.
    Stale,
}

/// Repeat filter of one sender's flows, by slot: the last full sequence number at each of the `w_max` window
/// positions, as in the element, so that a late repeat never looks new.
#[derive(Debug, Default)]
pub struct FlowRepeatFilter {
    flows: BTreeMap<u32, Box<[u32]>>,
}

impl FlowRepeatFilter {
    /// Maximum number of flows of one sender; frames of further flows are dropped.
    pub const MAX_FLOWS: usize = 64;

    /// Classifies a sequence number, and records it if it is new.
    pub fn classify(&mut self, slot: u32, seq: u32) -> SeqClass {
        if !self.flows.contains_key(&slot) && self.flows.len() >= Self::MAX_FLOWS {
            return SeqClass::Stale;
        }
        let positions = self.flows.entry(slot).or_insert_with(|| vec![0; W_MAX as usize].into_boxed_slice());
        let last = &mut positions[(seq % W_MAX) as usize];
        match seq.cmp(last) {
            std::cmp::Ordering::Greater => {
                *last = seq;
                SeqClass::New
            }
            _ if mutant::on(Mutant::ServerRepeats) => SeqClass::New,
            std::cmp::Ordering::Equal => SeqClass::Repeat,
            std::cmp::Ordering::Less => SeqClass::Stale,
        }
    }

    /// Records a number that took effect at a former owner.
    pub(crate) fn record(&mut self, slot: u32, seq: u32) {
        self.classify(slot, seq);
    }

    /// Slot and number of the last frame at each window position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.flows.iter().flat_map(|(slot, seqs)| seqs.iter().filter(|seq| **seq > 0).map(move |seq| (*slot, *seq)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_one_sender_are_limited() {
        let mut seen = FlowRepeatFilter::default();
        let flows = FlowRepeatFilter::MAX_FLOWS as u32;
        assert!((0..flows).all(|slot| seen.classify(slot * 3, 1) == SeqClass::New));
        for slot in (0..1_000).map(|slot| slot * 3 + 1) {
            assert_eq!(seen.classify(slot, 1), SeqClass::Stale, "a flow beyond the limit has no effect");
        }
        assert_eq!(seen.flows.len(), FlowRepeatFilter::MAX_FLOWS);
        assert!((0..flows).all(|slot| seen.classify(slot * 3, 2) == SeqClass::New), "earlier flows continue");
    }
}
