//! Changes of the key mapping at a caller, when keys lose their registers to other keys.
//!
//! The mapping of keys to registers has a version. A frame contains the version with which it was packed; the element
//! refuses the frame for ever once it has another version. The server announces which registers a version withdraws, so
//! the caller drops only these from its cache. Without the announcement, it drops all registers.

use pathcall_wire::{FrameKind, KEYED_LANES, MapFrame};

use super::super::{CallId, ClientConfig};
use super::KeyedCalls;
use super::call::PairEncoding;

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
            self.pack(&mut call, &unsent, config.element);
            self.calls.insert(id, call);
        }
    }
}
