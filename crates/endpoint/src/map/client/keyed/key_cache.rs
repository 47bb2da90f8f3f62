//! Key cache of a caller: location of keys in the element and at the server, and its changes when keys lose their
//! registers to other keys.
//!
//! The mapping of keys to registers has a version. A frame contains the version with which it was packed; the element
//! refuses the frame for ever once it has another version. The server announces which registers a version withdraws, so
//! the caller drops only these from its cache. Without the announcement, it drops all registers.

use pathcall_wire::pairs::{PairAnswer, PairStatus};
use pathcall_wire::{FrameKind, KEYED_LANES, MapFrame, Mutant, mutant};

use super::super::super::Key;
use super::super::{CallId, ClientConfig};
use super::KeyedCalls;
use super::call::{NONE, PairEncoding};
use super::reads::LentBase;
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
    /// Bases of keys with registers, for reads.
    bases: SeededHashMap<Key, LentBase>,
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

    /// Base of a key.
    pub(super) fn base(&self, key: &Key) -> Option<LentBase> {
        self.bases.get(key).copied()
    }

    pub(super) fn learn_base(&mut self, key: &Key, base: LentBase) {
        if self.bases.len() >= MAX_KEYS {
            self.bases.clear();
        }
        self.bases.insert(key.clone(), base);
    }

    pub(super) fn forget_base(&mut self, key: &Key) {
        self.bases.remove(key);
    }

    /// Clears the cache after a change of epoch.
    pub(super) fn reset(&mut self) {
        self.bases.clear();
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

impl KeyedCalls {
    /// Records an announcement of the registers that the next mapping version withdraws.
    pub(in super::super) fn note_withdrawal(&mut self, frame: &MapFrame<&[u8]>, config: &ClientConfig) {
        let (before, lanes) = (self.key_cache.version(), KEYED_LANES as u32);
        let numbers = frame.payload().chunks_exact(4).filter_map(|n| n.first_chunk()).map(|n| u32::from_be_bytes(*n));
        self.key_cache.note_withdrawal(frame.base().round(), numbers.map(|n| ((n % lanes) as u8, n / lanes)).collect());
        if self.key_cache.version() != before {
            self.repack_unsent(config);
        }
    }

    /// Advances to the mapping version in the server's answer, which the element has already.
    pub(super) fn observe_version(&mut self, frame: &MapFrame<&[u8]>, config: &ClientConfig) {
        let base = frame.base();
        if frame.kind() == FrameKind::MapPairsAck && base.epoch() == config.epoch {
            self.advance_to(base.round(), config);
        }
    }

    /// Handles a frame that the element will never apply: its pairs are packed again.
    pub(in super::super) fn on_refused(
        &mut self,
        id: CallId,
        index: u32,
        version: u32,
        config: &ClientConfig,
    ) -> Option<()> {
        let call = self.calls.get(&id)?;
        let frame = call.frames.get(index as usize)?;
        if frame.encoding != PairEncoding::Mapped || frame.done {
            return None;
        }
        self.advance_to(version, config);
        self.resend_pairs(id, index, u32::MAX, config);
        Some(())
    }

    /// Advances to a mapping version, unless it is old.
    fn advance_to(&mut self, version: u32, config: &ClientConfig) {
        if version > self.key_cache.version() {
            self.key_cache.advance_to(version);
            self.repack_unsent(config);
        }
    }

    /// Packs all unsent pairs again, with the current locations.
    pub(super) fn repack_unsent(&mut self, config: &ClientConfig) {
        for (id, mut call) in std::mem::take(&mut self.calls) {
            let unsent = call.take_unsent();
            self.pack(&mut call, &unsent, config);
            self.calls.insert(id, call);
        }
    }
}
