//! Writer of the server's frames about rounds: results, announcements of software rounds, and failure reports.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapFrame, MapRepr};

use super::super::super::lanes::WIDE_PART;
use super::super::super::{CallError, Dest, FrameSink};
use super::super::{Member, MemberState};
use super::{Backup, OwnerContext};

/// Sends the result of a round in answer to a frame, to one member or to all. Results use the element, if any, which
/// clears the round when it forwards the result; it may have missed an earlier copy.
pub(super) fn send_result(
    Backup { round, wide, bytes, .. }: &Backup,
    frame: &MapFrame<&[u8]>,
    to: Option<u32>,
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) {
    let ecn = frame.base().has(Flags::ECN);
    let flags = if to.is_none() { Flags::MCAST } else { 0 } | if ecn { Flags::ECN } else { 0 };
    let mut base = shared.base(FrameKind::MapResult, flags);
    base.round = *round;
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
            index: frame.map().index(),
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

/// Announces a software round to all workers.
pub(super) fn announce_software_round(shared: &mut OwnerContext, row: u32, round: u32, out: &mut impl FrameSink) {
    let mut base = shared.base(FrameKind::MapSoft, Flags::MCAST);
    base.round = round;
    let map = MapRepr { flags: MapFlags::BARE | MapFlags::ROUND, index: row, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send_to_all(len, out);
}

/// Requests that a worker sends its contribution past the element.
pub(super) fn redirect_past_element(
    frame: &MapFrame<&[u8]>,
    shared: &mut OwnerContext,
    out: &mut impl FrameSink,
) -> Option<()> {
    let mut base = shared.answer(FrameKind::MapSoft, frame);
    base.flags |= Flags::CROSS;
    let map = MapRepr { flags: MapFlags::BARE | MapFlags::ROUND, index: frame.map().index(), ..MapRepr::default() };
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
