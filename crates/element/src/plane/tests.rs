//! Tests of the data thread's work, batch by batch, without the thread.

use std::net::Ipv4Addr;

use pathcall_program::{Endpoint, InstalledApplication, Size};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, FrameKind, LINEAR_LANES, MapFlags, MapRepr, TokenKey};

use super::*;
use crate::switch::{ENDPOINTS_MAX, READ_LANES_MAX};

const GAID: u32 = 1;
const SERVER: u32 = 1;
const WORKERS: [u32; 2] = [2, 3];
const ROWS: u32 = 100;
const SIZE: Size = Size { rows: ROWS as usize, lanes: ROWS as usize * LINEAR_LANES, slots: 8 };

fn link() -> Link {
    Link::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// Data plane with one application whose endpoints are all at `hosts`.
fn plane(hosts: SocketAddr, congestion_bytes: usize) -> Plane {
    let plane = Plane::new(link(), None, &Config { size: SIZE, congestion_bytes, ..Config::default() });
    installed(plane.unwrap(), hosts, None)
}

/// Installs the application, or replaces the key that signs its frames.
fn installed(mut plane: Plane, hosts: SocketAddr, key: Option<TokenKey>) -> Plane {
    let width = LINEAR_LANES as u32;
    let application =
        InstalledApplication { gaid: GAID, epoch: 1, owner: SERVER, row_base: 0, rows: ROWS, lane_base: 0, width };
    let switch = plane.switch();
    switch.install(application, key).unwrap();
    for (endpoint, slots) in [(SERVER, 0), (WORKERS[0], 1), (WORKERS[1], 1)] {
        let entry = Endpoint { endpoint, incarnation: endpoint, gaid: GAID, slot_base: endpoint, slots };
        switch.set_endpoints(&[(entry, hosts)]).unwrap();
    }
    switch.set_group(GAID, &WORKERS).unwrap();
    plane
}

/// Frame of one host in a row's round: a worker's contribution, or the server's result to all.
fn frame(src: u32, row: u32, round: u32) -> Vec<u8> {
    let (kind, base_flags, flags) = match src {
        SERVER => (FrameKind::MapResult, Flags::FROM_SERVER | Flags::MCAST, MapFlags::CLEAR),
        _ => (FrameKind::MapData, 0, MapFlags::ADD | MapFlags::COUNT),
    };
    let base = BaseRepr {
        flags: base_flags,
        gaid: GAID,
        epoch: 1,
        src,
        src_incarnation: src,
        dst: SERVER,
        dst_incarnation: SERVER,
        slot: src,
        seq: (round - 1) * 256 + row + 1,
        round,
        ..BaseRepr::new(kind)
    };
    let map = MapRepr {
        flags: flags | MapFlags::LINEAR | MapFlags::ROUND,
        lanes: LINEAR_LANES as u16,
        index: row,
        threshold: 2,
        worker: src as u16 - 1,
        ..MapRepr::default()
    };
    let mut bytes = vec![0; frame_len(map.flags, LINEAR_LANES, 0)];
    emit(&base, &map, &mut bytes);
    bytes
}

#[tokio::test]
async fn grown_batches_forward_without_allocation() {
    let hosts = link();
    let plane = plane(hosts.local_addr(), usize::MAX);
    forward_without_allocation(plane, hosts).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn shared_memory_forwards_without_allocation() {
    let mut hosts = link();
    let mut plane = plane(hosts.local_addr(), usize::MAX);
    plane.link.share_memory(SharingRole::Offer).unwrap();
    hosts.share_memory(SharingRole::Request).unwrap();
    hosts.request_memory(pathcall_wire::Instant(0), Some(plane.link.local_addr()));
    while hosts.memory_peers().count() == 0 {
        tokio::select! {
            ready = plane.link.readable() => ready.unwrap(),
            ready = hosts.readable() => ready.unwrap(),
        }
        assert!(!plane.forward(PollMode::IfReady));
        assert_eq!(hosts.recv(|_, _, _| ()).unwrap(), 0);
    }
    let calls = plane.link.stats().calls_in + plane.link.stats().calls_out;
    let plane = forward_without_allocation(plane, hosts).await;
    assert_eq!(plane.link.stats().calls_in + plane.link.stats().calls_out, calls, "system calls");
}

async fn forward_without_allocation(mut plane: Plane, mut hosts: Link) -> Plane {
    for round in 1..=4 {
        for src in [WORKERS[0], WORKERS[1], SERVER] {
            for row in 0..ROWS {
                hosts.queue(plane.link.local_addr(), &frame(src, row, round));
            }
            hosts.flush();
        }
        let before = plane.link.stats();
        while plane.link.stats().frames_in < u64::from(round * 3 * ROWS) {
            plane.link.readable().await.unwrap();
            let allocated = allocation_counter::measure(|| {
                plane.forward(PollMode::IfReady);
            });
            assert!(round == 1 || allocated.count_total == 0, "{} allocations", allocated.count_total);
        }
        // Half of the contributions wait, and the other half leave as sums. A result goes to both workers.
        assert_eq!(plane.link.stats().frames_out - before.frames_out, u64::from(3 * ROWS));
        while hosts.stats().frames_in < plane.link.stats().frames_out {
            hosts.readable().await.unwrap();
            hosts.recv(|_, _, _| ()).unwrap();
        }
    }
    plane
}

#[tokio::test]
async fn long_queue_marks_frames_as_congested() {
    let mut hosts = link();
    let length = frame(SERVER, 0, 1).len();
    let mut plane = plane(hosts.local_addr(), 5 * length);
    for (queued, marked) in [(4, false), (5, true), (20, true), (1, false)] {
        for row in 0..queued {
            let mut frame = frame(WORKERS[0], row, 1);
            let mut base = Base::new_checked(&mut frame[..]).unwrap();
            base.set_flags(base.flags() | Flags::CROSS);
            hosts.queue(plane.link.local_addr(), &frame);
        }
        hosts.flush();
        plane.link.readable().await.unwrap();
        plane.forward(PollMode::IfReady);
        let mut marks = Vec::new();
        while marks.len() < queued as usize {
            hosts.readable().await.unwrap();
            hosts.recv(|_, _, frame| marks.push(Base::new_checked(frame).unwrap().has(Flags::ECN))).unwrap();
        }
        assert_eq!(marks, vec![marked; queued as usize]);
    }
}

#[tokio::test]
async fn endpoint_table_is_bounded() {
    let hosts = link();
    let mut plane = plane(hosts.local_addr(), usize::MAX);
    let addr = hosts.local_addr();
    let entry = |endpoint| (Endpoint { endpoint, incarnation: 1, gaid: GAID, slot_base: 0, slots: 0 }, addr);
    let switch = plane.switch();
    // The table already has three endpoints.
    let others: Vec<_> = (1_000..).take(ENDPOINTS_MAX - 3).map(entry).collect();
    switch.set_endpoints(&others).expect("free memory");
    assert_eq!(switch.set_endpoints(&[entry(999)]), Err(CommandRefused::Endpoints { endpoint: 999 }));
    switch.set_endpoints(&[entry(1_000)]).expect("already present");
    switch.remove_endpoints(&[1_000]).expect("already present");
    switch.set_endpoints(&[entry(999)]).expect("one was removed");
}

#[tokio::test]
async fn removed_endpoint_receives_nothing() {
    let mut hosts = link();
    let mut plane = plane(hosts.local_addr(), usize::MAX);
    let everybody = [SERVER, WORKERS[0], WORKERS[1]];
    assert_eq!(plane.switch().endpoints_at(&[hosts.local_addr()]), everybody);
    plane.switch().remove_endpoints(&[SERVER]).expect("already present");
    assert_eq!(plane.switch().endpoints_at(&[hosts.local_addr()]), WORKERS);
    for flags in [0, Flags::CROSS] {
        let mut frame = frame(WORKERS[0], 0, 1);
        let mut base = Base::new_checked(&mut frame[..]).unwrap();
        base.set_flags(base.flags() | flags);
        hosts.queue(plane.link.local_addr(), &frame);
        hosts.flush();
        plane.link.readable().await.unwrap();
        plane.forward(PollMode::IfReady);
        assert_eq!(plane.link.stats().frames_out, 0);
    }
    plane.switch().remove(GAID).expect("already present");
    assert_eq!(
        plane.switch().endpoints_at(&[hosts.local_addr()]),
        [0; 0],
        "removal of an application removes its endpoints"
    );
}

#[tokio::test]
async fn reply_with_registers_is_bounded() {
    const WIDE: u32 = LINEAR_LANES as u32;
    let rows = READ_LANES_MAX as u32 / WIDE;
    let lanes = 2 * READ_LANES_MAX as usize;
    let mut switch =
        Switch::new(Size { rows: 2 * rows as usize, lanes, slots: 1 }, usize::MAX, link().local_addr(), None);
    let area =
        InstalledApplication { gaid: 1, epoch: 1, owner: 1, row_base: 0, rows: 2 * rows, lane_base: 0, width: WIDE };
    switch.install(area, None).expect("free memory");
    let reply = switch.read_registers(1, 0, rows).expect("the limit of a reply");
    assert_eq!((reply.width, reply.values.len() as u64), (WIDE, READ_LANES_MAX));
    let lanes = READ_LANES_MAX + u64::from(WIDE);
    assert_eq!(switch.read_registers(1, 0, rows + 1), Err(CommandRefused::ReadSize { lanes }));
}

#[tokio::test]
async fn commands_end_with_the_thread() {
    let config = Config {
        data: (Ipv4Addr::LOCALHOST, 0).into(),
        size: Size { rows: 1, lanes: 1, slots: 1 },
        ..Config::default()
    };
    let thread = PlaneThread::start(&config).await.unwrap();
    let handle = thread.handle();
    assert_eq!(handle.call(|plane| plane.counters().unwrap().applications.len()).await, Ok(0));
    thread.stop().await;
    assert_eq!(handle.call(|_| ()).await, Err(Stopped));
}

/// Tests with the XDP program, which need root.
#[cfg(feature = "xdp")]
mod kernel;
