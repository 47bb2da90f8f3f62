//! Key cache of a caller: location of keys in the element and at the server.

use pathcall_wire::pairs::{PairAnswer, PairStatus};
use pathcall_wire::{KEYED_LANES, Mutant, mutant};

use super::super::super::Key;
use super::call::NONE;
use crate::tables::SeededHashMap;

/// Maximum number of cached keys; further keys are sent whole.
const MAX_KEYS: usize = 1 << 20;

/// Location of a key, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyLocation {
    /// Register in the element.
    Mapped { lane: u8, row: u32 },
    /// Logical address at the server.
    Logical,
}

/// Registers that a mapping version withdraws from the previous version.
struct Withdrawal {
    version: u32,
    /// Lanes and rows, sorted.
    registers: Vec<(u8, u32)>,
}

/// Locations of keys, with the pairs that wait for a frame.
#[derive(Default)]
pub(super) struct KeyCache {
    locations: SeededHashMap<Key, KeyLocation>,
    /// Mapping version of the locations.
    version: u32,
    /// Registers that the next version withdraws, if announced.
    next: Option<Withdrawal>,
    /// Pairs waiting for a frame, by lane: pair i of a frame uses register array i.
    lanes: [Vec<(u32, u32)>; KEYED_LANES],
}

impl KeyCache {
    pub(super) fn find(&self, key: &Key) -> Option<KeyLocation> {
        self.locations.get(key).copied()
    }

    pub(super) fn learn(&mut self, key: &Key, answer: &PairAnswer) {
        let location = match answer.status {
            PairStatus::Mapped if usize::from(answer.lane) < KEYED_LANES => {
                KeyLocation::Mapped { lane: answer.lane, row: answer.row }
            }
            PairStatus::Logical => KeyLocation::Logical,
            _ => return,
        };
        if self.locations.len() < MAX_KEYS {
            self.locations.insert(key.clone(), location);
        }
    }

    /// Mapping version of the locations.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Records the registers that the next version withdraws. The version is valid when the element has it.
    pub(super) fn note_withdrawal(&mut self, version: u32, mut registers: Vec<(u8, u32)>) {
        // Only one version can be pending, so the previous one is valid already.
        if version.checked_sub(2) == Some(self.version) {
            self.advance_to(version - 1);
        }
        if Some(version) == self.version.checked_add(1) {
            registers.sort_unstable();
            self.next = Some(Withdrawal { version, registers });
        }
    }

    /// Advances to a later version. Without its announcement, all cached registers are dropped.
    pub(super) fn advance_to(&mut self, version: u32) {
        let withdrawal =
            self.next.take().filter(|next| next.version == version && Some(version) == self.version.checked_add(1));
        self.version = version;
        if mutant::on(Mutant::WithdrawnKept) {
            return;
        }
        self.locations.retain(|_, location| match (location, &withdrawal) {
            (KeyLocation::Mapped { lane, row }, Some(withdrawal)) => {
                withdrawal.registers.binary_search(&(*lane, *row)).is_err()
            }
            (KeyLocation::Mapped { .. }, None) => false,
            (KeyLocation::Logical, _) => true,
        });
    }

    /// Clears the cache after a change of epoch.
    pub(super) fn reset(&mut self) {
        self.locations.clear();
        (self.version, self.next) = (0, None);
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.locations.remove(key);
    }

    /// Adds pair `i` to the pairs waiting in `lane`.
    pub(super) fn push_lane(&mut self, lane: u8, i: u32, row: u32) {
        self.lanes[usize::from(lane)].push((i, row));
    }

    /// Packs all waiting pairs into frames: (pair or [`NONE`], row) by lane, without empty lanes at the end.
    pub(super) fn drain_lanes(&mut self, mut frame: impl FnMut(&[(u32, u32)])) {
        loop {
            let mut members = [(NONE, 0); KEYED_LANES];
            let mut used = 0;
            for (lane, waiting) in self.lanes.iter_mut().enumerate() {
                if let Some(pair) = waiting.pop() {
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
