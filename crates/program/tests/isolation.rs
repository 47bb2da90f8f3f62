//! Isolation tests: two applications on one element, one of them hostile. Whatever the hostile members and server send,
//! frames of the other application have the same effects and answers as without them.

use pathcall_program::{Endpoint, FrameAction, FrameDropReason, InstalledApplication, Size, SwitchProgram};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapRepr};
use proptest::prelude::*;

/// Observed application, and hostile one. Each has a server and two callers.
const WATCHED: u32 = 7;
const HOSTILE: u32 = 8;
const EPOCH: u32 = 3;
const INCARNATION: u32 = 5;

fn program() -> SwitchProgram {
    let mut program = SwitchProgram::new(Size { rows: 16, lanes: 1024, slots: 17 });
    let tables = program.tables_mut();
    for (gaid, first_endpoint, row_base, lane_base, slot_base) in [(WATCHED, 1, 0, 0, 0), (HOSTILE, 4, 8, 512, 8)] {
        let owner = first_endpoint;
        let memory = InstalledApplication { gaid, epoch: EPOCH, owner, row_base, rows: 8, lane_base, width: 64 };
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

/// Arbitrary frame of an endpoint of one application; `gaid` and `dst` may be another's.
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
            ..BaseRepr::new(FrameKind::parse(kind).expect("in range"))
        };
        // Mostly additions, which change registers.
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

fn run(program: &mut SwitchProgram, frame: &[u8]) -> (FrameAction, Vec<u8>) {
    let mut bytes = frame.to_vec();
    let verdict = program.process(Instant(1), &mut bytes, false);
    bytes.truncate(verdict.len);
    (verdict.action, bytes)
}

proptest! {
    #[test]
    fn hostile_application_does_not_affect_other(
        played in prop::collection::vec(
            prop_oneof![
                // Of the observed application, by its own endpoints.
                frame(1..4, Just(WATCHED)).prop_map(|frame| (true, frame)),
                // By the hostile application's endpoints, under either application's id.
                frame(4..7, prop::sample::select(vec![WATCHED, HOSTILE])).prop_map(|frame| (false, frame)),
            ],
            1..80,
        ),
    ) {
        let (mut separate, mut together) = (program(), program());
        for (own, frame) in &played {
            let answer = run(&mut together, frame);
            if *own {
                prop_assert_eq!(answer, run(&mut separate, frame));
                continue;
            }
            // Output to hostile endpoints does not contain data of the observed application.
            match answer.0 {
                FrameAction::Forward(endpoint) if endpoint < 4 => prop_assert_eq!(answer.1.len(), frame.len(), "forwarded, not processed"),
                FrameAction::Multicast(gaid) => prop_assert_eq!(gaid, HOSTILE),
                FrameAction::Forward(_) | FrameAction::Clone(_) | FrameAction::Drop(_) => {}
            }
        }
        prop_assert_eq!(together.tables().read_rows(WATCHED, 0, 8), separate.tables().read_rows(WATCHED, 0, 8));
    }

    #[test]
    fn installed_and_removed_application_does_not_affect_other(
        played in prop::collection::vec((any::<bool>(), frame(1..4, Just(WATCHED))), 1..40),
    ) {
        let (mut separate, mut together) = (program(), program());
        for (round, (toggles, frame)) in played.iter().enumerate() {
            let tables = together.tables_mut();
            if *toggles && tables.endpoint(4).is_some() {
                tables.remove(HOSTILE).expect("installed");
            } else if *toggles {
                let epoch = EPOCH + round as u32;
                let memory = InstalledApplication {
                    gaid: HOSTILE, epoch, owner: 4, row_base: 8, rows: 8, lane_base: 512, width: 64,
                };
                tables.install(memory).expect("free memory");
                let entry = Endpoint { endpoint: 4, incarnation: INCARNATION, gaid: HOSTILE, slot_base: 8, slots: 8 };
                tables.set_endpoint(entry).expect("free slots");
            }
            prop_assert_eq!(run(&mut together, frame), run(&mut separate, frame));
        }
        prop_assert_eq!(together.tables().read_rows(WATCHED, 0, 8), separate.tables().read_rows(WATCHED, 0, 8));
    }
}

#[test]
fn endpoint_that_changes_application_leaves_former_group() {
    let mut program = program();
    let moved = Endpoint { endpoint: 2, incarnation: 6, gaid: HOSTILE, slot_base: 0, slots: 4 };
    program.tables_mut().set_endpoint(moved).expect("its slots are its own");
    let members =
        |program: &SwitchProgram| program.tables().group(WATCHED).map(|member| member.endpoint).collect::<Vec<_>>();
    assert_eq!(members(&program), [3], "the endpoint must not get results of the other application");
    program.tables_mut().set_endpoint(Endpoint { gaid: WATCHED, ..moved }).expect("its slots are its own");
    assert_eq!(members(&program), [3], "a returning endpoint is no member until the controller adds it");
}

#[test]
fn application_without_rows_has_no_generation() {
    let mut program = program();
    // Its rows would begin where another application's do, but it has none.
    let none = InstalledApplication { gaid: 9, epoch: EPOCH, owner: 8, row_base: 0, rows: 0, lane_base: 0, width: 64 };
    program.tables_mut().install(none).expect("takes nothing");
    for endpoint in [8, 9] {
        let entry = Endpoint { endpoint, incarnation: INCARNATION, gaid: 9, slot_base: 16, slots: endpoint % 2 };
        program.tables_mut().set_endpoint(entry).expect("fits");
    }
    let send = |program: &mut SwitchProgram, kind, src, flags| {
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
    for kind in [FrameKind::MapClose, FrameKind::MapWipe] {
        assert_eq!(
            send(&mut program, kind, 8, Flags::FROM_SERVER),
            FrameAction::Drop(FrameDropReason::Malformed),
            "{kind:?}"
        );
    }
    assert_eq!(send(&mut program, FrameKind::MapData, 9, 0), FrameAction::Drop(FrameDropReason::Malformed));
    let generation = program.tables().registers().generations.peek(0, 1)[0];
    assert_eq!((generation.open, generation.version), (1, 0), "state of another application");
}
