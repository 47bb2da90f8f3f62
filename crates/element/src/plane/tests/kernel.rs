//! Tests of frames that user space receives beside the XDP program, which is attached to no interface here: on the data
//! port and on the slow port.

use pathcall_program::InstalledPool;
use pathcall_wire::{CloneFlags, CloneRepr, MAX_FRAME, TokenKey, clone};
use pathcall_xdp::{SLOW_CLONE, SLOW_MULTICAST};

use super::*;

const POOL: u32 = 9;
/// Endpoints of the pool's servers, by SID.
const SERVERS: [u32; 2] = [41, 42];

/// Data plane with the XDP program. Prints a note and returns `None` without the rights.
fn plane(hosts: SocketAddr) -> Option<Plane> {
    let link = link();
    let kernel = crate::kernel::start_for_test(link.local_addr(), SIZE)?;
    let plane = Plane::new(link, Some(kernel), &Config { size: SIZE, ..Config::default() });
    Some(installed(plane.unwrap(), hosts, None))
}

/// Number of frames that leave after one frame has arrived.
async fn leave(plane: &mut Plane, from: &mut Link, to: SocketAddr, frame: &[u8]) -> u64 {
    let before = plane.link.stats().frames_out;
    from.queue(to, frame);
    from.flush();
    tokio::select! {
        ready = plane.link.readable() => ready.unwrap(),
        ready = readable(plane.slow.as_mut()) => ready.unwrap(),
    }
    assert!(plane.forward(PollMode::IfReady));
    plane.link.stats().frames_out - before
}

/// Request as the program leaves it when it is to go to both servers.
fn cloned() -> Vec<u8> {
    let base = BaseRepr { gaid: POOL, epoch: 1, dst: SERVERS[0], seq: 1, ..BaseRepr::new(FrameKind::CloneRequest) };
    let (flags, clo) = (CloneFlags::CLONE, clone::ORIGINAL);
    let head = CloneRepr { flags, clo, sid: 1, parts: 1, req_id: 1, ..CloneRepr::default() };
    let mut bytes = [0; MAX_FRAME];
    let len = clone::emit(&base, &head, b"a request", &mut bytes);
    bytes[..len].to_vec()
}

#[tokio::test]
async fn forged_slow_path_frame_is_not_signed() {
    let hosts = link();
    let Some(mut plane) = plane(hosts.local_addr()) else { return };
    let up = plane.slow.as_ref().unwrap().local_addr();
    let (forged, mut room) = (TokenKey::new([1, 2]), [0; MAX_FRAME]);
    // Applications with a key are in user space.
    for (key, copies) in [(None, 2), (Some(TokenKey::new([7, 8])), 0)] {
        plane = installed(plane, hosts.local_addr(), key);
        let switch = plane.switch();
        switch.install_pool(InstalledPool { gaid: POOL, version: 1, servers: SERVERS.to_vec() }, key).unwrap();
        for endpoint in SERVERS {
            let entry = Endpoint { endpoint, incarnation: 1, gaid: POOL, slot_base: 0, slots: 0 };
            switch.set_endpoints(&[(entry, hosts.local_addr())]).unwrap();
        }
        for (port, frame) in [(SLOW_MULTICAST, frame(SERVER, 0, 1)), (SLOW_CLONE, cloned())] {
            let frame = if key.is_some() { forged.insert_token(&frame, &mut room).unwrap() } else { &frame };
            let mut from = Link::bind((Ipv4Addr::LOCALHOST, port).into()).unwrap();
            assert_eq!(leave(&mut plane, &mut from, up, frame).await, copies, "by port {port}, {key:?}");
        }
    }
    assert_eq!(plane.counters().unwrap().element["drop_not_admitted"], 2);
}

#[tokio::test]
async fn overlong_kernel_frame_is_dropped() {
    let mut hosts = link();
    let Some(mut plane) = plane(hosts.local_addr()) else { return };
    let to = plane.link.local_addr();
    let flags = MapFlags::ADD | MapFlags::COUNT | MapFlags::LINEAR | MapFlags::ROUND;
    let empty = frame_len(flags, 1, 0);
    // Each frame is the only part of a row's round, and leaves as its sum.
    let lengths = [(MAX_FRAME, 1), (MAX_FRAME + 1, 0), (3600, 0), (60_000, 0), (empty, 1)];
    for (index, (length, left)) in (0..).zip(lengths) {
        let payload_len = (length - empty) as u16;
        let map = MapRepr { flags, lanes: 1, index, threshold: 1, payload_len, ..MapRepr::default() };
        let mut frame = frame(WORKERS[0], index, 1);
        let base = Base::new_checked(&frame[..]).unwrap().repr();
        frame.resize(length, 0);
        emit(&base, &map, &mut frame);
        assert_eq!(leave(&mut plane, &mut hosts, to, &frame).await, left, "{length} bytes");
    }
    let counters = plane.counters().unwrap();
    assert_eq!((counters.element["drop_malformed"], counters.applications[&GAID].counters["applied"]), (3, 2));
}
