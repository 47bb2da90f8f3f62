//! Locks: order of acquisition, queues, leases, claims and releases.

use std::time::Duration;

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::{DEFAULT_LEASE, Era, holder_lease};
use pathcall_endpoint::map::server::{ElementTerms, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Ack, Dest, EpochChange, FrameSink, Key, Operation, Output, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{PairStatus, answers, entries, entry_len, put};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::{client_config, server_config};

#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl FrameSink for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        self.0.push(frame.to_vec());
    }
}

fn client() -> MapClient {
    MapClient::new(config())
}

fn config() -> ClientConfig {
    ClientConfig { flows: 2, ..client_config() }
}

fn server() -> MapServer {
    let mut server = MapServer::new(server_config());
    server.join(Instant(0), member()).expect("join succeeds");
    server
}

fn member() -> Member {
    Member { endpoint: 10, incarnation: 5, element: false, slot_base: 0, flows: 2, terms: 0 }
}

/// Key so long that a frame fits one.
fn long(name: char) -> Key {
    Key::from(name.to_string().repeat(1_000).as_str())
}

/// A frame that overtakes an earlier frame of its call could be granted while the earlier one is denied, which could
/// deadlock two calls.
#[test]
fn next_lock_frame_waits_for_grant_of_previous_one() {
    let (mut client, mut server) = (client(), server());
    let keys = ['c', 'a', 'b'].map(long).to_vec();
    client.start(
        Instant(0),
        CallId(1),
        Operation::Count { keys, threshold: 1, to: ForwardTarget::Src, ack: Ack::Element },
    );
    let mut asked = String::new();
    // Lease request, and three keys.
    for now in (1..=4).map(Instant) {
        let (mut sent, mut answers) = (Sent::default(), Sent::default());
        client.poll(now, &mut sent);
        assert_eq!(sent.0.len(), 1, "one frame at a time");
        let frame = MapFrame::new_checked(sent.0[0].as_slice()).expect("valid frame");
        asked.extend(entries(frame.payload()).map(|(key, _)| char::from(key[1])));
        server.handle(now, &sent.0[0], &mut answers);
        client.handle(now, &answers.0[0]);
    }
    assert_eq!(asked, "abc");
    let done = client.next_event().expect("all locks are granted");
    let tokens = vec![Era::of_epoch(1).token(1); 3];
    let lease = holder_lease(DEFAULT_LEASE) - Duration::from_nanos(3);
    assert_eq!(done, (CallId(1), Ok(Output::Locked { tokens, lease })));
}

/// Owner of locks that may be in the element.
fn server_of_locks() -> MapServer {
    MapServer::new(ServerConfig {
        grant: Some(RegisterGrant { rows: 4, width: 1 }),
        locks: true,
        width: 1,
        ..server_config()
    })
}

fn by_element(endpoint: u32, terms: u64) -> Member {
    Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms }
}

/// Delivers the notice that this caller has claimed all its locks.
fn settle(server: &mut MapServer, endpoint: u32, seq: u32) {
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 2,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq,
        ..BaseRepr::new(FrameKind::MapSettled)
    };
    let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut bytes);
    server.handle(Instant(1), &bytes, &mut Sent::default());
}

/// Base header of a frame sent past the element.
fn from(endpoint: u32, kind: FrameKind, seq: u32) -> BaseRepr {
    BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq,
        ..BaseRepr::new(kind)
    }
}

/// Requests a lease in a session. Returns whether it is granted.
fn lease(server: &mut MapServer, now: Instant, endpoint: u32, request: u32, session: u32) -> bool {
    let base = BaseRepr { round: request, ..from(endpoint, FrameKind::MapLease, 0) };
    let map = MapRepr { flags: MapFlags::BARE, tag: session, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut bytes);
    let mut out = Sent::default();
    server.handle(now, &bytes, &mut out);
    server.poll(now, &mut out);
    out.0.first().is_some_and(|answer| MapFrame::new_checked(&answer[..]).expect("valid frame").map().tag() == session)
}

/// Sends a frame for the lock "a" in session 1. Returns the status of the answer.
fn ask(server: &mut MapServer, endpoint: u32, seq: u32, flags: u16) -> PairStatus {
    send(server, Instant(1), endpoint, seq, flags, 0).0
}

/// Sends a frame for the lock "a" with a value. Returns status and value of the answer.
fn send(server: &mut MapServer, now: Instant, endpoint: u32, seq: u32, flags: u16, value: i64) -> (PairStatus, i64) {
    let mut out = Sent::default();
    server.handle(now, &lock_frame(endpoint, seq, flags, value), &mut out);
    answer_of(&out.0[0])
}

fn lock_frame(endpoint: u32, seq: u32, flags: u16, value: i64) -> Vec<u8> {
    let key = Key::from("a");
    let payload = entry_len(key.as_bytes().len());
    let flags = MapFlags::BARE | flags;
    let map = MapRepr { flags, threshold: 1, tag: 1, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 0, payload)];
    put(emit(&from(endpoint, FrameKind::MapPairs, seq), &map, &mut bytes).payload_mut(), key.as_bytes(), value)
        .expect("enough space");
    bytes
}

fn answer_of(bytes: &[u8]) -> (PairStatus, i64) {
    let frame = MapFrame::new_checked(bytes).expect("valid frame");
    let answer = answers(frame.payload()).next().expect("one");
    (answer.status, answer.value)
}

#[test]
fn repeated_claim_does_not_retake_released_lock() {
    let mut server = server_of_locks();
    server.join(Instant(0), by_element(10, 0)).expect("join succeeds");
    assert!(lease(&mut server, Instant(0), 10, 1, 1));
    server.renew(Instant(0), ElementTerms { number: 1, epoch: 2, grant: None, reason: "a test" });
    server.take_epoch_change(by_element(10, 1)).expect("known member");
    assert_eq!(ask(&mut server, 10, 1, MapFlags::COUNT), PairStatus::Denied, "another caller may hold the lock");
    let claim = MapFlags::COUNT | MapFlags::CLAIM;
    assert_eq!(ask(&mut server, 10, 2, claim), PairStatus::Whole);
    // Release with the token of the claim.
    ask(&mut server, 10, 3, MapFlags::CLEAR);
    ask(&mut server, 10, 2, claim);
    settle(&mut server, 10, 4);
    assert_ne!(ask(&mut server, 10, 5, MapFlags::COUNT), PairStatus::Denied, "the lock was released");
}

#[test]
fn repeat_of_granted_frame_is_granted_while_grants_are_suspended() {
    let mut server = server_of_locks();
    server.renew(Instant(0), ElementTerms { number: 1, epoch: 2, grant: None, reason: "a test" });
    server.join(Instant(0), Member { element: false, ..by_element(10, 1) }).expect("join succeeds");
    assert!(lease(&mut server, Instant(0), 10, 1, 1));
    assert_ne!(ask(&mut server, 10, 1, MapFlags::COUNT), PairStatus::Denied);
    // The new caller may hold any lock of the ended epoch before its notice.
    server.join(Instant(0), by_element(11, 1)).expect("join succeeds");
    assert!(lease(&mut server, Instant(0), 11, 1, 1));
    server.renew(Instant(0), ElementTerms { number: 2, epoch: 3, grant: None, reason: "a test" });
    assert_ne!(ask(&mut server, 10, 1, MapFlags::COUNT), PairStatus::Denied, "the answer may be lost");
    assert_eq!(ask(&mut server, 10, 2, MapFlags::COUNT), PairStatus::Denied);
}

/// Owner without element, with two callers that have a lease.
fn two_callers() -> MapServer {
    let mut server = server();
    server.join(Instant(0), Member { endpoint: 11, ..member() }).expect("join succeeds");
    assert!(lease(&mut server, Instant(0), 10, 1, 1) && lease(&mut server, Instant(0), 11, 1, 1));
    server
}

const TAKE: u16 = MapFlags::COUNT;
const WAIT: u16 = MapFlags::COUNT | MapFlags::WAIT;
const GIVE: u16 = MapFlags::CLEAR;

#[test]
fn release_grants_lock_to_first_waiter() {
    let mut server = two_callers();
    let (status, token) = send(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!((status, token as u64), (PairStatus::Whole, Era::of_epoch(1).token(1)));
    assert_eq!(ask(&mut server, 11, 1, WAIT), PairStatus::Queued);
    assert_eq!(ask(&mut server, 10, 2, WAIT), PairStatus::Queued);
    send(&mut server, Instant(2), 10, 3, GIVE, token);
    let mut out = Sent::default();
    server.poll(Instant(2), &mut out);
    assert_eq!(out.0.len(), 1);
    let frame = MapFrame::new_checked(&out.0[0][..]).expect("valid frame");
    assert_eq!((frame.base().dst(), frame.base().seq()), (11, 1), "the first waiter gets the lock");
    assert_eq!(answer_of(&out.0[0]), (PairStatus::Whole, token + 1));
    assert_eq!(send(&mut server, Instant(3), 11, 1, WAIT, 0), (PairStatus::Whole, token + 1), "the answer may be lost");
}

#[test]
fn waiter_that_left_the_queue_gets_no_grant() {
    let mut server = two_callers();
    let (_, token) = send(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!(ask(&mut server, 11, 1, WAIT), PairStatus::Queued);
    assert_eq!(ask(&mut server, 11, 1, WAIT | MapFlags::CLEAR), PairStatus::Denied);
    send(&mut server, Instant(2), 10, 2, GIVE, token);
    let mut out = Sent::default();
    server.poll(Instant(2), &mut out);
    assert!(out.0.is_empty());
    // A leave that arrives before its request acquires nothing, nor does the late request.
    assert_eq!(ask(&mut server, 11, 2, WAIT | MapFlags::CLEAR), PairStatus::Denied);
    assert_eq!(ask(&mut server, 11, 2, WAIT), PairStatus::Denied);
}

#[test]
fn waiter_may_repeat_after_its_filter_position_is_reused() {
    let mut server = two_callers();
    let (_, token) = send(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!(ask(&mut server, 11, 1, WAIT), PairStatus::Queued);
    assert_eq!(ask(&mut server, 11, 257, TAKE), PairStatus::Denied);
    assert_eq!(ask(&mut server, 11, 1, WAIT), PairStatus::Queued);
    send(&mut server, Instant(2), 10, 2, GIVE, token);
    server.poll(Instant(2), &mut Sent::default());
    assert_eq!(send(&mut server, Instant(3), 11, 1, WAIT, 0).0, PairStatus::Whole);
}

#[test]
fn release_with_old_token_frees_nothing() {
    let mut server = two_callers();
    let (_, first) = send(&mut server, Instant(1), 10, 1, TAKE, 0);
    send(&mut server, Instant(1), 10, 2, GIVE, first);
    let (status, second) = send(&mut server, Instant(1), 10, 3, TAKE, 0);
    assert!(status == PairStatus::Whole && second > first);
    send(&mut server, Instant(1), 10, 4, GIVE, first);
    assert_eq!(ask(&mut server, 11, 1, TAKE), PairStatus::Denied, "the lock is still held");
    send(&mut server, Instant(1), 10, 5, GIVE, second);
    assert_eq!(ask(&mut server, 11, 2, TAKE), PairStatus::Whole);
}

#[test]
fn silent_holder_loses_locks_after_lease() {
    let mut server = two_callers();
    let (_, first) = send(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!(ask(&mut server, 11, 1, WAIT), PairStatus::Queued);
    let later = Instant(0) + DEFAULT_LEASE / 2;
    assert!(lease(&mut server, later, 11, 2, 1));
    let end = Instant(0) + DEFAULT_LEASE;
    let mut out = Sent::default();
    server.poll(Instant(end.0 - 1), &mut out);
    assert!(out.0.is_empty());
    assert_eq!(server.deadline(), Some(end));
    server.poll(end, &mut out);
    let (status, second) = answer_of(&out.0[0]);
    assert!(status == PairStatus::Whole && second > first);
    // Frames of the first holder are too late now.
    assert_eq!(send(&mut server, end, 10, 2, TAKE, 0).0, PairStatus::Denied);
    send(&mut server, end, 10, 3, GIVE, first);
    assert_eq!(send(&mut server, end, 11, 1, WAIT, 0), (PairStatus::Whole, second));
    // The first holder gets the notice of the ended session, and may start another.
    assert!(!lease(&mut server, end, 10, 2, 1) && lease(&mut server, end, 10, 3, 2));
    assert!(!lease(&mut server, end, 10, 3, 2), "outdated request");
}

/// A stopped holder detects the loss of its locks before any other action.
#[test]
fn lease_ends_at_holder_before_server() {
    let (mut client, mut server) = (client(), server());
    let key = Key::from("a");
    let lock = Operation::Count { keys: vec![key.clone()], threshold: 1, to: ForwardTarget::Src, ack: Ack::Element };
    client.start(Instant(0), CallId(1), lock);
    (1..=2).for_each(|now| drop(exchange(Instant(now), &mut client, &mut server)));
    let Some((_, Ok(Output::Locked { tokens, lease }))) = client.next_event() else { panic!("locks are not granted") };
    let end = Instant(2) + lease;
    assert_eq!(end, Instant(1) + holder_lease(DEFAULT_LEASE), "measured from the request");
    assert_eq!(tokens, [Era::of_epoch(1).token(1)]);
    assert_eq!((client.session(Instant(end.0 - 1)), client.session(end)), (Some(1), None));
    let mut sent = Sent::default();
    client.poll(end, &mut sent);
    client.start(end, CallId(2), Operation::Clear { keys: vec![key.clone()], tokens: Vec::new() });
    client.poll(end, &mut sent);
    let mut answers = Sent::default();
    sent.0.iter().for_each(|frame| server.handle(end, frame, &mut answers));
    assert_eq!(ask(&mut server, 10, 99, TAKE), PairStatus::Denied, "a late release has no valid token");
}

/// A claim that waits for the window at a change of epoch is packed again.
#[test]
fn unsent_claim_stays_a_claim_after_change_of_epoch() {
    let (mut client, mut server) =
        (MapClient::new(ClientConfig { element: true, flows: 1, ..config() }), server_of_locks());
    server.join(Instant(0), by_element(10, 0)).expect("join succeeds");
    let take = |name: &str| Operation::Count {
        keys: vec![Key::from(name)],
        threshold: 1,
        to: ForwardTarget::Src,
        ack: Ack::Element,
    };
    client.start(Instant(0), CallId(0), take("a"));
    // Lease request, location of the lock, and acquisition.
    let sent = (1..=3).map(|now| exchange(Instant(now), &mut client, &mut server)).last().expect("three times");
    let lock = MapFrame::new_checked(&sent[0][..]).expect("valid frame").base().repr();
    let base = BaseRepr { kind: FrameKind::MapAck as u8, src: 1, dst: 10, dst_incarnation: 5, round: 1, ..lock };
    let mut granted = vec![0; frame_len(MapFlags::BARE, 0, 0)];
    emit(&base, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() }, &mut granted);
    client.handle(Instant(3), &granted);
    let Some((_, Ok(Output::Locked { tokens, .. }))) = client.next_event() else { panic!("locks are not granted") };

    let mut waiting = Sent::default();
    (1..=100).for_each(|n| client.start(Instant(4), CallId(n), take(&format!("b{n}"))));
    client.poll(Instant(4), &mut waiting);
    assert!(waiting.0.len() < 100, "the window is smaller than the number of calls");
    for epoch in [2, 3] {
        let (now, era) = (Instant(4 + u64::from(epoch)), Era::of_epoch(epoch).of_element());
        let renewal =
            EpochChange { epoch, element: true, slot_base: 0, rows: 4, era, committed: 0, applied: Vec::new() };
        client.renew(now, &renewal);
        client.poll(now, &mut Sent::default());
    }
    let (mut sent, mut answers) = (Sent::default(), Sent::default());
    waiting.0.iter().for_each(|frame| server.handle(Instant(8), frame, &mut answers));
    answers.0.iter().for_each(|frame| client.handle(Instant(8), frame));
    client.poll(Instant(8), &mut sent);
    let mut frames = sent.0.iter().map(|frame| MapFrame::new_checked(&frame[..]).expect("valid frame"));
    let claim = frames.find(|frame| frame.map().has(MapFlags::CLAIM)).expect("a claim");
    assert_eq!(claim.map().flags() & (MapFlags::WAIT | MapFlags::CLEAR), 0, "a claim does not wait");
    assert_eq!(entries(claim.payload()).map(|(_, token)| token as u64).collect::<Vec<_>>(), tokens);
}

/// Sends all frames of a caller and delivers the answers. Returns the sent frames.
fn exchange(now: Instant, client: &mut MapClient, server: &mut MapServer) -> Vec<Vec<u8>> {
    let (mut sent, mut answers) = (Sent::default(), Sent::default());
    client.poll(now, &mut sent);
    sent.0.iter().for_each(|frame| server.handle(now, frame, &mut answers));
    answers.0.iter().for_each(|frame| client.handle(now, frame));
    sent.0
}

/// The outcome and the cancellation of a call cross.
#[test]
fn locks_of_finished_call_are_released_when_cancelled() {
    let (mut client, mut server) = (client(), server());
    for id in [1, 2] {
        let now = Instant(10 * id);
        let lock =
            Operation::Count { keys: vec![Key::from("a")], threshold: 1, to: ForwardTarget::Src, ack: Ack::Element };
        client.start(now, CallId(id), lock);
        while !exchange(now, &mut client, &mut server).is_empty() {}
        assert!(matches!(client.next_event(), Some((done, Ok(Output::Locked { .. }))) if done == CallId(id)));
        client.cancel(now, CallId(id));
        let sent = exchange(now, &mut client, &mut server);
        let [release] = &sent[..] else { panic!("{} frames", sent.len()) };
        assert!(MapFrame::new_checked(release.as_slice()).expect("valid frame").map().has(MapFlags::CLEAR));
        client.cancel(now, CallId(id));
        assert!(exchange(now, &mut client, &mut server).is_empty(), "once");
    }
}
