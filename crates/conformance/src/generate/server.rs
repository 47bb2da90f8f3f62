//! All other frames: what the program passes on, whoever sends it.

use pathcall_wire::{BaseRepr, Flags, Kind, MapFlags, MapRepr};

use super::Generator;
use super::arrays::fitting;
use crate::frame;

/// What is passed on to the server.
const FROM_CALLERS: [Kind; 12] = [
    Kind::MapData,
    Kind::MapPairs,
    Kind::MapFlush,
    Kind::MapSettled,
    Kind::MapSilent,
    Kind::MapLease,
    Kind::MapHello,
    // What a caller has no business to send.
    Kind::MapResult,
    Kind::MapRead,
    Kind::MapClose,
    Kind::MapFree,
    Kind::MapMove,
];
/// What is passed on to callers.
const FROM_SERVERS: [Kind; 17] = [
    Kind::MapAck,
    Kind::MapHeld,
    Kind::MapSoft,
    Kind::MapError,
    Kind::MapPairsAck,
    Kind::MapCommit,
    Kind::MapWithdraw,
    Kind::MapLent,
    Kind::MapRefused,
    // What a server has no business to send.
    Kind::MapData,
    Kind::MapPairs,
    Kind::MapValues,
    Kind::MapRecord,
    Kind::MapFreed,
    Kind::MapClosed,
    Kind::MapWiped,
    Kind::MapMoved,
];

impl Generator {
    /// A frame that changes no register, or carries a payload, or crosses.
    pub(super) fn other(&mut self, a: usize) -> Vec<u8> {
        let base = if self.random.percent(50) {
            let kind = self.random.pick(&FROM_CALLERS);
            self.caller_head(a, kind)
        } else {
            let (kind, mcast) = (self.random.pick(&FROM_SERVERS), self.random.percent(40));
            self.server_head(a, kind, mcast)
        };
        let cross = if self.random.percent(25) { Flags::CROSS } else { 0 };
        let base = BaseRepr { flags: base.flags | cross, round: self.random.below(3), ..base };
        let flags = match self.random.below(4) {
            0 => self.random.bits() as u16,
            1 => MapFlags::BARE,
            2 => MapFlags::LINEAR,
            _ => MapFlags::LOGICAL,
        };
        let map = MapRepr {
            flags,
            lanes: fitting(self.random.index(6), flags) as u16,
            index: self.row(a),
            threshold: self.random.below(3),
            payload_len: if self.random.percent(50) { self.random.below(40) as u16 } else { 0 },
            tag: self.random.below(3),
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }
}
