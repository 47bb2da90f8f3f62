//! Tests of the text form of frames.

use pathcall_conformance::Decoded;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapRepr};

#[test]
fn frame_decodes_to_readable_text() {
    let flags = MapFlags::ADD | MapFlags::GET;
    let base = BaseRepr { gaid: 7, src: 10, dst: 1, seq: 3, flags: Flags::ECN, ..BaseRepr::new(FrameKind::MapData) };
    let mut bytes = vec![0; frame_len(flags, 2, 0)];
    let mut frame = emit(&base, &MapRepr { flags, lanes: 2, index: 4, ..MapRepr::default() }, &mut bytes);
    frame.set_keyed(0, 5, -6);
    frame.set_bitmap(0, 3);
    let text = Decoded(&bytes).to_string();
    assert_eq!(
        text,
        "MapData 10.0→1.0 gaid 7 epoch 0 slot 0 seq 3 round 0 ECN │ index 4 Nop 0 to Src ADD GET │ 2 lanes, marked 3: 5:-6 0:0"
    );
    assert_eq!(
        Decoded(b"PC").to_string(),
        "2 bytes, no frame (frame too short: expected at least 44 bytes, got 2): 5043"
    );
}
