//! Headers of a caller's frames.

use pathcall_wire::base::flip;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapRepr, Mutant, mutant};

use super::super::Dest;
use super::{ClientConfig, FlowPosition};

/// Base header of a frame to the server. `slot` is the flow's slot in the element, or the number of the flow in a frame
/// past the element, which is the same in all epochs. A frame for an inline element has the flag `NOT_ADMITTED`, so
/// that a server knows whether an element has processed it.
pub(super) fn base_header(
    kind: FrameKind,
    position: FlowPosition,
    flags: u16,
    round: u32,
    config: &ClientConfig,
) -> BaseRepr {
    let unmarked = flags & Flags::CROSS != 0 || !config.inline || mutant::on(Mutant::InlineUnmarked);
    BaseRepr {
        flags: flags | flip(position.seq) | if unmarked { 0 } else { Flags::NOT_ADMITTED },
        gaid: config.gaid,
        epoch: config.epoch,
        src: config.endpoint,
        src_incarnation: config.incarnation,
        dst: config.server,
        dst_incarnation: config.server_incarnation,
        slot: if flags & Flags::CROSS != 0 { position.flow } else { config.slot_base + position.flow },
        seq: position.seq,
        round,
        ..BaseRepr::new(kind)
    }
}

/// Destination of a frame for the element.
pub(super) fn element_dest(config: &ClientConfig) -> Dest {
    if config.inline { Dest::Inline(config.server) } else { Dest::Element }
}

/// Writes a frame without lanes, and returns its length.
pub(super) fn emit_bare(base: &BaseRepr, flags: u16, out: &mut [u8]) -> usize {
    emit_bare_with_tag(base, flags, 0, out)
}

/// Writes a frame without lanes, padded with zeros to the length of `out`, the maximum frame length.
pub(super) fn emit_padded(base: &BaseRepr, out: &mut [u8]) -> usize {
    let flags = MapFlags::BARE;
    let fill = out.len() - frame_len(flags, 0, 0);
    let map = MapRepr { flags, payload_len: fill as u16, ..MapRepr::default() };
    emit(base, &map, out).payload_mut().fill(0);
    out.len()
}

/// Writes a frame without lanes, with a tag.
pub(super) fn emit_bare_with_tag(base: &BaseRepr, flags: u16, tag: u32, out: &mut [u8]) -> usize {
    let map = MapRepr { flags, tag, ..MapRepr::default() };
    let len = frame_len(flags, 0, 0);
    emit(base, &map, &mut out[..len]);
    len
}
