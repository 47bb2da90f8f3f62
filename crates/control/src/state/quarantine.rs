//! Slots of callers that have left are not leased again while a frame of theirs may be on its way.
//!
//! ```text
//! leased ── the caller leaves ──▶ in quarantine ── longest life of a frame ──▶ free
//! ```
//!
//! The repeat filter finds a frame's place by the slot that the frame names (NetRPC App. B.1: SRRT). An
//! element that admits frames by application alone, as the paper's switch does, would note a late frame
//! of the last holder at a place of the next one, whose own frame of that number then looks like a
//! repeat and is not applied. Our program asks for endpoint and incarnation as well; with the quarantine
//! an element need not.
//!
//! Slots that are free because the registers were withdrawn wait for nothing: their next holder
//! works under another epoch, and so does that of a restarted element's.

use std::time::Duration;

use pathcall_wire::Instant;

use super::{Element, SlotsRecord};

/// Longest time from a caller's leaving until the last of its frames has arrived or is lost: for five
/// seconds one that is cut off from its server still repeats what it began, and no network that these
/// frames are meant for holds one for as long again.
pub const FRAME_LIFE_MAX: Duration = Duration::from_secs(10);

impl Element {
    /// Keeps slots that were leased from being leased again for a while.
    pub(super) fn quarantine(&mut self, now: Instant, slots: SlotsRecord) {
        self.record.quarantined.push(slots);
        self.quarantine.push_back(now + FRAME_LIFE_MAX);
    }

    /// Frees slots whose time has come; whether there were any.
    pub(super) fn end_quarantine(&mut self, now: Instant) -> bool {
        let over = self.quarantine.iter().take_while(|until| **until <= now).count();
        self.quarantine.drain(..over);
        for SlotsRecord { base, .. } in self.record.quarantined.drain(..over) {
            self.slots.release(base);
        }
        over > 0
    }

    /// Takes up the quarantines of the record, from their beginning: nobody knows how long they have
    /// lasted. What can't be is left out.
    pub(super) fn begin_quarantine(&mut self, now: Instant) {
        let Self { record, slots, quarantine, .. } = self;
        record.quarantined.retain(|range| slots.take_at(range.base, range.slots));
        quarantine.clear();
        quarantine.resize(record.quarantined.len(), now + FRAME_LIFE_MAX);
    }
}
