//! Several locks in one call: in a global order of keys, frame by frame.

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig, Terms};
use pathcall_endpoint::map::{Dest, Grant, Key, Operation, Outbox, Output};
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
    MapClient::new(ClientConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 10,
        incarnation: 5,
        server: 1,
        server_incarnation: 5,
        slot_base: 0,
        flows: 2,
        element: false,
        rows: 4,
        width: 64,
        worker: 0,
        votes: false,
        start_chunk: 0,
        timing: Timing::default(),
    })
}

fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: None,
        threshold: 0,
        mapping: false,
        locks: false,
        votes: false,
        width: 64,
        timing: Timing::default(),
    });
    let member = Member { endpoint: 10, incarnation: 5, element: false, slot_base: 0, flows: 2, terms: 0 };
    server.join(Instant(0), member).expect("room");
    server
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
    let mut asked = Vec::new();
    for now in (1..=3).map(Instant) {
        let (mut sent, mut answers) = (Sent::default(), Sent::default());
        client.poll(now, &mut sent);
        assert_eq!(sent.0.len(), 1, "one frame at a time");
        let frame = MapFrame::new_checked(sent.0[0].as_slice()).expect("a frame");
        asked.extend(entries(frame.payload()).map(|(key, _)| key.to_vec()));
        server.handle(now, &sent.0[0], &mut answers);
        client.handle(now, &answers.0[0], &mut sent);
    }
    let in_order: Vec<_> = ['a', 'b', 'c'].map(|name| long(name).as_bytes().to_vec()).into();
    assert_eq!(asked, in_order);
    let done = client.next_event().expect("all are held");
    assert_eq!(done, (CallId(1), Ok(Output::Counted { forwarded: true })));
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
        mapping: false,
        locks: true,
        votes: false,
        width: 1,
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

/// Sends a frame for the lock "a" and returns what the server says of it.
fn ask(server: &mut MapServer, endpoint: u32, seq: u32, flags: u16) -> Status {
    let key = Key::from("a");
    let payload = entry_len(key.as_bytes().len());
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq,
        ..BaseRepr::new(Kind::MapPairs)
    };
    let flags = MapFlags::BARE | flags;
    let map = MapRepr { flags, threshold: 1, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 0, payload)];
    put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), 1).expect("fits");
    let mut out = Sent::default();
    server.handle(Instant(1), &bytes, &mut out);
    let answer = MapFrame::new_checked(&out.0[0][..]).expect("ours");
    answers(answer.payload()).next().expect("one").status
}

#[test]
fn the_repeat_of_a_claim_takes_nothing_back() {
    let mut server = server_of_locks();
    server.join(Instant(0), by_element(10, 0)).expect("room");
    server.renew(Instant(0), Terms { number: 1, epoch: 2, grant: None, reason: "a test" });
    server.rejoin(by_element(10, 1)).expect("a member");
    assert_eq!(ask(&mut server, 10, 1, MapFlags::COUNT), Status::Denied, "others may hold it");
    let claim = MapFlags::COUNT | MapFlags::CLAIM;
    assert_eq!(ask(&mut server, 10, 2, claim), Status::Whole);
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
    assert_ne!(ask(&mut server, 10, 1, MapFlags::COUNT), Status::Denied);
    // Let in under terms that have changed meanwhile: it may hold anything until it has settled.
    server.join(Instant(0), by_element(11, 0)).expect("room");
    assert_ne!(ask(&mut server, 10, 1, MapFlags::COUNT), Status::Denied, "the answer may have been lost");
    assert_eq!(ask(&mut server, 10, 2, MapFlags::COUNT), Status::Denied);
}
