//! Callers and owners of an application with frame tokens.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Ack, Dest, FrameSink, Key, Modify, Operation, Output};
use pathcall_wire::{Base, Flags, Instant, MAX_FRAME, TokenKey};
use proptest::prelude::*;

use crate::config::{client_config, server_config};

const KEY: TokenKey = TokenKey::new([5, 6]);
const SERVER: u32 = 1;
const CALLER: u32 = 10;

#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl FrameSink for Sent {
    fn send(&mut self, _: Dest, frame: &[u8]) {
        self.0.push(frame.to_vec());
    }
}

fn client(key: Option<TokenKey>) -> MapClient {
    let config = ClientConfig {
        endpoint: CALLER,
        server: SERVER,
        server_incarnation: 6,
        rows: 0,
        era: Era::of_epoch(1),
        ..client_config()
    };
    MapClient::new(config).authenticate(key)
}

fn server(key: Option<TokenKey>) -> MapServer {
    let config = ServerConfig { endpoint: SERVER, incarnation: 6, mapping: true, ..server_config() };
    let mut server = MapServer::new(config).authenticate(key);
    let member = Member { endpoint: CALLER, incarnation: 5, element: false, slot_base: 0, flows: 1, terms: 0 };
    server.join(Instant(0), member).expect("join succeeds");
    server
}

/// Caller and its frame that adds many keys, as long as possible.
fn request(key: Option<TokenKey>) -> (MapClient, Vec<u8>) {
    let mut client = client(key);
    let pairs = (0..90).map(|i| (Key::from(format!("{i:0300}").as_str()), 1)).collect();
    client.start(
        Instant(0),
        CallId(1),
        Operation::Add { pairs, modify: Modify::default(), get: true, ack: Ack::Element },
    );
    let mut out = Sent::default();
    client.poll(Instant(0), &mut out);
    (client, out.0.swap_remove(0))
}

#[test]
fn call_completes_with_signed_frames() {
    let (mut client, mut server) = (client(Some(KEY)), server(Some(KEY)));
    let pairs: Vec<_> = (0..90).map(|i| (Key::from(format!("{i:0300}").as_str()), i)).collect();
    client.start(
        Instant(0),
        CallId(1),
        Operation::Add { pairs, modify: Modify::default(), get: true, ack: Ack::Element },
    );
    let mut event = None;
    while event.is_none() {
        let (mut there, mut back) = (Sent::default(), Sent::default());
        client.poll(Instant(1), &mut there);
        assert!(!there.0.is_empty(), "the call is not stuck");
        there.0.iter().for_each(|frame| server.handle(Instant(1), frame, &mut back));
        back.0.iter().for_each(|frame| client.handle(Instant(1), frame));
        for frame in there.0.iter().chain(&back.0) {
            assert!(KEY.has_signed(frame) && frame.len() <= MAX_FRAME, "{} bytes", frame.len());
        }
        event = client.next_event();
    }
    assert_eq!(event, Some((CallId(1), Ok(Output::Values((0..90).collect())))));
    assert_eq!((client.stats().frames_ignored, server.stats().frames_ignored), (0, 0));
}

#[test]
fn congestion_mark_is_set_after_token_check() {
    let (mut client, mut frame) = request(Some(KEY));
    let (mut server, mut out) = (server(Some(KEY)), Sent::default());
    server.handle_marked(Instant(1), &mut frame, &mut out);
    let mut answer = out.0.pop().expect("an answer");
    assert!(Base::new_checked(&answer[..]).expect("valid frame").has(Flags::ECN), "the answer echoes the mark");
    client.handle_marked(Instant(2), &mut answer);
    assert_eq!((server.stats().frames_unauthentic, client.stats().frames_unauthentic), (0, 0));
    assert_eq!(client.stats().frames_ignored, 0);
    // Congestion flag set on the route without the key.
    server.handle(Instant(3), &frame, &mut out);
    assert_eq!((server.stats().frames_unauthentic, out.0.len()), (1, 0));
}

#[test]
fn frames_with_and_without_token_are_not_mixed() {
    for (ours, theirs) in [(Some(KEY), None), (None, Some(KEY)), (Some(KEY), Some(TokenKey::new([5, 7])))] {
        let (_, frame) = request(theirs);
        let (mut server, mut out) = (server(ours), Sent::default());
        server.handle(Instant(1), &frame, &mut out);
        let stats = server.stats();
        assert_eq!((stats.frames_received, stats.frames_ignored, stats.frames_unauthentic), (1, 1, 1));
        assert_eq!((stats.software_adds, stats.keys, out.0.len()), (0, 0, 0));

        let (mut client, _) = request(ours);
        client.handle(Instant(1), &frame);
        assert_eq!((client.stats().frames_ignored, client.stats().frames_unauthentic), (1, 1));
    }
}

proptest! {
    #[test]
    fn token_check_refuses_frame_with_flipped_bit(bit in any::<prop::sample::Index>()) {
        let (mut client, mut frame) = request(Some(KEY));
        let (mut server, mut out) = (server(Some(KEY)), Sent::default());
        server.handle(Instant(1), &frame, &mut out);
        let adds = server.stats().software_adds;
        let mut answer = out.0.pop().expect("an answer");
        for frame in [&mut frame, &mut answer] {
            let bit = bit.index(frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        server.handle(Instant(2), &frame, &mut out);
        client.handle(Instant(2), &answer);
        prop_assert_eq!((server.stats().frames_unauthentic, client.stats().frames_unauthentic), (1, 1));
        prop_assert_eq!((server.stats().software_adds, out.0.len()), (adds, 0));
        prop_assert!(client.next_event().is_none());
    }
}
