//! What comes past the program in the kernel, which is at no interface here: by the port of frames, or by that which it
//! hands up to.

use pathcall_program::Pool;
use pathcall_wire::{CloneFlags, CloneRepr, MAX_FRAME, TokenKey, clone};
use pathcall_xdp::{SLOW_CLONE, SLOW_MULTICAST};

use super::*;

const POOL: u32 = 9;
/// Endpoints of its servers, by SID.
const SERVERS: [u32; 2] = [41, 42];

/// Nothing, said aloud, where it is not permitted.
fn plane(hosts: SocketAddr) -> Option<Plane> {
    let link = link();
    let kernel = crate::kernel::tested(link.local_addr(), SIZE)?;
    Some(installed(Plane::new(link, Some(kernel), &Config { size: SIZE, ..Config::default() }), hosts, None))
}

/// How many frames leave when this one has come.
async fn leave(plane: &mut Plane, from: &mut Link, to: SocketAddr, frame: &[u8]) -> u64 {
    let before = plane.link.stats().frames_out;
    from.queue(to, frame);
    from.flush();
    tokio::select! {
        ready = plane.link.readable() => ready.unwrap(),
        ready = readable(plane.slow.as_mut()) => ready.unwrap(),
    }
    assert!(plane.forward(Looking::IfReady));
    plane.link.stats().frames_out - before
}

/// What the program makes of a request that goes to both servers.
fn cloned() -> Vec<u8> {
    let base = BaseRepr { gaid: POOL, epoch: 1, dst: SERVERS[0], seq: 1, ..BaseRepr::new(Kind::CloneRequest) };
    let (flags, clo) = (CloneFlags::CLONE, clone::ORIGINAL);
    let head = CloneRepr { flags, clo, sid: 1, parts: 1, req_id: 1, ..CloneRepr::default() };
    let mut bytes = [0; MAX_FRAME];
    let len = clone::emit(&base, &head, b"a question", &mut bytes);
    bytes[..len].to_vec()
}

#[tokio::test]
async fn nobody_has_signed_what_seems_to_come_up_from_the_program() {
    let hosts = link();
    let Some(mut plane) = plane(hosts.local_addr()) else { return };
    let up = plane.slow.as_ref().unwrap().local_addr();
    let (forged, mut room) = (TokenKey::new([1, 2]), [0; MAX_FRAME]);
    // Those with a key are in user space.
    for (key, copies) in [(None, 2), (Some(TokenKey::new([7, 8])), 0)] {
        plane = installed(plane, hosts.local_addr(), key);
        let switch = plane.switch();
        switch.install_pool(Pool { gaid: POOL, version: 1, servers: SERVERS.to_vec() }, key).unwrap();
        for endpoint in SERVERS {
            let entry = Endpoint { endpoint, incarnation: 1, gaid: POOL, slot_base: 0, slots: 0 };
            switch.set_endpoints(&[(entry, hosts.local_addr())]).unwrap();
        }
        for (said, frame) in [(SLOW_MULTICAST, frame(SERVER, 0, 1)), (SLOW_CLONE, cloned())] {
            let frame = if key.is_some() { forged.seal(&frame, &mut room).unwrap() } else { &frame };
            let mut from = Link::bind((Ipv4Addr::LOCALHOST, said).into()).unwrap();
            assert_eq!(leave(&mut plane, &mut from, up, frame).await, copies, "by port {said}, {key:?}");
        }
    }
    assert_eq!(plane.counters().unwrap().element["drop_not_admitted"], 2);
}

#[tokio::test]
async fn what_is_too_long_for_the_program_is_worked_on_nowhere() {
    let mut hosts = link();
    let Some(mut plane) = plane(hosts.local_addr()) else { return };
    let to = plane.link.local_addr();
    let flags = MapFlags::ADD | MapFlags::COUNT | MapFlags::LINEAR | MapFlags::ROUND;
    let empty = frame_len(flags, 1, 0);
    // Each is the only part of a row's round, and leaves as its sum.
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
