//! Errors of calls, from within the library.

use std::ffi::CStr;

use pathcall_place_c::error::{
    Error, PATHCALL_PLACE_NOTHING, PATHCALL_PLACE_PANICKED, code, pathcall_place_error, pointer, put,
};

/// What the last call of this thread that failed says.
#[expect(unsafe_code, reason = "text of C")]
fn said() -> String {
    // SAFETY: it is never null, and ended.
    unsafe { CStr::from_ptr(pathcall_place_error()) }.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_panic_is_a_code() {
    assert_eq!(code(|| panic!("it is broken")), PATHCALL_PLACE_PANICKED);
    assert_eq!(said(), "a bug in the library: it is broken");
    assert!(pointer::<u8>(|| Err(Error::failed("a\0b"))).is_null());
    assert_eq!(said(), "ab");
    assert_eq!(code(|| Ok(PATHCALL_PLACE_NOTHING)), PATHCALL_PLACE_NOTHING);
}

#[test]
#[expect(unsafe_code, reason = "memory of C")]
fn text_is_cut_where_there_is_no_room() {
    let mut room = [1; 8];
    // SAFETY: there are eight bytes.
    assert_eq!(unsafe { put(c"abcdef", room.as_mut_ptr(), 4) }, 6);
    assert_eq!(room, [97, 98, 99, 0, 1, 1, 1, 1]);
    // SAFETY: nothing is written.
    assert_eq!(unsafe { put(c"abc", std::ptr::null_mut(), 0) }, 3);
}
