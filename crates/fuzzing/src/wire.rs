//! Fuzz target of the wire formats: every accessor of frames and pairs, without panic.

use pathcall_wire::{CloneFrame, MAX_FRAME, MapFrame, TokenKey, clone, pairs, token};

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut entries = pairs::entries(data);
    while entries.next().is_some() {}
    let _ = pairs::answers(data).count();
    let key = TokenKey::new([1, 2]);
    let mut bytes = data.to_vec();
    if let Some(sealed) = key.insert_token(data, &mut [0; MAX_FRAME]) {
        assert!(token::admits(Some(&key), sealed) && !token::admits(None, sealed));
    }
    key.sign(&mut bytes);
    if let Ok(mut frame) = CloneFrame::new_checked(&mut bytes[..]) {
        let head = frame.head().repr();
        let _ = (frame.kind(), frame.base().token(), clone::pair(head.grp, usize::from(head.sid)));
        assert_eq!(frame.payload().len(), usize::from(head.payload_len));
        frame.head_mut().set_clo(clone::CLONE);
        assert!(CloneFrame::new_checked(&bytes[..]).is_ok() && MapFrame::new_checked(&bytes[..]).is_err());
        return;
    }
    let Ok(mut frame) = MapFrame::new_checked(&mut bytes[..]) else { return };
    let _ = (frame.kind(), frame.op(), frame.target(), frame.base().token(), frame.payload().len());
    for lane in 0..=frame.lane_count() {
        let _ = (frame.linear(lane), frame.keyed(lane), frame.marked(lane));
    }
    let len = frame.strip();
    assert!(MapFrame::new_checked(&bytes[..len]).is_ok());
}
