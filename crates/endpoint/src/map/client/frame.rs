//! The headers that all frames of a caller share.

use pathcall_wire::base::flip;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Kind, MapFlags, MapRepr, Mutant, mutant};

use super::super::Dest;
use super::{ClientConfig, Place};

/// Base header of a frame to the server. By the element it names the flow's slot there, past it the
/// flow itself, which no epoch changes. Where the element is only met on the way, the frame says of itself that
/// none has admitted it: so a server that it comes to bare does not take it for worked on.
pub(super) fn base(kind: Kind, place: Place, flags: u16, round: u32, config: &ClientConfig) -> BaseRepr {
    let unmarked = flags & Flags::CROSS != 0 || !config.inline || mutant::on(Mutant::InlineUnmarked);
    BaseRepr {
        flags: flags | flip(place.seq) | if unmarked { 0 } else { Flags::NOT_ADMITTED },
        gaid: config.gaid,
        epoch: config.epoch,
        src: config.endpoint,
        src_incarnation: config.incarnation,
        dst: config.server,
        dst_incarnation: config.server_incarnation,
        slot: if flags & Flags::CROSS != 0 { place.flow } else { config.slot_base + place.flow },
        seq: place.seq,
        round,
        ..BaseRepr::new(kind)
    }
}

/// Where a frame goes that the element is to work on.
pub(super) fn by_element(config: &ClientConfig) -> Dest {
    if config.inline { Dest::Inline(config.server) } else { Dest::Element }
}

/// Writes a frame without lanes; its length.
pub(super) fn bare(base: &BaseRepr, flags: u16, out: &mut [u8]) -> usize {
    bare_of(base, flags, 0, out)
}

/// The same, filled up with zeros: as long as `out`, the longest frame that this link ever carries.
pub(super) fn full(base: &BaseRepr, out: &mut [u8]) -> usize {
    let flags = MapFlags::BARE;
    let fill = out.len() - frame_len(flags, 0, 0);
    let map = MapRepr { flags, payload_len: fill as u16, ..MapRepr::default() };
    emit(base, &map, out).payload_mut().fill(0);
    out.len()
}

/// A bare frame with a tag.
pub(super) fn bare_of(base: &BaseRepr, flags: u16, tag: u32, out: &mut [u8]) -> usize {
    let map = MapRepr { flags, tag, ..MapRepr::default() };
    let len = frame_len(flags, 0, 0);
    emit(base, &map, &mut out[..len]);
    len
}
