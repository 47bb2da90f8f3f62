//! Clone frames: round trips, and accessors that never panic.

use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::clone::{self, CLONE, MAX_PARTS, PART};
use pathcall_wire::{
    Base, BaseRepr, CloneFlags, CloneFrame, CloneHeader, CloneRepr, Flags, FrameKind, MAX_FRAME, MapFrame, TokenKey,
};
use proptest::prelude::*;

fn base_repr() -> impl Strategy<Value = BaseRepr> {
    (32u8..=35, any::<u16>(), any::<[u32; 9]>()).prop_map(|(kind, flags, w)| BaseRepr {
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
        ..BaseRepr::new(FrameKind::parse(kind).expect("kind of a clone frame"))
    })
}

fn clone_repr() -> impl Strategy<Value = CloneRepr> {
    let small = (0..=CLONE, 0..=CloneFlags::ALL, 1..=MAX_PARTS as u16, any::<u16>());
    (any::<u64>(), any::<[u32; 2]>(), any::<[u16; 3]>(), any::<[u8; 2]>(), small).prop_map(
        |(req_id, [grp, patience], [sid, state, switch_id], [idx, attempt], (clo, flags, parts, part))| CloneRepr {
            req_id,
            grp,
            sid,
            state,
            clo,
            idx,
            switch_id,
            attempt,
            flags,
            part: part % parts,
            parts,
            payload_len: 0,
            patience,
        },
    )
}

/// Calls all accessors. Returns whether the bytes are a valid frame.
fn touch_everything(bytes: &mut [u8]) -> bool {
    let Ok(mut frame) = CloneFrame::new_checked(bytes) else { return false };
    let head = frame.head().repr();
    let _ = (frame.kind(), frame.base().repr(), frame.base().token(), clone::pair(head.grp, head.sid.into()));
    assert_eq!(frame.payload().len(), usize::from(head.payload_len));
    assert!(head.part < head.parts && usize::from(head.parts) <= MAX_PARTS && head.clo <= CLONE);
    frame.head_mut().set_req_id(1);
    frame.sign(&TokenKey::new([1, 2]));
    assert!(MapFrame::new_checked(frame.as_bytes()).is_err(), "a clone frame is no map frame");
    true
}

proptest! {
    #[test]
    fn clone_frame_round_trips_with_and_without_token(base in base_repr(), head in clone_repr(), payload in proptest::collection::vec(any::<u8>(), 0..=PART)) {
        let mut bytes = [0; MAX_FRAME];
        let len = clone::emit(&base, &head, &payload, &mut bytes);
        let frame = CloneFrame::new_checked(&bytes[..len]).expect("valid frame");
        prop_assert_eq!(frame.base().repr(), BaseRepr { length: len as u16, ..base });
        prop_assert_eq!(frame.head().repr(), CloneRepr { payload_len: payload.len() as u16, ..head });
        prop_assert_eq!(frame.payload(), &payload[..]);
        // A token moves the clone header and the payload.
        let key = TokenKey::new([3, 4]);
        let mut room = [0; MAX_FRAME];
        let sealed = key.insert_token(&bytes[..len], &mut room).expect("enough space");
        let signed = CloneFrame::new_checked(sealed).expect("valid frame");
        prop_assert_eq!((signed.payload(), signed.head().repr()), (frame.payload(), frame.head().repr()));
        prop_assert_eq!(sealed.len(), Base::LEN + TOKEN_LEN + CloneHeader::LEN + payload.len());
        prop_assert!(touch_everything(&mut bytes[..len]));
    }

    #[test]
    fn corrupt_bytes_never_panic(
        base in base_repr(),
        head in clone_repr(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = [0; MAX_FRAME];
        let len = clone::emit(&base, &head, b"payload", &mut bytes);
        let bytes = &mut bytes[..len];
        for (at, with) in flips {
            bytes[at.index(len)] = with;
        }
        touch_everything(&mut bytes[..cut.index(len) + 1]);
        touch_everything(bytes);
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        touch_everything(&mut bytes);
    }
}
