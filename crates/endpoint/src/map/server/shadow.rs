//! Clear policy *shadow* at the owner (NetRPC §5.2.2): what it has to know of rounds that it never sees.
//!
//! A worker that joins begins with the oldest chunk that another one lacks. Only workers know which that is, and what
//! the element holds of a worker's predecessor would count for it: so its epoch ends first, all that is in flight goes
//! past the element, and each worker says where it stands.
//!
//! ```text
//! a place has another holder ─▶ end of the epoch ─▶ all say where they stand ─▶ the joiner is let in
//! ```

use pathcall_wire::{MAX_WORKERS, Mutant, mutant};

use super::super::ClearPolicy;
use super::{Event, MapServer};

/// Whether it is known where the workers stand.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// An epoch has ended, and some worker has not said it yet.
    unknown: bool,
    /// The end of this epoch was asked for.
    ending: bool,
}

impl MapServer {
    /// Whether a caller can join now. If not, it is to be asked again after whatever comes next.
    pub fn lets_in(&mut self) -> bool {
        let config = &self.shared.config;
        if config.threshold == 0 || config.clear == ClearPolicy::Copy || mutant::on(Mutant::ShadowGuessed) {
            return true;
        }
        if self.standing.unknown {
            return false;
        }
        let taken = self.shared.members.values().fold(0u64, |mask, m| mask | 1 << m.worker);
        let free = taken.trailing_ones();
        // Without a place for it there is nothing to wait for: joining says so.
        let full = free >= config.threshold.min(MAX_WORKERS as u32);
        if full || self.used_workers >> free & 1 == 0 || config.grant.is_none() {
            return true;
        }
        if !std::mem::replace(&mut self.standing.ending, true) {
            self.events.push_back(Event::EpochOver);
        }
        false
    }

    /// The element gives sums without the owner: not to those who get none any more.
    pub(super) fn end_epoch_of_sums(&mut self) {
        let by_element = self.shared.config.clear == ClearPolicy::Shadow && self.shared.config.grant.is_some();
        if by_element && !std::mem::replace(&mut self.standing.ending, true) {
            self.events.push_back(Event::EpochOver);
        }
    }

    /// Another epoch has begun.
    pub(super) fn stand_anew(&mut self) {
        if self.shared.config.clear == ClearPolicy::Copy {
            return;
        }
        self.standing = Standing { unknown: true, ending: false };
        let members = &mut self.shared.members;
        members.values_mut().for_each(|state| state.stands = None);
        // Nothing of a place that nobody has is left anywhere. Its holder may leave before all have said where they
        // stand, though, and have sent parts since.
        self.used_workers = members.values().fold(0, |mask, state| mask | 1 << state.worker);
        self.look_where_all_stand();
    }

    /// Whether all have said it, after what has just come.
    pub(super) fn look_where_all_stand(&mut self) {
        let members = &self.shared.members;
        if !self.standing.unknown || members.values().any(|state| state.stands.is_none() && !state.failed) {
            return;
        }
        self.standing.unknown = false;
        let lack = members.values().filter(|state| !state.failed);
        self.sums.stand(lack.filter_map(|state| state.stands).min());
    }
}
