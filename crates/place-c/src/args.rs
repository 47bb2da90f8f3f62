//! What C passes, taken as it says it is: null pointers, text that is none and roles that there are not are refused.

use std::ffi::{CStr, c_char};
use std::slice;

use pathcall_place::Role;

use crate::error::Error;
use crate::{PATHCALL_PLACE_ACC, PATHCALL_PLACE_CPU};

/// Text that ends with a zero.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::invalid(format!("{what} is null")));
    }
    // SAFETY: not null; the caller says that it is text that ends with a zero, and stays for as long as the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

/// The same where null means none.
pub(crate) fn text_or_none<'a>(given: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
    if given.is_null() { Ok(None) } else { text(given, what).map(Some) }
}

/// So many bytes; none may be null.
pub(crate) fn bytes<'a>(bytes: *const u8, count: usize, what: &str) -> Result<&'a [u8], Error> {
    elements(bytes, count, what)
}

/// So many values.
pub(crate) fn elements<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || count.saturating_mul(size_of::<T>()) > isize::MAX as usize {
        return Err(Error::invalid(format!("{what} is null, and has {count}")));
    }
    // SAFETY: not null, aligned, no more than memory has; the caller says that so many are there during the call.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// What an opaque pointer points at.
pub(crate) fn opaque<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Error> {
    // SAFETY: null is told apart; else it is one that this library gave, that was not freed, and that no other thread
    // uses: so says the header.
    unsafe { pointer.as_mut() }.ok_or_else(|| Error::invalid(format!("{what} is null")))
}

/// Takes an opaque pointer back.
pub(crate) fn owned<T>(pointer: *mut T, what: &str) -> Result<Box<T>, Error> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{what} is null")));
    }
    // SAFETY: the library made it of a box, and the caller gives it back once: so says the header.
    Ok(unsafe { Box::from_raw(pointer) })
}

/// A role.
pub(crate) fn role(role: u32) -> Result<Role, Error> {
    match role {
        PATHCALL_PLACE_CPU => Ok(Role::Cpu),
        PATHCALL_PLACE_ACC => Ok(Role::Acc),
        other => {
            Err(Error::invalid(format!("no role {other}: expected PATHCALL_PLACE_CPU (0) or PATHCALL_PLACE_ACC (1)")))
        }
    }
}
