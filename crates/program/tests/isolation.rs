//! Two applications on one element, one of which is hostile: whatever its members and its server send,
//! the other one's frames have the same effect and the same answers as if it were alone.

use pathcall_program::{Action, Application, Endpoint, Program, Reason, Size};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapRepr};
use proptest::prelude::*;

/// The application that is watched, and the hostile one. Each has a server and two callers.
const WATCHED: u32 = 7;
const HOSTILE: u32 = 8;
const EPOCH: u32 = 3;
const INCARNATION: u32 = 5;

fn program() -> Program {
    let mut program = Program::new(Size { rows: 16, lanes: 1024, slots: 17 });
    let tables = program.tables_mut();
    for (gaid, first_endpoint, row_base, lane_base, slot_base) in [(WATCHED, 1, 0, 0, 0), (HOSTILE, 4, 8, 512, 8)] {
        let owner = first_endpoint;
        let memory = Application { gaid, epoch: EPOCH, owner, row_base, rows: 8, lane_base, width: 64 };
        tables.install(memory).expect("fits");
        for (endpoint, slot_base, slots) in
            [(owner, slot_base, 0), (owner + 1, slot_base, 4), (owner + 2, slot_base + 4, 4)]
        {
            let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid, slot_base, slots };
            tables.set_endpoint(entry).expect("fits");
        }
        tables.set_group(gaid, &[owner + 1, owner + 2]).expect("known");
    }
    program
}

/// A frame of an endpoint of one application, whatever else it says: `gaid` and `dst` may be another's.
fn frame(src: std::ops::Range<u32>, gaid: impl Strategy<Value = u32>) -> impl Strategy<Value = Vec<u8>> {
    let names = (src, gaid, 1u32..8, 0u32..20, 1u32..12);
    let head = (1u8..=23, any::<u16>(), 0u32..4);
    let map = (0u8..=10, 0u8..=2, any::<u16>(), 0u16..40, any::<i32>(), 0u32..10);
    let rest = (0u32..8, 0u16..4, prop::sample::select(vec![0u16, 64]), 0u32..3, any::<u8>());
    (names, head, map, rest).prop_map(|(names, head, map, rest)| {
        let ((src, gaid, dst, slot, seq), (kind, flags, round)) = (names, head);
        let (op, to, map_flags, lanes, para, index) = map;
        let (threshold, worker, first_lane, tag, fill) = rest;
        let base = BaseRepr {
            flags: flags & !Flags::TOKEN,
            gaid,
            epoch: EPOCH,
            src,
            src_incarnation: INCARNATION,
            dst,
            dst_incarnation: INCARNATION,
            slot,
            seq,
            round,
            ..BaseRepr::new(Kind::parse(kind).expect("in range"))
        };
        // Mostly additions, which change something.
        let map_flags = if fill % 2 == 0 { MapFlags::ADD } else { map_flags };
        let map = MapRepr {
            op,
            to,
            flags: map_flags,
            lanes,
            first_lane,
            para,
            index,
            threshold,
            worker,
            payload_len: 0,
            tag,
        };
        let mut bytes = vec![0; frame_len(map.flags, lanes.into(), 0)];
        let mut frame = emit(&base, &map, &mut bytes);
        let (bitmap, lanes) = frame.bitmap_and_lanes_mut();
        bitmap.fill(0xff);
        lanes.iter_mut().enumerate().for_each(|(at, byte)| *byte = if at % 4 == 3 { fill % 8 } else { 0 });
        bytes
    })
}

fn run(program: &mut Program, frame: &[u8]) -> (Action, Vec<u8>) {
    let mut bytes = frame.to_vec();
    let verdict = program.process(Instant(1), &mut bytes, false);
    bytes.truncate(verdict.len);
    (verdict.action, bytes)
}

proptest! {
    #[test]
    fn a_hostile_neighbour_changes_nothing(
        played in prop::collection::vec(
            prop_oneof![
                // Of the watched application, by its own endpoints.
                frame(1..4, Just(WATCHED)).prop_map(|frame| (true, frame)),
                // By the other one's endpoints, in either name.
                frame(4..7, prop::sample::select(vec![WATCHED, HOSTILE])).prop_map(|frame| (false, frame)),
            ],
            1..80,
        ),
    ) {
        let (mut alone, mut together) = (program(), program());
        for (own, frame) in &played {
            let answer = run(&mut together, frame);
            if *own {
                prop_assert_eq!(answer, run(&mut alone, frame));
                continue;
            }
            // What it gets to see, or has sent to anybody, is not of the watched application's making.
            match answer.0 {
                Action::Forward(endpoint) if endpoint < 4 => prop_assert_eq!(answer.1.len(), frame.len(), "passed on, not worked on"),
                Action::Multicast(gaid) => prop_assert_eq!(gaid, HOSTILE),
                Action::Forward(_) | Action::Clone(_) | Action::Drop(_) => {}
            }
        }
        prop_assert_eq!(together.tables().read_rows(WATCHED, 0, 8), alone.tables().read_rows(WATCHED, 0, 8));
    }

    #[test]
    fn a_neighbour_that_comes_and_goes_changes_nothing(
        played in prop::collection::vec((any::<bool>(), frame(1..4, Just(WATCHED))), 1..40),
    ) {
        let (mut alone, mut together) = (program(), program());
        for (turn, (goes, frame)) in played.iter().enumerate() {
            let tables = together.tables_mut();
            if *goes && tables.endpoint(4).is_some() {
                tables.remove(HOSTILE).expect("installed");
            } else if *goes {
                let epoch = EPOCH + turn as u32;
                let memory = Application { gaid: HOSTILE, epoch, owner: 4, row_base: 8, rows: 8, lane_base: 512, width: 64 };
                tables.install(memory).expect("its place is free");
                let entry = Endpoint { endpoint: 4, incarnation: INCARNATION, gaid: HOSTILE, slot_base: 8, slots: 8 };
                tables.set_endpoint(entry).expect("its slots are free");
            }
            prop_assert_eq!(run(&mut together, frame), run(&mut alone, frame));
        }
        prop_assert_eq!(together.tables().read_rows(WATCHED, 0, 8), alone.tables().read_rows(WATCHED, 0, 8));
    }
}

#[test]
fn an_endpoint_that_changes_its_application_leaves_the_group_of_the_last_one() {
    let mut program = program();
    let moved = Endpoint { endpoint: 2, incarnation: 6, gaid: HOSTILE, slot_base: 0, slots: 4 };
    program.tables_mut().set_endpoint(moved).expect("its slots are its own");
    let members = |program: &Program| program.tables().group(WATCHED).map(|member| member.endpoint).collect::<Vec<_>>();
    assert_eq!(members(&program), [3], "it must not hear the results of the other application");
    program.tables_mut().set_endpoint(Endpoint { gaid: WATCHED, ..moved }).expect("its slots are its own");
    assert_eq!(members(&program), [3], "who comes back is not a member before the controller says so");
}

#[test]
fn an_application_without_rows_has_no_generation() {
    let mut program = program();
    // Its rows would begin where another one's do; there is none of its own.
    let none = Application { gaid: 9, epoch: EPOCH, owner: 8, row_base: 0, rows: 0, lane_base: 0, width: 64 };
    program.tables_mut().install(none).expect("takes nothing");
    for endpoint in [8, 9] {
        let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid: 9, slot_base: 16, slots: endpoint % 2 };
        program.tables_mut().set_endpoint(entry).expect("fits");
    }
    let send = |program: &mut Program, kind, src, flags| {
        let base = BaseRepr {
            gaid: 9,
            epoch: EPOCH,
            src,
            src_incarnation: INCARNATION,
            dst: 17 - src,
            slot: 16,
            seq: 1,
            round: 1,
            flags,
            ..BaseRepr::new(kind)
        };
        let mut bytes = vec![0; frame_len(0, 0, 0)];
        emit(&base, &MapRepr { index: 77, ..MapRepr::default() }, &mut bytes);
        program.process(Instant(1), &mut bytes, false).action
    };
    for kind in [Kind::MapClose, Kind::MapWipe] {
        assert_eq!(send(&mut program, kind, 8, Flags::FROM_SERVER), Action::Drop(Reason::Malformed), "{kind:?}");
    }
    assert_eq!(send(&mut program, Kind::MapData, 9, 0), Action::Drop(Reason::Malformed));
    let generation = program.tables().registers().generations.peek(0, 1)[0];
    assert_eq!((generation.open, generation.version), (1, 0), "another application's");
}
