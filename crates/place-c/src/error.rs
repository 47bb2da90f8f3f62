//! What calls give back: a code, and beside it a line of text for the thread that called.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// It is done.
pub const PATHCALL_PLACE_OK: i32 = 0;
/// Nothing has happened, in the time that there was.
pub const PATHCALL_PLACE_NOTHING: i32 = 1;
/// An argument is wrong: a null pointer, text that is not UTF-8, a role that there is not.
pub const PATHCALL_PLACE_INVALID: i32 = -1;
/// There is nothing of that name.
pub const PATHCALL_PLACE_UNKNOWN: i32 = -2;
/// Too many requests are in flight: take answers first.
pub const PATHCALL_PLACE_FULL: i32 = -3;
/// A message is too long.
pub const PATHCALL_PLACE_TOO_LONG: i32 = -4;
/// The application's own function refuses the request.
pub const PATHCALL_PLACE_REFUSED: i32 = -5;
/// It can't be done: the text says why.
pub const PATHCALL_PLACE_FAILED: i32 = -6;
/// The library has a bug: it panicked. What was called should not be used any more.
pub const PATHCALL_PLACE_PANICKED: i32 = -7;

/// Why a call did not do what it was asked for.
pub struct Error {
    pub code: i32,
    pub text: String,
}

impl Error {
    pub fn invalid(text: impl Display) -> Self {
        Self { code: PATHCALL_PLACE_INVALID, text: text.to_string() }
    }

    pub fn unknown(text: impl Display) -> Self {
        Self { code: PATHCALL_PLACE_UNKNOWN, text: text.to_string() }
    }

    pub fn failed(text: impl Display) -> Self {
        Self { code: PATHCALL_PLACE_FAILED, text: text.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What the last call of this thread that failed says: one line, or more where a compiler has more to say. Never null;
/// it is the library's, until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Runs a call that says how it went. No panic gets beyond this.
pub fn code(work: impl FnOnce() -> Result<i32, Error>) -> i32 {
    caught(work).unwrap_or_else(|error| {
        remember(&error.text);
        error.code
    })
}

/// The same of a call that gives a pointer: null when it failed.
pub fn pointer<T>(work: impl FnOnce() -> Result<*mut T, Error>) -> *mut T {
    caught(work).unwrap_or_else(|error| {
        remember(&error.text);
        std::ptr::null_mut()
    })
}

fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(ToString::to_string).or(panic.downcast_ref::<String>().cloned());
        let text = format!("a bug in the library: {}", said.unwrap_or_default());
        Err(Error { code: PATHCALL_PLACE_PANICKED, text })
    })
}

fn remember(text: &str) {
    LAST.set(line(text));
}

/// Text as C has it; what it can't have is left out.
pub fn line(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Copies text, cut where there is no more room, and always ended: the bytes that all of it has.
///
/// # Safety
/// `to` is null, or may be written for `room` bytes.
#[expect(unsafe_code, reason = "the caller's memory is written")]
pub unsafe fn put(text: &CStr, to: *mut c_char, room: usize) -> usize {
    let bytes = text.to_bytes();
    if !to.is_null() && room > 0 {
        let count = bytes.len().min(room - 1);
        // SAFETY: there is room for so many bytes, and one more is left for the end.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, count);
            *to.add(count) = 0;
        }
    }
    bytes.len()
}
