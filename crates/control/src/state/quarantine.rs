//! Quarantine of slots: slots of a caller that has left are not leased again while its frames may be on their way.
//!
//! ```text
//! leased ── the caller leaves ──▶ in quarantine ── maximum life of a frame ──▶ free
//! ```
//!
//! The repeat filter finds the entry of a frame by the slot in the frame (NetRPC App. B.1: SRRT). An element that
//! admits frames by application alone, as the paper's switch does, would record a late frame of the last holder in an
//! entry of the next one, whose own frame with that number would then look like a repeat and would not be applied. Our
//! program also checks endpoint and incarnation; with the quarantine an element need not.
//!
//! Slots that are free because the registers were withdrawn need no quarantine: their next holder works under another
//! epoch, as with a restarted element.

use std::time::Duration;

use pathcall_wire::Instant;

use super::{Element, SlotRangeRecord};

/// Maximum time from a caller's leave until the last of its frames has arrived or is lost: a caller that is cut off
/// from its server repeats frames for five seconds, and no network for which these frames are meant delays a frame for
/// as long again.
pub const FRAME_LIFE_MAX: Duration = Duration::from_secs(10);

impl Element {
    /// Puts slots into quarantine.
    pub(super) fn quarantine(&mut self, now: Instant, slots: SlotRangeRecord) {
        self.record.quarantined.push(slots);
        self.quarantine.push_back(now + FRAME_LIFE_MAX);
    }

    /// Frees slots whose quarantine is over; whether there were any.
    pub(super) fn end_quarantine(&mut self, now: Instant) -> bool {
        let over = self.quarantine.iter().take_while(|until| **until <= now).count();
        self.quarantine.drain(..over);
        for SlotRangeRecord { base, .. } in self.record.quarantined.drain(..over) {
            self.slots.release(base);
        }
        over > 0
    }

    /// Starts the quarantines of the record from their beginning, since their age is unknown. Drops invalid ones.
    pub(super) fn begin_quarantine(&mut self, now: Instant) {
        let Self { record, slots, quarantine, .. } = self;
        record.quarantined.retain(|range| slots.take_at(range.base, range.slots));
        quarantine.clear();
        quarantine.resize(record.quarantined.len(), now + FRAME_LIFE_MAX);
    }
}
