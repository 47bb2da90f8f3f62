//! Keys lose their registers to others: what this caller does then.
//!
//! The mapping of keys to registers has a version. A frame names the one that it was packed by, and the
//! element refuses it, for ever, once another holds there. The server says beforehand which registers a
//! version withdraws, so that only those are forgotten; who missed that learns anew where all keys are.

use pathcall_wire::{KEYED_LANES, Kind, MapFrame};

use super::super::{CallId, ClientConfig};
use super::KeyedCalls;
use super::call::Road;

impl KeyedCalls {
    /// The server says which registers the next version of the mapping withdraws.
    pub(in super::super) fn will_withdraw(&mut self, frame: &MapFrame<&[u8]>, config: &ClientConfig) {
        let (before, lanes) = (self.book.version(), KEYED_LANES as u32);
        let numbers = frame.payload().chunks_exact(4).filter_map(|n| n.first_chunk()).map(|n| u32::from_be_bytes(*n));
        self.book.will_withdraw(frame.base().round(), numbers.map(|n| ((n % lanes) as u8, n / lanes)).collect());
        if self.book.version() != before {
            self.plan_anew(config);
        }
    }

    /// The server answers whole keys by a mapping that the element has already.
    pub(super) fn hear_version(&mut self, frame: &MapFrame<&[u8]>, config: &ClientConfig) {
        let base = frame.base();
        if frame.kind() == Kind::MapPairsAck && base.epoch() == config.epoch {
            self.move_to(base.round(), config);
        }
    }

    /// The element will never apply this frame: keys have moved. Its pairs go another way.
    pub(in super::super) fn refused(
        &mut self,
        id: CallId,
        index: u32,
        version: u32,
        config: &ClientConfig,
    ) -> Option<()> {
        let call = self.calls.get(&id)?;
        let frame = call.frames.get(index as usize)?;
        if frame.road != Road::Mapped || frame.done {
            return None;
        }
        self.move_to(version, config);
        self.again(id, index, u32::MAX, config);
        Some(())
    }

    /// A version of the mapping holds. Versions only grow: one that is no later was heard of late.
    fn move_to(&mut self, version: u32, config: &ClientConfig) {
        if version > self.book.version() {
            self.book.move_to(version);
            self.plan_anew(config);
        }
    }

    /// Packs what was not sent yet by the places that are known now.
    pub(super) fn plan_anew(&mut self, config: &ClientConfig) {
        for (id, mut call) in std::mem::take(&mut self.calls) {
            let unsent = call.take_unsent();
            self.plan(&mut call, &unsent, config.element);
            self.calls.insert(id, call);
        }
    }
}
