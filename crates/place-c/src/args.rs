//! Checks of arguments from C: null pointers, text that is not UTF-8 and unknown roles are rejected.

use std::ffi::{CStr, c_char};
use std::slice;

use pathcall_place::DeviceRole;

use crate::error::Error;

/// Reads text that ends with a zero byte.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::invalid(format!("{what} is null")));
    }
    // SAFETY: not null; the caller guarantees text that ends with a zero byte and stays valid during the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

/// Reads optional text; null means absent.
pub(crate) fn text_or_none<'a>(given: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
    if given.is_null() { Ok(None) } else { text(given, what).map(Some) }
}

/// Reads `count` values; the pointer may be null if `count` is 0.
pub(crate) fn elements<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || count.saturating_mul(size_of::<T>()) > isize::MAX as usize {
        return Err(Error::invalid(format!("{what} is null or invalid, with a count of {count}")));
    }
    // SAFETY: not null, aligned, within the size of memory; the caller guarantees `count` values during the call.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Object behind an opaque pointer.
pub(crate) fn opaque<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Error> {
    // SAFETY: null is handled; the header requires any other pointer to come from this library, not to be freed, and
    // not to be in use by another thread.
    unsafe { pointer.as_mut() }.ok_or_else(|| Error::invalid(format!("{what} is null")))
}

/// Takes ownership of the object behind an opaque pointer.
pub(crate) fn owned<T>(pointer: *mut T, what: &str) -> Result<Box<T>, Error> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{what} is null")));
    }
    // SAFETY: the library made the pointer from a box; the header requires that the caller passes it only once.
    Ok(unsafe { Box::from_raw(pointer) })
}

/// Converts a role's number.
pub(crate) fn role(role: u32) -> Result<DeviceRole, Error> {
    DeviceRole::ALL.get(role as usize).copied().ok_or_else(|| {
        let expected =
            "expected PATHCALL_PLACE_CPU (0), or PATHCALL_PLACE_ACC (1) plus the number of an accelerator, 0 to 6";
        Error::invalid(format!("invalid role {role}: {expected}"))
    })
}
