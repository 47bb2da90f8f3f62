//! Tests of ballots in the element.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{entry_len, put};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::{Endpoint, FrameAction, FrameDropReason, InstalledApplication, Size, SwitchProgram};

const OWNER: u32 = 1;
const VOTER: u32 = 10;
const THRESHOLD: u32 = 2;

fn program() -> SwitchProgram {
    let mut program = SwitchProgram::new(Size { rows: 2, lanes: 2, slots: 1 });
    let tables = program.tables_mut();
    let application =
        InstalledApplication { gaid: 7, epoch: 1, owner: OWNER, row_base: 0, rows: 2, lane_base: 0, width: 1 };
    tables.install(application).expect("fits");
    for (endpoint, slots) in [(OWNER, 0), (VOTER, 1)] {
        tables.set_endpoint(Endpoint { endpoint, incarnation: 5, gaid: 7, slot_base: 0, slots }).expect("fits");
    }
    program
}

/// Result of a frame of a voter whose votes are for the server.
fn send(program: &mut SwitchProgram, seq: u32, key: &str, flags: u16) -> (FrameAction, FrameKind, u16, u32) {
    send_to(ForwardTarget::Server, program, seq, key, flags)
}

/// Result of a frame of a voter that waits for the decision.
fn send_waiting(program: &mut SwitchProgram, seq: u32, key: &str, flags: u16) -> (FrameAction, FrameKind, u16, u32) {
    send_to(ForwardTarget::All, program, seq, key, flags)
}

/// Result of a frame of the voter: destination, kind, relevant flags, round.
fn send_to(
    to: ForwardTarget,
    program: &mut SwitchProgram,
    seq: u32,
    key: &str,
    flags: u16,
) -> (FrameAction, FrameKind, u16, u32) {
    let flags = flags | MapFlags::BARE;
    let payload = entry_len(key.len());
    let base = BaseRepr {
        gaid: 7,
        epoch: 1,
        src: VOTER,
        src_incarnation: 5,
        dst: OWNER,
        seq,
        ..BaseRepr::new(FrameKind::MapPairs)
    };
    let map = MapRepr { flags, to: to as u8, threshold: THRESHOLD, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 0, payload)];
    put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), 1).expect("fits");
    let verdict = program.process(Instant(1), &mut bytes, false);
    let frame = MapFrame::new_checked(&bytes[..verdict.len]).expect("a frame");
    let flags = frame.map().flags() & (MapFlags::REACHED | MapFlags::DIVERTED);
    (verdict.action, frame.kind(), flags, frame.base().round())
}

/// Message of the server about row 0.
fn server_message(program: &mut SwitchProgram, kind: FrameKind, flags: u16, round: u32) {
    let flags = flags | MapFlags::BARE;
    let base = BaseRepr {
        gaid: 7,
        epoch: 1,
        src: OWNER,
        src_incarnation: 5,
        dst: VOTER,
        round,
        flags: Flags::FROM_SERVER,
        ..BaseRepr::new(kind)
    };
    let mut bytes = vec![0; frame_len(flags, 0, 0)];
    emit(&base, &MapRepr { flags, ..MapRepr::default() }, &mut bytes);
    program.process(Instant(1), &mut bytes, false);
}

const BACK: FrameAction = FrameAction::Forward(VOTER);
const ON: FrameAction = FrameAction::Forward(OWNER);
const VOTE: u16 = MapFlags::COUNT;
const REACHED: u16 = MapFlags::REACHED;
const QUERY: u16 = MapFlags::COUNT | MapFlags::GET;
const RECORDED: u16 = MapFlags::COUNT | MapFlags::WAIT;

#[test]
fn votes_end_in_element_below_threshold_and_after_decision() {
    let mut program = program();
    assert_eq!(send(&mut program, 1, "sa", VOTE), (BACK, FrameKind::MapAck, 0, 0));
    assert_eq!(send(&mut program, 1, "sa", VOTE), (BACK, FrameKind::MapAck, 0, 0), "a repeat counts nothing");
    assert_eq!(send(&mut program, 2, "sa", VOTE), (ON, FrameKind::MapPairs, REACHED, 0));
    assert_eq!(send(&mut program, 2, "sa", VOTE), (ON, FrameKind::MapPairs, REACHED, 0), "a repeat is forwarded again");
    assert_eq!(send(&mut program, 3, "sa", VOTE), (BACK, FrameKind::MapAck, 0, 0), "another vote runs the handler");
    server_message(&mut program, FrameKind::MapPairsAck, MapFlags::COUNT, 1);
    assert_eq!(send(&mut program, 4, "sa", VOTE).2, 0, "the decision was of another round");
    server_message(&mut program, FrameKind::MapPairsAck, MapFlags::COUNT, 0);
    assert_eq!(send(&mut program, 5, "sa", VOTE), (BACK, FrameKind::MapAck, REACHED, 0));
    assert_eq!(
        send(&mut program, 2, "sa", VOTE),
        (ON, FrameKind::MapPairs, REACHED, 0),
        "a forwarded vote is forwarded again"
    );
}

#[test]
fn cleared_ballot_counts_from_zero_in_next_round() {
    let mut program = program();
    send(&mut program, 1, "sa", VOTE);
    send(&mut program, 2, "sa", VOTE);
    assert_eq!(send(&mut program, 3, "sa", MapFlags::CLEAR), (ON, FrameKind::MapPairs, 0, 1));
    assert_eq!(send(&mut program, 3, "sa", MapFlags::CLEAR), (ON, FrameKind::MapPairs, 0, 1), "once");
    assert_eq!(
        send(&mut program, 2, "sa", VOTE),
        (ON, FrameKind::MapPairs, REACHED, 0),
        "the vote reached the threshold before the clear"
    );
    assert_eq!(send(&mut program, 1, "sa", VOTE), (BACK, FrameKind::MapAck, 0, 0), "the vote was of round 0");
    assert_eq!(send(&mut program, 4, "sa", VOTE), (BACK, FrameKind::MapAck, 0, 1));
    assert_eq!(send(&mut program, 5, "sa", VOTE), (ON, FrameKind::MapPairs, REACHED, 1));
}

#[test]
fn ballot_row_has_at_most_one_key() {
    let mut program = program();
    send(&mut program, 1, "sa", VOTE);
    assert_eq!(send(&mut program, 2, "sb", VOTE), (ON, FrameKind::MapPairs, MapFlags::DIVERTED, 0));
    assert_eq!(send(&mut program, 3, "sa", VOTE).2, REACHED, "the vote for the other key was not counted");
    let mut program = self::program();
    server_message(&mut program, FrameKind::MapMove, 0, 0);
    assert_eq!(send(&mut program, 1, "sa", VOTE).2, MapFlags::DIVERTED, "the row was moved to the server");
    let long = "s".repeat(pathcall_wire::pairs::MAX_BALLOT_KEY + 1);
    assert_eq!(send(&mut program, 2, &long, VOTE).0, FrameAction::Drop(FrameDropReason::Malformed));
}

#[test]
fn element_decides_for_waiting_voters_and_repeats_decision() {
    let mut program = program();
    assert_eq!(send_waiting(&mut program, 1, "sa", VOTE), (BACK, FrameKind::MapAck, 0, 0));
    assert_eq!(send_waiting(&mut program, 2, "sa", QUERY), (ON, FrameKind::MapPairs, 0, 0), "undecided");
    let decision = (FrameAction::Multicast(7), FrameKind::MapSoft, REACHED, 1);
    assert_eq!(send_waiting(&mut program, 3, "sa", VOTE), decision);
    let again = (BACK, FrameKind::MapSoft, REACHED, 1);
    assert_eq!(send_waiting(&mut program, 3, "sa", VOTE), again);
    assert_eq!(send_waiting(&mut program, 1, "sa", VOTE), (BACK, FrameKind::MapAck, REACHED, 0));
    assert_eq!(send_waiting(&mut program, 4, "sa", VOTE), (BACK, FrameKind::MapAck, REACHED, 0));
    assert_eq!(send_waiting(&mut program, 5, "sa", QUERY), (BACK, FrameKind::MapAck, REACHED, 0));
    assert_eq!(send_waiting(&mut program, 6, "sb", QUERY), (ON, FrameKind::MapPairs, 0, 0), "another key");
    assert_eq!(send_waiting(&mut program, 7, "sa", MapFlags::CLEAR), (ON, FrameKind::MapPairs, 0, 1));
    assert_eq!(send_waiting(&mut program, 3, "sa", VOTE), again, "the vote decided round 0");
    assert_eq!(send_waiting(&mut program, 8, "sa", QUERY).0, ON, "round 1 is undecided");
}

#[test]
fn server_decides_for_voters_that_need_its_record() {
    let mut program = program();
    send_waiting(&mut program, 1, "sa", RECORDED);
    let forwarded = (ON, FrameKind::MapPairs, REACHED, 0);
    assert_eq!(send_waiting(&mut program, 2, "sa", RECORDED), forwarded);
    assert_eq!(send_waiting(&mut program, 2, "sa", RECORDED), forwarded);
    assert_eq!(send_waiting(&mut program, 3, "sa", RECORDED), forwarded, "the server may have lost the last vote");
    assert_eq!(send_waiting(&mut program, 4, "sa", QUERY), (ON, FrameKind::MapPairs, 0, 0));
    server_message(&mut program, FrameKind::MapPairsAck, MapFlags::COUNT, 0);
    assert_eq!(send_waiting(&mut program, 5, "sa", RECORDED), (BACK, FrameKind::MapAck, REACHED, 0));
    assert_eq!(send_waiting(&mut program, 6, "sa", QUERY), (BACK, FrameKind::MapAck, REACHED, 0));
}
