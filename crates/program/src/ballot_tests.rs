//! A ballot's life in the element.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{entry_len, put};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, Target};

use crate::{Action, Application, Endpoint, Program, Reason, Size};

const OWNER: u32 = 1;
const VOTER: u32 = 10;
const THRESHOLD: u32 = 2;

fn program() -> Program {
    let mut program = Program::new(Size { rows: 2, lanes: 2, slots: 1 });
    let tables = program.tables_mut();
    let application = Application { gaid: 7, epoch: 1, owner: OWNER, row_base: 0, rows: 2, lane_base: 0, width: 1 };
    tables.install(application).expect("fits");
    for (endpoint, slots) in [(OWNER, 0), (VOTER, 1)] {
        tables.set_endpoint(Endpoint { endpoint, incarnation: 5, gaid: 7, slot_base: 0, slots }).expect("fits");
    }
    program
}

/// What becomes of a frame of the voter: where it goes, its kind, its flags of interest, its round.
fn send(program: &mut Program, seq: u32, key: &str, flags: u16) -> (Action, Kind, u16, u32) {
    let flags = flags | MapFlags::BARE;
    let payload = entry_len(key.len());
    let base = BaseRepr {
        gaid: 7,
        epoch: 1,
        src: VOTER,
        src_incarnation: 5,
        dst: OWNER,
        seq,
        ..BaseRepr::new(Kind::MapPairs)
    };
    let to = Target::Server as u8;
    let map = MapRepr { flags, to, threshold: THRESHOLD, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 0, payload)];
    put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), 1).expect("fits");
    let verdict = program.process(Instant(1), &mut bytes, false);
    let frame = MapFrame::new_checked(&bytes[..verdict.len]).expect("a frame");
    let flags = frame.map().flags() & (MapFlags::REACHED | MapFlags::DIVERTED);
    (verdict.action, frame.kind(), flags, frame.base().round())
}

/// The server's word of row 0.
fn tell(program: &mut Program, kind: Kind, flags: u16, round: u32) {
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

const BACK: Action = Action::Forward(VOTER);
const ON: Action = Action::Forward(OWNER);
const VOTE: u16 = MapFlags::COUNT;
const REACHED: u16 = MapFlags::REACHED;

#[test]
fn votes_end_here_until_the_threshold_and_after_the_decision() {
    let mut program = program();
    assert_eq!(send(&mut program, 1, "sa", VOTE), (BACK, Kind::MapAck, 0, 0));
    assert_eq!(send(&mut program, 1, "sa", VOTE), (BACK, Kind::MapAck, 0, 0), "a repeat counts nothing");
    assert_eq!(send(&mut program, 2, "sa", VOTE), (ON, Kind::MapPairs, REACHED, 0));
    assert_eq!(send(&mut program, 2, "sa", VOTE), (ON, Kind::MapPairs, REACHED, 0), "it may have been lost");
    assert_eq!(send(&mut program, 3, "sa", VOTE), (ON, Kind::MapPairs, REACHED, 0), "nothing is recorded yet");
    tell(&mut program, Kind::MapPairsAck, MapFlags::COUNT, 1);
    assert_eq!(send(&mut program, 4, "sa", VOTE), (ON, Kind::MapPairs, REACHED, 0), "that was another round");
    tell(&mut program, Kind::MapPairsAck, MapFlags::COUNT, 0);
    assert_eq!(send(&mut program, 5, "sa", VOTE), (BACK, Kind::MapAck, REACHED, 0));
    assert_eq!(send(&mut program, 2, "sa", VOTE), (ON, Kind::MapPairs, REACHED, 0), "the server knows what it said");
}

#[test]
fn a_cleared_ballot_counts_from_zero_in_another_round() {
    let mut program = program();
    send(&mut program, 1, "sa", VOTE);
    send(&mut program, 2, "sa", VOTE);
    assert_eq!(send(&mut program, 3, "sa", MapFlags::CLEAR), (ON, Kind::MapPairs, 0, 1));
    assert_eq!(send(&mut program, 3, "sa", MapFlags::CLEAR), (ON, Kind::MapPairs, 0, 1), "once");
    assert_eq!(send(&mut program, 2, "sa", VOTE), (ON, Kind::MapPairs, 0, 1), "its ballot is gone");
    assert_eq!(send(&mut program, 1, "sa", VOTE), (BACK, Kind::MapAck, 0, 0), "it was of round 0");
    assert_eq!(send(&mut program, 4, "sa", VOTE), (BACK, Kind::MapAck, 0, 1));
    assert_eq!(send(&mut program, 5, "sa", VOTE), (ON, Kind::MapPairs, REACHED, 1));
}

#[test]
fn a_row_has_one_key_or_none() {
    let mut program = program();
    send(&mut program, 1, "sa", VOTE);
    assert_eq!(send(&mut program, 2, "sb", VOTE), (ON, Kind::MapPairs, MapFlags::DIVERTED, 0));
    assert_eq!(send(&mut program, 3, "sa", VOTE).2, REACHED, "the other one was not counted");
    let mut program = self::program();
    tell(&mut program, Kind::MapMove, 0, 0);
    assert_eq!(send(&mut program, 1, "sa", VOTE).2, MapFlags::DIVERTED, "the server counts this row");
    let long = "s".repeat(pathcall_wire::pairs::MAX_BALLOT_KEY + 1);
    assert_eq!(send(&mut program, 2, &long, VOTE).0, Action::Drop(Reason::Malformed));
}
