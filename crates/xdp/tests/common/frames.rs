//! One application of two workers and a server, and the frames that they send.

use pathcall_conformance::frame::{bare, keyed, linear};
use pathcall_program::{Application, Endpoint, Size};
use pathcall_wire::map::LOCK_PARKED;
use pathcall_wire::{BaseRepr, Flags, KEYED_WIDTH, Kind, MapFlags, MapFrame, MapRepr, Target};
use pathcall_xdp::{Config, Error, Kernel};

use super::{address, config};

pub const GAID: u32 = 7;
pub const SERVER: u32 = 0x0a00_000c;
pub const WORKERS: [u32; 2] = [0x0a00_000a, 0x0a00_000b];
/// Flow slots of each worker.
const SLOTS: u32 = 2;
const EPOCH: u32 = 3;
const INCARNATION: u32 = 5;
pub const ROWS: u32 = 64;
/// Lanes of a row: both of a keyed row's banks.
pub const WIDTH: usize = KEYED_WIDTH;
pub const SIZE: Size = Size { rows: ROWS as usize, lanes: ROWS as usize * WIDTH, slots: 4 };
pub const APPLICATION: Application =
    Application { gaid: GAID, epoch: EPOCH, owner: SERVER, row_base: 0, rows: ROWS, lane_base: 0, width: WIDTH as u32 };

/// The server and the workers.
pub fn endpoints() -> [Endpoint; 3] {
    let endpoint =
        |endpoint, slot_base, slots| Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base, slots };
    [endpoint(SERVER, 0, 0), endpoint(WORKERS[0], 0, SLOTS), endpoint(WORKERS[1], SLOTS, SLOTS)]
}

/// The program with the application in it.
pub fn kernel() -> Result<Kernel, Error> {
    Kernel::load(&config(SIZE)).and_then(admitted)
}

/// The same, working on frames in passing, too.
pub fn inlined() -> Result<Kernel, Error> {
    Kernel::load(&Config { inlined: true, ..config(SIZE) }).and_then(admitted)
}

/// Admits the application and its endpoints.
pub fn admitted(mut kernel: Kernel) -> Result<Kernel, Error> {
    kernel.own(*super::ELEMENT.ip())?;
    kernel.install(&APPLICATION)?;
    for endpoint in endpoints() {
        kernel.set_endpoint(&endpoint, address(endpoint.endpoint))?;
    }
    Ok(kernel)
}

fn base(kind: Kind, worker: usize, seq: u32, round: u32) -> BaseRepr {
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

fn from_server(kind: Kind, round: u32) -> BaseRepr {
    let (src, dst) = (SERVER, WORKERS[0]);
    BaseRepr { src, dst, flags: Flags::FROM_SERVER, slot: 0, ..base(kind, 0, 0, round) }
}

/// A worker's part of a round of two.
pub fn part(worker: usize, seq: u32, row: u32, round: u32, values: &[i32]) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND | MapFlags::COUNT;
    let map = MapRepr { flags, index: row, threshold: 2, worker: worker as u16, tag: 9, ..MapRepr::default() };
    linear(&base(Kind::MapData, worker, seq, round), &map, values)
}

/// The same, of a row that clears itself: clear policy *shadow*.
pub fn shadow_part(worker: usize, seq: u32, row: u32, round: u32, values: &[i32]) -> Vec<u8> {
    let mut frame = part(worker, seq, row, round, values);
    let mut view = MapFrame::new_checked(&mut frame[..]).expect("our own");
    let flags = view.map().flags() | MapFlags::CLEAR;
    view.map_mut().set_flags(flags);
    frame
}

/// The server's result of a round, which clears it; as a multicast.
pub fn result(row: u32, round: u32) -> Vec<u8> {
    let base = from_server(Kind::MapResult, round);
    let base = BaseRepr { flags: base.flags | Flags::MCAST, ..base };
    let flags = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::CLEAR;
    bare(&base, &MapRepr { flags, index: row, ..MapRepr::default() })
}

/// Pairs to be added; the answer is theirs.
pub fn pairs(worker: usize, seq: u32, pairs: &[(u32, i32)]) -> Vec<u8> {
    keyed(&base(Kind::MapData, worker, seq, 0), &MapRepr { flags: MapFlags::ADD, ..MapRepr::default() }, pairs)
}

/// Pairs to be added and got, and behind them a payload, which an element leaves alone.
pub fn with_payload(worker: usize, seq: u32, pairs: &[(u32, i32)], len: usize) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::GET;
    let map = MapRepr { flags, payload_len: len as u16, ..MapRepr::default() };
    let mut frame = keyed(&base(Kind::MapData, worker, seq, 0), &map, pairs);
    let at = frame.len() - len;
    frame[at..].iter_mut().zip(1..).for_each(|(byte, i)| *byte = i);
    frame
}

/// Pairs to be added, counted at `row`; the one that reaches the threshold goes to the server with the sums.
pub fn counted_pairs(worker: usize, seq: u32, row: u32, threshold: u32, pairs: &[(u32, i32)]) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::GET | MapFlags::COUNT;
    let map = MapRepr { flags, index: row, threshold, to: Target::Server as u8, ..MapRepr::default() };
    keyed(&base(Kind::MapData, worker, seq, 0), &map, pairs)
}

/// Takes the lock at `row`.
pub fn take(worker: usize, seq: u32, row: u32, acquiring: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::COUNT, index: row, threshold: 1, tag: acquiring, ..MapRepr::default() };
    bare(&base(Kind::MapData, worker, seq, 0), &map)
}

/// Gives it back.
pub fn give_back(worker: usize, seq: u32, row: u32, acquiring: u32) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::CLEAR, index: row, tag: acquiring, ..MapRepr::default() };
    bare(&base(Kind::MapData, worker, seq, 0), &map)
}

/// The server frees a lock that was given back while another wanted it.
pub fn free(worker: usize, row: u32, acquiring: u32) -> Vec<u8> {
    let map = MapRepr { index: row, threshold: WORKERS[worker], tag: acquiring | LOCK_PARKED, ..MapRepr::default() };
    bare(&from_server(Kind::MapFree, 0), &map)
}

/// The server closes a generation, and leaves the mapping as it is.
pub fn close(generation: u32) -> Vec<u8> {
    bare(&from_server(Kind::MapClose, generation), &MapRepr::default())
}

/// The server reads lanes of a row.
pub fn read(row: u32, first_lane: usize, lanes: usize) -> Vec<u8> {
    let flags = MapFlags::LINEAR | MapFlags::GET;
    let map = MapRepr { flags, index: row, first_lane: first_lane as u16, ..MapRepr::default() };
    linear(&from_server(Kind::MapRead, 0), &map, &vec![0; lanes])
}

/// The server has a generation's values of a row.
pub fn wipe(generation: u32, row: u32) -> Vec<u8> {
    bare(&from_server(Kind::MapWipe, generation), &MapRepr { index: row, ..MapRepr::default() })
}
