//! Frames of one application with two workers and a server.

use pathcall_conformance::frame::{bare, keyed, linear};
use pathcall_program::{Endpoint, InstalledApplication, Size};
use pathcall_wire::map::LOCK_PARKED;
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, KEYED_WIDTH, MapFlags, MapFrame, MapRepr};
use pathcall_xdp::{Config, Error, KernelSwitch};

use super::{address, config};

pub const GAID: u32 = 7;
pub const SERVER: u32 = 0x0a00_000c;
pub const WORKERS: [u32; 2] = [0x0a00_000a, 0x0a00_000b];
/// Flow slots of each worker.
const SLOTS: u32 = 2;
const EPOCH: u32 = 3;
const INCARNATION: u32 = 5;
pub const ROWS: u32 = 64;
/// Lanes of a row: both banks of a keyed row.
pub const WIDTH: usize = KEYED_WIDTH;
pub const SIZE: Size = Size { rows: ROWS as usize, lanes: ROWS as usize * WIDTH, slots: 4 };
pub const APPLICATION: InstalledApplication = InstalledApplication {
    gaid: GAID,
    epoch: EPOCH,
    owner: SERVER,
    row_base: 0,
    rows: ROWS,
    lane_base: 0,
    width: WIDTH as u32,
};

/// Server and workers.
pub fn endpoints() -> [Endpoint; 3] {
    let endpoint =
        |endpoint, slot_base, slots| Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base, slots };
    [endpoint(SERVER, 0, 0), endpoint(WORKERS[0], 0, SLOTS), endpoint(WORKERS[1], SLOTS, SLOTS)]
}

/// Program with the application.
pub fn kernel() -> Result<KernelSwitch, Error> {
    KernelSwitch::load(&config(SIZE)).and_then(admitted)
}

/// Program with the application in inline mode.
pub fn inlined() -> Result<KernelSwitch, Error> {
    KernelSwitch::load(&Config { inlined: true, ..config(SIZE) }).and_then(admitted)
}

/// Installs the application and its endpoints.
pub fn admitted(mut kernel: KernelSwitch) -> Result<KernelSwitch, Error> {
    kernel.set_element_address(*super::ELEMENT.ip())?;
    kernel.install(&APPLICATION)?;
    for endpoint in endpoints() {
        kernel.set_endpoint(&endpoint, address(endpoint.endpoint))?;
    }
    Ok(kernel)
}

fn base(kind: FrameKind, worker: usize, seq: u32, round: u32) -> BaseRepr {
    BaseRepr {
        gaid: GAID,
        epoch: EPOCH,
        src: WORKERS[worker],
        src_incarnation: INCARNATION,
        dst: SERVER,
        dst_incarnation: INCARNATION,
        slot: worker as u32 * SLOTS,
        seq,
        round,
        ..BaseRepr::new(kind)
    }
}

fn from_server(kind: FrameKind, round: u32) -> BaseRepr {
    let (src, dst) = (SERVER, WORKERS[0]);
    BaseRepr { src, dst, flags: Flags::FROM_SERVER, slot: 0, ..base(kind, 0, 0, round) }
}

/// Part of a worker in a round of two.
pub fn part(worker: usize, seq: u32, row: u32, round: u32, values: &[i32]) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND | MapFlags::COUNT;
    let map = MapRepr { flags, index: row, threshold: 2, worker: worker as u16, tag: 9, ..MapRepr::default() };
    linear(&base(FrameKind::MapData, worker, seq, round), &map, values)
}

/// Part of a worker in a round whose row clears itself (clear policy *shadow*).
pub fn shadow_part(worker: usize, seq: u32, row: u32, round: u32, values: &[i32]) -> Vec<u8> {
    let mut frame = part(worker, seq, row, round, values);
    let mut view = MapFrame::new_checked(&mut frame[..]).expect("our own");
    let flags = view.map().flags() | MapFlags::CLEAR;
    view.map_mut().set_flags(flags);
    frame
}

/// Result of the server, as a multicast, which clears the round.
pub fn result(row: u32, round: u32) -> Vec<u8> {
    let base = from_server(FrameKind::MapResult, round);
    let base = BaseRepr { flags: base.flags | Flags::MCAST, ..base };
    let flags = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::CLEAR;
    bare(&base, &MapRepr { flags, index: row, ..MapRepr::default() })
}

/// Pairs to be added; the answer goes to their sender.
pub fn pairs(worker: usize, seq: u32, pairs: &[(u32, i32)]) -> Vec<u8> {
    keyed(&base(FrameKind::MapData, worker, seq, 0), &MapRepr { flags: MapFlags::ADD, ..MapRepr::default() }, pairs)
}

/// Pairs to be added and read, followed by a payload that an element does not change.
pub fn with_payload(worker: usize, seq: u32, pairs: &[(u32, i32)], len: usize) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::GET;
    let map = MapRepr { flags, payload_len: len as u16, ..MapRepr::default() };
    let mut frame = keyed(&base(FrameKind::MapData, worker, seq, 0), &map, pairs);
    let at = frame.len() - len;
    frame[at..].iter_mut().zip(1..).for_each(|(byte, i)| *byte = i);
    frame
}

/// Pairs to be added and counted at `row`; the frame that reaches the threshold goes to the server with the sums.
pub fn counted_pairs(worker: usize, seq: u32, row: u32, threshold: u32, pairs: &[(u32, i32)]) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::GET | MapFlags::COUNT;
    let map = MapRepr { flags, index: row, threshold, to: ForwardTarget::Server as u8, ..MapRepr::default() };
    keyed(&base(FrameKind::MapData, worker, seq, 0), &map, pairs)
}

/// Acquires the lock at `row`.
pub fn take(worker: usize, seq: u32, row: u32, acquiring: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::COUNT, index: row, threshold: 1, tag: acquiring, ..MapRepr::default() };
    bare(&base(FrameKind::MapData, worker, seq, 0), &map)
}

/// Releases the lock at `row`.
pub fn give_back(worker: usize, seq: u32, row: u32, acquiring: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::CLEAR, index: row, tag: acquiring, ..MapRepr::default() };
    bare(&base(FrameKind::MapData, worker, seq, 0), &map)
}

/// Frees a lock, sent by the server after a release of a lock that another caller wants.
pub fn free(worker: usize, row: u32, acquiring: u32) -> Vec<u8> {
    let map = MapRepr { index: row, threshold: WORKERS[worker], tag: acquiring | LOCK_PARKED, ..MapRepr::default() };
    bare(&from_server(FrameKind::MapFree, 0), &map)
}

/// Closes a generation without a change of the mapping, sent by the server.
pub fn close(generation: u32) -> Vec<u8> {
    bare(&from_server(FrameKind::MapClose, generation), &MapRepr::default())
}

/// Reads lanes of a row, sent by the server.
pub fn read(row: u32, first_lane: usize, lanes: usize) -> Vec<u8> {
    let flags = MapFlags::LINEAR | MapFlags::GET;
    let map = MapRepr { flags, index: row, first_lane: first_lane as u16, ..MapRepr::default() };
    linear(&from_server(FrameKind::MapRead, 0), &map, &vec![0; lanes])
}

/// Wipes a generation's values of a row after the harvest, sent by the server.
pub fn wipe(generation: u32, row: u32) -> Vec<u8> {
    bare(&from_server(FrameKind::MapWipe, generation), &MapRepr { index: row, ..MapRepr::default() })
}
