//! Tests of calls to a pool of servers between hosts: cloned in the kernel if each server has an interface.

use std::net::{SocketAddrV4, UdpSocket};

use pathcall_program::{Endpoint, InstalledPool, PoolCounters};
use pathcall_wire::clone::{CLONE, ORIGINAL, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, FrameKind, MAX_FRAME};
use pathcall_xdp::{Error, KernelSwitch, Packet, RunResult, SLOW_CLONE};

use super::hosts::{Host, Hosts};
use super::{attached, receive_from};
use crate::common::frames::{SERVER, WORKERS};
use crate::common::{ELEMENT, SLOW_PORT, address};

const GAID: u32 = 9;
const CALLER: u32 = 1;
/// Endpoints of the servers, by SID.
const SERVERS: [u32; 2] = [2, 3];
const INCARNATION: u32 = 4;

/// Installs a pool with its caller at one host and its servers at these addresses.
fn install(kernel: &mut KernelSwitch, hosts: &Hosts, servers: [SocketAddrV4; 2]) -> Result<(), Error> {
    hosts.within(Host::Element, || {
        kernel.install_pool(&InstalledPool { gaid: GAID, version: 1, servers: SERVERS.to_vec() })?;
        let at = [(CALLER, address(WORKERS[0])), (SERVERS[0], servers[0]), (SERVERS[1], servers[1])];
        at.into_iter().try_for_each(|(endpoint, addr)| {
            let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid: GAID, slot_base: 0, slots: 0 };
            kernel.set_endpoint(&entry, addr)
        })
    })
}

fn frame(kind: FrameKind, src: u32, dst: u32, head: CloneRepr) -> Vec<u8> {
    let flags = if src == CALLER { 0 } else { Flags::FROM_SERVER };
    let (gaid, src_incarnation) = (GAID, INCARNATION);
    let base = BaseRepr { flags, gaid, epoch: 1, src, src_incarnation, dst, seq: 1, ..BaseRepr::new(kind) };
    let mut bytes = [0; MAX_FRAME];
    let len = emit(&base, &head, b"a request", &mut bytes);
    bytes[..len].to_vec()
}

fn request() -> Vec<u8> {
    let head = CloneRepr { flags: CloneFlags::CLONE, parts: 1, ..CloneRepr::default() };
    frame(FrameKind::CloneRequest, CALLER, 0, head)
}

/// Receives the next frame of a call from the element.
fn receive(socket: &UdpSocket) -> CloneFrame<Vec<u8>> {
    CloneFrame::new_checked(receive_from(socket, ELEMENT)).expect("a frame of a call")
}

fn counters(kernel: &KernelSwitch) -> PoolCounters {
    kernel.pools().expect("read")[0].2
}

#[test]
fn call_is_cloned_at_interfaces_and_slower_answer_filtered() {
    let Some((hosts, mut attached)) = attached(false) else { return };
    let kernel = &mut attached.element;
    assert!(hosts.reaches(Host::Server, *ELEMENT.ip()), "the element's machine resolves the server");
    install(kernel, &hosts, [address(WORKERS[1]), address(SERVER)]).expect("two interfaces");
    let [caller, first, second] = [Host::A, Host::B, Host::Server].map(|host| hosts.socket(host));
    caller.send_to(&request(), ELEMENT).expect("it leaves");
    let (original, clone) = (receive(&first), receive(&second));
    for (frame, clo, server) in [(&original, ORIGINAL, SERVERS[0]), (&clone, CLONE, SERVERS[1])] {
        assert_eq!((frame.head().clo(), frame.base().dst()), (clo, server));
        assert_eq!((frame.base().dst_incarnation(), frame.payload()), (INCARNATION, &b"a request"[..]));
    }
    assert_eq!((original.head().req_id(), clone.head().req_id()), (1, 1));

    // The clone's server answers first; then the other server answers, and reports its state.
    let answer = |kind, frame: &CloneFrame<Vec<u8>>, sid: u16, state| {
        let head = CloneRepr { sid, state, ..frame.head().repr() };
        self::frame(kind, SERVERS[usize::from(sid)], CALLER, head)
    };
    second.send_to(&answer(FrameKind::CloneReply, &clone, 1, 2), ELEMENT).expect("it leaves");
    assert_eq!(receive(&caller).head().sid(), 1);
    first.send_to(&answer(FrameKind::CloneReply, &original, 0, 1), ELEMENT).expect("it leaves");
    first.send_to(&answer(FrameKind::CloneWorking, &original, 0, 1), ELEMENT).expect("it leaves");
    assert_eq!(receive(&caller).kind(), FrameKind::CloneWorking, "the slower answer is filtered");
    let loads = kernel.loads(GAID).expect("read");
    let states = loads.map(|reports| reports.iter().map(|report| report.state).collect::<Vec<_>>());
    assert_eq!(states, [[1, 2], [1, 2]]);

    // Both servers are busy now.
    caller.send_to(&request(), ELEMENT).expect("it leaves");
    let unpaired = receive(&first).head().repr();
    assert_eq!((unpaired.clo, unpaired.req_id), (0, 2));
    let c = counters(kernel);
    assert_eq!((c.requests, c.clones, c.replies, c.filtered), (2, 1, 3, 1));
    let element = kernel.counters().expect("read");
    assert_eq!((element.counters.frames_in, element.counters.frames_out), (5, 5));
    assert_eq!((element.slow, element.drop_checksum), (0, 0), "all frames left by the interfaces");
    let errors = [Host::A, Host::B, Host::Server].map(|host| hosts.checksum_errors(host));
    assert_eq!(errors, [0; 3]);
}

#[test]
fn servers_behind_one_interface_get_clones_from_user_space() {
    let Some((hosts, mut attached)) = attached(false) else { return };
    let kernel = &mut attached.element;
    let beside = SocketAddrV4::new(*address(WORKERS[1]).ip(), address(WORKERS[1]).port() + 1);
    install(kernel, &hosts, [address(WORKERS[1]), beside]).expect("one interface");
    let [caller, first] = [Host::A, Host::B].map(|host| hosts.socket(host));
    let up = hosts.bind(Host::Element, SocketAddrV4::new(*ELEMENT.ip(), SLOW_PORT));
    caller.send_to(&request(), ELEMENT).expect("it leaves");
    let mut buffer = [0; MAX_FRAME];
    let (len, from) = up.recv_from(&mut buffer).expect("a frame for user space");
    assert_eq!(from.port(), SLOW_CLONE);
    let frame = CloneFrame::new_checked(&buffer[..len]).expect("a frame of a call");
    assert_eq!((frame.base().dst(), frame.head().clo(), frame.head().sid()), (SERVERS[0], ORIGINAL, 1));
    // A request that is not cloned does not need user space.
    let direct = CloneRepr { flags: CloneFlags::DIRECT, parts: 1, ..CloneRepr::default() };
    caller.send_to(&self::frame(FrameKind::CloneRequest, CALLER, SERVERS[0], direct), ELEMENT).expect("it leaves");
    assert_eq!(receive(&first).head().clo(), 0);
    assert_eq!((counters(kernel).clones, kernel.counters().expect("read").slow), (1, 1));
}

#[test]
fn call_received_by_user_space_is_cloned_there() {
    let Some((hosts, mut attached)) = attached(false) else { return };
    let kernel = &mut attached.element;
    assert!(hosts.reaches(Host::Server, *ELEMENT.ip()), "the element's machine resolves the server");
    install(kernel, &hosts, [address(WORKERS[1]), address(SERVER)]).expect("two interfaces");
    let mut packet = Vec::new();
    Packet { from: address(WORKERS[0]), to: ELEMENT, congested: false }.emit(&request(), &mut packet);
    let ran = hosts.within(Host::Element, || kernel.run(&packet, &mut Vec::new()).expect("the kernel runs it"));
    let RunResult::Slow(Packet { from, to, .. }, frame) = ran else { panic!("{ran:?}") };
    assert_eq!((from.port(), to), (SLOW_CLONE, SocketAddrV4::new(*ELEMENT.ip(), SLOW_PORT)));
    let frame = CloneFrame::new_checked(frame).expect("a frame of a call");
    assert_eq!((frame.base().dst(), frame.head().clo(), frame.head().sid()), (SERVERS[0], ORIGINAL, 1));
    assert_eq!((frame.base().dst_incarnation(), frame.payload()), (INCARNATION, &b"a request"[..]));
}
