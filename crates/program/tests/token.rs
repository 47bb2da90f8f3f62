//! Tests of tokens: frames without a valid token change nothing, and frames that leave the element are signed again.

use pathcall_program::{
    ApplicationCounters, Endpoint, FrameAction, FrameDropReason, InstalledApplication, Size, SwitchProgram,
};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{
    BaseRepr, Flags, FrameKind, Instant, KEYED_WIDTH, MAX_FRAME, MapFlags, MapFrame, MapRepr, TokenKey,
};
use proptest::prelude::*;

const KEY: TokenKey = TokenKey::new([3, 4]);
const GAID: u32 = 7;
const SERVER: u32 = 1;
const CALLERS: [u32; 2] = [10, 11];
const NOW: Instant = Instant(9);

fn program(key: Option<TokenKey>) -> SwitchProgram {
    let mut program = SwitchProgram::new(Size { rows: 16, lanes: 1024, slots: 8 });
    let tables = program.tables_mut();
    let width = KEYED_WIDTH as u32;
    let memory =
        InstalledApplication { gaid: GAID, epoch: 3, owner: SERVER, row_base: 2, rows: 4, lane_base: 64, width };
    tables.install(memory).expect("fits");
    tables.authenticate(GAID, key).expect("installed");
    for (endpoint, slot_base, slots) in [(SERVER, 0, 0), (CALLERS[0], 0, 2), (CALLERS[1], 2, 2)] {
        tables.set_endpoint(Endpoint { endpoint, incarnation: 5, gaid: GAID, slot_base, slots }).expect("fits");
    }
    tables.set_group(GAID, &CALLERS).expect("known");
    program
}

/// One valid frame of each kind that the element processes.
fn frames() -> Vec<Vec<u8>> {
    let round = MapFlags::LINEAR | MapFlags::ROUND;
    let from = Flags::FROM_SERVER;
    let kinds = [
        (FrameKind::MapData, 0, MapFlags::ADD, 2, 0),
        (FrameKind::MapData, 0, round | MapFlags::ADD | MapFlags::COUNT, 2, 2),
        (FrameKind::MapData, 0, MapFlags::COUNT, 0, 1),
        (FrameKind::MapData, 0, MapFlags::CLEAR, 0, 0),
        (FrameKind::MapData, Flags::CROSS, MapFlags::ADD, 2, 0),
        (FrameKind::MapPairs, Flags::CROSS, MapFlags::BARE, 0, 0),
        (FrameKind::MapResult, from | Flags::MCAST, round | MapFlags::CLEAR, 2, 0),
        (FrameKind::MapAck, from, MapFlags::BARE, 0, 0),
        (FrameKind::MapSoft, from | Flags::MCAST, MapFlags::BARE | MapFlags::ROUND, 0, 0),
        (FrameKind::MapRead, from, MapFlags::LINEAR | MapFlags::GET, 2, 0),
        (FrameKind::MapClose, from, MapFlags::BARE, 0, 0),
        (FrameKind::MapWipe, from, MapFlags::BARE, 0, 0),
        (FrameKind::MapFree, from, MapFlags::BARE, 0, CALLERS[0]),
    ];
    kinds
        .map(|(kind, base_flags, flags, lanes, threshold)| {
            // The server reads and harvests by addressing itself.
            let asks =
                matches!(kind, FrameKind::MapRead | FrameKind::MapClose | FrameKind::MapWipe | FrameKind::MapFree);
            let (src, dst) = match base_flags & from != 0 {
                true => (SERVER, if asks { SERVER } else { CALLERS[0] }),
                false => (CALLERS[0], SERVER),
            };
            let base = BaseRepr {
                flags: base_flags,
                gaid: GAID,
                epoch: 3,
                src,
                src_incarnation: 5,
                dst,
                dst_incarnation: 5,
                seq: 1,
                round: u32::from(flags & (round | MapFlags::BARE) != 0),
                ..BaseRepr::new(kind)
            };
            let map = MapRepr { flags, lanes, threshold, tag: 1, ..MapRepr::default() };
            let mut bytes = vec![0; frame_len(flags, lanes.into(), 0)];
            let mut frame = emit(&base, &map, &mut bytes);
            frame.bitmap_and_lanes_mut().1.iter_mut().skip(3).step_by(4).for_each(|byte| *byte = 1);
            if lanes > 0 {
                frame.set_bitmap(0, 3);
            }
            bytes
        })
        .to_vec()
}

fn signed(frame: &[u8]) -> Vec<u8> {
    KEY.insert_token(frame, &mut [0; MAX_FRAME]).expect("room").to_vec()
}

/// State of the program that the control service sees, except the count of refused frames.
fn state(program: &SwitchProgram) -> (Vec<i32>, Option<Instant>, ApplicationCounters) {
    let (_, last_seen, counters) = program.tables().applications().next().expect("one");
    let rows = program.tables().read_rows(GAID, 0, 4).expect("installed").to_vec();
    (rows, last_seen, ApplicationCounters { unauthentic: 0, ..counters })
}

/// Runs a frame; returns all frames that leave.
fn run(program: &mut SwitchProgram, mut bytes: Vec<u8>) -> (FrameAction, Vec<Vec<u8>>) {
    let verdict = program.process(NOW, &mut bytes, false);
    bytes.truncate(verdict.len);
    let out = match verdict.action {
        FrameAction::Forward(_) => vec![bytes],
        FrameAction::Multicast(gaid) => {
            let mut copies = Vec::new();
            program.tables().copies(gaid, &mut bytes, |_, copy| copies.push(copy.to_vec()));
            copies
        }
        FrameAction::Drop(_) | FrameAction::Clone(_) => Vec::new(),
    };
    (verdict.action, out)
}

#[test]
fn every_output_frame_is_signed() {
    for frame in frames() {
        let (mut open, mut closed) = (program(None), program(Some(KEY)));
        // An original, a repeat, and a frame of another epoch: each is changed in another way.
        for epoch in [3, 3, 2] {
            let mut frame = frame.clone();
            frame[12..16].copy_from_slice(&u32::to_be_bytes(epoch));
            let (expected, plain) = run(&mut open, frame.clone());
            let (action, out) = run(&mut closed, signed(&frame));
            assert_eq!(action, expected);
            let resigned: Vec<_> = plain.iter().map(|frame| signed(frame)).collect();
            assert_eq!(out, resigned, "the output without tokens, signed");
        }
        assert_eq!(state(&open), state(&closed));
    }
}

#[test]
fn forged_frame_without_key_changes_nothing() {
    let other = TokenKey::new([3, 5]);
    for frame in frames() {
        let mut program = program(Some(KEY));
        let before = state(&program);
        let guessed = other.insert_token(&frame, &mut [0; MAX_FRAME]).expect("room").to_vec();
        for forged in [frame.clone(), guessed] {
            assert_eq!(run(&mut program, forged), (FrameAction::Drop(FrameDropReason::Unauthentic), vec![]));
        }
        assert_eq!(state(&program), before, "including the time of the last frame");
        let (.., counters) = program.tables().applications().next().expect("one");
        assert_eq!((counters.unauthentic, program.counters().drop_unauthentic), (2, 2));
        // The forged frame has not used up its sequence number.
        let (action, _) = run(&mut program, signed(&frame));
        assert_ne!(action, FrameAction::Drop(FrameDropReason::Unauthentic));
        assert_eq!(program.tables().applications().next().expect("one").2.repeats, 0);
    }
}

#[test]
fn frame_with_token_for_application_without_tokens_is_dropped() {
    for frame in frames() {
        let mut program = program(None);
        let before = state(&program);
        assert_eq!(run(&mut program, signed(&frame)).0, FrameAction::Drop(FrameDropReason::Unauthentic));
        assert_eq!(state(&program), before);
    }
}

#[test]
fn frame_of_unknown_application_is_forwarded_unchanged() {
    let mut program = program(None);
    let entry = Endpoint { endpoint: 20, incarnation: 5, gaid: 8, slot_base: 4, slots: 0 };
    program.tables_mut().set_endpoint(entry).expect("fits");
    let mut frame = frames().swap_remove(0);
    frame[8..12].copy_from_slice(&8u32.to_be_bytes());
    frame[24..28].copy_from_slice(&20u32.to_be_bytes());
    let frame = signed(&frame);
    assert_eq!(run(&mut program, frame.clone()), (FrameAction::Forward(20), vec![frame]));
}

#[test]
fn key_is_removed_with_application_and_not_debug_printed() {
    let mut program = program(Some(KEY));
    assert!(format!("{:?}", program.tables().applications().next()).contains("InstalledApplication"));
    assert!(!format!("{program:?}").contains("TokenKey(["));
    program.tables_mut().remove(GAID).expect("installed");
    assert!(program.tables_mut().authenticate(GAID, Some(KEY)).is_err());
}

proptest! {
    #[test]
    fn frame_with_flipped_bit_is_refused_without_effect(
        which in any::<prop::sample::Index>(), bit in any::<prop::sample::Index>(),
    ) {
        let mut program = program(Some(KEY));
        let before = state(&program);
        let frames = frames();
        let mut frame = signed(&frames[which.index(frames.len())]);
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        // A frame that names another application now is refused by that application.
        let is_of_other = MapFrame::new_checked(&frame[..]).is_ok_and(|frame| frame.base().gaid() != GAID);
        let (action, out) = run(&mut program, frame);
        prop_assert!(out.is_empty());
        let expected = [FrameDropReason::Malformed, if is_of_other { FrameDropReason::NotAdmitted } else { FrameDropReason::Unauthentic }];
        prop_assert!(matches!(action, FrameAction::Drop(reason) if expected.contains(&reason)), "{action:?}");
        prop_assert_eq!(state(&program), before);
    }
}
