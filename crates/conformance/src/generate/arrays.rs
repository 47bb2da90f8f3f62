//! Frames of arrays: workers' parts of rounds, results, and reads of rows.

use pathcall_wire::{BaseRepr, FrameKind, MAX_UNSIGNED, MapFlags, MapFrame, MapRepr, OpType};

use super::Generator;
use crate::RandomChoice;
use crate::frame;

const PART: u16 = MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND | MapFlags::COUNT;
/// Largest number of 32-bit lanes of a frame that leaves space for a token.
const LANES_MAX: usize = (MAX_UNSIGNED - 44 - 28) / 4 * 32 / 33;

impl Generator {
    /// Worker's part of a round.
    pub(super) fn worker_part(&mut self, a: usize) -> Vec<u8> {
        let index = self.pick_row(a);
        let state = self.register_index(a, index).map(|at| self.program.tables().registers().rounds.peek(at, 1)[0]);
        let state = state.unwrap_or_default();
        // Every other row has the shadow clear policy.
        let clears_itself = index.is_multiple_of(2) == self.random.percent(95);
        let round = match clears_itself && self.random.percent(20) {
            true => state.round.wrapping_add(1),
            false => self.number_near(state.round),
        };
        let base = BaseRepr { round, ..self.caller_head(a, FrameKind::MapData) };
        let agreed = state.workers != 0 && self.random.percent(96);
        let (op, para) = self.random_operator();
        let map = MapRepr {
            op,
            para,
            to: self.random.pick(&[0, 1, 1, 1, 2]),
            flags: self.random_flags(PART | if clears_itself { MapFlags::CLEAR } else { 0 }),
            first_lane: if self.random.once_in(60) { 1 } else { 0 },
            index,
            threshold: self.random.weighted(&[(4, 2), (4, 3), (2, 1), (1, 4), (1, u32::MAX)])
                * u32::from(!self.random.once_in(60)),
            worker: self.random.weighted(&[(20, 0), (20, 1), (20, 2), (20, 3), (4, 63), (1, 64), (1, u16::MAX)]),
            tag: if agreed { state.tag } else { self.random.below(3) },
            ..MapRepr::default()
        };
        let lanes = self.lane_count(a, map.flags);
        let values: Vec<_> = (0..lanes).map(|_| self.random.value()).collect();
        self.with_random_bitmap(frame::linear(&base, &map, &values))
    }

    /// Server's result of a round.
    pub(super) fn round_result(&mut self, a: usize) -> Vec<u8> {
        let index = self.pick_row(a);
        let state = self.register_index(a, index).map(|at| self.program.tables().registers().rounds.peek(at, 1)[0]);
        let round = match self.random.below(200) {
            0 => u32::MAX - 1,
            _ => self.number_near(state.unwrap_or_default().round),
        };
        let mcast = self.random.percent(80);
        let base = BaseRepr { round, ..self.server_head(a, FrameKind::MapResult, mcast) };
        let flags = MapFlags::LINEAR | MapFlags::GET | MapFlags::CLEAR | MapFlags::ROUND;
        let map = MapRepr { flags: self.random_flags(flags), index, ..MapRepr::default() };
        let lanes = self.lane_count(a, map.flags);
        let values: Vec<_> = (0..lanes).map(|_| self.random.value()).collect();
        self.with_random_bitmap(frame::linear(&base, &map, &values))
    }

    /// Server's read of a row's registers.
    pub(super) fn row_read(&mut self, a: usize) -> Vec<u8> {
        let base = self.server_head(a, FrameKind::MapRead, false);
        let width = self.plans[a].application.width;
        let first_lane = if self.random.percent(50) { 0 } else { self.random.below(width + 2) as u16 };
        let rest = width.saturating_sub(first_lane.into());
        let lanes = match self.random.below(10) {
            0 => rest + 1,
            1 | 2 => rest,
            _ => self.random.below(rest.min(12) + 1),
        };
        let flags = self.random_flags(MapFlags::LINEAR | MapFlags::GET);
        let map = MapRepr { flags, first_lane, index: self.pick_row(a), ..MapRepr::default() };
        let lanes = lanes_that_fit(lanes as usize, map.flags);
        self.with_random_bitmap(frame::linear(&base, &map, &vec![0; lanes]))
    }

    /// Frame, sometimes with another bitmap.
    pub(super) fn with_random_bitmap(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.random.percent(30)
            && let Ok(mut frame) = MapFrame::new_checked(&mut bytes[..])
        {
            let anything = self.random.percent(50);
            for word in 0..frame.lane_count().div_ceil(32) {
                frame.set_bitmap(word, if anything { self.random.bits() as u32 } else { 0 });
            }
        }
        bytes
    }

    /// Number of lanes of a linear frame: usually few, sometimes the whole row or more.
    fn lane_count(&mut self, a: usize, flags: u16) -> usize {
        let width = self.plans[a].application.width as usize;
        let lanes = match self.random.below(60) {
            0 => width + 1,
            1 => LANES_MAX,
            2..6 => width,
            _ => self.random.index(width.min(10) + 1),
        };
        lanes_that_fit(lanes, flags)
    }

    /// Flags of a linear frame, sometimes with one removed or added.
    pub(super) fn random_flags(&mut self, flags: u16) -> u16 {
        match self.random.below(30) {
            0 => flags | MapFlags::WIDE,
            1 => flags & !MapFlags::ROUND,
            2 => flags & !MapFlags::CLEAR,
            3 => flags | self.random.pick(&[MapFlags::BARE, MapFlags::LOGICAL, MapFlags::OVERFLOW, MapFlags::CLEAR]),
            4 => flags ^ 1 << self.random.below(16),
            5 => flags | MapFlags::ELEMENT_ONLY,
            _ => flags,
        }
    }

    /// `Stream.modify`: usually none.
    pub(super) fn random_operator(&mut self) -> (u8, i32) {
        if self.random.percent(60) {
            return (OpType::Nop as u8, 0);
        }
        let op = self.random.below(11) as u8;
        let shift = op == OpType::ShiftL as u8 || op == OpType::ShiftR as u8;
        let para = if shift && self.random.percent(80) { self.random.below(34) as i32 } else { self.random.value() };
        (op, para)
    }
}

/// Largest number of lanes of a frame with these flags, bounded by `lanes`.
pub(super) fn lanes_that_fit(lanes: usize, flags: u16) -> usize {
    // A frame without values still has a bitmap.
    let bytes = pathcall_wire::map::lane_len(flags).max(4);
    lanes.min(LANES_MAX * 4 / bytes)
}
