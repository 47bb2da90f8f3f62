//! The rule that the element's repeat filter rests on, watched from outside.
//!
//! A sender keeps `seq < oldest unacknowledged + w_max` in each flow (NetRPC §5.1). So a place of
//! the filter is never taken by a newer number while the older one at that place still waits for
//! its answer: an older one that arrives then is a late repeat, and may be dropped.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_wire::{Base, Flags, Kind, MapFlags, MapFrame, W_MAX};

/// A sender that broke the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// A new number does not follow the last one.
    #[error("endpoint {endpoint} slot {slot}: sequence {seq} is sent after {last}")]
    Skipped {
        /// The sender.
        endpoint: u32,
        /// Its flow.
        slot: u32,
        /// The new number.
        seq: u32,
        /// The greatest before.
        last: u32,
    },
    /// A new number is too far ahead.
    #[error("endpoint {endpoint} slot {slot}: sequence {seq} is sent while {oldest} is not acknowledged")]
    Ahead {
        /// The sender.
        endpoint: u32,
        /// Its flow.
        slot: u32,
        /// The new number.
        seq: u32,
        /// The oldest without answer.
        oldest: u32,
    },
    /// The element takes a frame for stale whose sender still needs it.
    #[error(
        "endpoint {endpoint} slot {slot}: at the element {newer} has the place of {seq}, which is not acknowledged"
    )]
    Overtaken {
        /// The sender.
        endpoint: u32,
        /// Its flow.
        slot: u32,
        /// The number that arrives.
        seq: u32,
        /// The number that the element has met at its place.
        newer: u32,
    },
}

/// One flow, from outside.
#[derive(Default)]
struct Watch {
    last: u32,
    unacknowledged: BTreeSet<u32>,
    /// Numbers by the (row, round) that their answer names.
    rounds: BTreeMap<(u32, u32), u32>,
    /// What each element has met, by element and place.
    met: BTreeMap<(usize, u32), u32>,
}

/// All flows of all callers, by endpoint and number of the flow.
#[derive(Default)]
pub(crate) struct Windows {
    flows: BTreeMap<(u32, u32), Watch>,
    /// Callers' first slots: what a frame by the element counts its slot from.
    slot_bases: BTreeMap<u32, u32>,
}

impl Windows {
    /// Of callers with these first slots.
    pub(crate) fn new(slot_bases: impl Iterator<Item = (u32, u32)>) -> Self {
        Self { flows: BTreeMap::new(), slot_bases: slot_bases.collect() }
    }

    /// A caller has been told of another epoch: what is in flight goes other ways.
    pub(crate) fn renewed(&mut self, endpoint: u32) {
        for (_, watch) in self.flows.range_mut((endpoint, 0)..=(endpoint, u32::MAX)) {
            watch.unacknowledged.clear();
            watch.met.clear();
        }
    }

    /// The flow that a frame of, or to, this caller names.
    fn flow(&self, endpoint: u32, base: &Base<&[u8]>) -> (u32, u32) {
        let first = if base.has(Flags::CROSS) { 0 } else { self.slot_bases.get(&endpoint).copied().unwrap_or(0) };
        (endpoint, base.slot().wrapping_sub(first))
    }

    /// A caller sends a frame.
    pub(crate) fn sent(&mut self, bytes: &[u8]) -> Result<(), WindowError> {
        let Ok(frame) = MapFrame::new_checked(bytes) else { return Ok(()) };
        let (base, map) = (frame.base(), frame.map());
        let seq = base.seq();
        let (endpoint, slot) = self.flow(base.src(), &base);
        let watch = self.flows.entry((endpoint, slot)).or_default();
        if seq <= watch.last {
            return Ok(());
        }
        if seq != watch.last + 1 {
            return Err(WindowError::Skipped { endpoint, slot, seq, last: watch.last });
        }
        if let Some(&oldest) = watch.unacknowledged.first()
            && seq >= oldest + W_MAX
        {
            return Err(WindowError::Ahead { endpoint, slot, seq, oldest });
        }
        watch.last = seq;
        watch.unacknowledged.insert(seq);
        if map.has(MapFlags::ROUND) {
            watch.rounds.insert((map.index(), base.round()), seq);
        }
        Ok(())
    }

    /// A frame comes to a caller.
    pub(crate) fn delivered(&mut self, to: u32, bytes: &[u8]) {
        let Ok(frame) = MapFrame::new_checked(bytes) else { return };
        let base = frame.base();
        match frame.kind() {
            // What the element refuses, it refuses for ever.
            Kind::MapAck | Kind::MapPairsAck | Kind::MapRefused => {
                self.acknowledge(self.flow(to, &base), base.seq());
            }
            Kind::MapResult => {
                let round = (frame.map().index(), base.round());
                for watch in self.flows.range_mut((to, 0)..=(to, u32::MAX)).map(|(_, watch)| watch) {
                    if let Some(seq) = watch.rounds.remove(&round) {
                        watch.unacknowledged.remove(&seq);
                    }
                }
            }
            _ => {}
        }
    }

    fn acknowledge(&mut self, flow: (u32, u32), seq: u32) {
        if let Some(watch) = self.flows.get_mut(&flow) {
            watch.unacknowledged.remove(&seq);
        }
    }

    /// A frame comes to an element.
    pub(crate) fn at_element(&mut self, element: usize, bytes: &[u8]) -> Result<(), WindowError> {
        let Ok(frame) = MapFrame::new_checked(bytes) else { return Ok(()) };
        let base = frame.base();
        let seq = base.seq();
        let (endpoint, slot) = self.flow(base.src(), &base);
        let Some(watch) = self.flows.get_mut(&(endpoint, slot)).filter(|_| !base.has(Flags::FROM_SERVER)) else {
            return Ok(());
        };
        let met = watch.met.entry((element, seq % W_MAX)).or_default();
        let newer = *met;
        *met = newer.max(seq);
        if seq < newer && watch.unacknowledged.contains(&seq) {
            return Err(WindowError::Overtaken { endpoint, slot, seq, newer });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pathcall_wire::map::{emit, frame_len};
    use pathcall_wire::{BaseRepr, MapRepr};

    use super::*;

    fn frame(kind: Kind, seq: u32) -> Vec<u8> {
        let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
        let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
        emit(&BaseRepr { src: 7, slot: 3, seq, ..BaseRepr::new(kind) }, &map, &mut bytes);
        bytes
    }

    #[test]
    fn a_number_a_window_ahead_of_the_oldest_is_seen() {
        let mut windows = Windows::default();
        for seq in 1..=256 {
            windows.sent(&frame(Kind::MapData, seq)).expect("inside the window");
        }
        let ahead = WindowError::Ahead { endpoint: 7, slot: 3, seq: 257, oldest: 1 };
        assert_eq!(windows.sent(&frame(Kind::MapData, 257)), Err(ahead));
        windows.delivered(7, &frame(Kind::MapAck, 1));
        windows.sent(&frame(Kind::MapData, 257)).expect("1 is acknowledged");
        let skipped = WindowError::Skipped { endpoint: 7, slot: 3, seq: 259, last: 257 };
        assert_eq!(windows.sent(&frame(Kind::MapData, 259)), Err(skipped));
    }

    #[test]
    fn a_stale_frame_matters_only_while_it_waits_for_its_answer() {
        let mut windows = Windows::default();
        windows.sent(&frame(Kind::MapData, 1)).expect("the first");
        windows.at_element(0, &frame(Kind::MapData, 257)).expect("newer");
        let overtaken = WindowError::Overtaken { endpoint: 7, slot: 3, seq: 1, newer: 257 };
        assert_eq!(windows.at_element(0, &frame(Kind::MapData, 1)), Err(overtaken));
        windows.delivered(7, &frame(Kind::MapAck, 1));
        windows.at_element(0, &frame(Kind::MapData, 1)).expect("a late repeat");
    }
}
