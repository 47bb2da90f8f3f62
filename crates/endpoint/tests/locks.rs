//! Several locks in one call: in a global order of keys, frame by frame.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::{Era, LEASE, held_for};
use pathcall_endpoint::map::server::{KEY_MEMORY, MapServer, Member, ServerConfig, Terms};
use pathcall_endpoint::map::{ClearPolicy, Dest, Grant, Key, Operation, Outbox, Output, Renewal};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{Status, answers, entries, entry_len, put};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Target};

#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl Outbox for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        self.0.push(frame.to_vec());
    }
}

fn client() -> MapClient {
    MapClient::new(config())
}

fn config() -> ClientConfig {
    ClientConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 10,
        incarnation: 5,
        server: 1,
        server_incarnation: 5,
        slot_base: 0,
        flows: 2,
        element: false,
        inline: false,
        rows: 4,
        width: 64,
        worker: 0,
        votes: false,
        clear: ClearPolicy::Copy,
        start_chunk: 0,
        lease: LEASE,
        era: Era::of_epoch(1).of_element(),
        timing: Timing::default(),
    }
}

fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: None,
        threshold: 0,
        clear: ClearPolicy::Copy,
        mapping: false,
        acked: false,
        locks: false,
        votes: false,
        eviction: None,
        key_memory: KEY_MEMORY,
        width: 64,
        lease: LEASE,
        timing: Timing::default(),
    });
    server.join(Instant(0), member()).expect("room");
    server
}

fn member() -> Member {
    Member { endpoint: 10, incarnation: 5, element: false, slot_base: 0, flows: 2, terms: 0 }
}

/// A key so long that a frame has room for one.
fn long(name: char) -> Key {
    Key::from(name.to_string().repeat(1_000).as_str())
}

/// A frame that overtook an earlier one of its call could be granted while that one is denied: two
/// calls would each hold what the other waits for.
#[test]
fn a_frame_of_locks_goes_when_those_before_are_held() {
    let (mut client, mut server) = (client(), server());
    let keys = ['c', 'a', 'b'].map(long).to_vec();
    client.start(Instant(0), CallId(1), Operation::Count { keys, threshold: 1, to: Target::Src });
    let mut asked = String::new();
    // The lease, and three keys.
    for now in (1..=4).map(Instant) {
        let (mut sent, mut answers) = (Sent::default(), Sent::default());
        client.poll(now, &mut sent);
        assert_eq!(sent.0.len(), 1, "one frame at a time");
        let frame = MapFrame::new_checked(sent.0[0].as_slice()).expect("a frame");
        asked.extend(entries(frame.payload()).map(|(key, _)| char::from(key[1])));
        server.handle(now, &sent.0[0], &mut answers);
        client.handle(now, &answers.0[0], &mut sent);
    }
    assert_eq!(asked, "abc");
    let done = client.next_event().expect("all are held");
    let tokens = vec![Era::of_epoch(1).token(1); 3];
    assert_eq!(done, (CallId(1), Ok(Output::Locked { tokens, lease: held_for(LEASE) - Duration::from_nanos(3) })));
}

/// An owner of locks that the element may hold.
fn server_of_locks() -> MapServer {
    MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: Some(Grant { rows: 4, width: 1 }),
        threshold: 0,
        clear: ClearPolicy::Copy,
        mapping: false,
        acked: false,
        locks: true,
        votes: false,
        eviction: None,
        key_memory: KEY_MEMORY,
        width: 1,
        lease: LEASE,
        timing: Timing::default(),
    })
}

fn by_element(endpoint: u32, terms: u64) -> Member {
    Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms }
}

/// Says that this caller has claimed all that it held.
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
        ..BaseRepr::new(Kind::MapSettled)
    };
    let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut bytes);
    server.handle(Instant(1), &bytes, &mut Sent::default());
}

/// Base header of a frame past the element.
fn from(endpoint: u32, kind: Kind, seq: u32) -> BaseRepr {
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

/// Asks for locks to be lent in a session; whether they are.
fn lease(server: &mut MapServer, now: Instant, endpoint: u32, request: u32, session: u32) -> bool {
    let base = BaseRepr { round: request, ..from(endpoint, Kind::MapLease, 0) };
    let map = MapRepr { flags: MapFlags::BARE, tag: session, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut bytes);
    let mut out = Sent::default();
    server.handle(now, &bytes, &mut out);
    server.poll(now, &mut out);
    out.0.first().is_some_and(|answer| MapFrame::new_checked(&answer[..]).expect("ours").map().tag() == session)
}

/// Sends a frame for the lock "a", in session 1, and returns what the server says of it.
fn ask(server: &mut MapServer, endpoint: u32, seq: u32, flags: u16) -> Status {
    say(server, Instant(1), endpoint, seq, flags, 0).0
}

/// The same with a value; and the value of the answer.
fn say(server: &mut MapServer, now: Instant, endpoint: u32, seq: u32, flags: u16, value: i64) -> (Status, i64) {
    let mut out = Sent::default();
    server.handle(now, &word(endpoint, seq, flags, value), &mut out);
    answer_of(&out.0[0])
}

fn word(endpoint: u32, seq: u32, flags: u16, value: i64) -> Vec<u8> {
    let key = Key::from("a");
    let payload = entry_len(key.as_bytes().len());
    let flags = MapFlags::BARE | flags;
    let map = MapRepr { flags, threshold: 1, tag: 1, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 0, payload)];
    put(emit(&from(endpoint, Kind::MapPairs, seq), &map, &mut bytes).payload_mut(), key.as_bytes(), value)
        .expect("fits");
    bytes
}

fn answer_of(bytes: &[u8]) -> (Status, i64) {
    let frame = MapFrame::new_checked(bytes).expect("ours");
    let answer = answers(frame.payload()).next().expect("one");
    (answer.status, answer.value)
}

#[test]
fn the_repeat_of_a_claim_takes_nothing_back() {
    let mut server = server_of_locks();
    server.join(Instant(0), by_element(10, 0)).expect("room");
    assert!(lease(&mut server, Instant(0), 10, 1, 1));
    server.renew(Instant(0), Terms { number: 1, epoch: 2, grant: None, reason: "a test" });
    server.rejoin(by_element(10, 1)).expect("a member");
    assert_eq!(ask(&mut server, 10, 1, MapFlags::COUNT), Status::Denied, "others may hold it");
    let claim = MapFlags::COUNT | MapFlags::CLAIM;
    assert_eq!(ask(&mut server, 10, 2, claim), Status::Whole);
    // By the token that the claim names.
    ask(&mut server, 10, 3, MapFlags::CLEAR);
    ask(&mut server, 10, 2, claim);
    settle(&mut server, 10, 4);
    assert_ne!(ask(&mut server, 10, 5, MapFlags::COUNT), Status::Denied, "it was given back");
}

#[test]
fn what_was_granted_is_granted_again_while_nobody_else_is() {
    let mut server = server_of_locks();
    server.renew(Instant(0), Terms { number: 1, epoch: 2, grant: None, reason: "a test" });
    server.join(Instant(0), Member { element: false, ..by_element(10, 1) }).expect("room");
    assert!(lease(&mut server, Instant(0), 10, 1, 1));
    assert_ne!(ask(&mut server, 10, 1, MapFlags::COUNT), Status::Denied);
    // It may hold anything of the ended epoch until it has settled.
    server.join(Instant(0), by_element(11, 1)).expect("room");
    assert!(lease(&mut server, Instant(0), 11, 1, 1));
    server.renew(Instant(0), Terms { number: 2, epoch: 3, grant: None, reason: "a test" });
    assert_ne!(ask(&mut server, 10, 1, MapFlags::COUNT), Status::Denied, "the answer may have been lost");
    assert_eq!(ask(&mut server, 10, 2, MapFlags::COUNT), Status::Denied);
}

/// An owner without element, and two callers with a lease.
fn two_callers() -> MapServer {
    let mut server = server();
    server.join(Instant(0), Member { endpoint: 11, ..member() }).expect("room");
    assert!(lease(&mut server, Instant(0), 10, 1, 1) && lease(&mut server, Instant(0), 11, 1, 1));
    server
}

const TAKE: u16 = MapFlags::COUNT;
const WAIT: u16 = MapFlags::COUNT | MapFlags::WAIT;
const GIVE: u16 = MapFlags::CLEAR;

#[test]
fn a_release_wakes_the_first_in_line() {
    let mut server = two_callers();
    let (status, token) = say(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!((status, token as u64), (Status::Whole, Era::of_epoch(1).token(1)));
    assert_eq!(ask(&mut server, 11, 1, WAIT), Status::InLine);
    assert_eq!(ask(&mut server, 10, 2, WAIT), Status::InLine);
    say(&mut server, Instant(2), 10, 3, GIVE, token);
    let mut out = Sent::default();
    server.poll(Instant(2), &mut out);
    assert_eq!(out.0.len(), 1);
    let frame = MapFrame::new_checked(&out.0[0][..]).expect("ours");
    assert_eq!((frame.base().dst(), frame.base().seq()), (11, 1), "first come, first served");
    assert_eq!(answer_of(&out.0[0]), (Status::Whole, token + 1));
    assert_eq!(say(&mut server, Instant(3), 11, 1, WAIT, 0), (Status::Whole, token + 1), "should it be lost");
}

#[test]
fn who_leaves_the_line_is_not_served() {
    let mut server = two_callers();
    let (_, token) = say(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!(ask(&mut server, 11, 1, WAIT), Status::InLine);
    assert_eq!(ask(&mut server, 11, 1, WAIT | MapFlags::CLEAR), Status::Denied);
    say(&mut server, Instant(2), 10, 2, GIVE, token);
    let mut out = Sent::default();
    server.poll(Instant(2), &mut out);
    assert!(out.0.is_empty());
    // A word to leave that comes first takes nothing, nor does what comes after it.
    assert_eq!(ask(&mut server, 11, 2, WAIT | MapFlags::CLEAR), Status::Denied);
    assert_eq!(ask(&mut server, 11, 2, WAIT), Status::Denied);
}

#[test]
fn who_stands_in_line_may_ask_long_after_its_place_in_the_filter_is_taken() {
    let mut server = two_callers();
    let (_, token) = say(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!(ask(&mut server, 11, 1, WAIT), Status::InLine);
    assert_eq!(ask(&mut server, 11, 257, TAKE), Status::Denied);
    assert_eq!(ask(&mut server, 11, 1, WAIT), Status::InLine);
    say(&mut server, Instant(2), 10, 2, GIVE, token);
    server.poll(Instant(2), &mut Sent::default());
    assert_eq!(say(&mut server, Instant(3), 11, 1, WAIT, 0).0, Status::Whole);
}

#[test]
fn a_release_that_names_an_older_grant_frees_nothing() {
    let mut server = two_callers();
    let (_, first) = say(&mut server, Instant(1), 10, 1, TAKE, 0);
    say(&mut server, Instant(1), 10, 2, GIVE, first);
    let (status, second) = say(&mut server, Instant(1), 10, 3, TAKE, 0);
    assert!(status == Status::Whole && second > first);
    say(&mut server, Instant(1), 10, 4, GIVE, first);
    assert_eq!(ask(&mut server, 11, 1, TAKE), Status::Denied, "it is still held");
    say(&mut server, Instant(1), 10, 5, GIVE, second);
    assert_eq!(ask(&mut server, 11, 2, TAKE), Status::Whole);
}

#[test]
fn a_holder_that_is_silent_for_a_lease_has_lost_its_locks() {
    let mut server = two_callers();
    let (_, first) = say(&mut server, Instant(1), 10, 1, TAKE, 0);
    assert_eq!(ask(&mut server, 11, 1, WAIT), Status::InLine);
    let later = Instant(0) + LEASE / 2;
    assert!(lease(&mut server, later, 11, 2, 1));
    let end = Instant(0) + LEASE;
    let mut out = Sent::default();
    server.poll(Instant(end.0 - 1), &mut out);
    assert!(out.0.is_empty());
    assert_eq!(server.deadline(), Some(end));
    server.poll(end, &mut out);
    let (status, second) = answer_of(&out.0[0]);
    assert!(status == Status::Whole && second > first);
    // What the first one sends now is too late.
    assert_eq!(say(&mut server, end, 10, 2, TAKE, 0).0, Status::Denied);
    say(&mut server, end, 10, 3, GIVE, first);
    assert_eq!(say(&mut server, end, 11, 1, WAIT, 0), (Status::Whole, second));
    // It is told that its session is over, and may begin another.
    assert!(!lease(&mut server, end, 10, 2, 1) && lease(&mut server, end, 10, 3, 2));
    assert!(!lease(&mut server, end, 10, 3, 2), "an older request");
}

/// A holder that stands still finds, before it does anything else, that its locks are lost.
#[test]
fn a_holder_takes_its_locks_for_lost_before_the_server_does() {
    let (mut client, mut server) = (client(), server());
    let key = Key::from("a");
    client.start(Instant(0), CallId(1), Operation::Count { keys: vec![key.clone()], threshold: 1, to: Target::Src });
    (1..=2).for_each(|now| drop(asked(Instant(now), &mut client, &mut server)));
    let Some((_, Ok(Output::Locked { tokens, lease }))) = client.next_event() else { panic!("it is held") };
    let end = Instant(2) + lease;
    assert_eq!(end, Instant(1) + held_for(LEASE), "counted from when it was asked for");
    assert_eq!(tokens, [Era::of_epoch(1).token(1)]);
    assert_eq!((client.session(Instant(end.0 - 1)), client.session(end)), (Some(1), None));
    let mut sent = Sent::default();
    client.poll(end, &mut sent);
    client.start(end, CallId(2), Operation::Clear { keys: vec![key.clone()], tokens: Vec::new() });
    client.poll(end, &mut sent);
    let mut answers = Sent::default();
    sent.0.iter().for_each(|frame| server.handle(end, frame, &mut answers));
    assert_eq!(ask(&mut server, 10, 99, TAKE), Status::Denied, "a late release names no grant that it holds");
}

/// A claim that waits for room in the window when the next epoch comes is packed anew.
#[test]
fn a_claim_that_an_epochs_end_finds_unsent_says_what_it_said() {
    let (mut client, mut server) =
        (MapClient::new(ClientConfig { element: true, flows: 1, ..config() }), server_of_locks());
    server.join(Instant(0), by_element(10, 0)).expect("room");
    let take = |name: &str| Operation::Count { keys: vec![Key::from(name)], threshold: 1, to: Target::Src };
    client.start(Instant(0), CallId(0), take("a"));
    // The lease, where the lock is, and the lock.
    let sent = (1..=3).map(|now| asked(Instant(now), &mut client, &mut server)).last().expect("three times");
    let lock = MapFrame::new_checked(&sent[0][..]).expect("ours").base().repr();
    let base = BaseRepr { kind: Kind::MapAck as u8, src: 1, dst: 10, dst_incarnation: 5, round: 1, ..lock };
    let mut granted = vec![0; frame_len(MapFlags::BARE, 0, 0)];
    emit(&base, &MapRepr { flags: MapFlags::BARE, ..MapRepr::default() }, &mut granted);
    client.handle(Instant(3), &granted, &mut Sent::default());
    let Some((_, Ok(Output::Locked { tokens, .. }))) = client.next_event() else { panic!("it is held") };

    let mut waiting = Sent::default();
    (1..=100).for_each(|n| client.start(Instant(4), CallId(n), take(&format!("b{n}"))));
    client.poll(Instant(4), &mut waiting);
    assert!(waiting.0.len() < 100, "no window is so wide yet");
    for epoch in [2, 3] {
        let (now, era) = (Instant(4 + u64::from(epoch)), Era::of_epoch(epoch).of_element());
        let renewal = Renewal { epoch, element: true, slot_base: 0, era, committed: 0, applied: Vec::new() };
        client.renew(now, &renewal);
        client.poll(now, &mut Sent::default());
    }
    let (mut sent, mut answers) = (Sent::default(), Sent::default());
    waiting.0.iter().for_each(|frame| server.handle(Instant(8), frame, &mut answers));
    answers.0.iter().for_each(|frame| client.handle(Instant(8), frame, &mut sent));
    client.poll(Instant(8), &mut sent);
    let mut frames = sent.0.iter().map(|frame| MapFrame::new_checked(&frame[..]).expect("ours"));
    let claim = frames.find(|frame| frame.map().has(MapFlags::CLAIM)).expect("a claim");
    assert_eq!(claim.map().flags() & (MapFlags::WAIT | MapFlags::CLEAR), 0, "it waits for nothing");
    assert_eq!(entries(claim.payload()).map(|(_, token)| token as u64).collect::<Vec<_>>(), tokens);
}

/// What a caller sends now, and hears of it.
fn asked(now: Instant, client: &mut MapClient, server: &mut MapServer) -> Vec<Vec<u8>> {
    let (mut sent, mut answers) = (Sent::default(), Sent::default());
    client.poll(now, &mut sent);
    sent.0.iter().for_each(|frame| server.handle(now, frame, &mut answers));
    answers.0.iter().for_each(|frame| client.handle(now, frame, &mut Sent::default()));
    sent.0
}

/// Its outcome and its being cancelled have met on the way.
#[test]
fn what_a_call_was_granted_is_given_back_if_nobody_hears_of_it() {
    let (mut client, mut server) = (client(), server());
    for id in [1, 2] {
        let now = Instant(10 * id);
        client.start(now, CallId(id), Operation::Count { keys: vec![Key::from("a")], threshold: 1, to: Target::Src });
        while !asked(now, &mut client, &mut server).is_empty() {}
        assert!(matches!(client.next_event(), Some((done, Ok(Output::Locked { .. }))) if done == CallId(id)));
        client.cancel(now, CallId(id));
        let sent = asked(now, &mut client, &mut server);
        let [release] = &sent[..] else { panic!("{} frames", sent.len()) };
        assert!(MapFrame::new_checked(release.as_slice()).expect("a frame").map().has(MapFlags::CLEAR));
        client.cancel(now, CallId(id));
        assert!(asked(now, &mut client, &mut server).is_empty(), "once");
    }
}
