//! Phase of vote counting: by the server or by the element.
//!
//! ```text
//! Software ──(all callers use the element, all have claimed)──► Moving ──(rows moved)──► Element
//!     ▲                                                                                     │
//!     └────────────────────────────────── end of the epoch ─────────────────────────────────┘
//! ```

use std::collections::BTreeSet;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{FrameKind, Instant, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::Dest;
use super::super::super::FrameSink;
use super::super::super::ballot::row_of;
use super::super::keyed::sweep::Sweep;
use super::super::{Event, Events, OwnerContext};
use super::BallotStore;

/// Phase of vote counting.
#[derive(Default)]
pub(super) enum VotePhase {
    /// The server counts all ballots.
    #[default]
    Software,
    /// The server counts all ballots for the rest of the epoch, since the element did not answer.
    SoftwareOnly,
    /// The element is told not to count in these rows, whose undecided ballots are at the server.
    Moving { rows: BTreeSet<u32>, requests: Vec<u32>, sweep: Sweep },
    /// The element counts, except in these rows.
    Element { moved: BTreeSet<u32> },
}

impl VotePhase {
    /// Number of rows for ballots in the element; 0 if the element does not count.
    pub(super) fn rows(&self, shared: &OwnerContext) -> u32 {
        if matches!(self, Self::Element { .. }) { rows(shared) } else { 0 }
    }

    /// Whether the element counts or soon may count.
    pub(super) fn is_in_element(&self) -> bool {
        matches!(self, Self::Moving { .. } | Self::Element { .. })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Moving { sweep, .. } => Some(sweep.deadline()),
            _ => None,
        }
    }

    pub(super) fn poll(
        &mut self,
        now: Instant,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
        events: &mut Events,
    ) {
        let Self::Moving { requests, sweep, .. } = self else { return };
        let answers = sweep.poll(now, |request| {
            let mut base = shared.base(FrameKind::MapMove, 0);
            (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
            let map = MapRepr { flags: MapFlags::BARE, index: requests[request], ..MapRepr::default() };
            let len = frame_len(map.flags, 0, 0);
            emit(&base, &map, &mut shared.scratch[..len]);
            shared.send(Dest::Element, len, out);
        });
        if !answers {
            *self = Self::SoftwareOnly;
            events.push_back(Event::ElementSilent);
        }
    }
}

impl BallotStore {
    /// Starts counting in the element, if possible.
    pub(super) fn start_element_phase(&mut self, now: Instant, shared: &OwnerContext) {
        if matches!(self.phase, VotePhase::Software) && all_settled(shared) && all_use_element(shared) {
            self.move_to_element(now, shared);
        }
    }

    /// Whether the server counts a vote for this key now, if it came past the element.
    pub(super) fn counts_here(&self, key: &[u8], shared: &OwnerContext) -> bool {
        if !all_settled(shared) || self.phase.is_in_element() && !all_use_element(shared) {
            // Other callers may have unclaimed votes for this key.
            return false;
        }
        match &self.phase {
            VotePhase::Software | VotePhase::SoftwareOnly => true,
            // Only the moved rows are counted here.
            VotePhase::Moving { rows: moved, .. } | VotePhase::Element { moved } => {
                row_of(key, rows(shared)).is_none_or(|row| moved.contains(&row))
            }
        }
    }

    /// Lets the element count, except in the rows of undecided ballots at the server.
    fn move_to_element(&mut self, now: Instant, shared: &OwnerContext) {
        let open = self.ballots.iter().filter(|(_, ballot)| ballot.is_open() && !mutant::on(Mutant::RowsNotMoved));
        let moved: BTreeSet<u32> = open.filter_map(|(key, _)| row_of(key.as_bytes(), rows(shared))).collect();
        // The element counts clears from zero again.
        self.ballots.values_mut().for_each(|ballot| ballot.round = 0);
        self.phase = if moved.is_empty() {
            VotePhase::Element { moved }
        } else {
            let requests: Vec<u32> = moved.iter().copied().collect();
            let sweep = Sweep::new(requests.len(), now, shared.config.timing);
            VotePhase::Moving { rows: moved, requests, sweep }
        };
    }

    /// Handles the element's confirmation of a moved row.
    pub(in super::super) fn on_row_moved(&mut self, now: Instant, frame: &MapFrame<&[u8]>) -> Option<()> {
        let VotePhase::Moving { rows, requests, sweep } = &mut self.phase else { return None };
        let request = requests.binary_search(&frame.map().index()).ok()?;
        sweep.on_answer(now, request).then_some(())?;
        if sweep.is_done() {
            self.phase = VotePhase::Element { moved: std::mem::take(rows) };
        }
        Some(())
    }

    /// Whether ballots are in the element, so that a caller without access to it needs a new epoch.
    pub(in super::super) fn is_in_element(&self) -> bool {
        self.phase.is_in_element()
    }

    /// Returns to software at the end of an epoch.
    pub(super) fn return_to_software(&mut self) {
        self.phase = VotePhase::Software;
    }
}

/// Whether all callers have claimed their votes of ended epochs.
fn all_settled(shared: &OwnerContext) -> bool {
    shared.members.values().all(|state| state.settled) || mutant::on(Mutant::VotesUnsettled)
}

/// Whether there is an element and all callers use it.
fn all_use_element(shared: &OwnerContext) -> bool {
    shared.config.grant.is_some() && shared.members.values().all(|state| state.member.element)
}

/// Number of rows in the element.
fn rows(shared: &OwnerContext) -> u32 {
    shared.config.grant.map_or(0, |grant| grant.rows)
}
