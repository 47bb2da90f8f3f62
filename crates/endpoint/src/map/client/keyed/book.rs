//! What this caller knows of where keys live.

use std::collections::HashMap;

use pathcall_wire::KEYED_LANES;
use pathcall_wire::pairs::{Answer, Status};

use super::super::super::Key;
use super::call::NONE;

/// Keys that a caller remembers the place of; further ones travel whole.
const MAX_KEYS: usize = 1 << 20;

/// Where a key lives, as far as the server has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// In the element's registers.
    Mapped { lane: u8, row: u32 },
    /// In the server's memory, under its logical address.
    Logical,
}

#[derive(Default)]
pub(super) struct KeyBook {
    places: HashMap<Key, KeyPlace>,
    /// Pairs waiting for a frame, by lane: a frame's i-th pair lives in the i-th register array.
    lanes: [Vec<(u32, u32)>; KEYED_LANES],
}

impl KeyBook {
    pub(super) fn find(&self, key: &Key) -> Option<KeyPlace> {
        self.places.get(key).copied()
    }

    pub(super) fn learn(&mut self, key: &Key, answer: &Answer) {
        let place = match answer.status {
            Status::Mapped if usize::from(answer.lane) < KEYED_LANES => {
                KeyPlace::Mapped { lane: answer.lane, row: answer.row }
            }
            Status::Logical => KeyPlace::Logical,
            _ => return,
        };
        if self.places.len() < MAX_KEYS {
            self.places.insert(key.clone(), place);
        }
    }

    /// Where keys were is no longer where they are.
    pub(super) fn forget_all(&mut self) {
        self.places.clear();
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.places.remove(key);
    }

    /// Puts pair `i` in line for a frame.
    pub(super) fn put_in_lane(&mut self, lane: u8, i: u32, row: u32) {
        self.lanes[usize::from(lane)].push((i, row));
    }

    /// Takes frames out until all lanes are empty: (pair or [`NONE`], row) by lane, trimmed.
    pub(super) fn drain_lanes(&mut self, mut frame: impl FnMut(&[(u32, u32)])) {
        loop {
            let mut members = [(NONE, 0); KEYED_LANES];
            let mut used = 0;
            for (lane, line) in self.lanes.iter_mut().enumerate() {
                if let Some(pair) = line.pop() {
                    members[lane] = pair;
                    used = lane + 1;
                }
            }
            if used == 0 {
                return;
            }
            frame(&members[..used]);
        }
    }
}
