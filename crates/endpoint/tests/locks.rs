//! Several locks in one call: in a global order of keys, frame by frame.

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Dest, Key, Operation, Outbox, Output};
use pathcall_wire::pairs::entries;
use pathcall_wire::{Instant, MapFrame, Target};

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
