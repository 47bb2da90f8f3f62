//! Tests of the program at interfaces, with packets made by kernels: three hosts connected to an element's machine.
//!
//! Needs root, and the program ip; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure. `SECONDS_EACH=n` runs
//! longer.

mod calls;
mod hosts;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::frames::{self, GAID, SERVER, WORKERS};
use crate::common::{ELEMENT, SLOW_PORT, address, loaded};
use hosts::{Attached, Host, Hosts};
use pathcall_wire::{Flags, FrameKind, KEYED_LANES, MAX_FRAME, MapFlags, MapFrame};
use pathcall_xdp::{Packet, RunResult, SLOW_MULTICAST};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Default duration of a test with load, seconds.
const SECONDS_EACH: u64 = 2;
/// Frames in flight per sender.
const WINDOW: u32 = 64;
/// Time after which a sender repeats missing frames.
const REPEAT_AFTER: Duration = Duration::from_millis(50);
/// Least number of acknowledged frames per sender, however long it takes.
const FRAMES_MIN: u32 = 1000;
/// Most repeats: several minutes.
const REPEATS: u32 = 3600;
/// Least number of resets, and of answers meanwhile.
const RESETS: u32 = 150;
/// Longest time for these resets.
const WAIT_MAX: Duration = Duration::from_secs(180);
/// Time between two resets, and time after which a sender takes its frame for lost in one.
const PAUSE: Duration = Duration::from_millis(5);

/// Hosts with the program attached; `None`, with a printed message, if it is not permitted.
fn attached(inlined: bool) -> Option<(Hosts, Attached)> {
    // The program is loaded first, because only root may create namespaces.
    loaded(frames::kernel())?;
    let hosts = Hosts::up();
    let attached = hosts.attached(inlined).unwrap_or_else(|error| panic!("{error}"));
    Some((hosts, attached))
}

fn receive(socket: &UdpSocket) -> MapFrame<Vec<u8>> {
    map_from(socket, ELEMENT)
}

fn map_from(socket: &UdpSocket, sender: SocketAddrV4) -> MapFrame<Vec<u8>> {
    MapFrame::new_checked(receive_from(socket, sender)).expect("a frame")
}

fn receive_from(socket: &UdpSocket, sender: SocketAddrV4) -> Vec<u8> {
    let mut buffer = [0; MAX_FRAME];
    let (len, from) = socket.recv_from(&mut buffer).expect("a frame comes");
    assert_eq!(from, sender.into());
    buffer[..len].to_vec()
}

#[test]
fn concurrent_senders_at_interfaces_add_exactly() {
    let Some((hosts, attached)) = attached(false) else { return };
    let kernel = &attached.element;
    let seconds = std::env::var("SECONDS_EACH").map_or(SECONDS_EACH, |n| n.parse().expect("a number"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let processors = sched_getaffinity(None).expect("known");
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| processors.is_set(*processor)).collect();
    let [first, second] = thread::scope(|scope| {
        let threads = [Host::A, Host::B].map(|host| {
            let processor = processors[host as usize % processors.len()];
            let socket = hosts.socket(host);
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor);
                sched_setaffinity(None, &only).expect("an available processor");
                socket.set_read_timeout(Some(REPEAT_AFTER)).expect("supported");
                hammer(&socket, host as usize, until)
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let lanes = kernel.read_rows(GAID, 1, 1).expect("read");
    let expected: Vec<i32> = (0..KEYED_LANES as u32)
        .map(|lane| {
            (0..2).flat_map(|worker| (1..=[first.0, second.0][worker]).map(move |seq| value(worker, seq, lane))).sum()
        })
        .collect();
    // Generation 1 is in the second bank.
    assert_eq!(lanes[KEYED_LANES..], expected);
    let (counters, element) = (kernel.applications().expect("read")[0].2, kernel.counters().expect("read"));
    assert_eq!(counters.applied, u64::from(first.0 + second.0));
    assert_eq!((element.drop_checksum, element.slow), (0, 0), "each answer left by its interface");
    assert_eq!(hosts.checksum_errors(Host::A) + hosts.checksum_errors(Host::B), 0);
    println!("{} and {} frames of {KEYED_LANES} pairs, {} repeats", first.0, second.0, first.1 + second.1);
    assert!(first.0.min(second.0) >= FRAMES_MIN);
}

/// Value that a sender adds to a register, small enough not to overflow.
fn value(worker: usize, seq: u32, lane: u32) -> i32 {
    ((seq * 7 + lane * 3 + worker as u32) % 21).cast_signed() - 10
}

/// Adds until the deadline and the least number, a window at a time; returns the acknowledged and the repeated frames.
fn hammer(socket: &UdpSocket, worker: usize, until: Instant) -> (u32, u32) {
    let (mut seq, mut repeats, mut buffer) = (0, 0, [0; MAX_FRAME]);
    while Instant::now() < until || seq < FRAMES_MIN {
        let first = seq + 1;
        seq += WINDOW;
        let mut missing: Vec<u32> = (first..=seq).collect();
        for again in 0.. {
            assert!(again < REPEATS, "{} frames without acknowledgement", missing.len());
            repeats += if again > 0 { missing.len() as u32 } else { 0 };
            for seq in &missing {
                let pairs: Vec<_> = (0..KEYED_LANES as u32).map(|lane| (1, value(worker, *seq, lane))).collect();
                let frame = frames::pairs(worker, *seq, &pairs);
                socket.send_to(&frame, ELEMENT).expect("it leaves");
            }
            while !missing.is_empty() {
                let len = match socket.recv(&mut buffer) {
                    Ok(len) => len,
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                    Err(error) => panic!("{error}"),
                };
                let answer = MapFrame::new_checked(&buffer[..len]).expect("a frame");
                assert_eq!((answer.kind(), answer.map().has(MapFlags::OVERFLOW)), (FrameKind::MapAck, false));
                missing.retain(|seq| *seq != answer.base().seq());
            }
            if missing.is_empty() {
                break;
            }
        }
    }
    (seq, repeats)
}

#[test]
fn frames_are_processed_between_interfaces() {
    let Some((hosts, attached)) = attached(false) else { return };
    let kernel = &attached.element;
    let [a, b, server] = [Host::A, Host::B, Host::Server].map(|host| hosts.socket(host));
    assert!(hosts.reaches(Host::Server, *ELEMENT.ip()), "the element's machine resolves the server");
    a.send_to(&frames::part(0, 1, 3, 1, &[5, -7, 9]), ELEMENT).expect("it leaves");
    a.send_to(&frames::part(0, 1, 3, 1, &[5, -7, 9]), ELEMENT).expect("it leaves");
    assert_eq!(receive(&a).kind(), FrameKind::MapHeld, "the other part is missing");
    b.send_to(&frames::part(1, 1, 3, 1, &[1, 1, 1]), ELEMENT).expect("it leaves");
    let sums = receive(&server);
    assert_eq!([0, 1, 2].map(|lane| sums.linear(lane)), [Some(6), Some(-6), Some(10)]);

    let mut result = frames::result(3, 1);
    let mut view = MapFrame::new_checked(&mut result[..]).expect("our own");
    let flags = view.base().flags() & !Flags::MCAST;
    view.base_mut().set_flags(flags);
    server.send_to(&result, ELEMENT).expect("it leaves");
    assert_eq!(receive(&a).kind(), FrameKind::MapResult);
    assert_eq!(kernel.read_row(3).expect("read").round, 2, "the result cleared the row");
    assert!(kernel.read_rows(GAID, 3, 1).expect("read").iter().all(|lane| *lane == 0));
    assert_eq!(kernel.counters().expect("read").slow, 0);
    assert_eq!(hosts.checksum_errors(Host::A) + hosts.checksum_errors(Host::Server), 0);
}

#[test]
fn inline_frames_between_hosts_are_processed() {
    let Some((hosts, mut attached)) = attached(true) else { return };
    let kernel = &mut attached.element;
    hosts.within(Host::Element, || kernel.set_group(GAID, &WORKERS).expect("two interfaces"));
    let [a, b, server] = [Host::A, Host::B, Host::Server].map(|host| hosts.socket(host));
    let [at_a, at_server] = [WORKERS[0], SERVER].map(address);
    // Connected sockets accept packets of the peer only, like a stateful firewall.
    a.connect(at_server).expect("there is a way");
    b.connect(at_server).expect("there is a way");
    assert!(hosts.reaches(Host::Server, *ELEMENT.ip()), "the element's machine resolves the server");
    let parts = [frames::part(0, 1, 3, 1, &[5, -7, 9]), frames::part(1, 1, 3, 1, &[1, 1, 1])];
    a.send(&parts[0]).expect("it leaves");
    a.send(&parts[0]).expect("it leaves");
    assert_eq!(map_from(&a, at_server).kind(), FrameKind::MapHeld, "the other part is missing");
    b.send(&parts[1]).expect("it leaves");
    let sums = map_from(&server, address(WORKERS[1]));
    assert_eq!([0, 1, 2].map(|lane| sums.linear(lane)), [Some(6), Some(-6), Some(10)]);

    server.send_to(&frames::result(3, 1), at_a).expect("it leaves");
    for (socket, member) in [(&a, WORKERS[0]), (&b, WORKERS[1])] {
        let result = map_from(socket, at_server);
        assert_eq!(
            (result.kind(), result.base().dst()),
            (FrameKind::MapResult, member),
            "result with each member's address"
        );
    }
    assert_eq!(kernel.read_row(3).expect("read").round, 2, "the result cleared the row");
    let element = kernel.counters().expect("read");
    assert_eq!((element.passing, element.slow), (element.counters.frames_in, 0));
    let errors = [Host::A, Host::B, Host::Server].map(|host| hosts.checksum_errors(host));
    assert_eq!(errors, [0; 3]);
}

#[test]
fn inline_sums_are_multicast_with_server_address() {
    let Some((hosts, mut attached)) = attached(true) else { return };
    let kernel = &mut attached.element;
    hosts.within(Host::Element, || kernel.set_group(GAID, &WORKERS).expect("two interfaces"));
    let [a, b] = [Host::A, Host::B].map(|host| hosts.socket(host));
    assert!(hosts.reaches(Host::Server, *ELEMENT.ip()), "the element's machine resolves the server");
    a.send_to(&frames::shadow_part(0, 1, 3, 1, &[5, -7, 9]), address(SERVER)).expect("it leaves");
    b.send_to(&frames::shadow_part(1, 1, 3, 1, &[1, 1, 1]), address(SERVER)).expect("it leaves");
    // A host drops packets with its own source address.
    for (socket, member) in [(&b, WORKERS[1]), (&a, WORKERS[0])] {
        let result = map_from(socket, address(SERVER));
        assert_eq!((result.kind(), result.base().dst()), (FrameKind::MapResult, member));
        assert_eq!([0, 1, 2].map(|lane| result.linear(lane)), [Some(6), Some(-6), Some(10)]);
    }
    assert_eq!(kernel.counters().expect("read").slow, 0);
    assert_eq!([Host::A, Host::B].map(|host| hosts.checksum_errors(host)), [0; 2]);
}

#[test]
fn result_received_by_user_space_is_copied_there() {
    let Some((hosts, mut attached)) = attached(false) else { return };
    let kernel = &mut attached.element;
    let mut packet = Vec::new();
    Packet { from: address(SERVER), to: ELEMENT, congested: false }.emit(&frames::result(3, 1), &mut packet);
    let ran = hosts.within(Host::Element, || {
        kernel.set_group(GAID, &WORKERS).expect("two interfaces");
        kernel.run(&packet, &mut Vec::new()).expect("the kernel runs it")
    });
    let RunResult::Slow(Packet { from, to, .. }, frame) = ran else { panic!("{ran:?}") };
    assert_eq!((from.port(), to), (SLOW_MULTICAST, SocketAddrV4::new(*ELEMENT.ip(), SLOW_PORT)));
    assert_eq!(frame, frames::result(3, 1));
    assert_eq!(kernel.read_row(3).expect("read").round, 2, "the result cleared the row");
}

#[test]
fn reset_of_rows_is_atomic_for_frames() {
    let Some((hosts, mut attached)) = attached(false) else { return };
    let kernel = &mut attached.element;
    let socket = hosts.socket(Host::A);
    socket.set_read_timeout(Some(PAUSE)).expect("supported");
    let (over, answers) = (AtomicBool::new(false), AtomicU32::new(0));
    let resets = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut buffer = [0; MAX_FRAME];
            for seq in 1.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let pairs: Vec<_> = (0..KEYED_LANES as u32).map(|lane| (2 * lane, 1)).collect();
                socket.send_to(&frames::with_payload(0, seq, &pairs, 0), ELEMENT).expect("it leaves");
                let Ok(len) = socket.recv(&mut buffer) else { continue };
                let answer = MapFrame::new_checked(&buffer[..len]).expect("a frame");
                let sums: Vec<_> = (0..KEYED_LANES).map(|lane| answer.keyed(lane).expect("a pair").1).collect();
                assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (started, mut resets) = (Instant::now(), 0);
        while (resets < RESETS || answers.load(Ordering::Relaxed) < RESETS) && !sender.is_finished() {
            if started.elapsed() > WAIT_MAX {
                over.store(true, Ordering::Relaxed);
                panic!("{} answers beside {resets} resets", answers.load(Ordering::Relaxed));
            }
            kernel.reset(GAID).expect("it is there");
            thread::sleep(PAUSE);
            resets += 1;
        }
        over.store(true, Ordering::Relaxed);
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        resets
    });
    println!("{resets} resets, {} answers", answers.into_inner());
}

#[test]
fn other_traffic_is_not_affected() {
    others_pass(false);
}

#[test]
fn other_traffic_is_not_affected_by_inline_element() {
    others_pass(true);
}

fn others_pass(inlined: bool) {
    let Some((hosts, attached)) = attached(inlined) else { return };
    let kernel = &attached.element;
    hosts.with_ipv6();
    hosts.forget_neighbours();
    let (a, b, server) = (Ipv4Addr::from(WORKERS[0]), Ipv4Addr::from(WORKERS[1]), Ipv4Addr::from(SERVER));
    assert!(hosts.reaches(Host::A, *ELEMENT.ip()), "to the element's machine");
    assert!(hosts.reaches(Host::A, b), "by the element's machine");
    assert!(hosts.reaches(Host::Server, a), "neighbours are found");
    assert!(hosts.reaches(Host::A, Hosts::ipv6(Host::B)), "by IPv6 as well");
    assert!(hosts.reaches(Host::Server, Hosts::ipv6(Host::A)), "from the other side");

    let other = SocketAddrV4::new(*ELEMENT.ip(), 9);
    let (to, from) = (hosts.bind(Host::Element, other), hosts.socket(Host::A));
    from.send_to(b"hello", other).expect("it leaves");
    let mut buffer = [0; 16];
    let (len, sender) = to.recv_from(&mut buffer).expect("it comes");
    assert_eq!((&buffer[..len], sender), (&b"hello"[..], address(WORKERS[0]).into()), "another port");
    // Larger than the MTU, so sent in fragments.
    from.send_to(&[7; 4000], other).expect("it leaves");
    let mut buffer = [0; 4096];
    assert_eq!(to.recv(&mut buffer).expect("it comes"), 4000);

    // The port of frames, at another host behind the element's machine: not for the element.
    let frames_port = SocketAddrV4::new(server, ELEMENT.port());
    let to = hosts.bind(Host::Server, frames_port);
    from.send_to(&frames::pairs(0, 1, &[(1, 1)]), frames_port).expect("it leaves");
    assert_eq!(to.recv_from(&mut buffer).expect("it comes").1, address(WORKERS[0]).into());

    let listener = hosts.within(Host::Server, || TcpListener::bind(SocketAddrV4::new(server, 0)).expect("a port"));
    let addr = listener.local_addr().expect("bound");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(&vec![3; 1 << 20]).expect("it leaves");
        });
        let mut all = Vec::new();
        let mut stream = hosts.within(Host::B, || TcpStream::connect(addr).expect("there is a way"));
        stream.read_to_end(&mut all).expect("all of it");
        assert_eq!(all, vec![3; 1 << 20], "TCP");
    });
    let element = kernel.counters().expect("read");
    assert_eq!((element.counters.frames_in, element.drop_checksum), (0, 0));
}
