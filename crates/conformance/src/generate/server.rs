//! Frames that the program passes through.

use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapRepr};

use super::Generator;
use super::arrays::lanes_that_fit;
use crate::RandomChoice;
use crate::frame;

/// Kinds that are forwarded to the server.
const FROM_CALLERS: [FrameKind; 12] = [
    FrameKind::MapData,
    FrameKind::MapPairs,
    FrameKind::MapFlush,
    FrameKind::MapSettled,
    FrameKind::MapSilent,
    FrameKind::MapLease,
    FrameKind::MapHello,
    // Kinds that a caller must not send.
    FrameKind::MapResult,
    FrameKind::MapRead,
    FrameKind::MapClose,
    FrameKind::MapFree,
    FrameKind::MapMove,
];
/// Kinds that are forwarded to callers.
const FROM_SERVERS: [FrameKind; 17] = [
    FrameKind::MapAck,
    FrameKind::MapHeld,
    FrameKind::MapSoft,
    FrameKind::MapError,
    FrameKind::MapPairsAck,
    FrameKind::MapCommit,
    FrameKind::MapWithdraw,
    FrameKind::MapLent,
    FrameKind::MapRefused,
    // Kinds that a server must not send.
    FrameKind::MapData,
    FrameKind::MapPairs,
    FrameKind::MapValues,
    FrameKind::MapRecord,
    FrameKind::MapFreed,
    FrameKind::MapClosed,
    FrameKind::MapWiped,
    FrameKind::MapMoved,
];

impl Generator {
    /// Frame that changes no register, carries a payload, or crosses applications.
    pub(super) fn other_frame(&mut self, a: usize) -> Vec<u8> {
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
            lanes: lanes_that_fit(self.random.index(6), flags) as u16,
            index: self.pick_row(a),
            threshold: self.random.below(3),
            payload_len: if self.random.percent(50) { self.random.below(40) as u16 } else { 0 },
            tag: self.random.below(3),
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }
}
