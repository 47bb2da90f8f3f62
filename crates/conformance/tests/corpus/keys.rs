//! Corpus cases of keyed applications: pairs and generations.

use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::{bare, keyed as pairs, linear};
use pathcall_wire::{BaseRepr, ForwardTarget, FrameKind, MapFlags, MapFrame, MapRepr, OpType, RECORD_PLACES};

use super::case_recorder::{CaseRecorder, caller, server};

const ADD: u16 = MapFlags::ADD;
const GET: u16 = MapFlags::GET;
const COUNT: u16 = MapFlags::COUNT;

/// Caller's pairs, with the mapping of this version.
fn data(from: u32, seq: u32, version: u32, map: MapRepr, lanes: &[(u32, i32)]) -> Vec<u8> {
    pairs(&BaseRepr { round: version, ..caller(from, FrameKind::MapData, seq) }, &map, lanes)
}

fn with(flags: u16) -> MapRepr {
    MapRepr { flags, ..MapRepr::default() }
}

/// Server's message about generation `round`.
fn word(kind: FrameKind, round: u32, index: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::BARE, index, ..MapRepr::default() };
    bare(&BaseRepr { round, ..server(kind, 21) }, &map)
}

fn places(endpoint: u32, slot: u32, first: u16, lanes: u16) -> Vec<u8> {
    let map = MapRepr {
        flags: MapFlags::LINEAR,
        lanes,
        first_lane: first,
        index: slot,
        threshold: endpoint,
        ..MapRepr::default()
    };
    bare(&server(FrameKind::MapPlaces, 21), &map)
}

/// Lanes of a frame that queries places: three words each.
const ASKED: u16 = 3 * RECORD_PLACES as u16;

fn read(row: u32, bank: u16) -> Vec<u8> {
    let map = MapRepr { first_lane: bank, index: row, ..with(MapFlags::LINEAR | GET) };
    linear(&server(FrameKind::MapRead, 21), &map, &[0; 4])
}

pub fn keyed() -> Case {
    let mut scene = CaseRecorder::new("keyed");
    scene.remark("the i-th pair is added at position i of its row; a repeat is acknowledged and adds nothing");
    scene.send(data(21, 1, 0, with(ADD), &[(0, 5), (3, -6), (0, 7)]));
    scene.send(data(21, 1, 0, with(ADD), &[(0, 5), (3, -6), (0, 7)]));
    scene.remark("another flow, with the sums in its answer");
    scene.send(data(22, 1, 0, with(ADD | GET), &[(0, 1), (3, 1), (1, 1)]));
    scene.send(data(22, 1, 0, with(ADD | GET), &[(0, 1), (3, 1), (1, 1)]));
    scene.remark("a read only; neither read nor addition");
    scene.send(data(22, 2, 0, with(GET), &[(0, 0), (3, 0), (0, 0)]));
    scene.send(data(22, 3, 0, with(0), &[(0, 9)]));
    scene.remark("the element processes marked lanes only");
    let mut some = data(22, 4, 0, with(ADD | GET), &[(0, 10), (0, 20), (0, 30)]);
    MapFrame::new_checked(&mut some[..]).expect("a frame").set_bitmap(0, 0b101);
    scene.send(some);
    scene.remark("a lane that would overflow its register is skipped and flagged, on repeats as well; at both bounds");
    scene.send(data(21, 2, 0, with(ADD), &[(1, i32::MAX), (1, i32::MIN)]));
    scene.send(data(21, 3, 0, with(ADD | GET), &[(1, 1), (1, -1), (1, 1)]));
    scene.send(data(21, 3, 0, with(ADD | GET), &[(1, 1), (1, -1), (1, 1)]));
    scene.remark("a row out of range is flagged");
    scene.send(data(21, 4, 0, with(ADD), &[(4, 1), (0, 1), (u32::MAX, 1)]));
    scene.remark("every operator is applied to the value before the addition");
    for (op, para) in (0..=10).zip([0, 5, 5, i32::MAX, 9, 4, 2, 0xff, 0x100, 0, -1]) {
        let map = MapRepr { op, para, ..with(ADD | GET) };
        scene.send(data(21, 10 + u32::from(op), 0, map, &[(2, 3), (2, -3), (2, 1 << 28)]));
    }
    let far = MapRepr { op: OpType::ShiftL as u8, para: 32, ..with(GET) };
    scene.send(data(21, 30, 0, far, &[(3, 1)]));
    scene.remark(
        "CntFwd: below the threshold: dropped, and the repeat held; at the threshold: to the server, to all, or back",
    );
    for (seq, to) in [(40, ForwardTarget::Server), (41, ForwardTarget::Server), (42, ForwardTarget::Server)] {
        let map = MapRepr { to: to as u8, threshold: 3, index: 1, ..with(ADD | GET | COUNT) };
        scene.send(data(21, seq, 0, map, &[(3, 100)]));
        scene.send(data(21, seq, 0, map, &[(3, 100)]));
    }
    for (seq, to) in
        [(43, ForwardTarget::All), (44, ForwardTarget::All), (45, ForwardTarget::Src), (46, ForwardTarget::Src)]
    {
        let map = MapRepr { to: to as u8, threshold: 2, index: (seq - 43) / 2 + 2, ..with(ADD | COUNT) };
        scene.send(data(21, seq, 0, map, &[(3, 1)]));
    }
    scene.remark("a counter out of range: the addition is applied, and the frame dropped");
    scene.send(data(21, 47, 0, MapRepr { threshold: 2, index: 4, ..with(ADD | COUNT) }, &[(3, 1)]));
    scene.remark("without a threshold every frame is forwarded");
    scene.send(data(21, 48, 0, MapRepr { to: ForwardTarget::Server as u8, ..with(ADD) }, &[(3, 1)]));
    scene.send(data(21, 49, 0, MapRepr { to: ForwardTarget::All as u8, ..with(ADD | GET) }, &[(3, 1)]));
    scene.remark("full frames, and frames with too many pairs");
    scene.send(data(21, 50, 0, with(ADD | GET), &[(0, 1); 32]));
    scene.send(data(21, 51, 0, with(ADD), &[(0, 1); 33]));
    scene.remark("the element ignores the server's logical addresses");
    scene.send(data(21, 52, 0, with(ADD | MapFlags::LOGICAL), &[(77, 1)]));
    scene.remark("a number several windows old is stale");
    scene.send(data(21, 2 + 512, 0, with(ADD), &[(0, 1)]));
    scene.send(data(21, 2, 0, with(ADD), &[(1, i32::MAX), (1, i32::MIN)]));
    scene.send(data(21, 2 + 256, 0, with(ADD), &[(0, 1)]));
    scene.end()
}

pub fn generations() -> Case {
    let mut scene = CaseRecorder::new("generations");
    scene.remark("generation 1 is added in the second bank");
    scene.send(data(21, 1, 0, with(ADD), &[(0, 5), (1, 6)]));
    scene.send(data(22, 1, 0, with(ADD), &[(0, i32::MAX), (1, 6)]));
    scene.send(data(22, 2, 0, with(ADD), &[(0, 1), (1, 6)]));
    scene.remark("closed, with a new version of the mapping; closed again: no change");
    scene.send(word(FrameKind::MapClose, 1, 7));
    scene.send(word(FrameKind::MapClose, 1, 8));
    scene.remark("a frame of the old mapping is refused, unless it was applied before");
    scene.send(data(21, 2, 0, with(ADD), &[(0, 50)]));
    scene.send(data(22, 2, 0, with(ADD), &[(0, 1), (1, 6)]));
    scene.remark("generation 2 is added in the first bank; a refused frame may use its number again");
    scene.send(data(21, 2, 7, with(ADD | GET), &[(0, 50)]));
    scene.remark("the server reads the closed bank and the slots' records, repeatedly");
    scene.send(read(0, 32));
    scene.send(read(0, 0));
    scene.send(places(21, 4, 0, ASKED));
    scene.send(places(22, 6, 0, ASKED));
    scene.send(places(22, 6, 192, ASKED));
    scene.remark("invalid queries: another endpoint's slot, an unaligned place, a place beyond the end, too few lanes");
    scene.send(places(22, 4, 0, ASKED));
    scene.send(places(21, 7, 0, ASKED));
    scene.send(places(22, 6, 1, ASKED));
    scene.send(places(22, 6, 256, ASKED));
    scene.send(places(22, 6, 0, ASKED - 1));
    scene.state();
    scene.remark("cleared row by row; no clear of an open generation, or of one cleared long ago");
    scene.send(word(FrameKind::MapWipe, 1, 0));
    scene.send(word(FrameKind::MapWipe, 2, 0));
    scene.send(word(FrameKind::MapWipe, 0, 0));
    scene.send(word(FrameKind::MapWipe, 1, 4));
    scene.send(read(0, 32));
    scene.remark("a read names the open generation, whose values it has; so does its repeat after the close");
    scene.send(data(22, 3, 7, with(GET), &[(0, 0)]));
    scene.send(data(22, 3, 7, with(GET), &[(0, 0)]));
    scene.send(word(FrameKind::MapClose, 2, 7));
    scene.send(data(22, 3, 7, with(GET), &[(0, 0)]));
    scene.remark("the next generation: generations 1 and 3 share a bank");
    scene.send(word(FrameKind::MapClose, 2, 7));
    scene.send(data(21, 3, 7, with(ADD | GET), &[(0, 1)]));
    scene.send(word(FrameKind::MapWipe, 1, 0));
    scene.send(read(0, 32));
    scene.send(word(FrameKind::MapWipe, 2, 0));
    scene.remark("an acknowledgement carries the generation in which a frame was applied, and the committed ones");
    scene.send(data(21, 1, 7, with(ADD), &[(0, 5), (1, 6)]));
    scene.send(data(21, 2, 7, with(ADD), &[(0, 50)]));
    scene.end()
}
