//! Status codes of calls, and the error text of a thread's last failed call.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Success.
pub const PATHCALL_PLACE_OK: i32 = 0;
/// No event within the given time.
pub const PATHCALL_PLACE_NOTHING: i32 = 1;
/// Invalid argument: a null pointer, text that is not UTF-8, an unknown role.
pub const PATHCALL_PLACE_INVALID: i32 = -1;
/// Unknown name.
pub const PATHCALL_PLACE_UNKNOWN: i32 = -2;
/// Too many requests in flight: receive answers first.
pub const PATHCALL_PLACE_FULL: i32 = -3;
/// Message too long.
pub const PATHCALL_PLACE_TOO_LONG: i32 = -4;
/// The application's own function rejected the request.
pub const PATHCALL_PLACE_REFUSED: i32 = -5;
/// Failure; the error text states the cause.
pub const PATHCALL_PLACE_FAILED: i32 = -6;
/// A bug: the library panicked. The object that the call was made on should not be used again.
pub const PATHCALL_PLACE_PANICKED: i32 = -7;

/// Error of a call.
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
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Error text of this thread's last failed call: one line, or several if it quotes a compiler. Never null. The library
/// owns the text, which stays valid until this thread's next failed call.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

/// Executes a call that returns a code. Catches every panic.
pub fn code(work: impl FnOnce() -> Result<i32, Error>) -> i32 {
    catch(work).unwrap_or_else(|error| {
        set_last_error(&error.text);
        error.code
    })
}

/// Executes a call that returns a pointer, null on failure. Catches every panic.
pub fn pointer<T>(work: impl FnOnce() -> Result<*mut T, Error>) -> *mut T {
    catch(work).unwrap_or_else(|error| {
        set_last_error(&error.text);
        std::ptr::null_mut()
    })
}

fn catch<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(ToString::to_string).or(panic.downcast_ref::<String>().cloned());
        let text = format!("a bug in the library: {}", message.unwrap_or_default());
        Err(Error { code: PATHCALL_PLACE_PANICKED, text })
    })
}

fn set_last_error(text: &str) {
    LAST_ERROR.set(c_string(text));
}

/// Converts text to a C string, without its zero bytes.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Copies text into `room` bytes, truncated if necessary and always terminated. Returns the length of the whole text.
///
/// # Safety
/// `to` is null, or points at `room` writable bytes.
#[expect(unsafe_code, reason = "writes the caller's memory")]
pub unsafe fn copy_text(text: &CStr, to: *mut c_char, room: usize) -> usize {
    let bytes = text.to_bytes();
    if !to.is_null() && room > 0 {
        let count = bytes.len().min(room - 1);
        // SAFETY: `to` has room for `count` bytes and the terminator.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, count);
            *to.add(count) = 0;
        }
    }
    bytes.len()
}
