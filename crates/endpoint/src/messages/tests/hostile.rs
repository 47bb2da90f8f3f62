//! Tests of parts that no honest sender sends.

use pathcall_wire::messages::{PART, Part, PartRepr};
use pathcall_wire::{MAX_FRAME, W_MAX};

use super::*;

/// Frame with the first part of a 50-byte message in a session of node 1 at node 2.
fn first_part(net: &mut Net) -> Vec<u8> {
    net.send(1, 2, &message(1, 50));
    net.poll();
    while net.nodes[&2].sessions() == 0 || net.in_flight.iter().any(|(from, ..)| *from == 2) {
        net.deliver(0);
    }
    net.poll();
    let (from, to, part) = net.in_flight.pop().expect("a part");
    assert_eq!((from, to, net.in_flight.len()), (1, 2, 0));
    part
}

#[test]
fn part_from_another_address_is_ignored() {
    let mut net = Net::new([1, 2, 3], |_| {});
    let part = first_part(&mut net);
    net.in_flight.push((3, 2, part.clone()));
    net.deliver(0);
    assert!(net.events(2).is_empty(), "a part from another address is ignored");
    net.in_flight = vec![(1, 2, part)];
    net.deliver(0);
    assert_eq!(net.arrived(2), [Bytes::from(message(1, 50))]);
}

#[test]
fn part_beyond_window_takes_no_memory() {
    let mut net = Net::new([1, 2], |_| {});
    let first = first_part(&mut net);
    let Ok(MessageFrame::Part(PartRepr { key, .. }, _)) = MessageFrame::parse(&first) else { panic!("{first:?}") };
    let mut memory = |seq, offset: usize| {
        let part = PartRepr::new(key, seq, 7, offset as u32, 100 << 20);
        let mut frame = [0; MAX_FRAME];
        part.emit(&mut frame);
        net.in_flight = vec![(1, 2, frame[..Part::LEN + part.bytes(PART)].to_vec())];
        net.deliver(0);
        (net.nodes[&2].receiver.bytes(), net.nodes[&2].stats().refused)
    };
    let window = W_MAX as usize * PART;
    // A sender has at most one window in flight.
    assert_eq!(memory(10, window + PART), (0, 1));
    assert_eq!(memory(11, window - PART), (window, 1));
}

#[test]
fn first_parts_of_one_host_leave_half_the_memory() {
    const MEMORY: usize = 10_000_000;
    let mut node = Messages::new(Config { memory: MEMORY, ..Config::new(1, [1, 1]) });
    // Each part is as far ahead as a window allows, of another message, from many ports.
    let first_parts = |node: &mut Messages, host: [u8; 4], ports: u16| {
        for port in 1..=ports {
            let from = SocketAddr::from((host, port));
            let hello = GreetingRepr::new(MessageKind::Hello, 7, u64::from(port), 0);
            let mut frame = [0; Greeting::LEN];
            hello.emit(&mut frame);
            let mut key = 0;
            node.handle(ms(0), from, &frame, false, &mut |_, welcome| {
                let Ok(MessageFrame::Welcome(welcome)) = MessageFrame::parse(welcome) else { panic!("{welcome:?}") };
                key = welcome.key;
            });
            for message in 0..200 {
                let part = PartRepr::new(key, message, message, (W_MAX as usize * PART - PART) as u32, 100 << 20);
                let mut frame = [0; MAX_FRAME];
                part.emit(&mut frame);
                node.handle(ms(0), from, &frame[..Part::LEN + part.bytes(PART)], false, &mut |_, _| {});
            }
        }
        node.receiver.bytes()
    };
    let window = W_MAX as usize * PART;
    let half = |of: usize, bytes: usize| bytes.abs_diff(of / 2) <= 2 * window;
    let one = first_parts(&mut node, [10, 0, 0, 1], 20);
    assert!(half(MEMORY, one), "{one}: half of the memory, and the one message that may exceed it");
    let two = first_parts(&mut node, [10, 0, 0, 2], 20) - one;
    assert!(half(MEMORY - one, two), "{two}: half of the memory that the first host left");
}
