//! Writer of the owner's frames: headers, answers, results of rounds, unicast and multicast.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, FrameKind, MapFlags, MapFrame, MapRepr};

use super::super::lanes::WIDE_PART;
use super::super::{CallError, Dest, FrameSink};
use super::round::Backup;
use super::{Member, MemberState, OwnerContext};

impl OwnerContext {
    /// Whether all callers have repeated their lost additions of ended epochs.
    pub(super) fn all_settled(&self) -> bool {
        self.members.values().all(|state| state.settled)
    }

    /// Base header of a frame of the owner.
    pub(super) fn base(&self, kind: FrameKind, flags: u16) -> BaseRepr {
        BaseRepr {
            flags: flags | Flags::FROM_SERVER,
            gaid: self.config.gaid,
            epoch: self.config.epoch,
            src: self.config.endpoint,
            src_incarnation: self.config.incarnation,
            ..BaseRepr::new(kind)
        }
    }

    /// Base header of an answer to the sender of `frame`.
    pub(super) fn answer(&self, kind: FrameKind, frame: &MapFrame<&[u8]>) -> BaseRepr {
        let base = frame.base();
        BaseRepr {
            dst: base.src(),
            dst_incarnation: base.src_incarnation(),
            slot: base.slot(),
            seq: base.seq(),
            round: base.round(),
            flags: Flags::FROM_SERVER | base.flags() & (Flags::ECN | Flags::CROSS),
            ..self.base(kind, 0)
        }
    }

    /// Acknowledges a frame.
    pub(super) fn acknowledge(&mut self, frame: &MapFrame<&[u8]>, out: &mut impl FrameSink) -> Option<()> {
        self.send_bare(&self.answer(FrameKind::MapAck, frame), out)
    }

    /// Tells the sender of a frame that the server holds it, and cannot finish it yet.
    pub(super) fn answer_held(&mut self, frame: &MapFrame<&[u8]>, out: &mut impl FrameSink) -> Option<()> {
        self.send_bare(&self.answer(FrameKind::MapHeld, frame), out)
    }

    fn send_bare(&mut self, base: &BaseRepr, out: &mut impl FrameSink) -> Option<()> {
        self.send_filled(base, 0, 0, out)
    }

    /// Sends a bare frame with a tag and `fill` zero bytes of payload.
    fn send_filled(&mut self, base: &BaseRepr, tag: u32, fill: u16, out: &mut impl FrameSink) -> Option<()> {
        let map = MapRepr { flags: MapFlags::BARE, tag, payload_len: fill, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, fill.into());
        emit(base, &map, self.scratch.get_mut(..len)?).payload_mut().fill(0);
        self.send(Dest::Endpoint(base.dst), len, out);
        Some(())
    }

    /// Answers a greeting. `round` of the answer is 1 if an element admitted the greeting; an element that admits the
    /// answer clears its flag `NOT_ADMITTED`. A greeting with `round` 1 says that both are true. The answer is as long
    /// as the greeting: an element on the route cannot process fragmented packets.
    pub(super) fn answer_hello(&mut self, frame: &MapFrame<&[u8]>, out: &mut impl FrameSink) -> Option<()> {
        let base = frame.base();
        let met = !base.has(Flags::NOT_ADMITTED) && base.epoch() == self.config.epoch && self.config.grant.is_some();
        let state = self.members.get_mut(&base.src())?;
        state.inline |= met && base.round() == 1 && state.member.element;
        let answer = self.answer(FrameKind::MapAck, frame);
        let base = BaseRepr { flags: answer.flags | Flags::NOT_ADMITTED, round: met.into(), ..answer };
        self.send_filled(&base, frame.map().tag(), frame.map().payload_len(), out)
    }

    pub(super) fn send(&mut self, to: Dest, len: usize, out: &mut impl FrameSink) {
        self.stats.frames_sent += 1;
        out.send(to, &self.scratch[..len]);
    }

    /// Sends the frame in `scratch[..len]` to the element, for one member or for all members that the element admits.
    /// If the element is inline, the frame is addressed to a member; if the element is gone, only this member gets the
    /// frame, and detects this by the flag `NOT_ADMITTED`.
    pub(super) fn send_by_element(&mut self, to: Option<u32>, len: usize, out: &mut impl FrameSink) {
        let inline_member = match to {
            Some(endpoint) => self.members.get(&endpoint).filter(|state| state.inline),
            None => self.members.values().find(|state| state.inline),
        };
        let Some(Member { endpoint, incarnation, .. }) = inline_member.map(|state| state.member) else {
            return self.send(Dest::Element, len, out);
        };
        if let Ok(mut base) = Base::new_checked(&mut self.scratch[..len]) {
            base.set_dst(endpoint);
            base.set_dst_incarnation(incarnation);
            let flags = base.flags() | Flags::NOT_ADMITTED;
            base.set_flags(flags);
        }
        self.send(Dest::Inline(endpoint), len, out);
    }

    /// Sends the frame in `scratch[..len]` to all members: one multicast for the members that the element admits, and
    /// one copy for each other member.
    pub(super) fn send_to_all(&mut self, len: usize, out: &mut impl FrameSink) {
        let by_element = self.config.grant.is_some();
        if by_element && self.members.values().any(|m| m.member.element) {
            self.send_by_element(None, len, out);
        }
        let Self { members, scratch, stats, .. } = self;
        for state in members.values().filter(|m| !(by_element && m.member.element)) {
            let Ok(mut base) = Base::new_checked(&mut scratch[..len]) else { return };
            base.set_dst(state.member.endpoint);
            base.set_dst_incarnation(state.member.incarnation);
            // An element on the route forwards this frame unchanged.
            let flags = base.flags() & !(Flags::MCAST | Flags::NOT_ADMITTED) | Flags::CROSS;
            base.set_flags(flags);
            stats.frames_sent += 1;
            out.send(Dest::Endpoint(state.member.endpoint), &scratch[..len]);
        }
    }
}

/// Sends the result of a round to one member or to all, with a congestion mark if `ecn`. Results use the element, if any, which
/// clears the round when it forwards the result; it may have missed an earlier copy. `position`: row, round, and the
/// number of rows, because the receiver may not know the epoch.
pub(super) fn send_result(
    Backup { wide, bytes, .. }: &Backup,
    (row, round, rows): (u32, u32, u32),
    (ecn, to): (bool, Option<u32>),
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) {
    let flags = if to.is_none() { Flags::MCAST } else { 0 } | if ecn { Flags::ECN } else { 0 };
    let mut base = shared.base(FrameKind::MapResult, flags);
    base.round = round;
    let mut by_element = false;
    if let Some(member) = to.and_then(|endpoint| shared.members.get(&endpoint)) {
        base.dst = member.member.endpoint;
        base.dst_incarnation = member.member.incarnation;
        by_element = member.member.element && shared.config.grant.is_some();
        base.flags |= if by_element { 0 } else { Flags::CROSS };
    }
    let kind = if *wide { MapFlags::WIDE } else { 0 };
    let lane_len = if *wide { 8 } else { 4 };
    let part = if *wide { WIDE_PART * 8 } else { bytes.len().max(1) };
    for (index, lanes) in bytes.chunks(part).enumerate() {
        let map = MapRepr {
            flags: MapFlags::LINEAR | MapFlags::ROUND | MapFlags::GET | MapFlags::CLEAR | kind,
            lanes: (lanes.len() / lane_len) as u16,
            first_lane: (index * WIDE_PART) as u16,
            index: row,
            threshold: rows,
            ..MapRepr::default()
        };
        let len = frame_len(map.flags, usize::from(map.lanes), 0);
        emit(&base, &map, &mut shared.scratch[..len]).bitmap_and_lanes_mut().1.copy_from_slice(lanes);
        match to {
            None => shared.send_to_all(len, out),
            Some(_) if by_element => shared.send_by_element(to, len, out),
            Some(endpoint) => shared.send(Dest::Endpoint(endpoint), len, out),
        }
    }
}

/// Announces a software round to all workers: its row, its round, and the number of rows.
pub(super) fn announce_software_round(
    shared: &mut OwnerContext,
    (row, round, rows): (u32, u32, u32),
    out: &mut impl FrameSink,
) {
    let mut base = shared.base(FrameKind::MapSoft, Flags::MCAST);
    base.round = round;
    let flags = MapFlags::BARE | MapFlags::ROUND;
    let map = MapRepr { flags, index: row, threshold: rows, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send_to_all(len, out);
}

/// Requests that a worker sends its contribution past the element.
pub(super) fn redirect_past_element(
    frame: &MapFrame<&[u8]>,
    rows: u32,
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) -> Option<()> {
    let mut base = shared.answer(FrameKind::MapSoft, frame);
    base.flags |= Flags::CROSS;
    let flags = MapFlags::BARE | MapFlags::ROUND;
    let map = MapRepr { flags, index: frame.map().index(), threshold: rows, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Endpoint(base.dst), len, out);
    Some(())
}

/// Reports the failure to all failed workers.
pub(super) fn report_failure(error: &CallError, shared: &mut OwnerContext, out: &mut impl FrameSink) {
    let Some((index, operand)) = error.to_fields() else { return };
    let failed = |state: &&MemberState| state.failed;
    let members: Vec<Member> = shared.members.values().filter(failed).map(|state| state.member).collect();
    for Member { endpoint, incarnation, .. } in members {
        let base = shared.base(FrameKind::MapError, Flags::CROSS);
        let base = BaseRepr { round: operand, dst: endpoint, dst_incarnation: incarnation, ..base };
        let map = MapRepr { flags: MapFlags::BARE, index, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, 0);
        emit(&base, &map, &mut shared.scratch[..len]);
        shared.send(Dest::Endpoint(endpoint), len, out);
    }
}
