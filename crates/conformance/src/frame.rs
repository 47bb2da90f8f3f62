//! Construction of frames from header fields and lanes.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{entry_len, put};
use pathcall_wire::{BaseRepr, MapFlags, MapFrame, MapRepr};

/// Frame of headers only, with zero bitmap and lanes.
#[must_use]
pub fn bare(base: &BaseRepr, map: &MapRepr) -> Vec<u8> {
    let mut bytes = vec![0; frame_len(map.flags, map.lanes.into(), map.payload_len.into())];
    emit(base, map, &mut bytes);
    bytes
}

/// Linear frame with these lanes, all marked; in a WIDE frame, 64 bits each.
#[must_use]
pub fn linear(base: &BaseRepr, map: &MapRepr, values: &[i32]) -> Vec<u8> {
    let map = MapRepr { flags: map.flags | MapFlags::LINEAR, lanes: values.len() as u16, ..*map };
    let mut bytes = bare(base, &map);
    let Ok(mut frame) = MapFrame::new_checked(&mut bytes[..]) else { return bytes };
    mark(&mut frame, values.len());
    let lanes = frame.bitmap_and_lanes_mut().1;
    let len = lanes.len() / values.len().max(1);
    if len > 0 {
        for (lane, value) in lanes.chunks_exact_mut(len).zip(values) {
            let wide = i64::from(*value).to_be_bytes();
            lane.copy_from_slice(&wide[8 - len..]);
        }
    }
    bytes
}

/// Keyed frame with these (row, value) pairs, all marked.
#[must_use]
pub fn keyed(base: &BaseRepr, map: &MapRepr, pairs: &[(u32, i32)]) -> Vec<u8> {
    let map = MapRepr { flags: map.flags & !MapFlags::LINEAR, lanes: pairs.len() as u16, ..*map };
    let mut bytes = bare(base, &map);
    let Ok(mut frame) = MapFrame::new_checked(&mut bytes[..]) else { return bytes };
    mark(&mut frame, pairs.len());
    if map.flags & MapFlags::BARE == 0 {
        pairs.iter().enumerate().for_each(|(i, (row, value))| frame.set_keyed(i, *row, *value));
    }
    bytes
}

/// Frame whose payload lists whole keys, without lanes.
#[must_use]
pub fn entries(base: &BaseRepr, map: &MapRepr, keys: &[&[u8]]) -> Vec<u8> {
    let len: usize = keys.iter().map(|key| entry_len(key.len())).sum();
    let mut bytes = bare(base, &MapRepr { payload_len: len as u16, ..*map });
    let at = bytes.len() - len;
    let mut rest = &mut bytes[at..];
    for key in keys {
        match put(rest, key, 1) {
            Some(after) => rest = after,
            None => break,
        }
    }
    bytes
}

fn mark(frame: &mut MapFrame<&mut [u8]>, lanes: usize) {
    for word in 0..lanes.div_ceil(32) {
        frame.set_bitmap(word, u32::MAX >> (32 - (lanes - word * 32).min(32)));
    }
}
