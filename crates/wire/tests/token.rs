//! Tokens of frames: reference values, and rejection after any change.

use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::{self, frame_len};
use pathcall_wire::token::admits;
use pathcall_wire::{Base, BaseRepr, Flags, FrameKind, MAX_FRAME, MAX_UNSIGNED, MapFlags, MapFrame, MapRepr, TokenKey};
use proptest::prelude::*;

const KEY: TokenKey = TokenKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

/// Frame with this number of keyed lanes and payload bytes, all bytes equal to `fill`.
fn unsigned(lanes: u16, payload: u16, fill: u8) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::ADD, lanes, payload_len: payload, index: 9, ..MapRepr::default() };
    let base =
        BaseRepr { gaid: 1, epoch: 2, src: 3, dst: 5, slot: 7, seq: 8, round: 9, ..BaseRepr::new(FrameKind::MapData) };
    let mut bytes = vec![0; frame_len(map.flags, lanes.into(), payload.into())];
    let mut frame = map::emit(&base, &map, &mut bytes);
    frame.bitmap_and_lanes_mut().1.fill(fill);
    frame.payload_mut().fill(fill);
    bytes
}

fn signed(frame: &[u8]) -> Vec<u8> {
    let mut out = [0; MAX_FRAME];
    KEY.insert_token(frame, &mut out).expect("enough space").to_vec()
}

#[test]
fn token_matches_independent_implementation() {
    // Computed with another implementation of SipHash-2-4: flags TOKEN and MCAST, words 1 to 9, row 9.
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
        ..BaseRepr::new(FrameKind::MapHeld)
    };
    let map = MapRepr { flags: MapFlags::BARE, index: 9, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    map::emit(&base, &map, &mut bytes);
    let sealed = signed(&bytes);
    let frame = MapFrame::new_checked(&sealed[..]).expect("valid frame");
    assert_eq!(frame.base().token(), Some(0x2de2_b621_6dc8_3a3f));
    assert_eq!((frame.base().flags(), frame.map().repr()), (Flags::MCAST | Flags::TOKEN, map));
}

#[test]
fn token_is_required_exactly_with_a_key() {
    let (plain, sealed) = (unsigned(3, 0, 1), signed(&unsigned(3, 0, 1)));
    let other = TokenKey::new([1, 2]);
    assert!(admits(Some(&KEY), &sealed) && admits(None, &plain));
    assert!(!admits(Some(&KEY), &plain), "the key requires a token");
    assert!(!admits(None, &sealed), "a token without a key");
    assert!(!admits(Some(&other), &sealed), "token of another key");
}

#[test]
fn multicast_copies_have_valid_tokens() {
    let mut frame = signed(&unsigned(32, 5, 7));
    let copies = KEY.copy_signer(&frame);
    for member in [10, 11, 12] {
        Base::new_checked(&mut frame[..]).expect("valid frame").set_dst(member);
        assert!(!KEY.has_signed(&frame), "token of the previous copy");
        copies.sign(&mut frame);
        assert!(KEY.has_signed(&frame));
    }
}

#[test]
fn longest_unsigned_frame_fits_a_token() {
    let payload = MAX_UNSIGNED - frame_len(MapFlags::ADD, 0, 0);
    let frame = unsigned(0, payload as u16, 1);
    assert_eq!(signed(&frame).len(), MAX_FRAME);
    assert!(KEY.insert_token(&frame, &mut [0; MAX_FRAME - 1]).is_none(), "buffer too short");
    assert!(
        KEY.insert_token(&[0; u16::MAX as usize], &mut vec![0; 1 << 17]).is_none(),
        "too long for the length field"
    );
}

#[test]
fn debug_output_hides_the_key() {
    let shown = format!("{KEY:?} {:?}", KEY.copy_signer(&unsigned(0, 0, 0)));
    assert!(!shown.contains(|c: char| c.is_ascii_digit()), "{shown}");
}

proptest! {
    #[test]
    fn flipped_bit_invalidates_token(
        lanes in 0u16..40, payload in 0u16..80, fill in any::<u8>(), key in any::<[u64; 2]>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let key = TokenKey::new(key);
        let mut out = [0; MAX_FRAME];
        let mut frame = key.insert_token(&unsigned(lanes, payload, fill), &mut out).expect("enough space").to_vec();
        prop_assert!(key.has_signed(&frame));
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!key.has_signed(&frame), "bit {bit} of {}", frame.len() * 8);
    }

    #[test]
    fn truncated_or_extended_frame_has_no_valid_token(cut in 0usize..500, more in 1usize..40) {
        let mut frame = signed(&unsigned(32, 9, 3));
        prop_assume!(cut < frame.len());
        prop_assert!(!KEY.has_signed(&frame[..cut]));
        frame.resize(frame.len() + more, 0);
        prop_assert!(!KEY.has_signed(&frame));
    }

    #[test]
    fn random_bytes_have_no_valid_token_and_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(!KEY.has_signed(&bytes));
        KEY.sign(&mut bytes);
        KEY.copy_signer(&bytes).sign(&mut bytes);
        let _ = KEY.insert_token(&bytes, &mut [0; 100]).map(<[u8]>::len);
        let _ = admits(None, &bytes);
    }

    #[test]
    fn each_bit_of_a_frame_is_covered(fill in any::<u8>()) {
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
