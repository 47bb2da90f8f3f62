//! Frames of arrays: workers' parts of rounds, their results, and reading rows.

use pathcall_wire::{BaseRepr, Kind, MAX_UNSIGNED, MapFlags, MapFrame, MapRepr, OpType};

use super::Generator;
use crate::frame;

const PART: u16 = MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND | MapFlags::COUNT;
/// Most 32-bit lanes of a frame that may still get a token.
const LANES_MAX: usize = (MAX_UNSIGNED - 44 - 28) / 4 * 32 / 33;

impl Generator {
    /// A worker's part of a round.
    pub(super) fn part(&mut self, a: usize) -> Vec<u8> {
        let index = self.row(a);
        let state = self.register(a, index).map(|at| self.program.tables().registers().rounds.peek(at, 1)[0]);
        let state = state.unwrap_or_default();
        // Every other row clears itself.
        let clears_itself = index.is_multiple_of(2) == self.random.percent(95);
        let round = match clears_itself && self.random.percent(20) {
            true => state.round.wrapping_add(1),
            false => self.near(state.round),
        };
        let base = BaseRepr { round, ..self.caller_head(a, Kind::MapData) };
        let agreed = state.workers != 0 && self.random.percent(96);
        let (op, para) = self.operator();
        let map = MapRepr {
            op,
            para,
            to: self.random.pick(&[0, 1, 1, 1, 2]),
            flags: self.flags(PART | if clears_itself { MapFlags::CLEAR } else { 0 }),
            first_lane: if self.random.once_in(60) { 1 } else { 0 },
            index,
            threshold: self.random.weighted(&[(4, 2), (4, 3), (2, 1), (1, 4), (1, u32::MAX)])
                * u32::from(!self.random.once_in(60)),
            worker: self.random.weighted(&[(20, 0), (20, 1), (20, 2), (20, 3), (4, 63), (1, 64), (1, u16::MAX)]),
            tag: if agreed { state.tag } else { self.random.below(3) },
            ..MapRepr::default()
        };
        let lanes = self.lanes(a, map.flags);
        let values: Vec<_> = (0..lanes).map(|_| self.random.value()).collect();
        self.marked(frame::linear(&base, &map, &values))
    }

    /// The server's result of a round.
    pub(super) fn result(&mut self, a: usize) -> Vec<u8> {
        let index = self.row(a);
        let state = self.register(a, index).map(|at| self.program.tables().registers().rounds.peek(at, 1)[0]);
        let round = match self.random.below(200) {
            0 => u32::MAX - 1,
            _ => self.near(state.unwrap_or_default().round),
        };
        let mcast = self.random.percent(80);
        let base = BaseRepr { round, ..self.server_head(a, Kind::MapResult, mcast) };
        let flags = MapFlags::LINEAR | MapFlags::GET | MapFlags::CLEAR | MapFlags::ROUND;
        let map = MapRepr { flags: self.flags(flags), index, ..MapRepr::default() };
        let lanes = self.lanes(a, map.flags);
        let values: Vec<_> = (0..lanes).map(|_| self.random.value()).collect();
        self.marked(frame::linear(&base, &map, &values))
    }

    /// The server reads registers of a row.
    pub(super) fn read(&mut self, a: usize) -> Vec<u8> {
        let base = self.server_head(a, Kind::MapRead, false);
        let width = self.plans[a].application.width;
        let first_lane = if self.random.percent(50) { 0 } else { self.random.below(width + 2) as u16 };
        let rest = width.saturating_sub(first_lane.into());
        let lanes = match self.random.below(10) {
            0 => rest + 1,
            1 | 2 => rest,
            _ => self.random.below(rest.min(12) + 1),
        };
        let flags = self.flags(MapFlags::LINEAR | MapFlags::GET);
        let map = MapRepr { flags, first_lane, index: self.row(a), ..MapRepr::default() };
        let lanes = fitting(lanes as usize, map.flags);
        self.marked(frame::linear(&base, &map, &vec![0; lanes]))
    }

    /// The frame, at times with another bitmap.
    pub(super) fn marked(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
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

    /// Lanes of a linear frame: mostly few, at times the whole row or more.
    fn lanes(&mut self, a: usize, flags: u16) -> usize {
        let width = self.plans[a].application.width as usize;
        let lanes = match self.random.below(60) {
            0 => width + 1,
            1 => LANES_MAX,
            2..6 => width,
            _ => self.random.index(width.min(10) + 1),
        };
        fitting(lanes, flags)
    }

    /// These flags of a linear frame; at times without one of them, or with another.
    pub(super) fn flags(&mut self, flags: u16) -> u16 {
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

    /// `Stream.modify`: mostly none.
    pub(super) fn operator(&mut self) -> (u8, i32) {
        if self.random.percent(60) {
            return (OpType::Nop as u8, 0);
        }
        let op = self.random.below(11) as u8;
        let shift = op == OpType::ShiftL as u8 || op == OpType::ShiftR as u8;
        let para = if shift && self.random.percent(80) { self.random.below(34) as i32 } else { self.random.value() };
        (op, para)
    }
}

/// As many lanes as a frame with these flags may have.
pub(super) fn fitting(lanes: usize, flags: u16) -> usize {
    // Bare lanes still have a bitmap.
    let bytes = pathcall_wire::map::lane_len(flags).max(4);
    lanes.min(LANES_MAX * 4 / bytes)
}
