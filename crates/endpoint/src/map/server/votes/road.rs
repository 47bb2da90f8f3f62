//! Which way votes go: past the element, or by it.
//!
//! ```text
//! Software ──(all callers by the element, all have claimed)──► Moving ──(rows moved)──► Element
//!     ▲                                                                                    │
//!     └───────────────────────────────── the epoch ends ───────────────────────────────────┘
//! ```

use std::collections::BTreeSet;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Instant, Kind, MapFlags, MapFrame, MapRepr, Mutant, mutant};

use super::super::super::Dest;
use super::super::super::Outbox;
use super::super::super::ballot::row_of;
use super::super::keyed::sweep::Sweep;
use super::super::{Event, Events, Shared};
use super::VoteTruth;

#[derive(Default)]
pub(super) enum Road {
    /// All ballots are here.
    #[default]
    Software,
    /// The same, and for the rest of the epoch: the element did not answer.
    Given,
    /// The element is told not to count in these rows: undecided ballots of theirs are here.
    Moving { rows: BTreeSet<u32>, questions: Vec<u32>, sweep: Sweep },
    /// The element counts, but in these rows.
    Element { moved: BTreeSet<u32> },
}

impl Road {
    /// Rows that the element counts in; 0: it does not.
    pub(super) fn rows(&self, shared: &Shared) -> u32 {
        if matches!(self, Self::Element { .. }) { rows(shared) } else { 0 }
    }

    /// Whether the element counts, or soon may.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Moving { .. } | Self::Element { .. })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Moving { sweep, .. } => Some(sweep.deadline()),
            _ => None,
        }
    }

    pub(super) fn poll(&mut self, now: Instant, shared: &mut Shared, out: &mut impl Outbox, events: &mut Events) {
        let Self::Moving { questions, sweep, .. } = self else { return };
        let answers = sweep.poll(now, |question| {
            let mut base = shared.base(Kind::MapMove, 0);
            (base.dst, base.dst_incarnation) = (base.src, base.src_incarnation);
            let map = MapRepr { flags: MapFlags::BARE, index: questions[question], ..MapRepr::default() };
            let len = frame_len(map.flags, 0, 0);
            emit(&base, &map, &mut shared.scratch[..len]);
            shared.send(Dest::Element, len, out);
        });
        if !answers {
            *self = Self::Given;
            events.push_back(Event::ElementSilent);
        }
    }
}

impl VoteTruth {
    /// Goes over to the element when that is possible.
    pub(super) fn choose_road(&mut self, now: Instant, shared: &Shared) {
        if matches!(self.road, Road::Software) && is_settled(shared) && is_by_element(shared) {
            self.leave_for_element(now, shared);
        }
    }

    /// Whether a vote for this key that has come past the element is counted here, and now.
    pub(super) fn takes(&self, key: &[u8], shared: &Shared) -> bool {
        if !is_settled(shared) || self.road.is_away() && !is_by_element(shared) {
            // Others may have votes for it that are not known here yet.
            return false;
        }
        match &self.road {
            Road::Software | Road::Given => true,
            // Of what is not here yet nothing may come here.
            Road::Moving { rows: moved, .. } | Road::Element { moved } => {
                row_of(key, rows(shared)).is_none_or(|row| moved.contains(&row))
            }
        }
    }

    /// Has the element count, but in the rows of ballots that are here and undecided.
    fn leave_for_element(&mut self, now: Instant, shared: &Shared) {
        let open = self.ballots.iter().filter(|(_, ballot)| ballot.is_open() && !mutant::on(Mutant::RowsNotMoved));
        let moved: BTreeSet<u32> = open.filter_map(|(key, _)| row_of(key.as_bytes(), rows(shared))).collect();
        // The element counts clearings from zero again.
        self.ballots.values_mut().for_each(|ballot| ballot.round = 0);
        self.road = if moved.is_empty() {
            Road::Element { moved }
        } else {
            let questions: Vec<u32> = moved.iter().copied().collect();
            let sweep = Sweep::new(questions.len(), now, shared.config.timing);
            Road::Moving { rows: moved, questions, sweep }
        };
    }

    /// The element has moved a row.
    pub(in super::super) fn moved(&mut self, now: Instant, frame: &MapFrame<&[u8]>) -> Option<()> {
        let Road::Moving { rows, questions, sweep } = &mut self.road else { return None };
        let question = questions.binary_search(&frame.map().index()).ok()?;
        sweep.answered(now, question).then_some(())?;
        if sweep.is_done() {
            self.road = Road::Element { moved: std::mem::take(rows) };
        }
        Some(())
    }

    /// Whether a caller that can't reach the element needs the ballots back here.
    pub(in super::super) fn is_away(&self) -> bool {
        self.road.is_away()
    }

    /// The epoch has ended, and with it every row of the element.
    pub(super) fn come_back(&mut self) {
        self.road = Road::Software;
    }
}

/// Whether all callers have claimed what ended epochs had.
fn is_settled(shared: &Shared) -> bool {
    shared.members.values().all(|state| state.settled) || mutant::on(Mutant::VotesUnsettled)
}

/// Whether there is an element, and every caller works by it.
fn is_by_element(shared: &Shared) -> bool {
    shared.config.grant.is_some() && shared.members.values().all(|state| state.member.element)
}

/// Rows of the element.
fn rows(shared: &Shared) -> u32 {
    shared.config.grant.map_or(0, |grant| grant.rows)
}
