//! Map frames and pairs: round trips, hostile bytes and exact sizes.

use pathcall_wire::base::{self, TOKEN_LEN};
use pathcall_wire::map::{self, frame_len};
use pathcall_wire::pairs::{self, PairAnswer, PairStatus};
use pathcall_wire::{
    Base, BaseRepr, Error, Flags, FrameKind, LINEAR_LANES, MAX_UNSIGNED, MapFlags, MapFrame, MapHeader, MapRepr, OpType,
};
use proptest::prelude::*;

fn base_repr() -> impl Strategy<Value = BaseRepr> {
    (1u8..=10, any::<u16>(), any::<[u32; 9]>()).prop_map(|(kind, flags, w)| BaseRepr {
        flags: flags & !Flags::TOKEN,
        gaid: w[0],
        epoch: w[1],
        src: w[2],
        src_incarnation: w[3],
        dst: w[4],
        dst_incarnation: w[5],
        slot: w[6],
        seq: w[7],
        round: w[8],
        ..BaseRepr::new(FrameKind::parse(kind).expect("in range"))
    })
}

fn map_repr() -> impl Strategy<Value = MapRepr> {
    (0u8..=10, 0u8..=2, any::<u16>(), 0u16..=300, any::<u16>(), any::<[u32; 4]>(), any::<u16>(), 0u16..100).prop_map(
        |(op, to, flags, lanes, first_lane, w, worker, payload_len)| MapRepr {
            op,
            to,
            flags,
            lanes,
            first_lane,
            para: w[0].cast_signed(),
            index: w[1],
            threshold: w[2],
            worker,
            payload_len,
            tag: w[3],
        },
    )
}

proptest! {
    #[test]
    fn map_frame_round_trips(base in base_repr(), map in map_repr()) {
        let len = frame_len(map.flags, map.lanes.into(), map.payload_len.into());
        let mut bytes = vec![0xff; len];
        map::emit(&base, &map, &mut bytes);
        let frame = MapFrame::new_checked(&bytes[..]).expect("valid frame");
        prop_assert_eq!(frame.map().repr(), map);
        prop_assert_eq!(BaseRepr { length: 0, ..frame.base().repr() }, base);
        prop_assert_eq!(usize::from(frame.base().length()), len);
        prop_assert_eq!(frame.payload().len(), usize::from(map.payload_len));
    }

    #[test]
    fn corrupt_bytes_never_panic(base in base_repr(), map in map_repr(), flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), cut in any::<prop::sample::Index>()) {
        let mut bytes = vec![0; frame_len(map.flags, map.lanes.into(), map.payload_len.into())];
        map::emit(&base, &map, &mut bytes);
        for (at, with) in flips {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        let end = cut.index(bytes.len()) + 1;
        touch_everything(&mut bytes[..end]);
        touch_everything(&mut bytes);
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        touch_everything(&mut bytes);
        let mut entries = pairs::entries(&bytes);
        while entries.next().is_some() {}
        let _ = pairs::answers(&bytes).count();
    }

    #[test]
    fn pairs_round_trip(list in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..40), any::<i64>()), 0..20)) {
        let mut buffer = vec![0u8; 2000];
        let mut rest = &mut buffer[..];
        for (key, value) in &list {
            rest = pairs::put(rest, key, *value).expect("enough space");
        }
        let left = rest.len();
        let used = buffer.len() - left;
        let mut entries = pairs::entries(&buffer[..used]);
        for (key, value) in &list {
            prop_assert_eq!(entries.next(), Some((&key[..], *value)));
        }
        prop_assert!(entries.next().is_none() && entries.is_exhausted());
    }
}

fn touch_everything(bytes: &mut [u8]) {
    if let Ok(mut frame) = MapFrame::new_checked(bytes) {
        let _ = (frame.kind(), frame.op(), frame.target(), frame.base().token(), frame.payload().len());
        for i in 0..frame.lane_count() + 1 {
            let _ = (frame.linear(i), frame.keyed(i), frame.marked(i));
        }
        let before = frame.lane_count();
        frame.strip();
        assert_eq!(frame.lane_count(), before);
    }
}

#[test]
fn stripped_frame_keeps_headers_and_bitmap() {
    let map = MapRepr { flags: MapFlags::ADD, lanes: 32, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 32, 0)];
    let mut frame = map::emit(&BaseRepr::new(FrameKind::MapData), &map, &mut bytes);
    frame.set_bitmap(0, 0xdead_beef);
    let len = frame.strip();
    let frame = MapFrame::new_checked(&bytes[..len]).expect("stripped");
    assert_eq!(frame.bitmap(0), 0xdead_beef);
    assert!(frame.lanes().is_empty() && frame.keyed(0).is_none());
}

#[test]
fn frame_sizes_fit_default_profile() {
    assert!(frame_len(MapFlags::LINEAR, LINEAR_LANES, 0) <= MAX_UNSIGNED);
    assert!(frame_len(0, 32, 0) <= 400);
    let answers = frame_len(MapFlags::BARE, 0, pairs::MAX_ENTRIES * pairs::ANSWER_LEN);
    assert!(answers <= MAX_UNSIGNED, "{answers}");
    assert!(frame_len(0, 0, pairs::entry_len(pairs::MAX_KEY)) <= MAX_UNSIGNED);
    assert!(frame_len(MapFlags::LINEAR | MapFlags::WIDE, 128, 0) <= MAX_UNSIGNED);
}

#[test]
fn layout_tables_have_no_gap_and_no_overlap() {
    for (layout, len) in [(Base::LAYOUT, Base::LEN), (MapHeader::LAYOUT, MapHeader::LEN)] {
        let end = layout.iter().fold(0, |at, field| {
            assert_eq!(field.offset, at, "{}", field.name);
            at + field.len
        });
        assert_eq!(end, len);
    }
}

#[test]
fn map_header_follows_token() {
    let mut bytes = vec![0; Base::LEN + TOKEN_LEN + MapHeader::LEN];
    let length = u16::try_from(bytes.len()).expect("small");
    BaseRepr { flags: Flags::TOKEN, length, ..BaseRepr::new(FrameKind::MapHeld) }.emit(&mut bytes);
    bytes[Base::LEN..Base::LEN + TOKEN_LEN].copy_from_slice(&7u64.to_be_bytes());
    MapRepr { index: 9, ..MapRepr::default() }.emit(&mut bytes[Base::LEN + TOKEN_LEN..]);
    let frame = MapFrame::new_checked(&bytes[..]).expect("token frame");
    assert_eq!((frame.base().token(), frame.map().index()), (Some(7), 9));
}

#[test]
fn base_parse_error_names_expected_value() {
    let mut bytes = vec![0; Base::LEN];
    assert_eq!(Base::new_checked(&bytes[..3]).err(), Some(Error::Short { expected: 44, got: 3 }));
    assert_eq!(Base::new_checked(&bytes).err(), Some(Error::Magic(0)));
    BaseRepr::new(FrameKind::MapAck).emit(&mut bytes);
    assert_eq!(Base::new_checked(&bytes).err(), Some(Error::Length { expected: 0, got: 44 }));
    bytes[3] = 0;
    assert_eq!(Base::new_checked(&bytes).err(), Some(Error::Value { field: "kind", value: 0 }));
}

#[test]
fn operators_match_netrpc_table_8() {
    let cases = [
        (OpType::Nop, 5, 3, 5),
        (OpType::Max, 5, 9, 9),
        (OpType::Min, 5, 9, 5),
        (OpType::Add, i32::MAX, 1, i32::MAX),
        (OpType::Assign, 5, -2, -2),
        (OpType::ShiftL, 1, 31, i32::MIN),
        (OpType::ShiftL, 1, 32, 0),
        (OpType::ShiftR, -8, 1, -4),
        (OpType::ShiftR, -8, 99, -1),
        (OpType::ShiftL, 1, -1, 0),
        (OpType::Band, 6, 3, 2),
        (OpType::Bor, 6, 3, 7),
        (OpType::Bnot, 0, 0, -1),
        (OpType::Bxor, 6, 3, 5),
    ];
    for (op, value, para, expected) in cases {
        assert_eq!(op.apply(value, para), expected, "{op:?} {value} {para}");
        assert_eq!(OpType::parse(op as u8), Ok(op));
    }
}

#[test]
fn flip_bit_changes_with_each_window() {
    assert_eq!((base::flip(1), base::flip(256), base::flip(257), base::flip(512), base::flip(513)), (0, 0, 1, 1, 0));
}

#[test]
fn answer_entries_round_trip() {
    let answer = PairAnswer { status: PairStatus::Mapped, lane: 31, row: 77, value: -5 };
    let mut bytes = [0; 28];
    let rest = pairs::put_answer(&mut bytes, &answer).expect("enough space");
    pairs::put_answer(rest, &PairAnswer { status: PairStatus::Full, ..answer }).expect("enough space");
    assert_eq!(pairs::answers(&bytes).map(|a| a.status).collect::<Vec<_>>(), [PairStatus::Mapped, PairStatus::Full]);
    bytes[14] = 99;
    assert_eq!(pairs::answers(&bytes).next(), Some(answer));
    assert_eq!(pairs::answers(&bytes).count(), 1);
}

#[test]
fn rows_of_frame_or_two_banks_of_keys_are_taken() {
    use pathcall_wire::map::{takes_rows, widest_rows};
    let taken = |frame_lanes| [1, 16, 17, 32, 64, 256].map(|width| takes_rows(frame_lanes, width));
    assert_eq!(taken(0), [true; 6], "no limit");
    assert_eq!(taken(32), [true, true, true, true, true, false]);
    // A frame of 16 lanes has no bank of keys.
    assert_eq!(taken(16), [true, true, false, false, false, false]);
    assert_eq!([0, 16, 32, 256, 1024].map(widest_rows), [256, 16, 32, 256, 256]);
}
