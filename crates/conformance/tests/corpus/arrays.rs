//! Corpus cases of arrays: rounds, and results for a group.

use pathcall_conformance::ProgramStep;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::{bare, linear};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, MapFlags, MapRepr, OpType};

use super::case_recorder::{CaseRecorder, caller, server};

const PART: u16 = MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND | MapFlags::COUNT;
const RESULT: u16 = MapFlags::LINEAR | MapFlags::GET | MapFlags::CLEAR | MapFlags::ROUND;

/// Worker's part of a round of row 0; the worker's bit is its index among the three.
fn part(worker: u32, seq: u32, round: u32, values: &[i32]) -> Vec<u8> {
    part_of(worker, seq, round, MapRepr::default(), values)
}

/// Worker's part with other fields; zero fields get the usual values.
fn part_of(worker: u32, seq: u32, round: u32, other: MapRepr, values: &[i32]) -> Vec<u8> {
    let base = BaseRepr { round, ..caller(worker, FrameKind::MapData, seq) };
    let or = |value: u32, usual: u32| if value == 0 { usual } else { value };
    let map = MapRepr {
        flags: PART ^ other.flags,
        to: ForwardTarget::All as u8,
        threshold: or(other.threshold, 3),
        tag: or(other.tag, 0x5eed),
        worker: (worker - 11) as u16,
        ..other
    };
    linear(&base, &map, values)
}

fn result(round: u32, flags: u16, other: MapRepr, values: &[i32]) -> Vec<u8> {
    let base = server(FrameKind::MapResult, 11);
    let base = BaseRepr { round, flags: base.flags | flags, ..base };
    linear(&base, &MapRepr { flags: RESULT ^ other.flags, ..other }, values)
}

/// Server's read of a row.
fn read(row: u32, first_lane: u16, lanes: usize) -> Vec<u8> {
    let flags = MapFlags::LINEAR | MapFlags::GET;
    linear(
        &server(FrameKind::MapRead, 11),
        &MapRepr { flags, first_lane, index: row, ..MapRepr::default() },
        &vec![0; lanes],
    )
}

pub fn rounds() -> Case {
    let mut scene = CaseRecorder::new("rounds");
    scene.remark("three parts complete a round; the third carries the sums to the server");
    scene.send(part(11, 1, 1, &[1, 2, 3, i32::MAX]));
    scene.send(part(12, 1, 1, &[10, 20, 30, 1]));
    scene.remark("a repeat below the threshold is answered *held*");
    scene.send(part(11, 1, 1, &[1, 2, 3, i32::MAX]));
    scene.send(part(13, 1, 1, &[100, 200, -300, -5]));
    scene.state();
    scene.remark("a repeat at the threshold carries the sums again; a lane at the bound of its range stays there");
    scene.send(part(12, 1, 1, &[10, 20, 30, 1]));
    scene.remark("the same worker under another number adds nothing");
    scene.send(part(12, 2, 1, &[7, 7, 7, 7]));
    scene.remark("the result clears the row once, and goes to all");
    scene.send(result(1, Flags::MCAST, MapRepr::default(), &[111, 222, -267, i32::MAX]));
    scene.send(result(1, Flags::MCAST, MapRepr::default(), &[111, 222, -267, i32::MAX]));
    scene.remark("a late repeat goes to the server without its lanes");
    scene.send(part(11, 1, 1, &[1, 2, 3, i32::MAX]));
    scene.remark("the next round; a part of a later round goes to the server");
    scene.send(part(11, 2, 2, &[-1, -2, i32::MIN, i32::MIN]));
    scene.send(part(12, 3, 3, &[1]));
    scene.remark("a result of an older round clears nothing");
    scene.send(result(1, 0, MapRepr::default(), &[0]));
    scene.remark("a part of another operation goes to the server, and its repeat as well");
    scene.send(part_of(13, 2, 2, MapRepr { tag: 0xbad, ..MapRepr::default() }, &[5]));
    scene.send(part_of(13, 2, 2, MapRepr::default(), &[5]));
    scene.remark("a congestion mark stays with the round until the row is cleared");
    scene.send_congested(part(12, 4, 2, &[-1, -1, -1, -1]));
    scene.send(part(11, 2, 2, &[-1, -2, i32::MIN, i32::MIN]));
    scene.send(result(2, 0, MapRepr { flags: MapFlags::CLEAR, ..MapRepr::default() }, &[]));
    scene.send(result(2, 0, MapRepr::default(), &[]));
    scene.remark("every operator, each on its own row, with a threshold of one");
    for (seq, op, para) in (10..)
        .zip(0..=10)
        .map(|(seq, op)| (seq, op, [0, 5, 5, i32::MAX, 9, 4, 33, 0xff, 0x100, 0, -1][usize::from(op)]))
    {
        let other = MapRepr { op, para, index: 1, threshold: 1, tag: u32::from(op) + 1, ..MapRepr::default() };
        scene.send(part_of(11, seq, seq - 9, other, &[3, -3, 1 << 30, i32::MIN]));
        scene.send(result(seq - 9, 0, MapRepr { index: 1, ..MapRepr::default() }, &[]));
    }
    scene.remark("64-bit lanes and parts without a round go to the server");
    scene.send(part_of(11, 30, 1, MapRepr { flags: MapFlags::WIDE, index: 2, ..MapRepr::default() }, &[1, -1]));
    scene.send(part_of(11, 31, 1, MapRepr { flags: MapFlags::ROUND, index: 2, ..MapRepr::default() }, &[1]));
    scene.remark("more lanes than the row, a row out of range, an invalid worker bit, no threshold");
    scene.send(part_of(11, 32, 1, MapRepr { index: 2, ..MapRepr::default() }, &[1; 9]));
    scene.send(part_of(11, 33, 1, MapRepr { index: 4, ..MapRepr::default() }, &[1]));
    scene.send(linear(
        &BaseRepr { round: 1, ..caller(11, FrameKind::MapData, 34) },
        &MapRepr { flags: PART, worker: 64, threshold: 3, index: 2, ..MapRepr::default() },
        &[1],
    ));
    scene.send(linear(
        &BaseRepr { round: 1, ..caller(11, FrameKind::MapData, 35) },
        &MapRepr { flags: PART, index: 2, ..MapRepr::default() },
        &[1],
    ));
    scene.remark("a result of a much later round closes all earlier rounds");
    scene.send(part_of(11, 36, 1, MapRepr { index: 3, op: OpType::Nop as u8, ..MapRepr::default() }, &[8; 8]));
    scene.send(read(3, 0, 8));
    scene.send(result(u32::MAX, 0, MapRepr { index: 3, ..MapRepr::default() }, &[]));
    scene.send(read(3, 2, 6));
    scene.remark("all bitmaps: reads and sums");
    let unmarked = MapRepr { lanes: 3, ..MapRepr::default() };
    let flags = MapFlags::LINEAR | MapFlags::GET;
    scene.send(bare(&server(FrameKind::MapRead, 11), &MapRepr { flags, index: 3, ..unmarked }));
    let base = BaseRepr { round: 1, ..caller(11, FrameKind::MapData, 37) };
    scene.send(bare(&base, &MapRepr { flags: PART, threshold: 1, index: 2, ..unmarked }));
    scene.remark("reads beyond the end of a row, and in the other lane format");
    scene.send(read(3, 3, 6));
    scene.send(bare(&server(FrameKind::MapRead, 11), &MapRepr { flags: MapFlags::GET, ..MapRepr::default() }));
    scene.remark("a number one window old is stale");
    scene.send(part(11, 37 + 256, 3, &[1]));
    scene.send(part(11, 37, 3, &[1]));
    scene.end()
}

/// Clear policy *shadow*: the next round clears a row.
pub fn shadow() -> Case {
    let mut scene = CaseRecorder::new("shadow");
    let clears = MapRepr { flags: MapFlags::CLEAR, ..MapRepr::default() };
    let part = |worker, seq, round, values: &[i32]| part_of(worker, seq, round, clears, values);
    scene.remark("the part that reaches the threshold becomes the result, and goes to all members");
    scene.send(part(11, 1, 1, &[1, 2, i32::MAX]));
    scene.send(part(12, 1, 1, &[10, 20, 1]));
    scene.remark("a repeat below the threshold is answered *held*");
    scene.send(part(11, 1, 1, &[1, 2, i32::MAX]));
    scene.send(part(13, 1, 1, &[100, 200, -5]));
    scene.state();
    scene.remark("a repeat is answered individually, while the row holds the round");
    scene.send(part(12, 1, 1, &[10, 20, 1]));
    scene.remark("the first part of the next round clears the row");
    scene.send(part(12, 2, 2, &[-1, -2, -3, -4]));
    scene.state();
    scene.remark("late frames of the previous round are answered by the server");
    scene.send(part(11, 1, 1, &[1, 2, i32::MAX]));
    scene.send(part(11, 2, 2, &[-1, -2, -3, -4]));
    scene.remark("rounds may be skipped; the congestion mark ends with the round");
    scene.send_congested(part(13, 2, 4, &[7]));
    scene.send(part(13, 2, 4, &[7]));
    scene.send(part(11, 3, 5, &[8]));
    scene.remark("fields left from an earlier agreement");
    let other = MapRepr { tag: 0xbad, ..clears };
    scene.send(part_of(12, 3, 6, other, &[1, 1]));
    scene.send(part(11, 4, 6, &[1, 1]));
    scene.remark("a repeat opens no round, as its original outcome is unknown");
    scene.send(part(11, 4, 7, &[1, 1]));
    scene.remark("a frame without the shadow policy opens no round either, and goes to the server");
    scene.send(part_of(11, 5, 7, MapRepr::default(), &[1, 1]));
    scene.remark("the server's result of a round summed in software closes the round");
    scene.send(result(6, Flags::MCAST, MapRepr::default(), &[2, 2]));
    scene.send(part(12, 4, 7, &[3, 4]));
    scene.send(read(0, 0, 4));
    scene.remark("threshold 1");
    scene.send(part_of(13, 3, 8, MapRepr { threshold: 1, ..clears }, &[i32::MIN, -1]));
    scene.send(part_of(13, 3, 8, MapRepr { threshold: 1, ..clears }, &[i32::MIN, -1]));
    scene.remark("64-bit lanes go to the server");
    scene.send(part_of(13, 4, 9, MapRepr { flags: MapFlags::CLEAR | MapFlags::WIDE, ..clears }, &[1, -1]));
    scene.end()
}

pub fn multicast() -> Case {
    let mut scene = CaseRecorder::new("multicast");
    let soft = || {
        let base = server(FrameKind::MapSoft, 11);
        let map = MapRepr { flags: MapFlags::BARE | MapFlags::ROUND, index: 1, tag: 9, ..MapRepr::default() };
        bare(&BaseRepr { round: 4, flags: base.flags | Flags::MCAST, ..base }, &map)
    };
    scene.remark("to every member, addressed by id and incarnation");
    scene.send(soft());
    scene.remark("marked after congestion");
    scene.send_congested(soft());
    scene.remark("a smaller group, an empty group, a group that a member has left");
    scene.step(ProgramStep::SetGroup(1, vec![12]));
    scene.send(soft());
    scene.step(ProgramStep::SetGroup(1, vec![]));
    scene.send(soft());
    scene.step(ProgramStep::SetGroup(1, vec![11, 12]));
    scene.step(ProgramStep::RemoveEndpoint(11));
    scene.send(soft());
    scene.remark("endpoints of other applications cannot be members");
    scene.step(ProgramStep::SetGroup(1, vec![12, 21]));
    scene.send(soft());
    scene.remark("without the flag a frame goes to its destination, or is dropped for an unknown endpoint");
    scene.send(result(1, 0, MapRepr::default(), &[1]));
    let to_worker = BaseRepr { dst: 12, ..server(FrameKind::MapAck, 11) };
    scene.send(bare(&to_worker, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() }));
    scene.remark("a caller's frame goes to one endpoint, whatever its flags");
    let base = caller(12, FrameKind::MapFlush, 1);
    let base = BaseRepr { flags: base.flags | Flags::MCAST, ..base };
    scene.send(bare(&base, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() }));
    scene.end()
}
