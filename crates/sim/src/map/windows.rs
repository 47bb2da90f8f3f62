//! Check of the window rule that the element's repeat filter depends on.
//!
//! A sender keeps `seq < oldest unacknowledged + w_max` in each flow (NetRPC §5.1). So a newer number never takes a
//! place of the filter while the older number at that place still waits for its answer. An older frame that arrives
//! afterwards is a late repeat, and may be dropped.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_wire::{Base, Flags, FrameKind, MapFlags, MapFrame, W_MAX};

/// Violation of the window rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// A new number does not follow the last one.
    #[error("endpoint {endpoint} slot {slot}: sequence {seq} is sent after {last}")]
    Skipped {
        /// Endpoint id of the sender.
        endpoint: u32,
        /// Slot of the flow.
        slot: u32,
        /// New sequence number.
        seq: u32,
        /// Largest sequence number before.
        last: u32,
    },
    /// A new number is beyond the window.
    #[error("endpoint {endpoint} slot {slot}: sequence {seq} is sent while {oldest} is not acknowledged")]
    Ahead {
        /// Endpoint id of the sender.
        endpoint: u32,
        /// Slot of the flow.
        slot: u32,
        /// New sequence number.
        seq: u32,
        /// Oldest unacknowledged sequence number.
        oldest: u32,
    },
    /// The element treats a frame as stale that its sender still needs.
    #[error(
        "endpoint {endpoint} slot {slot}: sequence {seq} is not acknowledged, but {newer} has its place at the element"
    )]
    Overtaken {
        /// Endpoint id of the sender.
        endpoint: u32,
        /// Slot of the flow.
        slot: u32,
        /// Sequence number that arrives.
        seq: u32,
        /// Newer sequence number at its place.
        newer: u32,
    },
}

/// Observed state of one flow.
#[derive(Default)]
struct FlowWindow {
    last: u32,
    unacknowledged: BTreeSet<u32>,
    /// Sequence numbers by the chunk that their answer names.
    chunks: BTreeMap<u64, u32>,
    /// Largest sequence number at each element, by element and place.
    met: BTreeMap<(usize, u32), u32>,
}

/// Flows of all callers, by endpoint id and flow number.
#[derive(Default)]
pub(crate) struct Windows {
    flows: BTreeMap<(u32, u32), FlowWindow>,
    /// First slots of the callers; frames through the element count their slots from these.
    slot_bases: BTreeMap<u32, u32>,
    /// Rows of the application, as each caller knows it.
    rows: BTreeMap<u32, u32>,
}

impl Windows {
    /// Creates the check for callers with these first slots.
    pub(crate) fn new(slot_bases: impl Iterator<Item = (u32, u32)>) -> Self {
        Self { slot_bases: slot_bases.collect(), ..Self::default() }
    }

    /// Records the number of rows with which a caller joins.
    pub(crate) fn joined(&mut self, endpoint: u32, rows: u32) {
        self.rows.insert(endpoint, rows);
    }

    /// Records a new epoch of a caller: frames in flight take other routes.
    pub(crate) fn renewed(&mut self, endpoint: u32, rows: u32) {
        self.rows.insert(endpoint, rows);
        for (_, window) in self.flows.range_mut((endpoint, 0)..=(endpoint, u32::MAX)) {
            window.unacknowledged.clear();
            window.met.clear();
        }
    }

    /// Flow of a frame that this caller sends or receives.
    fn flow(&self, endpoint: u32, base: &Base<&[u8]>) -> (u32, u32) {
        let first = if base.has(Flags::CROSS) { 0 } else { self.slot_bases.get(&endpoint).copied().unwrap_or(0) };
        (endpoint, base.slot().wrapping_sub(first))
    }

    /// Checks a frame that a caller sends.
    pub(crate) fn sent(&mut self, bytes: &[u8]) -> Result<(), WindowError> {
        let Ok(frame) = MapFrame::new_checked(bytes) else { return Ok(()) };
        let (base, map) = (frame.base(), frame.map());
        let seq = base.seq();
        let (endpoint, slot) = self.flow(base.src(), &base);
        let chunk = self.chunk(endpoint, &frame, 0);
        let window = self.flows.entry((endpoint, slot)).or_default();
        if seq <= window.last {
            return Ok(());
        }
        if seq != window.last + 1 {
            return Err(WindowError::Skipped { endpoint, slot, seq, last: window.last });
        }
        if let Some(&oldest) = window.unacknowledged.first()
            && seq >= oldest + W_MAX
        {
            return Err(WindowError::Ahead { endpoint, slot, seq, oldest });
        }
        window.last = seq;
        window.unacknowledged.insert(seq);
        if map.has(MapFlags::ROUND) {
            window.chunks.insert(chunk, seq);
        }
        Ok(())
    }

    /// Records a frame that a caller receives.
    pub(crate) fn delivered(&mut self, to: u32, bytes: &[u8]) {
        let Ok(frame) = MapFrame::new_checked(bytes) else { return };
        let base = frame.base();
        match frame.kind() {
            // A refusal by the element is final.
            FrameKind::MapAck | FrameKind::MapPairsAck | FrameKind::MapRefused => {
                self.acknowledge(self.flow(to, &base), base.seq());
            }
            // A decision of the element has the flow and the number of the vote that decided.
            FrameKind::MapSoft if !base.has(Flags::FROM_SERVER) && frame.map().has(MapFlags::COUNT) => {
                self.acknowledge(self.flow(to, &base), base.seq());
            }
            FrameKind::MapResult => {
                // The server's results name the rows of its own epoch, which may be another one.
                let rows = if base.has(Flags::FROM_SERVER) { frame.map().threshold() } else { 0 };
                let chunk = self.chunk(to, &frame, rows);
                for window in self.flows.range_mut((to, 0)..=(to, u32::MAX)).map(|(_, window)| window) {
                    if let Some(seq) = window.chunks.remove(&chunk) {
                        window.unacknowledged.remove(&seq);
                    }
                }
            }
            _ => {}
        }
    }

    /// Number of the chunk of a frame that names a row and a round; `rows`: their number, or 0 if it is the caller's.
    fn chunk(&self, caller: u32, frame: &MapFrame<&[u8]>, rows: u32) -> u64 {
        let rows = if rows == 0 { self.rows.get(&caller).copied().unwrap_or(1) } else { rows };
        u64::from(frame.base().round().saturating_sub(1)) * u64::from(rows) + u64::from(frame.map().index())
    }

    fn acknowledge(&mut self, flow: (u32, u32), seq: u32) {
        if let Some(window) = self.flows.get_mut(&flow) {
            window.unacknowledged.remove(&seq);
        }
    }

    /// Checks a frame that arrives at an element.
    pub(crate) fn at_element(&mut self, element: usize, bytes: &[u8]) -> Result<(), WindowError> {
        let Ok(frame) = MapFrame::new_checked(bytes) else { return Ok(()) };
        let base = frame.base();
        let seq = base.seq();
        let (endpoint, slot) = self.flow(base.src(), &base);
        let Some(window) = self.flows.get_mut(&(endpoint, slot)).filter(|_| !base.has(Flags::FROM_SERVER)) else {
            return Ok(());
        };
        let met = window.met.entry((element, seq % W_MAX)).or_default();
        let newer = *met;
        *met = newer.max(seq);
        if seq < newer && window.unacknowledged.contains(&seq) {
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

    fn frame(kind: FrameKind, seq: u32) -> Vec<u8> {
        let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
        let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
        emit(&BaseRepr { src: 7, slot: 3, seq, ..BaseRepr::new(kind) }, &map, &mut bytes);
        bytes
    }

    #[test]
    fn number_beyond_window_is_violation() {
        let mut windows = Windows::default();
        for seq in 1..=256 {
            windows.sent(&frame(FrameKind::MapData, seq)).expect("frame is inside the window");
        }
        let ahead = WindowError::Ahead { endpoint: 7, slot: 3, seq: 257, oldest: 1 };
        assert_eq!(windows.sent(&frame(FrameKind::MapData, 257)), Err(ahead));
        windows.delivered(7, &frame(FrameKind::MapAck, 1));
        windows.sent(&frame(FrameKind::MapData, 257)).expect("1 is acknowledged");
        let skipped = WindowError::Skipped { endpoint: 7, slot: 3, seq: 259, last: 257 };
        assert_eq!(windows.sent(&frame(FrameKind::MapData, 259)), Err(skipped));
    }

    #[test]
    fn result_in_rows_of_later_epoch_acknowledges_its_chunk() {
        let of_chunk = |kind, (index, round, seq), (flags, threshold)| {
            let map = MapRepr { flags: MapFlags::BARE | MapFlags::ROUND, index, threshold, ..MapRepr::default() };
            let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
            emit(&BaseRepr { src: 7, slot: 3, seq, round, flags, ..BaseRepr::new(kind) }, &map, &mut bytes);
            bytes
        };
        let mut windows = Windows::default();
        windows.joined(7, 1);
        for seq in 1..=256 {
            windows.sent(&of_chunk(FrameKind::MapData, (0, seq, seq), (0, 2))).expect("frame is inside the window");
        }
        let next = of_chunk(FrameKind::MapData, (0, 257, 257), (0, 2));
        // Chunk 0 is in round 1 of row 0, with one row and with two; chunk 1 is not.
        windows.delivered(7, &of_chunk(FrameKind::MapResult, (1, 1, 0), (Flags::FROM_SERVER, 2)));
        windows.sent(&next).expect_err("chunk 0 has no result");
        windows.delivered(7, &of_chunk(FrameKind::MapResult, (0, 1, 0), (Flags::FROM_SERVER, 2)));
        windows.sent(&next).expect("chunk 0 has its result");
    }

    #[test]
    fn stale_frame_is_violation_only_while_unacknowledged() {
        let mut windows = Windows::default();
        windows.sent(&frame(FrameKind::MapData, 1)).expect("the first");
        windows.at_element(0, &frame(FrameKind::MapData, 257)).expect("newer");
        let overtaken = WindowError::Overtaken { endpoint: 7, slot: 3, seq: 1, newer: 257 };
        assert_eq!(windows.at_element(0, &frame(FrameKind::MapData, 1)), Err(overtaken));
        windows.delivered(7, &frame(FrameKind::MapAck, 1));
        windows.at_element(0, &frame(FrameKind::MapData, 1)).expect("a late repeat");
    }
}
