//! Decisions announced before the answer to the vote, since they take different paths.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::{Dest, FrameSink, Key, Operation, Output};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, PairAnswer, PairStatus, entry_len};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::client_config;

const ENDPOINT: u32 = 10;
const INCARNATION: u32 = 5;
const SERVER: u32 = 1;
const KEY: &str = "ballot";

#[derive(Default)]
struct Sent(Vec<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, frame.to_vec()));
    }
}

/// Voter with a constant clock, so that no timer expires.
struct Voter(MapClient);

impl Voter {
    fn new() -> Self {
        let mut client = MapClient::new(ClientConfig {
            endpoint: ENDPOINT,
            incarnation: INCARNATION,
            server: SERVER,
            flows: 2,
            element: true,
            width: 1,
            votes: true,
            ..client_config()
        });
        let keys = vec![Key::from(KEY)];
        client.start(Instant(0), CallId(1), Operation::Count { keys, threshold: 2, to: ForwardTarget::All });
        Self(client)
    }

    /// Destination and base header of the single frame that it sends now.
    fn next_frame(&mut self) -> (Dest, BaseRepr) {
        let mut sent = Sent::default();
        self.0.poll(Instant(0), &mut sent);
        let [(to, frame)] = &sent.0[..] else { panic!("{} frames", sent.0.len()) };
        (*to, MapFrame::new_checked(frame.as_slice()).expect("valid frame").base().repr())
    }

    fn handle_frame(&mut self, frame: &[u8]) {
        self.0.handle(Instant(0), frame);
    }

    fn output(&mut self) -> Option<Output> {
        self.0.next_event().map(|(_, outcome)| outcome.expect("no error"))
    }
}

fn to_voter(kind: FrameKind, flags: u16, sent: BaseRepr) -> BaseRepr {
    BaseRepr { kind: kind as u8, flags, src: SERVER, dst: ENDPOINT, dst_incarnation: INCARNATION, ..sent }
}

/// Server's answer to a frame of one vote.
fn answer(sent: BaseRepr, status: PairStatus, row: u32) -> Vec<u8> {
    let base = to_voter(FrameKind::MapPairsAck, sent.flags | Flags::FROM_SERVER, sent);
    let map = MapRepr { flags: MapFlags::BARE, payload_len: ANSWER_LEN as u16, ..MapRepr::default() };
    let mut frame = vec![0; frame_len(map.flags, 0, ANSWER_LEN)];
    let answer = PairAnswer { status, lane: 0, row, value: 0 };
    pairs::put_answer(emit(&base, &map, &mut frame).payload_mut(), &answer).expect("enough space");
    frame
}

/// Element's answer to a vote counted in a round.
fn counted(sent: BaseRepr, round: u32) -> Vec<u8> {
    let base = BaseRepr { round, ..to_voter(FrameKind::MapAck, sent.flags, sent) };
    let map = MapRepr { flags: MapFlags::BARE | MapFlags::COUNT, ..MapRepr::default() };
    let mut frame = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut frame);
    frame
}

/// Server's announcement of a decision: round in the element plus one, or 0 if the server counted the ballot.
fn decided(sent: BaseRepr, round: u32) -> Vec<u8> {
    let base = BaseRepr { round, ..to_voter(FrameKind::MapSoft, Flags::FROM_SERVER | Flags::MCAST, sent) };
    let payload = entry_len(KEY.len() + 1);
    let flags = MapFlags::BARE | MapFlags::COUNT;
    let map = MapRepr { flags, payload_len: payload as u16, ..MapRepr::default() };
    let mut frame = vec![0; frame_len(map.flags, 0, payload)];
    let key = Key::from(KEY);
    pairs::put(emit(&base, &map, &mut frame).payload_mut(), key.as_bytes(), 0).expect("enough space");
    frame
}

/// Voter with a vote in flight to the element, and its frame.
fn by_element() -> (Voter, BaseRepr) {
    let mut voter = Voter::new();
    let (to, past) = voter.next_frame();
    assert_ne!(to, Dest::Element, "the first vote goes to the server");
    voter.handle_frame(&answer(past, PairStatus::Moved, 4));
    let (to, vote) = voter.next_frame();
    assert_eq!(to, Dest::Element);
    (voter, vote)
}

#[test]
fn early_decision_completes_vote_at_element_answer() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&decided(vote, 4));
    assert_eq!(voter.output(), None, "the vote may be lost");
    voter.handle_frame(&counted(vote, 3));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: true }));
}

#[test]
fn decision_of_other_round_triggers_query() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&decided(vote, 3));
    voter.handle_frame(&counted(vote, 3));
    assert_eq!(voter.output(), None, "the decision is of another round");
    let (to, ask) = voter.next_frame();
    assert_eq!(to, Dest::Endpoint(SERVER));
    voter.handle_frame(&answer(ask, PairStatus::Whole, 0));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: true }));
}

#[test]
fn early_decision_triggers_query_at_server_answer() {
    let mut voter = Voter::new();
    let (_, vote) = voter.next_frame();
    voter.handle_frame(&decided(vote, 0));
    voter.handle_frame(&answer(vote, PairStatus::Held, 0));
    assert_eq!(voter.output(), None);
    let (_, ask) = voter.next_frame();
    // Announcement and answer may be of different ballots, so the query decides.
    voter.handle_frame(&answer(ask, PairStatus::Whole, 0));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: true }));
}
