//! Frames of ballots: votes, clears, and the server's decisions.

use pathcall_program::registers::Ballot;
use pathcall_wire::pairs::MAX_BALLOT_KEY;
use pathcall_wire::{BaseRepr, FrameKind, MapFlags, MapRepr};

use super::Generator;
use crate::RandomChoice;
use crate::frame;

/// Keys of ballots: two of each relevant length, and two that are invalid.
const KEYS: [&[u8]; 10] = [
    b"a",
    b"b",
    b"a\0",
    b"sballot",
    b"sballoT",
    &[b'x'; MAX_BALLOT_KEY - 1],
    &[b'x'; MAX_BALLOT_KEY],
    &[b'y'; MAX_BALLOT_KEY],
    &[b'x'; MAX_BALLOT_KEY + 1],
    b"",
];

impl Generator {
    /// Vote, clear of a ballot, or query of its decision.
    pub(super) fn vote(&mut self, a: usize) -> Vec<u8> {
        let index = self.pick_row(a);
        let clears = self.random.percent(15);
        let base = BaseRepr { round: self.random.below(3), ..self.caller_head(a, FrameKind::MapPairs) };
        // Usually each row has one key.
        let key = match self.random.below(20) {
            0..4 => self.random.pick(&KEYS),
            _ => KEYS[index as usize % (KEYS.len() - 2)],
        };
        let mut flags = if clears { MapFlags::CLEAR } else { MapFlags::COUNT };
        flags |= if self.random.once_in(6) { MapFlags::GET } else { 0 };
        flags |= if self.random.once_in(5) { MapFlags::WAIT } else { 0 };
        let map = MapRepr {
            flags: flags ^ if self.random.once_in(25) { 1 << self.random.below(16) } else { 0 },
            to: self.random.pick(&[0, 1, 2]),
            index,
            threshold: self.random.weighted(&[(1, 0), (2, 1), (6, 2), (6, 3), (1, u32::MAX)]),
            tag: self.random.below(2),
            ..MapRepr::default()
        };
        let mut bytes = match self.random.below(40) {
            0 => frame::entries(&base, &map, &[key, key]),
            1 => frame::bare(&base, &map),
            _ => frame::entries(&base, &map, &[key]),
        };
        if self.random.once_in(40)
            && let Some(byte) = bytes.get_mut(pathcall_wire::Base::LEN + pathcall_wire::MapHeader::LEN + 1)
        {
            // A key length that contradicts the key.
            *byte = byte.wrapping_add(self.random.pick(&[1, 255, 32, 128]));
        }
        bytes
    }

    /// Server's message that a ballot is decided.
    pub(super) fn ballot_decision(&mut self, a: usize) -> Vec<u8> {
        let index = self.pick_row(a);
        let round = self.ballot(a, index).round;
        let round = self.number_near(round);
        let mcast = self.random.percent(50);
        let base = BaseRepr { round, ..self.server_head(a, FrameKind::MapPairsAck, mcast) };
        let flags = self.laneless_flags() | if self.random.once_in(10) { 0 } else { MapFlags::COUNT };
        frame::bare(&base, &MapRepr { flags, index, payload_len: 14, ..MapRepr::default() })
    }

    /// Server's message that it counts the votes of a row from now on.
    pub(super) fn ballot_move(&mut self, a: usize) -> Vec<u8> {
        let base = self.server_head(a, FrameKind::MapMove, false);
        let index = self.pick_row(a);
        frame::bare(&base, &MapRepr { flags: self.laneless_flags(), index, ..MapRepr::default() })
    }

    fn ballot(&self, a: usize, row: u32) -> Ballot {
        let at = self.register_index(a, row);
        at.map(|at| self.program.tables().registers().ballots.peek(at, 1)[0]).unwrap_or_default()
    }
}
