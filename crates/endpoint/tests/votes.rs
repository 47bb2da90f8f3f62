//! Decisions of the element, and decisions announced before the answer to the vote, since they take different paths.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Ack, Dest, EpochChange, FrameSink, Key, Operation, Output, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, PairAnswer, PairStatus, entry_len};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::{client_config, server_config};

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
    fn new(ack: Ack) -> Self {
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
        client.start(Instant(0), CallId(1), Operation::Count { keys, threshold: 2, to: ForwardTarget::All, ack });
        Self(client)
    }

    /// Destination and base header of the single frame that it sends now.
    fn next_frame(&mut self) -> (Dest, BaseRepr) {
        let (to, frame) = self.next_bytes(Instant(0));
        (to, MapFrame::new_checked(frame.as_slice()).expect("valid frame").base().repr())
    }

    /// Destination and bytes of the single frame that it sends at a time.
    fn next_bytes(&mut self, now: Instant) -> (Dest, Vec<u8>) {
        let mut sent = Sent::default();
        self.0.poll(now, &mut sent);
        let [(to, frame)] = &sent.0[..] else { panic!("{} frames", sent.0.len()) };
        (*to, frame.clone())
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

/// Element's decision by the vote of `sent`: the same frame, of another kind.
fn decided_by(sent: BaseRepr, round: u32) -> Vec<u8> {
    let mut frame = decided(sent, round + 1);
    let base = BaseRepr { round: round + 1, kind: FrameKind::MapSoft as u8, dst: ENDPOINT, ..sent };
    BaseRepr { dst_incarnation: INCARNATION, length: frame.len() as u16, ..base }.emit(&mut frame);
    frame
}

/// Voter with a vote in flight to the element, and its frame.
fn by_element() -> (Voter, BaseRepr) {
    let (voter, vote) = voting(Ack::Element);
    let base = MapFrame::new_checked(vote.as_slice()).expect("valid frame").base().repr();
    (voter, base)
}

fn voting(ack: Ack) -> (Voter, Vec<u8>) {
    let mut voter = Voter::new(ack);
    let (to, past) = voter.next_frame();
    assert_ne!(to, Dest::Element, "the first vote goes to the server");
    voter.handle_frame(&answer(past, PairStatus::Moved, 4));
    let (to, vote) = voter.next_bytes(Instant(0));
    assert_eq!(to, Dest::Element);
    (voter, vote)
}

/// Flags of a frame, and the value of its only pair.
fn flags_and_value(frame: &[u8]) -> (u16, i64) {
    let frame = MapFrame::new_checked(frame).expect("valid frame");
    (frame.map().flags(), pairs::entries(frame.payload()).next().expect("an entry").1)
}

#[test]
fn vote_that_decides_in_element_is_reported_to_server() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&decided_by(vote, 3));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
    let (to, report) = voter.next_bytes(Instant(0));
    assert_eq!(to, Dest::Endpoint(SERVER));
    let (flags, value) = flags_and_value(&report);
    assert_eq!(flags & MapFlags::CLAIM, MapFlags::CLAIM);
    assert_eq!(value, 3 << 32 | 1 << 31, "round and decision, no votes");
    assert!(!voter.0.is_idle(), "the report may be lost");
    let base = MapFrame::new_checked(report.as_slice()).expect("valid frame").base().repr();
    voter.handle_frame(&answer(base, PairStatus::Whole, 0));
    assert!(voter.0.is_idle());
}

#[test]
fn voter_that_missed_decision_asks_element() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&counted(vote, 3));
    assert_eq!(voter.output(), None);
    let later = voter.0.deadline().expect("a probe");
    let (to, query) = voter.next_bytes(later);
    assert_eq!((to, flags_and_value(&query).0 & MapFlags::GET), (Dest::Element, MapFlags::GET));
    let base = MapFrame::new_checked(query.as_slice()).expect("valid frame").base().repr();
    let mut answer = counted(base, 3);
    let mut frame = MapFrame::new_checked(answer.as_mut_slice()).expect("valid frame");
    frame.map_mut().set_flags(MapFlags::BARE | MapFlags::COUNT | MapFlags::GET | MapFlags::REACHED);
    voter.handle_frame(&answer);
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
}

#[test]
fn decision_of_other_voter_completes_counted_vote_without_report() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&counted(vote, 3));
    let other = BaseRepr { src: ENDPOINT + 1, slot: vote.slot + 8, seq: vote.seq + 5, ..vote };
    voter.handle_frame(&decided_by(other, 3));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
    assert!(voter.0.is_idle(), "the other voter reports");
}

#[test]
fn caller_that_got_decision_claims_it_when_epoch_ends() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&counted(vote, 3));
    voter.handle_frame(&decided_by(BaseRepr { slot: vote.slot + 8, ..vote }, 3));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
    let (epoch, era) = (vote.epoch + 1, Era::of_epoch(vote.epoch + 1));
    voter.0.renew(
        Instant(1),
        &EpochChange { epoch, element: false, slot_base: 0, rows: 0, era, committed: 0, applied: Vec::new() },
    );
    let mut sent = Sent::default();
    voter.0.poll(Instant(1), &mut sent);
    let pairs = |frame: &&(Dest, Vec<u8>)| {
        MapFrame::new_checked(frame.1.as_slice()).expect("valid frame").kind() == FrameKind::MapPairs
    };
    let (to, claim) = sent.0.iter().find(pairs).expect("a claim");
    assert_eq!(*to, Dest::Endpoint(SERVER));
    let (flags, value) = flags_and_value(claim);
    assert_eq!(flags & MapFlags::CLAIM, MapFlags::CLAIM);
    assert_eq!(value, 3 << 32 | 1 << 31 | 1, "round, decision and one vote");
}

#[test]
fn vote_asks_server_to_decide_only_with_server_acknowledgement() {
    for (ack, waits) in [(Ack::Element, false), (Ack::Server, true)] {
        let (_, vote) = voting(ack);
        assert_eq!(flags_and_value(&vote).0 & MapFlags::WAIT != 0, waits, "{ack:?}");
    }
}

#[test]
fn early_decision_completes_vote_at_element_answer() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&decided(vote, 4));
    assert_eq!(voter.output(), None, "the vote may be lost");
    voter.handle_frame(&counted(vote, 3));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
}

#[test]
fn decision_of_other_round_triggers_query() {
    let (mut voter, vote) = by_element();
    voter.handle_frame(&decided(vote, 3));
    voter.handle_frame(&counted(vote, 3));
    assert_eq!(voter.output(), None, "the decision is of another round");
    let (to, ask) = voter.next_frame();
    assert_eq!(to, Dest::Element, "the element may have decided");
    voter.handle_frame(&answer(ask, PairStatus::Whole, 0));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
}

#[test]
fn early_decision_triggers_query_at_server_answer() {
    let mut voter = Voter::new(Ack::Element);
    let (_, vote) = voter.next_frame();
    voter.handle_frame(&decided(vote, 0));
    voter.handle_frame(&answer(vote, PairStatus::Held, 0));
    assert_eq!(voter.output(), None);
    let (_, ask) = voter.next_frame();
    // Announcement and answer may be of different ballots, so the query decides.
    voter.handle_frame(&answer(ask, PairStatus::Whole, 0));
    assert_eq!(voter.output(), Some(Output::Counted { forwarded: vec![true] }));
}

/// Status and value of the server's answer to a frame of one vote for its handler, or of a clear, that has passed the
/// element.
fn answer_after_element(server: &mut MapServer, seq: u32, flags: u16, round: u32) -> (PairStatus, i64) {
    let payload = entry_len(KEY.len() + 1);
    let base = BaseRepr {
        gaid: 7,
        epoch: 1,
        src: ENDPOINT,
        src_incarnation: INCARNATION,
        dst: SERVER,
        dst_incarnation: INCARNATION,
        seq,
        round,
        ..BaseRepr::new(FrameKind::MapPairs)
    };
    let map = MapRepr {
        to: ForwardTarget::Server as u8,
        flags: MapFlags::BARE | flags,
        threshold: 2,
        payload_len: payload as u16,
        ..MapRepr::default()
    };
    let mut frame = vec![0; frame_len(map.flags, 0, payload)];
    pairs::put(emit(&base, &map, &mut frame).payload_mut(), Key::from(KEY).as_bytes(), 1).expect("enough space");
    let mut sent = Sent::default();
    server.handle(Instant(0), &frame, &mut sent);
    let [(_, answer)] = &sent.0[..] else { panic!("{} frames", sent.0.len()) };
    let answer = MapFrame::new_checked(answer.as_slice()).expect("valid frame");
    pairs::answers(answer.payload()).next().map(|answer| (answer.status, answer.value)).expect("one answer")
}

#[test]
fn vote_that_reached_threshold_before_clear_decides() {
    let config =
        ServerConfig { grant: Some(RegisterGrant { rows: 4, width: 1 }), votes: true, width: 1, ..server_config() };
    let mut server = MapServer::new(config);
    let member =
        Member { endpoint: ENDPOINT, incarnation: INCARNATION, element: true, slot_base: 0, flows: 1, terms: 0 };
    server.join(Instant(0), member).expect("join succeeds");
    let reached = MapFlags::COUNT | MapFlags::REACHED;
    let done = (PairStatus::Mapped, 0);
    assert_eq!(answer_after_element(&mut server, 1, MapFlags::CLEAR, 1), done);
    let decides = (PairStatus::Mapped, 2);
    assert_eq!(answer_after_element(&mut server, 2, reached, 0), decides, "the clear was faster");
    assert_eq!(answer_after_element(&mut server, 2, reached, 0), decides, "a repeat");
    assert_eq!(answer_after_element(&mut server, 3, reached, 1), decides, "the next round has a decision of its own");
}
