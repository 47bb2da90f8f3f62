//! An element on the way between caller and owner: it is found by greeting, and what comes past it is bare.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::{Era, LEASE};
use pathcall_endpoint::map::server::{Event, KEY_MEMORY, MapServer, Member, ServerConfig, Terms};
use pathcall_endpoint::map::{ClearPolicy, Dest, Grant, Lanes, Modify, Operation, Outbox, Output, Renewal};
use pathcall_wire::{Base, Flags, Instant, Kind, MAX_UNSIGNED, MapFrame};

const SERVER: u32 = 1;
const CALLER: u32 = 10;
const GRANT: Grant = Grant { rows: 4, width: 256 };

#[derive(Default)]
struct Sent(Vec<(Dest, Vec<u8>)>);

impl Outbox for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, frame.to_vec()));
    }
}

/// A caller and its owner, and who is on the way between them.
struct Pair {
    client: MapClient,
    server: MapServer,
    now: Instant,
    /// Whether an element admits what goes up, and what comes down.
    met: [bool; 2],
    /// The longest frame that it meets in one piece.
    whole: usize,
    /// Where each frame went, of either party.
    sent: Vec<(Dest, Kind)>,
}

impl Pair {
    fn new(met: [bool; 2]) -> Self {
        let mut client = MapClient::new(ClientConfig {
            gaid: 7,
            epoch: 1,
            endpoint: CALLER,
            incarnation: 5,
            server: SERVER,
            server_incarnation: 6,
            slot_base: 0,
            flows: 1,
            element: true,
            inline: false,
            rows: GRANT.rows,
            width: GRANT.width,
            worker: 0,
            votes: false,
            clear: ClearPolicy::Copy,
            start_chunk: 0,
            lease: LEASE,
            era: Era::of_epoch(1),
            timing: Timing::default(),
        });
        client.greet();
        let mut server = MapServer::new(ServerConfig {
            gaid: 7,
            epoch: 1,
            endpoint: SERVER,
            incarnation: 6,
            grant: Some(GRANT),
            threshold: 1,
            clear: ClearPolicy::Copy,
            mapping: false,
            acked: false,
            locks: false,
            votes: false,
            eviction: None,
            key_memory: KEY_MEMORY,
            width: GRANT.width,
            lease: LEASE,
            timing: Timing::default(),
        });
        server.join(Instant(0), member(0)).expect("room");
        Self { client, server, now: Instant(0), met, whole: usize::MAX, sent: Vec::new() }
    }

    /// Carries all frames until there are none; those to the element itself are lost.
    fn settle(&mut self) {
        loop {
            let (mut up, mut down) = (Sent::default(), Sent::default());
            self.now = self.now + Duration::from_millis(1);
            self.client.poll(self.now, &mut up);
            for (to, mut frame) in up.0 {
                if self.carries(to, &mut frame, 0) {
                    self.server.handle(self.now, &frame, &mut down);
                }
            }
            self.server.poll(self.now, &mut down);
            let any = !down.0.is_empty();
            for (to, mut frame) in down.0 {
                if self.carries(to, &mut frame, 1) {
                    self.client.handle(self.now, &frame, &mut Sent::default());
                }
            }
            if !any {
                return;
            }
        }
    }

    fn carries(&mut self, to: Dest, frame: &mut [u8], direction: usize) -> bool {
        let kind = MapFrame::new_checked(&*frame).expect("a frame").kind();
        self.sent.push((to, kind));
        if self.met[direction] && frame.len() <= self.whole {
            let mut base = Base::new_checked(frame).expect("a frame");
            let flags = base.flags() & !Flags::NOT_ADMITTED;
            base.set_flags(flags);
        }
        to != Dest::Element
    }

    /// Where parts and results go from now on.
    fn roads(&mut self) -> [Option<Dest>; 2] {
        self.sent.clear();
        let (lanes, modify) = (Lanes::from(vec![1, 2, 3]), Modify::default());
        self.client.start(self.now, CallId(1), Operation::Sum { lanes, modify, threshold: 1 });
        self.settle();
        let road = |kind| self.sent.iter().find(|(_, sent)| *sent == kind).map(|(to, _)| *to);
        [road(Kind::MapData), road(Kind::MapResult)]
    }
}

fn member(terms: u64) -> Member {
    Member { endpoint: CALLER, incarnation: 5, element: true, slot_base: 0, flows: 1, terms }
}

#[test]
fn an_element_that_admits_both_ways_is_on_the_way() {
    let mut pair = Pair::new([true; 2]);
    pair.settle();
    assert_eq!(pair.roads(), [Some(Dest::Inline(SERVER)), Some(Dest::Inline(CALLER))]);
}

#[test]
fn one_that_admits_one_way_or_none_is_not() {
    for met in [[false, false], [true, false], [false, true]] {
        let mut pair = Pair::new(met);
        pair.settle();
        assert_eq!(pair.roads(), [Some(Dest::Element), None], "{met:?}: its frames are sent to it");
    }
}

#[test]
fn one_that_a_full_frame_comes_to_in_fragments_is_not() {
    let mut pair = Pair::new([true; 2]);
    pair.whole = MAX_UNSIGNED - 1;
    pair.settle();
    assert_eq!(pair.roads(), [Some(Dest::Element), None]);
}

#[test]
fn each_epoch_is_greeted_anew() {
    let mut pair = Pair::new([true; 2]);
    pair.settle();
    pair.met = [false; 2];
    let (number, epoch, grant) = (1, 2, Some(GRANT));
    pair.server.renew(pair.now, Terms { number, epoch, grant, reason: "a test" });
    let renewal: Renewal = pair.server.rejoin(member(1)).expect("a member");
    pair.client.renew(pair.now, &renewal);
    pair.settle();
    assert_eq!(pair.roads(), [Some(Dest::Element), None]);
}

#[test]
fn what_comes_bare_is_answered_exactly_and_tells_in_time_that_the_element_is_gone() {
    let mut pair = Pair::new([true; 2]);
    pair.settle();
    pair.met = [false; 2];
    let began = pair.now;
    let mut rounds = 0;
    let silent = Timing::default().silent;
    let found = loop {
        assert_eq!(pair.roads(), [Some(Dest::Inline(SERVER)), Some(Dest::Inline(CALLER))]);
        rounds += 1;
        let sums = pair.client.next_event().expect("it is done").1.expect("well");
        assert_eq!(sums, Output::Sums(vec![1, 2, 3].into()), "round {rounds}");
        if let Some(Event::ElementSilent) = pair.server.next_event() {
            break pair.now;
        }
        pair.now = pair.now + silent / 10;
        assert!(rounds < 20, "the owner must find out");
    };
    assert!(found.since(began) >= silent, "not for a stray one");
    assert_eq!(pair.server.stats().rounds_software, rounds);
}

#[test]
fn now_and_then_a_bare_frame_is_no_sign() {
    let mut pair = Pair::new([true; 2]);
    pair.settle();
    pair.met = [false; 2];
    for _ in 0..5 {
        pair.roads();
        pair.now = pair.now + Timing::default().silent * 2;
        assert!(pair.server.next_event().is_none());
    }
}
