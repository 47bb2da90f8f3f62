use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, ForwardTarget, MapRepr, RECORD_PLACES};
use proptest::prelude::*;

use super::*;

mod locks;

const APPLICATION: InstalledApplication =
    InstalledApplication { gaid: 7, epoch: 3, owner: 1, row_base: 2, rows: 4, lane_base: 64, width: 64 };
/// Register of the first pair of [`add`]: row 1, the bank of generation 1.
const FIRST: usize = 64 + 32;

fn program() -> SwitchProgram {
    let mut program = SwitchProgram::new(Size { rows: 16, lanes: 1024, slots: 8 });
    let tables = program.tables_mut();
    tables.install(APPLICATION).expect("fits");
    for (endpoint, slot_base, slots) in [(1, 0, 0), (10, 0, 2), (11, 2, 2)] {
        tables.set_endpoint(Endpoint { endpoint, incarnation: 5, gaid: 7, slot_base, slots }).expect("fits");
    }
    tables.set_group(7, &[10, 11]).expect("known");
    program
}

fn base(kind: FrameKind, src: u32, seq: u32) -> BaseRepr {
    let slot = if src == 11 { 2 } else { 0 };
    BaseRepr {
        gaid: 7,
        epoch: 3,
        src,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        slot,
        seq,
        ..BaseRepr::new(kind)
    }
}

fn frame(base: BaseRepr, map: MapRepr, values: &[i32]) -> Vec<u8> {
    let map = MapRepr { lanes: values.len() as u16, ..map };
    let mut bytes = vec![0; frame_len(map.flags, values.len(), 0)];
    let mut view = emit(&base, &map, &mut bytes);
    for (i, value) in values.iter().enumerate() {
        if map.flags & MapFlags::LINEAR != 0 {
            view.bitmap_and_lanes_mut().1[i * 4..i * 4 + 4].copy_from_slice(&value.to_be_bytes());
        } else {
            view.set_keyed(i, 1, *value);
        }
        let word = view.bitmap(i / 32) | 1 << (i % 32);
        view.set_bitmap(i / 32, word);
    }
    bytes
}

fn add(src: u32, seq: u32, values: &[i32]) -> Vec<u8> {
    frame(base(FrameKind::MapData, src, seq), MapRepr { flags: MapFlags::ADD, ..MapRepr::default() }, values)
}

fn part(src: u32, seq: u32, round: u32, values: &[i32]) -> Vec<u8> {
    let flags = MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND | MapFlags::COUNT;
    let worker = u16::from(src == 11);
    let map = MapRepr { flags, threshold: 2, worker, tag: 9, ..MapRepr::default() };
    frame(BaseRepr { round, ..base(FrameKind::MapData, src, seq) }, map, values)
}

fn result(round: u32) -> Vec<u8> {
    let flags = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::CLEAR;
    let base =
        BaseRepr { round, flags: Flags::FROM_SERVER | Flags::MCAST, slot: 0, ..base(FrameKind::MapResult, 1, 0) };
    frame(base, MapRepr { flags, ..MapRepr::default() }, &[0])
}

fn run(program: &mut SwitchProgram, mut bytes: Vec<u8>) -> (FrameAction, Vec<u8>) {
    let FrameVerdict { action, len } = program.process(Instant(1), &mut bytes, false);
    bytes.truncate(len);
    (action, bytes)
}

fn registers(program: &SwitchProgram) -> Vec<i32> {
    program.tables().read_rows(7, 0, 4).expect("installed").to_vec()
}

#[test]
fn repeated_pairs_are_acknowledged_but_not_added() {
    let mut program = program();
    for _ in 0..3 {
        let (action, bytes) = run(&mut program, add(10, 1, &[5, -6]));
        let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
        assert_eq!((action, frame.kind(), frame.bitmap(0)), (FrameAction::Forward(10), FrameKind::MapAck, 0));
        assert!(frame.lanes().is_empty());
    }
    assert_eq!(registers(&program)[FIRST..FIRST + 2], [5, -6]);
    let (.., counters) = program.tables().applications().next().expect("one");
    assert_eq!((counters.applied, counters.repeats, counters.lanes_added), (1, 2, 2));
}

#[test]
fn overflowing_lane_is_left_out_and_flagged_on_repeats() {
    let mut program = program();
    run(&mut program, add(10, 1, &[i32::MAX, 1]));
    for _ in 0..2 {
        let (_, bytes) = run(&mut program, add(10, 2, &[1, 1]));
        let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
        assert_eq!((frame.bitmap(0), frame.map().has(MapFlags::OVERFLOW)), (1, true));
    }
    assert_eq!(registers(&program)[FIRST..FIRST + 2], [i32::MAX, 2]);
}

#[test]
fn repeat_late_by_windows_is_stale() {
    let mut program = program();
    run(&mut program, add(10, 1, &[1]));
    run(&mut program, add(10, 257, &[1]));
    assert_eq!(run(&mut program, add(10, 1, &[1])).0, FrameAction::Drop(FrameDropReason::Stale));
    assert_eq!(registers(&program)[FIRST], 2);
}

#[test]
fn complete_round_is_read_and_cleared_by_its_result() {
    let mut program = program();
    assert_eq!(run(&mut program, part(10, 1, 1, &[1, i32::MAX])).0, FrameAction::Drop(FrameDropReason::Counted));
    let (action, bytes) = run(&mut program, part(10, 1, 1, &[1, i32::MAX]));
    assert_eq!((action, bytes[3]), (FrameAction::Forward(10), FrameKind::MapHeld as u8));
    for _ in 0..2 {
        let (action, bytes) = run(&mut program, part(11, 1, 1, &[2, 5]));
        let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
        assert_eq!(action, FrameAction::Forward(1));
        assert!(frame.map().has(MapFlags::REACHED));
        assert_eq!((frame.linear(0), frame.linear(1)), (Some(3), Some(i64::from(i32::MAX))));
    }
    assert_eq!(run(&mut program, result(1)).0, FrameAction::Multicast(7));
    assert!(registers(&program).iter().all(|v| *v == 0));
    let (action, bytes) = run(&mut program, part(10, 1, 1, &[1, 1]));
    let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
    assert_eq!((action, frame.map().has(MapFlags::OLD)), (FrameAction::Forward(1), true));
    run(&mut program, part(10, 2, 2, &[4, 4]));
    run(&mut program, result(1));
    assert_eq!(registers(&program)[..2], [4, 4], "a late result must not clear the next round");
}

#[test]
fn shadow_row_returns_result_until_next_round() {
    let mut program = program();
    let mut part = |src, seq, round, values: &[i32]| {
        let mut bytes = part(src, seq, round, values);
        let mut frame = MapFrame::new_checked(&mut bytes[..]).expect("own");
        let flags = frame.map().flags();
        frame.map_mut().set_flags(flags | MapFlags::CLEAR);
        let (action, bytes) = run(&mut program, bytes);
        let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
        (action, frame.kind(), frame.linear(0))
    };
    assert_eq!(part(10, 1, 1, &[1, 2]).0, FrameAction::Drop(FrameDropReason::Counted));
    assert_eq!(part(10, 1, 1, &[1, 2]), (FrameAction::Forward(10), FrameKind::MapHeld, None));
    assert_eq!(part(11, 1, 1, &[2, 5]), (FrameAction::Multicast(7), FrameKind::MapResult, Some(3)));
    // The copy for one member was lost.
    assert_eq!(part(10, 1, 1, &[1, 2]), (FrameAction::Forward(10), FrameKind::MapResult, Some(3)));
    assert_eq!(part(11, 2, 2, &[40]).0, FrameAction::Drop(FrameDropReason::Counted));
    assert_eq!(part(10, 2, 2, &[60]), (FrameAction::Multicast(7), FrameKind::MapResult, Some(100)));
    // The other workers have summed the rounds between.
    assert_eq!(part(10, 3, 9, &[4]).0, FrameAction::Drop(FrameDropReason::Counted));
    assert_eq!(part(11, 3, 9, &[5]), (FrameAction::Multicast(7), FrameKind::MapResult, Some(9)));
    assert_eq!(part(11, 2, 2, &[40]).0, FrameAction::Forward(1), "a part of an earlier round goes to the server");
}

#[test]
fn round_ahead_or_with_other_tag_goes_to_server() {
    let mut program = program();
    run(&mut program, part(10, 1, 1, &[1]));
    let mut other = part(11, 1, 1, &[1]);
    MapFrame::new_checked(&mut other[..]).expect("own").map_mut().set_tag(10);
    for bytes in [part(11, 2, 2, &[1]), other] {
        let (action, bytes) = run(&mut program, bytes);
        let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
        assert_eq!((action, frame.map().has(MapFlags::DIVERTED)), (FrameAction::Forward(1), true));
    }
    assert_eq!(registers(&program)[0], 1);
}

#[test]
fn congestion_mark_stays_with_its_round() {
    let mut program = program();
    let mut bytes = part(10, 1, 1, &[1]);
    program.process(Instant(1), &mut bytes, true);
    let (_, bytes) = run(&mut program, part(11, 1, 1, &[1]));
    assert!(Base::new_checked(&bytes).expect("own").has(Flags::ECN));
    let (_, bytes) = run(&mut program, result(1));
    assert!(Base::new_checked(&bytes).expect("own").has(Flags::ECN));
    let (_, bytes) = run(&mut program, part(10, 2, 2, &[1]));
    assert!(!Base::new_checked(&bytes).expect("own").has(Flags::ECN));
}

#[test]
fn server_reads_row() {
    let mut program = program();
    run(&mut program, add(10, 1, &[5, 6]));
    let base = BaseRepr { flags: Flags::FROM_SERVER, ..base(FrameKind::MapRead, 1, 4) };
    let flags = MapFlags::LINEAR | MapFlags::GET;
    let map = MapRepr { flags, index: 1, first_lane: 32, ..MapRepr::default() };
    let (action, bytes) = run(&mut program, frame(base, map, &[0; 32]));
    let frame = MapFrame::new_checked(&bytes[..]).expect("own frame");
    assert_eq!((action, frame.kind(), frame.linear(1)), (FrameAction::Forward(1), FrameKind::MapValues, Some(6)));
}

#[test]
fn frame_not_admitted_is_forwarded_with_flag() {
    type Change = fn(&mut BaseRepr);
    let changes: [Change; 4] = [|b| b.epoch = 2, |b| b.src_incarnation = 6, |b| b.src = 12, |b| b.slot = 3];
    for change in changes {
        let mut program = program();
        let mut wrong = base(FrameKind::MapData, 10, 1);
        change(&mut wrong);
        let (action, bytes) =
            run(&mut program, frame(wrong, MapRepr { flags: MapFlags::ADD, ..MapRepr::default() }, &[5]));
        assert_eq!(action, FrameAction::Forward(1));
        assert!(Base::new_checked(&bytes).expect("own").has(Flags::NOT_ADMITTED));
        assert!(registers(&program).iter().all(|v| *v == 0));
    }
    let mut program = program();
    let forged = BaseRepr { flags: Flags::FROM_SERVER, ..base(FrameKind::MapResult, 10, 0) };
    assert_eq!(run(&mut program, frame(forged, MapRepr::default(), &[])).0, FrameAction::Drop(FrameDropReason::Forged));
    let nobody = BaseRepr { gaid: 8, ..base(FrameKind::MapData, 10, 1) };
    assert_eq!(
        run(&mut program, frame(nobody, MapRepr::default(), &[])).0,
        FrameAction::Drop(FrameDropReason::NotAdmitted)
    );
}

/// No endpoint sends such a frame, as votes are keyed; the program counts it all the same, without an effect on others.
#[test]
fn linear_count_forwards_at_threshold() {
    let mut program = program();
    let vote = |src, seq| {
        let map = MapRepr { flags: MapFlags::COUNT, threshold: 2, to: ForwardTarget::All as u8, ..MapRepr::default() };
        frame(base(FrameKind::MapData, src, seq), map, &[])
    };
    assert_eq!(run(&mut program, vote(10, 1)).0, FrameAction::Drop(FrameDropReason::Counted));
    assert_eq!(run(&mut program, vote(10, 1)).0, FrameAction::Forward(10), "a repeat is held");
    assert_eq!(run(&mut program, vote(11, 1)).0, FrameAction::Multicast(7));
}

fn of_server(kind: FrameKind, round: u32, map: MapRepr) -> Vec<u8> {
    frame(BaseRepr { round, flags: Flags::FROM_SERVER, slot: 0, ..base(kind, 1, 77) }, map, &[])
}

/// Kind, round and index of a frame.
fn answer(bytes: &[u8]) -> (FrameKind, u32, u32) {
    let frame = MapFrame::new_checked(bytes).expect("own frame");
    (frame.kind(), frame.base().round(), frame.map().index())
}

#[test]
fn closed_generation_is_unchanged_until_wiped() {
    let mut program = program();
    assert_eq!(answer(&run(&mut program, add(10, 1, &[5])).1), (FrameKind::MapAck, 1, 0));
    let close = || of_server(FrameKind::MapClose, 1, MapRepr::default());
    for _ in 0..2 {
        assert_eq!(
            answer(&run(&mut program, close()).1),
            (FrameKind::MapClosed, 2, 0),
            "the second close has no effect"
        );
    }
    assert_eq!(answer(&run(&mut program, add(10, 2, &[6])).1), (FrameKind::MapAck, 2, 0));
    assert_eq!(
        answer(&run(&mut program, add(10, 1, &[5])).1),
        (FrameKind::MapAck, 1, 0),
        "a repeat keeps its generation"
    );
    assert_eq!((registers(&program)[FIRST], registers(&program)[FIRST - 32]), (5, 6));

    let wipe = |round| of_server(FrameKind::MapWipe, round, MapRepr { index: 1, ..MapRepr::default() });
    run(&mut program, wipe(2));
    assert_eq!((registers(&program)[FIRST], registers(&program)[FIRST - 32]), (5, 6), "generation 2 is open");
    run(&mut program, wipe(1));
    assert_eq!((registers(&program)[FIRST], registers(&program)[FIRST - 32]), (0, 6));
    assert_eq!(answer(&run(&mut program, add(10, 3, &[1])).1), (FrameKind::MapAck, 2, 1), "generation 1 is harvested");
    run(&mut program, of_server(FrameKind::MapClose, 2, MapRepr::default()));
    run(&mut program, add(10, 4, &[9]));
    run(&mut program, wipe(1));
    assert_eq!(registers(&program)[FIRST], 9, "a late wipe does not touch generation 3, in the same bank");
}

#[test]
fn frame_of_other_mapping_is_refused_but_its_repeat_acknowledged() {
    let mut program = program();
    run(&mut program, add(10, 1, &[5]));
    run(&mut program, of_server(FrameKind::MapClose, 1, MapRepr { index: 4, ..MapRepr::default() }));
    assert_eq!(answer(&run(&mut program, add(10, 1, &[5])).1).0, FrameKind::MapAck);
    for _ in 0..2 {
        let refused = answer(&run(&mut program, add(10, 2, &[6])).1);
        assert_eq!((refused.0, refused.1), (FrameKind::MapRefused, 4));
    }
    assert_eq!(registers(&program).iter().sum::<i32>(), 5);
}

#[test]
fn server_reads_repeat_filter_of_own_slots_only() {
    let mut program = program();
    run(&mut program, add(10, 1, &[i32::MAX]));
    run(&mut program, of_server(FrameKind::MapClose, 1, MapRepr::default()));
    run(&mut program, add(10, 66, &[1]));
    run(&mut program, add(10, 67, &[i32::MAX, 1]));
    let ask = |endpoint, slot, first_lane| {
        let base = BaseRepr { flags: Flags::FROM_SERVER, slot: 0, ..base(FrameKind::MapPlaces, 1, 9) };
        let map =
            MapRepr { flags: MapFlags::LINEAR, index: slot, threshold: endpoint, first_lane, ..MapRepr::default() };
        frame(base, map, &[0; RECORD_PLACES * 3])
    };
    let place = |bytes: &[u8], place: usize| {
        let frame = MapFrame::new_checked(bytes).expect("own frame");
        [0, 1, 2].map(|part| frame.linear(part * RECORD_PLACES + place).expect("there"))
    };
    let (action, bytes) = run(&mut program, ask(10, 0, 0));
    assert_eq!((action, place(&bytes, 1)), (FrameAction::Forward(1), [1, 1, 0]));
    let (_, bytes) = run(&mut program, ask(10, 0, 64));
    assert_eq!((place(&bytes, 2), place(&bytes, 3)), ([66, 2, 0], [67, 2, 1]), "generation 2, one lane left out");
    for (endpoint, slot, first) in [(10, 2, 0), (12, 0, 0), (10, 0, 32), (10, 0, 256)] {
        assert_eq!(run(&mut program, ask(endpoint, slot, first)).0, FrameAction::Drop(FrameDropReason::Malformed));
    }
}

#[test]
fn memory_is_assigned_once() {
    let mut program = program();
    let tables = program.tables_mut();
    let other = InstalledApplication { gaid: 8, row_base: 5, lane_base: 340, ..APPLICATION };
    assert!(matches!(tables.install(other), Err(TableChangeError::Overlap { what: "rows", .. })));
    let other = InstalledApplication { gaid: 8, row_base: 15, lane_base: 340, rows: 2, ..APPLICATION };
    assert!(matches!(tables.install(other), Err(TableChangeError::Range { what: "rows", .. })));
    let taken = Endpoint { endpoint: 12, incarnation: 1, gaid: 7, slot_base: 3, slots: 1 };
    assert!(matches!(tables.set_endpoint(taken), Err(TableChangeError::Overlap { what: "slots", other: 11, .. })));
    assert_eq!(tables.set_group(7, &[99]), Err(TableChangeError::UnknownEndpoint(99)));
}

#[test]
fn new_epoch_zeroes_registers_and_same_entry_is_noop() {
    let mut program = program();
    run(&mut program, add(10, 1, &[5]));
    program.tables_mut().install(APPLICATION).expect("same");
    assert_eq!(registers(&program)[FIRST], 5);
    program.tables_mut().install(InstalledApplication { epoch: 4, ..APPLICATION }).expect("newer");
    assert!(registers(&program).iter().all(|v| *v == 0));
}

proptest! {
    #[test]
    fn sums_count_each_frame_once(
        frames in proptest::collection::vec((0usize..2, 1u32..600, any::<i32>(), any::<bool>()), 1..200),
    ) {
        let mut program = program();
        let (mut last, mut sum) = (std::collections::BTreeMap::new(), 0i32);
        for (caller, seq, value, wrong_epoch) in frames {
            let src = [10, 11][caller];
            let mut bytes = add(src, seq, &[value]);
            if wrong_epoch {
                Base::new_checked(&mut bytes).expect("own").set_epoch(9);
            } else {
                let place = last.entry((src, seq % 256)).or_insert(0);
                if seq > *place {
                    *place = seq;
                    sum = sum.checked_add(value).unwrap_or(sum);
                }
            }
            run(&mut program, bytes);
            prop_assert_eq!(registers(&program)[FIRST], sum);
        }
    }

    #[test]
    fn flip_bit_matches_full_sequence_within_window(order in proptest::collection::vec((0u32..256, any::<bool>()), 1..600)) {
        let size = Size { rows: 1, lanes: 1, slots: 1 };
        let (mut full, mut flip) = (registers::Registers::new(&size), registers::Registers::new(&size));
        let mut sent = 0;
        for (back, repeat) in order {
            let seq = if repeat && sent > 0 { sent - back.min(sent - 1) } else { sent += 1; sent };
            let base = BaseRepr { seq, ..BaseRepr::new(FrameKind::MapData) };
            let expected = repeat_filter::classify(RepeatFilterProfile::FullSequence, &mut full, &base, &mut Pass::default(), 1, true);
            let got = repeat_filter::classify(RepeatFilterProfile::FlipBit, &mut flip, &base, &mut Pass::default(), 1, true);
            prop_assert_eq!(got, expected, "frame {}", seq);
        }
    }

    #[test]
    fn arbitrary_bytes_change_no_registers(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut program = program();
        let mut noise = noise;
        program.process(Instant(1), &mut noise, false);
        let mut bytes = add(10, 1, &[1, 2, 3]);
        for (at, with) in flips {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        let mut stranger = bytes.clone();
        program.process(Instant(1), &mut bytes, false);
        let before = registers(&program);
        if let Ok(mut base) = Base::new_checked(&mut stranger) {
            base.set_src_incarnation(77);
        }
        program.process(Instant(1), &mut stranger, true);
        prop_assert_eq!(registers(&program), before);
    }
}
