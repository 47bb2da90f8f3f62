//! Received frames of an owner: each is authenticated, checked against the permissions of its caller, and passed to the
//! part that executes its operation.

use pathcall_wire::{Flags, FrameKind, Instant, MapFlags, MapFrame, Mutant, mutant};

use super::super::FrameSink;
use super::{Event, HoldingSink, MapServer, MemberState};
use crate::token::set_congestion_flag;

/// Set of operations that a caller may use on a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions(u16);

impl Permissions {
    /// No operation.
    pub const NONE: Self = Self(0);
    /// Addition, also to sums of several workers.
    pub const ADD: Self = Self(MapFlags::ADD);
    /// Read of values with an addition.
    pub const GET: Self = Self(MapFlags::GET);
    /// Count up to a threshold: votes and locks.
    pub const COUNT: Self = Self(MapFlags::COUNT);
    /// Clear of values, and release of locks.
    pub const CLEAR: Self = Self(MapFlags::CLEAR);
    /// All operations.
    pub const ALL: Self = Self(MapFlags::ADD | MapFlags::GET | MapFlags::COUNT | MapFlags::CLEAR);

    /// Union of two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this set contains all operations of `requested`.
    #[must_use]
    pub const fn contains(self, requested: Self) -> bool {
        self.0 & requested.0 == requested.0
    }

    /// Whether a caller's frame requests permitted operations only. Leaving a lock queue needs the permission to count.
    fn allows(self, frame: &MapFrame<&[u8]>) -> bool {
        if !matches!(frame.kind(), FrameKind::MapData | FrameKind::MapPairs) {
            return true;
        }
        let flags = frame.map().flags();
        let requested = if flags & MapFlags::COUNT != 0 {
            MapFlags::COUNT
        } else if flags & MapFlags::CLEAR != 0 {
            MapFlags::CLEAR
        } else {
            flags & (MapFlags::ADD | MapFlags::GET)
        };
        // A frame without an operation needs all permissions.
        self == Self::ALL || requested != 0 && self.contains(Self(requested))
    }
}

impl MapServer {
    /// Handles a received frame.
    pub fn handle(&mut self, now: Instant, bytes: &[u8], out: &mut impl FrameSink) {
        if self.admits(bytes) {
            self.handle_authentic(now, bytes, out);
        }
    }

    /// Handles a received frame whose IP packet has a congestion mark.
    pub fn handle_marked(&mut self, now: Instant, bytes: &mut [u8], out: &mut impl FrameSink) {
        if self.admits(bytes) {
            set_congestion_flag(bytes);
            self.handle_authentic(now, bytes, out);
        }
    }

    /// Whether the token of a frame is valid; counts the frame.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let admits = self.guard.admits(bytes, mutant::on(Mutant::ServerToken));
        let stats = &mut self.shared.stats;
        stats.frames_received += 1;
        stats.bytes_received += bytes.len() as u64;
        stats.frames_ignored += u64::from(!admits);
        stats.frames_unauthentic += u64::from(!admits);
        admits
    }

    fn handle_authentic(&mut self, now: Instant, bytes: &[u8], out: &mut impl FrameSink) {
        let mut guard = std::mem::take(&mut self.guard);
        let taken = if self.durable.gate.has_store() {
            let mut gate = std::mem::take(&mut self.durable.gate);
            let taken = self.handle_admitted(now, bytes, &mut guard.signing(&mut HoldingSink(&mut gate)));
            self.durable.gate = gate;
            self.release_outputs(out);
            taken
        } else {
            self.handle_admitted(now, bytes, &mut guard.signing(out))
        };
        self.guard = guard;
        self.shared.stats.frames_ignored += u64::from(taken.is_none());
    }

    fn handle_admitted(&mut self, now: Instant, bytes: &[u8], out: &mut impl FrameSink) -> Option<()> {
        let frame = MapFrame::new_checked(bytes).ok()?;
        let (base, config) = (frame.base(), self.shared.config);
        // Frames for an earlier incarnation of this endpoint are ignored.
        let ours = base.dst() == config.endpoint && base.dst_incarnation() == config.incarnation;
        if base.gaid() != config.gaid || !ours {
            return None;
        }
        let Self { shared, keyed, sums, votes, bypass, events, .. } = self;
        let this_epoch = base.epoch() == config.epoch || mutant::on(Mutant::ServerEpoch);
        if base.src() == config.endpoint {
            if frame.kind() == FrameKind::MapMoved {
                return if this_epoch { votes.on_row_moved(now, &frame) } else { None };
            }
            return this_epoch.then(|| keyed.on_element_answer(now, &frame, shared, events, out))?;
        }
        let MemberState { member, may, .. } = *shared.members.get(&base.src())?;
        // Frames past the element are valid in all epochs; frames from an element only in its epoch.
        let lives = base.src_incarnation() == member.incarnation || mutant::on(Mutant::ServerIncarnation);
        if !lives || !(this_epoch || base.has(Flags::CROSS)) {
            return None;
        }
        let by_element = this_epoch && member.element && config.grant.is_some();
        if by_element && !base.has(Flags::CROSS) && base.has(Flags::NOT_ADMITTED) {
            let silent = bypass.observe(now, config.timing.silent);
            events.extend(silent.then_some(Event::ElementSilent));
        }
        if !may.allows(&frame) {
            shared.stats.frames_refused += 1;
            return None;
        }
        if matches!(frame.kind(), FrameKind::MapData | FrameKind::MapPairs) && std::mem::take(&mut self.watches_use) {
            events.push_back(Event::Used);
        }
        // The padding of a greeting has no lanes.
        if frame.kind() != FrameKind::MapHello {
            shared.stats.lane_bytes_received += (frame.lanes().len() + frame.payload().len()) as u64;
        }
        match frame.kind() {
            FrameKind::MapData if config.threshold > 0 => sums.on_contribution(now, &frame, shared, out),
            FrameKind::MapData if frame.map().has(MapFlags::DIVERTED) => keyed.on_parked_release(&frame, shared, out),
            FrameKind::MapData => keyed.on_past_element(now, &frame, shared, out),
            FrameKind::MapLease => keyed.on_lease_request(now, &frame, shared, out),
            FrameKind::MapPairs if config.votes => votes.on_pairs(now, &frame, shared, out),
            FrameKind::MapPairs if config.threshold == 0 => keyed.on_past_element(now, &frame, shared, out),
            FrameKind::MapHello => {
                let map = frame.map();
                if map.tag() == shared.era.of_element().number()
                    && let Some(state) = shared.members.get_mut(&base.src())
                {
                    // A copy of an earlier greeting may arrive later.
                    state.oldest = state.oldest.max(sums.chunk(base.epoch(), map.index(), map.threshold()));
                }
                shared.answer_hello(&frame, out);
                self.update_worker_progress();
                Some(())
            }
            FrameKind::MapFlush => keyed.on_flush(now, &frame, shared, events, out),
            FrameKind::MapSettled => keyed.on_settled(now, &frame, shared, events, out),
            FrameKind::MapSilent => by_element.then(|| events.push_back(Event::ElementSilent)),
            _ => None,
        }
    }
}
