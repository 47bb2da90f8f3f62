//! Fuzz target of the message transport between nodes. The input is a sequence of frames, each after an operation byte
//! and a length byte; time passes between frames. Random numbers of the session, and the token if the node has a key,
//! are corrected, so that frames pass admission. Checks: no panic, memory and answers are bounded, and a frame without
//! a valid token has no effect.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::messages::{Config, Event, Messages};
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::messages::{GreetingRepr, MessageFrame, MessageKind, token};
use pathcall_wire::{Instant, TokenKey};

/// Limit of bytes of incomplete messages.
const MEMORY: usize = 1 << 20;

const KEY: TokenKey = TokenKey::new([3, 4]);

/// Tests one input.
pub fn run(data: &[u8]) {
    let (signed, data) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let signing = (signed & 1 == 1).then_some(&KEY);
    let seal = |mut frame: Vec<u8>| {
        let len = frame.len();
        frame.resize(len + TOKEN_LEN, 0);
        token::append_token(signing, &mut frame, len).to_vec()
    };
    let from = SocketAddr::from(([10, 0, 0, 1], 7000));
    let mut node =
        Messages::new(Config { memory: MEMORY, session_parts: 50, key: signing.copied(), ..Config::new(1, [1, 2]) });
    let (mut now, mut rest, mut sent) = (Instant(1), data, Vec::new());
    let (mut key, mut session) = (0u64, 0u64);
    let (mut frames, mut arrived) = (0, 0);
    node.send(now, from, b"head", &Bytes::from_static(&[7; 3000]));
    let hello = GreetingRepr::new(MessageKind::Hello, 2, 9, 0).bytes();
    node.handle(now, from, &seal(hello.to_vec()), false, &mut |_, frame| sent.push(frame.to_vec()));
    while let Some(([op, len], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min((*len).into()));
        rest = after;
        node.poll(now, &mut |_, frame| sent.push(frame.to_vec()));
        for frame in sent.drain(..) {
            assert!(token::admits(signing, &frame), "sent frame has a valid token");
            match MessageFrame::parse(&frame).expect("sent frame is valid") {
                MessageFrame::Welcome(welcome) => key = welcome.key,
                MessageFrame::Hello(hello) => session = hello.session,
                _ => {}
            }
        }
        let mut frame = bytes.to_vec();
        // Extends the frame to the length of a part.
        if op & 4 != 0 {
            frame.resize(frame.len().max(28) + usize::from(op >> 4) * 90, 1);
        }
        let (numbers, at) =
            if op & 1 == 0 { (key, 4..12) } else { (session, if op & 2 == 0 { 4..12 } else { 16..24 }) };
        if let Some(place) = frame.get_mut(at) {
            place.copy_from_slice(&numbers.to_be_bytes());
        }
        let before = (node.stats(), node.sessions(), node.deadline());
        if signing.is_some() && frame.len() >= 4 {
            node.handle(now, from, &frame, true, &mut |_, _| panic!("frame without a token was answered"));
            let stats = node.stats();
            let refused = stats.unauthenticated == before.0.unauthenticated + 1;
            let unchanged = pathcall_endpoint::messages::Stats { unauthenticated: before.0.unauthenticated, ..stats };
            assert!(
                refused && (unchanged, node.sessions(), node.deadline()) == before,
                "unauthenticated frame has an effect"
            );
            frame = seal(frame);
        }
        frames += 1;
        node.handle(now, from, &frame, op & 8 != 0, &mut |_, frame| sent.push(frame.to_vec()));
        assert!(sent.len() <= 1, "at most one answer per frame");
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
