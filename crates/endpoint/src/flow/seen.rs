//! The receiving side: which sequence numbers have taken effect.

use std::collections::BTreeMap;

use pathcall_wire::{Mutant, W_MAX, mutant};

/// What a sequence number is to the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Never met.
    New,
    /// Met, and the last one at its place: the answer must be repeated.
    Repeat,
    /// Acknowledged long ago.
    Stale,
}

/// Repeat filters of one sender's flows, by slot: the last full sequence number at each of the
/// `w_max` places, as in the element (NOTES: a late repeat must not look new).
#[derive(Debug, Default)]
pub struct SeenSet {
    flows: BTreeMap<u32, Box<[u32]>>,
}

impl SeenSet {
    /// Flows of one sender that are told apart; frames of further ones are refused.
    pub const MAX_FLOWS: usize = 64;

    /// Classifies a number and remembers it when it is new.
    pub fn meet(&mut self, slot: u32, seq: u32) -> Seen {
        if !self.flows.contains_key(&slot) && self.flows.len() >= Self::MAX_FLOWS {
            return Seen::Stale;
        }
        let places = self.flows.entry(slot).or_insert_with(|| vec![0; W_MAX as usize].into_boxed_slice());
        let last = &mut places[(seq % W_MAX) as usize];
        match seq.cmp(last) {
            std::cmp::Ordering::Greater => {
                *last = seq;
                Seen::New
            }
            _ if mutant::on(Mutant::ServerRepeats) => Seen::New,
            std::cmp::Ordering::Equal => Seen::Repeat,
            std::cmp::Ordering::Less => Seen::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_has_a_bounded_number_of_flows() {
        let mut seen = SeenSet::default();
        let flows = SeenSet::MAX_FLOWS as u32;
        assert!((0..flows).all(|slot| seen.meet(slot * 3, 1) == Seen::New));
        for slot in (0..1_000).map(|slot| slot * 3 + 1) {
            assert_eq!(seen.meet(slot, 1), Seen::Stale, "a flow beyond the bound has no effect");
        }
        assert_eq!(seen.flows.len(), SeenSet::MAX_FLOWS);
        assert!((0..flows).all(|slot| seen.meet(slot * 3, 2) == Seen::New), "those before go on");
    }
}
