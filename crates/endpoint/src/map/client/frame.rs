//! The headers that all frames of a caller share.

use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Kind};

use super::{ClientConfig, Place};

/// Base header of a frame to the server.
pub(super) fn base(kind: Kind, place: Place, flags: u16, round: u32, config: &ClientConfig) -> BaseRepr {
    BaseRepr {
        flags: flags | flip(place.seq),
        gaid: config.gaid,
        epoch: config.epoch,
        src: config.endpoint,
        src_incarnation: config.incarnation,
        dst: config.server,
        dst_incarnation: config.server_incarnation,
        slot: config.slot_base + place.flow,
        seq: place.seq,
        round,
        ..BaseRepr::new(kind)
    }
}
