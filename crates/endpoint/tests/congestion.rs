//! Congestion marks on map frames, from the network to the sender's window.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Ack, Dest, FrameSink, Key, Modify, Operation};
use pathcall_wire::{Base, Flags, ForwardTarget, Instant};

use crate::config::{client_config, server_config};

#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl FrameSink for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        self.0.push(frame.to_vec());
    }
}

fn client(votes: bool) -> MapClient {
    MapClient::new(ClientConfig { rows: 1024, width: 1, votes, ..client_config() })
}

/// Owner of sums over `workers` workers, of ballots, or of keys.
fn server(workers: u32, votes: bool) -> MapServer {
    let mut server = MapServer::new(ServerConfig { threshold: workers, votes, width: 1, ..server_config() });
    let member = Member { endpoint: 10, incarnation: 5, element: false, slot_base: 0, flows: 1, terms: 0 };
    server.join(Instant(0), member).expect("join succeeds");
    server
}

/// Number of frames that a long call sends at first, and after the answers to these.
fn bursts(operation: Operation, (workers, votes): (u32, bool), marked: bool) -> [usize; 2] {
    let (mut client, mut server) = (client(votes), server(workers, votes));
    let (mut first, mut answers, mut next) = (Sent::default(), Sent::default(), Sent::default());
    client.start(Instant(0), CallId(1), operation);
    client.poll(Instant(0), &mut first);
    for frame in &mut first.0 {
        let mut base = Base::new_checked(&mut frame[..]).expect("valid frame");
        // Mark set by the network.
        let flags = base.flags() | if marked { Flags::ECN } else { 0 };
        base.set_flags(flags);
        server.handle(Instant(1), frame, &mut answers);
    }
    server.poll(Instant(1), &mut answers);
    answers.0.iter().for_each(|answer| client.handle(Instant(2), answer));
    client.poll(Instant(2), &mut next);
    [first.0.len(), next.0.len()]
}

#[test]
fn congestion_marks_shrink_window_for_all_call_types() {
    let keys = || (0..3_000).map(|n| Key::from(format!("{n:0>400}").as_str()));
    let sum = Operation::Sum {
        lanes: vec![1; 1_000].into(),
        modify: Modify::default(),
        threshold: 1,
        to: ForwardTarget::All,
    };
    let pairs = keys().map(|key| (key, 1)).collect();
    let add = Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element };
    let vote = Operation::Count {
        keys: keys().collect(),
        threshold: 2,
        to: pathcall_wire::ForwardTarget::Src,
        ack: Ack::Element,
    };
    for (operation, terms) in [(sum, (1, false)), (add, (0, false)), (vote, (0, true))] {
        assert_eq!(bursts(operation.clone(), terms, false), [64, 128], "{terms:?}");
        assert_eq!(bursts(operation, terms, true), [64, 32], "{terms:?}");
    }
}
