//! Inline element between caller and owner: detection by greetings, and frames that bypass it.

use std::time::Duration;

use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::{ElementTerms, Event, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Dest, EpochChange, FrameSink, Lanes, Modify, Operation, Output, RegisterGrant};
use pathcall_wire::{Base, Flags, ForwardTarget, FrameKind, Instant, MAX_UNSIGNED, MapFrame};

use crate::config::{client_config, server_config};

const SERVER: u32 = 1;
const CALLER: u32 = 10;
const GRANT: RegisterGrant = RegisterGrant { rows: 4, width: 256 };

#[derive(Default)]
struct Sent(Vec<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, frame.to_vec()));
    }
}

/// Caller and owner with an element on the route.
struct InlinePair {
    client: MapClient,
    server: MapServer,
    now: Instant,
    /// Whether the element admits frames to the owner, and frames to the caller.
    met: [bool; 2],
    /// Maximum frame length without fragmentation.
    whole: usize,
    /// Destination of each frame.
    sent: Vec<(Dest, FrameKind)>,
}

impl InlinePair {
    fn new(met: [bool; 2]) -> Self {
        let mut client = MapClient::new(ClientConfig {
            endpoint: CALLER,
            server: SERVER,
            server_incarnation: 6,
            element: true,
            rows: GRANT.rows,
            width: GRANT.width,
            era: Era::of_epoch(1),
            ..client_config()
        });
        client.greet();
        let mut server = MapServer::new(ServerConfig {
            endpoint: SERVER,
            incarnation: 6,
            grant: Some(GRANT),
            threshold: 1,
            width: GRANT.width,
            ..server_config()
        });
        server.join(Instant(0), member(0)).expect("join succeeds");
        Self { client, server, now: Instant(0), met, whole: usize::MAX, sent: Vec::new() }
    }

    /// Delivers all frames; frames addressed to the element are lost.
    fn deliver_all(&mut self) {
        loop {
            let (mut up, mut down) = (Sent::default(), Sent::default());
            self.now = self.now + Duration::from_millis(1);
            self.client.poll(self.now, &mut up);
            for (to, mut frame) in up.0 {
                if self.deliver(to, &mut frame, 0) {
                    self.server.handle(self.now, &frame, &mut down);
                }
            }
            self.server.poll(self.now, &mut down);
            let any = !down.0.is_empty();
            for (to, mut frame) in down.0 {
                if self.deliver(to, &mut frame, 1) {
                    self.client.handle(self.now, &frame);
                }
            }
            if !any {
                return;
            }
        }
    }

    fn deliver(&mut self, to: Dest, frame: &mut [u8], direction: usize) -> bool {
        let kind = MapFrame::new_checked(&*frame).expect("valid frame").kind();
        self.sent.push((to, kind));
        if self.met[direction] && frame.len() <= self.whole {
            let mut base = Base::new_checked(frame).expect("valid frame");
            let flags = base.flags() & !Flags::NOT_ADMITTED;
            base.set_flags(flags);
        }
        to != Dest::Element
    }

    /// Current destinations of contributions and results.
    fn destinations(&mut self) -> [Option<Dest>; 2] {
        self.sent.clear();
        let (lanes, modify) = (Lanes::from(vec![1, 2, 3]), Modify::default());
        self.client.start(self.now, CallId(1), Operation::Sum { lanes, modify, threshold: 1, to: ForwardTarget::All });
        self.deliver_all();
        let road = |kind| self.sent.iter().find(|(_, sent)| *sent == kind).map(|(to, _)| *to);
        [road(FrameKind::MapData), road(FrameKind::MapResult)]
    }
}

fn member(terms: u64) -> Member {
    Member { endpoint: CALLER, incarnation: 5, element: true, slot_base: 0, flows: 1, terms }
}

#[test]
fn element_admitting_both_directions_is_inline() {
    let mut pair = InlinePair::new([true; 2]);
    pair.deliver_all();
    assert_eq!(pair.destinations(), [Some(Dest::Inline(SERVER)), Some(Dest::Inline(CALLER))]);
}

#[test]
fn element_admitting_one_direction_is_not_inline() {
    for met in [[false, false], [true, false], [false, true]] {
        let mut pair = InlinePair::new(met);
        pair.deliver_all();
        assert_eq!(pair.destinations(), [Some(Dest::Element), None], "{met:?}: frames are addressed to the element");
    }
}

#[test]
fn element_behind_fragmentation_is_not_inline() {
    let mut pair = InlinePair::new([true; 2]);
    pair.whole = MAX_UNSIGNED - 1;
    pair.deliver_all();
    assert_eq!(pair.destinations(), [Some(Dest::Element), None]);
}

#[test]
fn greeting_is_repeated_in_each_epoch() {
    let mut pair = InlinePair::new([true; 2]);
    pair.deliver_all();
    pair.met = [false; 2];
    let (number, epoch, grant) = (1, 2, Some(GRANT));
    pair.server.renew(pair.now, ElementTerms { number, epoch, grant, reason: "a test" });
    let renewal: EpochChange = pair.server.take_epoch_change(member(1)).expect("known member");
    pair.client.renew(pair.now, &renewal);
    pair.deliver_all();
    assert_eq!(pair.destinations(), [Some(Dest::Element), None]);
}

#[test]
fn lasting_bypass_gives_exact_sums_and_reports_silent_element() {
    let mut pair = InlinePair::new([true; 2]);
    pair.deliver_all();
    pair.met = [false; 2];
    let began = pair.now;
    let mut rounds = 0;
    let silent = FlowTiming::default().silent;
    let found = loop {
        assert_eq!(pair.destinations(), [Some(Dest::Inline(SERVER)), Some(Dest::Inline(CALLER))]);
        rounds += 1;
        let sums = pair.client.next_event().expect("call is finished").1.expect("no error");
        assert_eq!(sums, Output::Sums(vec![1, 2, 3].into()), "round {rounds}");
        if let Some(Event::ElementSilent) = pair.server.next_event() {
            break pair.now;
        }
        pair.now = pair.now + silent / 10;
        assert!(rounds < 20, "the owner must detect the bypass");
    };
    assert!(found.since(began) >= silent, "a single frame is not reported");
    assert_eq!(pair.server.stats().rounds_software, rounds);
}

#[test]
fn single_frames_past_inline_element_do_not_report_silence() {
    let mut pair = InlinePair::new([true; 2]);
    pair.deliver_all();
    pair.met = [false; 2];
    for _ in 0..5 {
        pair.destinations();
        pair.now = pair.now + FlowTiming::default().silent * 2;
        assert!(pair.server.next_event().is_none());
    }
}
