//! Clear policies *shadow* and *lazy* at the owner (NetRPC §5.2.2): progress of workers in rounds that the owner does
//! not see.
//!
//! A joining worker starts with the oldest chunk that another worker misses. Only the workers know this chunk, and the
//! element may hold contributions of the worker's predecessor. So the epoch ends first: all chunks in flight are sent
//! past the element, and each worker reports its oldest open chunk.
//!
//! ```text
//! a worker index has a new holder ─▶ end of the epoch ─▶ all workers report ─▶ the new worker joins
//! ```

use pathcall_wire::{MAX_WORKERS, Mutant, mutant};

use super::{Event, MapServer};

/// State of the workers' progress reports.
#[derive(Debug, Default)]
pub(super) struct WorkerProgress {
    /// An epoch has ended, and a report of a worker is missing.
    unknown: bool,
    /// The end of this epoch is requested.
    ending: bool,
}

impl MapServer {
    /// Whether a caller can join now. If not, ask again after the next input.
    pub fn can_admit(&mut self) -> bool {
        let config = &self.shared.config;
        if config.threshold == 0 || !config.clear.is_by_element() || mutant::on(Mutant::ShadowGuessed) {
            return true;
        }
        if self.progress.unknown {
            return false;
        }
        let taken = self.shared.members.values().fold(0u64, |mask, m| mask | 1 << m.worker);
        let free = taken.trailing_ones();
        // Without a free worker index, joining fails at once.
        let full = free >= config.threshold.min(MAX_WORKERS as u32);
        if full || self.used_workers >> free & 1 == 0 || config.grant.is_none() {
            return true;
        }
        if !std::mem::replace(&mut self.progress.ending, true) {
            self.events.push_back(Event::EpochEndRequested);
        }
        false
    }

    /// Records the next chunk of a worker that joins again (not with clear policy *copy*). Only workers know which chunks
    /// are complete, and while there are none, the last one to leave does.
    pub fn note_next_chunk(&mut self, chunk: u64) {
        if self.shared.config.clear.is_by_element() && self.shared.members.is_empty() {
            self.sums.set_floor(Some(chunk));
        }
    }

    /// Requests the end of the epoch, so that the element gives no further sums to failed workers.
    pub(super) fn request_epoch_end_for_sums(&mut self) {
        let by_element = self.shared.config.clear.is_by_element() && self.shared.config.grant.is_some();
        if by_element && !std::mem::replace(&mut self.progress.ending, true) {
            self.events.push_back(Event::EpochEndRequested);
        }
    }

    /// Resets the progress reports at the start of an epoch.
    pub(super) fn reset_worker_progress(&mut self) {
        if !self.shared.config.clear.is_by_element() {
            return;
        }
        self.progress = WorkerProgress { unknown: true, ending: false };
        let members = &mut self.shared.members;
        members.values_mut().for_each(|state| state.oldest = None);
        // Free worker indexes are clean now. A current worker may leave before all reports, after it has sent
        // contributions.
        self.used_workers = members.values().fold(0, |mask, state| mask | 1 << state.worker);
        self.update_worker_progress();
    }

    /// Checks whether all workers have reported, after a new input.
    pub(super) fn update_worker_progress(&mut self) {
        let members = &self.shared.members;
        if !self.progress.unknown || members.values().any(|state| state.oldest.is_none() && !state.failed) {
            return;
        }
        self.progress.unknown = false;
        let active = members.values().filter(|state| !state.failed);
        self.sums.set_floor(active.filter_map(|state| state.oldest).min());
    }
}
