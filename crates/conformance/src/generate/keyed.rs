//! Frames of keyed applications: pairs, and the server's harvest of generations.

use pathcall_program::registers::Generation;
use pathcall_wire::{BaseRepr, FrameKind, KEYED_LANES, MapFlags, MapRepr, RECORD_PLACES, W_MAX};

use super::Generator;
use crate::RandomChoice;
use crate::frame;

impl Generator {
    /// Pairs to be added, read or counted.
    pub(super) fn pair_frame(&mut self, a: usize) -> Vec<u8> {
        let round = match self.random.below(12) {
            0 => self.number_near(self.generation(a).version.wrapping_add(1)),
            _ => self.generation(a).version,
        };
        let base = BaseRepr { round, ..self.caller_head(a, FrameKind::MapData) };
        let flags = self.random.weighted(&[
            (8, MapFlags::ADD),
            (8, MapFlags::ADD | MapFlags::GET),
            (3, MapFlags::GET),
            (2, MapFlags::ADD | MapFlags::COUNT),
            (2, MapFlags::ADD | MapFlags::GET | MapFlags::COUNT),
            (1, MapFlags::COUNT),
            (1, MapFlags::ADD | MapFlags::LOGICAL),
            (1, 0),
        ]);
        let flags = flags | if self.random.once_in(25) { 1 << self.random.below(16) } else { 0 };
        let (op, para) = self.random_operator();
        let map = MapRepr {
            op,
            para,
            to: self.random.weighted(&[(8, 0), (2, 1), (3, 2)]),
            flags: flags & !MapFlags::LINEAR,
            index: self.pick_row(a),
            threshold: self.random.below(4),
            ..MapRepr::default()
        };
        let count = match self.random.below(30) {
            0 => KEYED_LANES + 1,
            1..5 => KEYED_LANES,
            _ => self.random.index(9),
        };
        let pairs: Vec<_> = (0..count).map(|_| (self.pick_row(a), self.random.value())).collect();
        // Only marked pairs are processed by the element.
        self.with_random_bitmap(frame::keyed(&base, &map, &pairs))
    }

    /// Server's close of a generation.
    pub(super) fn generation_close(&mut self, a: usize) -> Vec<u8> {
        let state = self.generation(a);
        let round = self.number_near(state.open);
        let base = BaseRepr { round, ..self.server_head(a, FrameKind::MapClose, false) };
        let index = state.version.wrapping_add(self.random.pick(&[0, 0, 1, 2]));
        frame::bare(&base, &MapRepr { flags: self.laneless_flags(), index, ..MapRepr::default() })
    }

    /// Server's clear of a row in a closed generation.
    pub(super) fn row_clear(&mut self, a: usize) -> Vec<u8> {
        let round = self.generation(a).open.wrapping_sub(1);
        let round = self.number_near(round);
        let base = BaseRepr { round, ..self.server_head(a, FrameKind::MapWipe, false) };
        let index = self.pick_row(a);
        frame::bare(&base, &MapRepr { flags: self.laneless_flags(), index, ..MapRepr::default() })
    }

    /// Server's query of the frames applied in a slot.
    pub(super) fn places_query(&mut self, a: usize) -> Vec<u8> {
        let base = self.server_head(a, FrameKind::MapPlaces, false);
        let endpoint = self.plans[a].endpoints[1 + self.random.index(3)];
        let stranger = self.random.once_in(12);
        let slot = endpoint.slot_base + self.random.below(endpoint.slots + u32::from(stranger));
        let places = RECORD_PLACES as u32;
        let beyond = self.random.once_in(4);
        let first = places * self.random.below(W_MAX / places + u32::from(beyond));
        let flags = self.random.weighted(&[(8, MapFlags::LINEAR), (4, 0), (1, MapFlags::LINEAR | MapFlags::BARE)]);
        // Numbers, generations and masks: twelve bytes for each place.
        let lanes = RECORD_PLACES as u16 * 12 / if flags & MapFlags::LINEAR != 0 { 4 } else { 8 };
        let map = MapRepr {
            flags,
            lanes: lanes - u16::from(self.random.once_in(20)),
            first_lane: first as u16 + u16::from(self.random.once_in(30)),
            index: if self.random.once_in(40) { u32::MAX } else { slot },
            threshold: endpoint.endpoint + u32::from(self.random.once_in(20)),
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }

    fn generation(&self, a: usize) -> Generation {
        let at = self.register_index(a, 0);
        at.map(|at| self.program.tables().registers().generations.peek(at, 1)[0]).unwrap_or_default()
    }

    /// Flags of a frame without lanes.
    pub(super) fn laneless_flags(&mut self) -> u16 {
        let flags = if self.random.percent(80) { MapFlags::BARE } else { 0 };
        flags | if self.random.once_in(20) { 1 << self.random.below(16) } else { 0 }
    }
}
