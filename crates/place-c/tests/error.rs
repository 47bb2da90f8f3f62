//! Unit tests of status codes and error texts.

use std::ffi::CStr;

use pathcall_place_c::error::{
    Error, PATHCALL_PLACE_NOTHING, PATHCALL_PLACE_PANICKED, code, copy_text, pathcall_place_error, pointer,
};

/// Error text of this thread's last failed call.
#[expect(unsafe_code, reason = "C text")]
fn last_error() -> String {
    // SAFETY: never null, always terminated.
    unsafe { CStr::from_ptr(pathcall_place_error()) }.to_str().expect("UTF-8").to_owned()
}

#[test]
fn panic_in_call_returns_code() {
    assert_eq!(code(|| panic!("it is broken")), PATHCALL_PLACE_PANICKED);
    assert_eq!(last_error(), "a bug in the library: it is broken");
    assert!(pointer::<u8>(|| Err(Error::failed("a\0b"))).is_null());
    assert_eq!(last_error(), "ab");
    assert_eq!(code(|| Ok(PATHCALL_PLACE_NOTHING)), PATHCALL_PLACE_NOTHING);
}

#[test]
#[expect(unsafe_code, reason = "C memory")]
fn text_longer_than_buffer_is_truncated() {
    let mut room = [1; 8];
    // SAFETY: `room` has eight bytes.
    assert_eq!(unsafe { copy_text(c"abcdef", room.as_mut_ptr(), 4) }, 6);
    assert_eq!(room, [97, 98, 99, 0, 1, 1, 1, 1]);
    // SAFETY: writes nothing.
    assert_eq!(unsafe { copy_text(c"abc", std::ptr::null_mut(), 0) }, 3);
}
