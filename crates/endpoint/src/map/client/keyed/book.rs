//! What this caller knows of where keys live.

use pathcall_wire::pairs::{Answer, Status};
use pathcall_wire::{KEYED_LANES, Mutant, mutant};

use super::super::super::Key;
use super::call::NONE;
use crate::tables::ByName;

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

/// The registers that a version of the mapping withdraws from the one before.
struct Withdrawal {
    version: u32,
    /// Lane and row, in order.
    places: Vec<(u8, u32)>,
}

#[derive(Default)]
pub(super) struct KeyBook {
    places: ByName<Key, KeyPlace>,
    /// Version of the mapping that they are of.
    version: u32,
    /// What the next version withdraws, if the server has said it.
    next: Option<Withdrawal>,
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

    /// Version of the mapping that the places are of.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// The server says what a coming version withdraws. It does not hold before the element has it.
    pub(super) fn will_withdraw(&mut self, version: u32, mut places: Vec<(u8, u32)>) {
        // There are no two to come: the one before holds, whether it was met or not.
        if version.checked_sub(2) == Some(self.version) {
            self.move_to(version - 1);
        }
        if Some(version) == self.version.checked_add(1) {
            places.sort_unstable();
            self.next = Some(Withdrawal { version, places });
        }
    }

    /// A later version holds. Who was not told what it withdraws no longer knows any register.
    pub(super) fn move_to(&mut self, version: u32) {
        let told =
            self.next.take().filter(|next| next.version == version && Some(version) == self.version.checked_add(1));
        self.version = version;
        if mutant::on(Mutant::WithdrawnKept) {
            return;
        }
        self.places.retain(|_, place| match (place, &told) {
            (KeyPlace::Mapped { lane, row }, Some(told)) => told.places.binary_search(&(*lane, *row)).is_err(),
            (KeyPlace::Mapped { .. }, None) => false,
            (KeyPlace::Logical, _) => true,
        });
    }

    /// The epoch has changed: nothing is where it was.
    pub(super) fn start_anew(&mut self) {
        self.places.clear();
        (self.version, self.next) = (0, None);
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
