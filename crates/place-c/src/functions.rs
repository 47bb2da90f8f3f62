//! Functions of C that the library calls, with the pointer that was registered beside each.
//!
//! They may be called by several threads at the same time, until the context is freed, which waits for those that run:
//! [`Gate`]. They must return, and not by `longjmp` or an exception.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_place::context::window::Window;
use pathcall_place::device::{AppError, Code};
use pathcall_wire::Instant;

use crate::gate::Gate;

/// What a task does: the bytes of the answer that it wrote, or a negative number: it refuses the request.
pub type pathcall_place_function = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const u8,
        request_bytes: usize,
        answer: *mut u8,
        answer_max: usize,
    ) -> i64,
>;

/// What a requester sends in a trip after the first: the bytes of the message that it wrote, at most so many.
pub type pathcall_place_next_function = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        trip: u32,
        request: *const u8,
        request_bytes: usize,
        answer: *const u8,
        answer_bytes: usize,
        message: *mut u8,
        message_max: usize,
    ) -> i64,
>;

/// Reads so many bytes of memory that others may reach, from a place that is in it.
pub type pathcall_place_read_function =
    Option<unsafe extern "C" fn(user: *mut c_void, at: usize, to: *mut u8, count: usize)>;

/// Writes them.
pub type pathcall_place_write_function =
    Option<unsafe extern "C" fn(user: *mut c_void, at: usize, from: *const u8, count: usize)>;

/// Tells the time, in nanoseconds; never back.
pub type pathcall_place_clock = Option<unsafe extern "C" fn(user: *mut c_void) -> u64>;

/// What was registered beside a function, and whether that may still be called.
pub(crate) struct User {
    at: *mut c_void,
    gate: Gate,
}

// SAFETY: the library does nothing with it but pass it on, and who registers it says that any thread may have it.
unsafe impl Send for User {}
// SAFETY: the same.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(at: *mut c_void, gate: &Gate) -> Self {
        Self { at, gate: gate.clone() }
    }

    /// Calls the function; none when what it was registered with is freed.
    fn call<T>(&self, function: impl FnOnce(*mut c_void) -> T) -> Option<T> {
        self.gate.pass(|| function(self.at))
    }
}

/// A task's function, as devices of the host run it.
pub(crate) fn code(
    function: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut u8, usize) -> i64,
    user: User,
) -> Code {
    Code::host(move |request, answer| {
        let (room, max) = (answer.as_mut_ptr(), answer.len());
        // SAFETY: the pointers and lengths are those of slices; the function keeps to them, as who registered it says.
        let said = user.call(|user| unsafe { function(user, request.as_ptr(), request.len(), room, max) });
        let said = said.ok_or_else(|| AppError("the context is freed".into()))?;
        usize::try_from(said).map_err(|_| AppError(format!("the function refuses it, with {said}")))
    })
}

/// What makes the messages of later trips, each of at most so many bytes.
pub(crate) fn next(
    function: unsafe extern "C" fn(*mut c_void, u32, *const u8, usize, *const u8, usize, *mut u8, usize) -> i64,
    user: User,
    max: usize,
) -> pathcall_place::context::NextFn {
    Arc::new(move |trip: usize, request: &Bytes, answer: &Bytes| {
        let mut message = vec![0; max];
        let (request, answer, to) =
            ((request.as_ptr(), request.len()), (answer.as_ptr(), answer.len()), message.as_mut_ptr());
        // SAFETY: the same.
        let call = |user| unsafe { function(user, trip as u32, request.0, request.1, answer.0, answer.1, to, max) };
        let said = user.call(call).unwrap_or(0);
        // More than there was room for was not written; a responder refuses what is too short for it.
        message.truncate(usize::try_from(said).unwrap_or(0).min(max));
        message.into()
    })
}

/// A clock.
pub(crate) fn clock(
    function: unsafe extern "C" fn(*mut c_void) -> u64,
    user: User,
) -> pathcall_place::context::comm::TsFn {
    // Requests that outlive their context ask it once more when they fail: it does not matter then.
    // SAFETY: it takes nothing but what was registered beside it.
    Arc::new(move || Instant(user.call(|user| unsafe { function(user) }).unwrap_or(0)))
}

/// Memory that functions of C read and write.
pub(crate) struct Memory {
    pub(crate) bytes: usize,
    pub(crate) read: unsafe extern "C" fn(*mut c_void, usize, *mut u8, usize),
    pub(crate) write: unsafe extern "C" fn(*mut c_void, usize, *const u8, usize),
    pub(crate) user: User,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Window for Memory {
    fn len(&self) -> usize {
        if self.user.gate.is_open() { self.bytes } else { 0 }
    }

    fn read(&self, at: usize, to: &mut [u8]) {
        // SAFETY: the place is in the memory, and `to` a slice.
        self.user.call(|user| unsafe { (self.read)(user, at, to.as_mut_ptr(), to.len()) });
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: the same.
        self.user.call(|user| unsafe { (self.write)(user, at, bytes.as_ptr(), bytes.len()) });
    }
}
