//! Writer of the frames of a keyed call.

use std::ops::Range;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::policy::ReadMode;
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapRepr, Mutant, mutant, pairs};

use super::super::super::super::{Dest, logical_address};
use super::super::super::{ClientConfig, FlowPosition, frames};
use super::{Frame, KeyedCall, KeyedOp, LOGICAL_PAIRS, NONE, PairEncoding};

impl KeyedCall {
    /// Writes frame `index`. Returns destination, length, and bytes of lanes on the first transmission. `version` is
    /// the current mapping version; a frame contains the version with which it was packed.
    pub(in super::super) fn emit(
        &mut self,
        index: usize,
        (now, position): (Instant, FlowPosition),
        config: &ClientConfig,
        (version, session): (u32, u32),
        out: &mut [u8],
    ) -> (Dest, usize, u64) {
        let Frame { encoding, members, emitted, tag, waits, version: packed, .. } = self.frames[index].clone();
        let version = if mutant::on(Mutant::MappingRestamped) { version } else { packed };
        if !emitted {
            (self.frames[index].emitted, self.frames[index].session) = (true, session);
            self.frames[index].sent = now;
        }
        let session = self.frames[index].session;
        let in_line = match (waits, self.detached) {
            (None, _) => 0,
            (Some(_), false) => MapFlags::WAIT,
            // A cancelled call leaves the queue.
            (Some(_), true) => MapFlags::WAIT | MapFlags::CLEAR,
        };
        let (threshold, target) = match self.op {
            KeyedOp::Count { threshold, to } => (threshold, to),
            _ => (0, ForwardTarget::Src),
        };
        let (kind, base_flags, form) = match encoding {
            PairEncoding::Mapped | PairEncoding::Lock => (FrameKind::MapData, 0, 0),
            PairEncoding::Logical => (FrameKind::MapData, Flags::CROSS, MapFlags::LOGICAL),
            PairEncoding::Whole => (FrameKind::MapPairs, Flags::CROSS, MapFlags::BARE),
        };
        let base = frames::base_header(kind, position, base_flags, version, config);
        let map = MapRepr {
            op: self.modify.op as u8,
            to: target as u8,
            flags: self.primitives(encoding, config) | form | in_line | if self.claim { MapFlags::CLAIM } else { 0 },
            para: self.modify.para,
            threshold,
            tag: if self.takes_locks() { session } else { 0 },
            ..MapRepr::default()
        };
        if encoding == PairEncoding::Lock {
            let map = MapRepr { index: self.rows[members.start], tag, ..map };
            let len = frame_len(map.flags, 0, 0);
            emit(&base, &map, &mut out[..len]);
            return (frames::element_dest(config), len, 0);
        }
        let to =
            if encoding == PairEncoding::Mapped { frames::element_dest(config) } else { Dest::Endpoint(config.server) };
        let (len, lane_bytes) = if encoding == PairEncoding::Whole {
            self.emit_whole(&base, &map, (members, waits), out)
        } else {
            self.emit_lanes(&base, &map, encoding, members, out)
        };
        (to, len, if emitted { 0 } else { lane_bytes })
    }

    /// Flags of the primitives that a frame requests.
    fn primitives(&self, encoding: PairEncoding, config: &ClientConfig) -> u16 {
        match self.op {
            KeyedOp::Add { get: false } => MapFlags::ADD,
            KeyedOp::Add { get: true } => MapFlags::ADD | MapFlags::GET,
            KeyedOp::Count { .. } => MapFlags::COUNT,
            KeyedOp::Clear => MapFlags::CLEAR,
            KeyedOp::Read(_) if encoding != PairEncoding::Whole => MapFlags::GET,
            KeyedOp::Read(_) if self.wants_whole(config) => MapFlags::GET | MapFlags::WAIT,
            KeyedOp::Read(ReadMode::Linearizable) => MapFlags::GET | MapFlags::CLAIM,
            KeyedOp::Read(ReadMode::Recent) => MapFlags::GET,
        }
    }

    fn emit_whole(
        &self,
        base: &BaseRepr,
        map: &MapRepr,
        (members, waits): (Range<usize>, Option<u32>),
        out: &mut [u8],
    ) -> (usize, u64) {
        let members = &self.order[members];
        let payload: usize = members.iter().map(|i| pairs::entry_len(self.keys[*i as usize].as_bytes().len())).sum();
        let map = MapRepr { payload_len: payload as u16, ..*map };
        let len = frame_len(map.flags, 0, payload);
        let mut frame = emit(base, &map, &mut out[..len]);
        let mut rest = frame.payload_mut();
        for &i in members {
            let i = i as usize;
            let value = waits.map_or(self.values[i], i64::from);
            rest = pairs::put(rest, self.keys[i].as_bytes(), value).expect("length computed above");
        }
        (len, payload as u64)
    }

    fn emit_lanes(
        &self,
        base: &BaseRepr,
        map: &MapRepr,
        encoding: PairEncoding,
        members: Range<usize>,
        out: &mut [u8],
    ) -> (usize, u64) {
        let rows = &self.rows[members.clone()];
        let members = &self.order[members];
        let map = MapRepr { lanes: members.len() as u16, ..*map };
        let len = frame_len(map.flags, members.len(), 0);
        let mut frame = emit(base, &map, &mut out[..len]);
        let mut words = [0u32; LOGICAL_PAIRS / 32];
        for (lane, (&i, &row)) in members.iter().zip(rows).enumerate() {
            if i == NONE {
                continue;
            }
            let i = i as usize;
            let address = if encoding == PairEncoding::Mapped { row } else { logical_address(self.keys[i].as_bytes()) };
            frame.set_keyed(lane, address, self.values[i] as i32);
            words[lane / 32] |= 1 << (lane % 32);
        }
        for (word, bits) in words.into_iter().enumerate().take(members.len().div_ceil(32)) {
            frame.set_bitmap(word, bits);
        }
        (len, members.len() as u64 * 8)
    }
}
