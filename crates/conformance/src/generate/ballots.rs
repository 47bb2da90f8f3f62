//! Frames of ballots: votes, clearings, and the server's words about them.

use pathcall_program::registers::Ballot;
use pathcall_wire::pairs::MAX_BALLOT_KEY;
use pathcall_wire::{BaseRepr, Kind, MapFlags, MapRepr};

use super::Generator;
use crate::frame;

/// Keys of ballots, two of each length that matters, and two that no ballot has.
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
    /// A vote, or the clearing of a ballot.
    pub(super) fn vote(&mut self, a: usize) -> Vec<u8> {
        let index = self.row(a);
        let clears = self.random.percent(15);
        let base = BaseRepr { round: self.random.below(3), ..self.caller_head(a, Kind::MapPairs) };
        // A key has a row of its own, most of the time.
        let key = match self.random.below(20) {
            0..4 => self.random.pick(&KEYS),
            _ => KEYS[index as usize % (KEYS.len() - 2)],
        };
        let flags = if clears { MapFlags::CLEAR } else { MapFlags::COUNT };
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
            // The key's length and what is there disagree.
            *byte = byte.wrapping_add(self.random.pick(&[1, 255, 32, 128]));
        }
        bytes
    }

    /// The server's word that a ballot is decided.
    pub(super) fn decided(&mut self, a: usize) -> Vec<u8> {
        let index = self.row(a);
        let round = self.ballot(a, index).round;
        let round = self.near(round);
        let mcast = self.random.percent(50);
        let base = BaseRepr { round, ..self.server_head(a, Kind::MapPairsAck, mcast) };
        let flags = self.bareness() | if self.random.once_in(10) { 0 } else { MapFlags::COUNT };
        frame::bare(&base, &MapRepr { flags, index, payload_len: 14, ..MapRepr::default() })
    }

    /// The server counts from now on what comes to a row.
    pub(super) fn moves(&mut self, a: usize) -> Vec<u8> {
        let base = self.server_head(a, Kind::MapMove, false);
        let index = self.row(a);
        frame::bare(&base, &MapRepr { flags: self.bareness(), index, ..MapRepr::default() })
    }

    fn ballot(&self, a: usize, row: u32) -> Ballot {
        let at = self.register(a, row);
        at.map(|at| self.program.tables().registers().ballots.peek(at, 1)[0]).unwrap_or_default()
    }
}
