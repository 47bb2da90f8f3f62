//! A decision that is heard before the answer to the vote: they may come by different roads.

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::{Era, LEASE};
use pathcall_endpoint::map::{ClearPolicy, Dest, Key, Operation, Outbox, Output};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, Answer, Status, entry_len};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Target};

const ENDPOINT: u32 = 10;
const INCARNATION: u32 = 5;
const SERVER: u32 = 1;
const KEY: &str = "ballot";

#[derive(Default)]
struct Sent(Vec<(Dest, Vec<u8>)>);

impl Outbox for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, frame.to_vec()));
    }
}

/// A voter whose clock stands still: nothing happens because time has passed.
struct Voter(MapClient);

impl Voter {
    fn new() -> Self {
        let mut client = MapClient::new(ClientConfig {
            gaid: 7,
            epoch: 1,
            endpoint: ENDPOINT,
            incarnation: INCARNATION,
            server: SERVER,
            server_incarnation: 5,
            slot_base: 0,
            flows: 2,
            element: true,
            inline: false,
            rows: 4,
            width: 1,
            worker: 0,
            votes: true,
            clear: ClearPolicy::Copy,
            start_chunk: 0,
            lease: LEASE,
            era: Era::of_epoch(1).of_element(),
            timing: Timing::default(),
        });
        let keys = vec![Key::from(KEY)];
        client.start(Instant(0), CallId(1), Operation::Count { keys, threshold: 2, to: Target::All });
        Self(client)
    }

    /// The one frame that it sends now, and where.
    fn sends(&mut self) -> (Dest, BaseRepr) {
        let mut sent = Sent::default();
        self.0.poll(Instant(0), &mut sent);
        let [(to, frame)] = &sent.0[..] else { panic!("{} frames", sent.0.len()) };
        (*to, MapFrame::new_checked(frame.as_slice()).expect("a frame").base().repr())
    }

    fn hears(&mut self, frame: &[u8]) {
        self.0.handle(Instant(0), frame, &mut Sent::default());
    }

    fn output(&mut self) -> Option<Output> {
        self.0.next_event().map(|(_, outcome)| outcome.expect("no error"))
    }
}

fn to_voter(kind: Kind, flags: u16, sent: BaseRepr) -> BaseRepr {
    BaseRepr { kind: kind as u8, flags, src: SERVER, dst: ENDPOINT, dst_incarnation: INCARNATION, ..sent }
}

/// The server's answer to a frame of one vote.
fn answer(sent: BaseRepr, status: Status, row: u32) -> Vec<u8> {
    let base = to_voter(Kind::MapPairsAck, sent.flags | Flags::FROM_SERVER, sent);
    let map = MapRepr { flags: MapFlags::BARE, payload_len: ANSWER_LEN as u16, ..MapRepr::default() };
    let mut frame = vec![0; frame_len(map.flags, 0, ANSWER_LEN)];
    let answer = Answer { status, lane: 0, row, value: 0 };
    pairs::put_answer(emit(&base, &map, &mut frame).payload_mut(), &answer).expect("room");
    frame
}

/// The element's answer to a vote that it counted in a round.
fn counted(sent: BaseRepr, round: u32) -> Vec<u8> {
    let base = BaseRepr { round, ..to_voter(Kind::MapAck, sent.flags, sent) };
    let map = MapRepr { flags: MapFlags::BARE | MapFlags::COUNT, ..MapRepr::default() };
    let mut frame = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut frame);
    frame
}

/// The server's word that the ballot is decided: in the element one more than its round, 0 of one that the
/// server counted.
fn decided(sent: BaseRepr, round: u32) -> Vec<u8> {
    let base = BaseRepr { round, ..to_voter(Kind::MapSoft, Flags::FROM_SERVER | Flags::MCAST, sent) };
    let payload = entry_len(KEY.len() + 1);
    let flags = MapFlags::BARE | MapFlags::COUNT;
    let map = MapRepr { flags, payload_len: payload as u16, ..MapRepr::default() };
    let mut frame = vec![0; frame_len(map.flags, 0, payload)];
    let key = Key::from(KEY);
    pairs::put(emit(&base, &map, &mut frame).payload_mut(), key.as_bytes(), 0).expect("room");
    frame
}

/// A voter whose vote is on its way to the element, and that frame.
fn by_element() -> (Voter, BaseRepr) {
    let mut voter = Voter::new();
    let (to, past) = voter.sends();
    assert_ne!(to, Dest::Element, "whether the element counts is the server's to say");
    voter.hears(&answer(past, Status::Moved, 4));
    let (to, vote) = voter.sends();
    assert_eq!(to, Dest::Element);
    (voter, vote)
}

#[test]
fn a_decision_heard_before_the_elements_answer_counts_when_that_comes() {
    let (mut voter, vote) = by_element();
    voter.hears(&decided(vote, 4));
    assert_eq!(voter.output(), None, "the vote may have been lost");
    voter.hears(&counted(vote, 3));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: true }));
}

#[test]
fn a_decision_of_another_round_has_the_vote_ask_at_once() {
    let (mut voter, vote) = by_element();
    voter.hears(&decided(vote, 3));
    voter.hears(&counted(vote, 3));
    assert_eq!(voter.output(), None, "a later round was decided by nobody");
    let (to, ask) = voter.sends();
    assert_eq!(to, Dest::Endpoint(SERVER));
    voter.hears(&answer(ask, Status::Whole, 0));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: true }));
}

#[test]
fn a_decision_heard_before_the_servers_answer_has_the_vote_ask_at_once() {
    let mut voter = Voter::new();
    let (_, vote) = voter.sends();
    voter.hears(&decided(vote, 0));
    voter.hears(&answer(vote, Status::Held, 0));
    assert_eq!(voter.output(), None);
    let (_, ask) = voter.sends();
    // Word and answer may be of different ballots: what is said now settles it.
    voter.hears(&answer(ask, Status::Whole, 0));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: true }));
}
