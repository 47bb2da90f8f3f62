//! Frames of messages between nodes: the input is a sequence of frames, each after its length, and time passes
//! between them. Numbers that nobody can guess are put in right, so that the fuzzer gets past the doors. No panic,
//! memory within its bounds, answers bounded by what was asked.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::messages::{Config, Event, Messages};
use pathcall_wire::Instant;
use pathcall_wire::messages::{GreetingRepr, MessageFrame, MessageKind};

/// Bytes that may wait for their other parts.
const MEMORY: usize = 1 << 20;

/// Takes one input.
pub fn run(data: &[u8]) {
    let from = SocketAddr::from(([10, 0, 0, 1], 7000));
    let mut node = Messages::new(Config { memory: MEMORY, session_parts: 50, ..Config::new(1, [1, 2]) });
    let (mut now, mut rest, mut sent) = (Instant(1), data, Vec::new());
    let (mut key, mut session) = (0u64, 0u64);
    let (mut frames, mut arrived) = (0, 0);
    node.send(now, from, b"head", &Bytes::from_static(&[7; 3000]));
    let hello = GreetingRepr::new(MessageKind::Hello, 2, 9, 0).bytes();
    node.handle(now, from, &hello, false, &mut |_, frame| sent.push(frame.to_vec()));
    while let Some(([op, len], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min((*len).into()));
        rest = after;
        node.poll(now, &mut |_, frame| sent.push(frame.to_vec()));
        for frame in sent.drain(..) {
            match MessageFrame::parse(&frame).expect("what is sent is a frame") {
                MessageFrame::Welcome(welcome) => key = welcome.key,
                MessageFrame::Hello(hello) => session = hello.session,
                _ => {}
            }
        }
        let mut frame = bytes.to_vec();
        // A part is as long as it says.
        if op & 4 != 0 {
            frame.resize(frame.len().max(28) + usize::from(op >> 4) * 90, 1);
        }
        let (numbers, at) =
            if op & 1 == 0 { (key, 4..12) } else { (session, if op & 2 == 0 { 4..12 } else { 16..24 }) };
        if let Some(place) = frame.get_mut(at) {
            place.copy_from_slice(&numbers.to_be_bytes());
        }
        frames += 1;
        node.handle(now, from, &frame, op & 8 != 0, &mut |_, frame| sent.push(frame.to_vec()));
        assert!(sent.len() <= 1, "one frame, one answer");
        while let Some(event) = node.next_event() {
            if let Event::Arrived { .. } = event {
                arrived += 1;
            }
        }
        assert!(arrived <= frames && node.sessions() <= 258);
        now = now + Duration::from_millis((op >> 5).into());
        if op & 0xe0 == 0xe0 {
            node.send(now, from, b"more", &Bytes::new());
        }
    }
}
