//! Durable part of the keyed store: what a batch has of it, and how it is loaded.

use pathcall_wire::{Instant, W_MAX};

use super::super::super::{CommittedFrame, Key};
use super::super::{EndedEpoch, OwnerContext};
use super::{FrameId, KeyedStore};

/// Changed parts of the keyed store that are in no batch yet.
#[derive(Default)]
pub(in super::super) struct ChangedKeys {
    /// Whether there is a store.
    pub(in super::super) on: bool,
    /// Numbers of changed keys, some of them several times.
    ids: Vec<u32>,
    /// Whether the list of committed frames has changed.
    pub(in super::super) committed: bool,
    /// Whether the last committed generation, or the knowledge of losses, has changed.
    pub(in super::super) meta: bool,
}

impl ChangedKeys {
    /// Records that the key with this number has another value.
    pub(super) fn note(&mut self, id: u32) {
        if self.on {
            self.ids.push(id);
        }
    }

    /// Records a commit.
    pub(super) fn note_commit(&mut self) {
        (self.committed, self.meta) = (self.on, self.on);
    }

    pub(super) fn note_meta(&mut self) {
        self.meta = self.on;
    }

    pub(in super::super) fn has_some(&self) -> bool {
        self.committed || self.meta || !self.ids.is_empty()
    }

    /// Numbers of the changed keys, each once.
    pub(in super::super) fn take(&mut self) -> Vec<u32> {
        let mut ids = std::mem::take(&mut self.ids);
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl KeyedStore {
    pub(in super::super) fn key_count(&self) -> u32 {
        self.table.len() as u32
    }

    /// Key with this number, its base, and whether it exceeded 64 bits.
    pub(in super::super) fn key_state(&self, id: u32) -> (&Key, i64, bool) {
        let (key, state) = self.table.entry(id);
        (key, state.base, state.value().is_none())
    }

    /// Last committed generation; whether a caller with uncommitted values has left; and whether values are lost.
    pub(in super::super) fn commit_state(&self) -> (u32, bool, bool) {
        (self.committed, self.departed.0 || self.departed.1, self.loss_reason.is_some())
    }

    /// Frames of callers in committed generations.
    pub(in super::super) fn committed_frames(&self) -> impl Iterator<Item = (&u32, &Vec<CommittedFrame>)> {
        self.record.iter()
    }

    /// Pairs of a frame that were refused.
    pub(in super::super) fn refused_pairs(&self, endpoint: u32, flow: u32, seq: u32) -> &[u32] {
        let found = self.refused.get(&(endpoint, flow, seq % W_MAX)).filter(|(of, _)| *of == seq);
        found.map_or(&[], |(_, refused)| refused)
    }

    pub(in super::super) fn load_key(&mut self, key: &[u8], base: i64, overflowed: bool) -> Option<()> {
        self.table.find_or_insert(key)?.load(base, overflowed);
        Some(())
    }

    pub(in super::super) fn load_commit_state(&mut self, state: (u32, bool, bool), new_epoch: bool) {
        let (committed, departed, lost) = state;
        if new_epoch {
            self.record.clear();
        }
        (self.committed, self.departed) = (committed, (departed, false));
        self.loss_reason = lost.then_some("values were lost before this owner continued");
    }

    pub(in super::super) fn load_refused(&mut self, (endpoint, flow, seq): (u32, u32, u32), refused: Vec<u32>) {
        self.record_refused(FrameId { endpoint, flow, seq }, refused);
    }

    pub(in super::super) fn load_committed(&mut self, endpoint: u32, applied: Vec<CommittedFrame>) {
        self.record.insert(endpoint, applied);
    }

    pub(in super::super) fn forget_member(&mut self, endpoint: u32) {
        self.refused.retain(|(owner, ..), _| *owner != endpoint);
        self.record.remove(&endpoint);
    }

    /// Ends the epoch of the former owner: what its element had beyond the last commit, the callers repeat.
    pub(in super::super) fn end_restored_epoch(&mut self, now: Instant, shared: &mut OwnerContext) {
        let (committed, departed, _) = self.commit_state();
        if shared.config.mapping && !shared.config.acked && departed {
            self.loss_reason = Some("the owner failed, and a caller had left before its additions were committed");
        }
        let epoch = shared.previous_epoch;
        for (endpoint, state) in &mut shared.members {
            let applied = self.record.remove(endpoint).unwrap_or_default();
            state.ended.get_or_insert(EndedEpoch { epoch, committed, applied });
            state.settled &= !state.member.element || state.clean;
            state.member.element = false;
        }
        if shared.config.mapping && !shared.config.acked && !shared.all_settled() {
            self.reads.lend_all(now);
        }
        self.record.clear();
        (self.committed, self.departed) = (0, (false, false));
        self.changed.note_meta();
    }
}
