//! Tokens of whole frames: signed as described, refused after any change.

use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::{self, frame_len};
use pathcall_wire::token::admits;
use pathcall_wire::{Base, BaseRepr, Flags, Kind, MAX_FRAME, MAX_UNSIGNED, MapFlags, MapFrame, MapRepr, TokenKey};
use proptest::prelude::*;

const KEY: TokenKey = TokenKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

/// A frame with this many keyed lanes and bytes of payload, all of them of `fill`.
fn unsigned(lanes: u16, payload: u16, fill: u8) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::ADD, lanes, payload_len: payload, index: 9, ..MapRepr::default() };
    let base =
        BaseRepr { gaid: 1, epoch: 2, src: 3, dst: 5, slot: 7, seq: 8, round: 9, ..BaseRepr::new(Kind::MapData) };
    let mut bytes = vec![0; frame_len(map.flags, lanes.into(), payload.into())];
    let mut frame = map::emit(&base, &map, &mut bytes);
    frame.bitmap_and_lanes_mut().1.fill(fill);
    frame.payload_mut().fill(fill);
    bytes
}

fn signed(frame: &[u8]) -> Vec<u8> {
    let mut out = [0; MAX_FRAME];
    KEY.seal(frame, &mut out).expect("room").to_vec()
}

#[test]
fn a_frame_known_from_elsewhere_has_the_token_computed_there() {
    // By hand, with another implementation of SipHash-2-4: flags TOKEN and MCAST, words 1 to 9, row 9.
    let flags = Flags::MCAST;
    let [gaid, epoch, src, src_incarnation, dst, dst_incarnation, slot, seq, round] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let base = BaseRepr {
        flags,
        gaid,
        epoch,
        src,
        src_incarnation,
        dst,
        dst_incarnation,
        slot,
        seq,
        round,
        ..BaseRepr::new(Kind::MapHeld)
    };
    let map = MapRepr { flags: MapFlags::BARE, index: 9, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    map::emit(&base, &map, &mut bytes);
    let sealed = signed(&bytes);
    let frame = MapFrame::new_checked(&sealed[..]).expect("own frame");
    assert_eq!(frame.base().token(), Some(0x2de2_b621_6dc8_3a3f));
    assert_eq!((frame.base().flags(), frame.map().repr()), (Flags::MCAST | Flags::TOKEN, map));
}

#[test]
fn only_the_key_opens_and_only_with_one_a_token_is_wanted() {
    let (plain, sealed) = (unsigned(3, 0, 1), signed(&unsigned(3, 0, 1)));
    let other = TokenKey::new([1, 2]);
    assert!(admits(Some(&KEY), &sealed) && admits(None, &plain));
    assert!(!admits(Some(&KEY), &plain), "no token where one is wanted");
    assert!(!admits(None, &sealed), "a token where none is known");
    assert!(!admits(Some(&other), &sealed), "another key");
}

#[test]
fn copies_are_signed_as_whole_frames_are() {
    let mut frame = signed(&unsigned(32, 5, 7));
    let copies = KEY.copies(&frame);
    for member in [10, 11, 12] {
        Base::new_checked(&mut frame[..]).expect("own frame").set_dst(member);
        assert!(!KEY.has_signed(&frame), "the token of the copy before");
        copies.sign(&mut frame);
        assert!(KEY.has_signed(&frame));
    }
}

#[test]
fn the_longest_frame_without_a_token_has_room_for_one() {
    let payload = MAX_UNSIGNED - frame_len(MapFlags::ADD, 0, 0);
    let frame = unsigned(0, payload as u16, 1);
    assert_eq!(signed(&frame).len(), MAX_FRAME);
    assert!(KEY.seal(&frame, &mut [0; MAX_FRAME - 1]).is_none(), "no room");
    assert!(KEY.seal(&[0; u16::MAX as usize], &mut vec![0; 1 << 17]).is_none(), "longer than its length field says");
}

#[test]
fn a_key_is_not_shown() {
    let shown = format!("{KEY:?} {:?}", KEY.copies(&unsigned(0, 0, 0)));
    assert!(!shown.contains(|c: char| c.is_ascii_digit()), "{shown}");
}

proptest! {
    #[test]
    fn any_bit_that_flips_is_seen(
        lanes in 0u16..40, payload in 0u16..80, fill in any::<u8>(), key in any::<[u64; 2]>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let key = TokenKey::new(key);
        let mut out = [0; MAX_FRAME];
        let mut frame = key.seal(&unsigned(lanes, payload, fill), &mut out).expect("room").to_vec();
        prop_assert!(key.has_signed(&frame));
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!key.has_signed(&frame), "bit {bit} of {}", frame.len() * 8);
    }

    #[test]
    fn any_frame_cut_short_or_made_longer_is_refused(cut in 0usize..500, more in 1usize..40) {
        let mut frame = signed(&unsigned(32, 9, 3));
        prop_assume!(cut < frame.len());
        prop_assert!(!KEY.has_signed(&frame[..cut]));
        frame.resize(frame.len() + more, 0);
        prop_assert!(!KEY.has_signed(&frame));
    }

    #[test]
    fn random_bytes_are_never_signed_and_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(!KEY.has_signed(&bytes));
        KEY.sign(&mut bytes);
        KEY.copies(&bytes).sign(&mut bytes);
        let _ = KEY.seal(&bytes, &mut [0; 100]).map(<[u8]>::len);
        let _ = admits(None, &bytes);
    }

    #[test]
    fn every_bit_of_one_frame_counts(fill in any::<u8>()) {
        let frame = signed(&unsigned(2, 3, fill));
        for bit in 0..frame.len() * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!KEY.has_signed(&changed), "bit {bit}");
        }
        let (head, rest) = frame.split_at(Base::LEN + TOKEN_LEN);
        prop_assert!(KEY.has_signed(&[head, rest].concat()));
    }
}
