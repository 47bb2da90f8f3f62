//! C functions that the library calls, each with the `user` pointer registered with it.
//!
//! Several threads may call these functions at the same time, until the context is freed; freeing waits for the calls
//! in progress (`CallGate`). A function must return normally: not by `longjmp` or an exception.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_place::context::window::{MemoryWindow, WindowFailure};
use pathcall_place::device::{AppError, TaskCode};
use pathcall_wire::Instant;

use crate::call_gate::CallGate;

/// Function of a task. Returns the number of answer bytes that it wrote, or a negative number to refuse the request.
pub type pathcall_place_function = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const u8,
        request_bytes: usize,
        answer: *mut u8,
        answer_max: usize,
    ) -> i64,
>;

/// Function that writes a requester's message of a trip after the first. Returns the number of bytes that it wrote.
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

/// Function that reads `count` bytes of registered memory at offset `at`, which is within the memory.
pub type pathcall_place_read_function =
    Option<unsafe extern "C" fn(user: *mut c_void, at: usize, to: *mut u8, count: usize)>;

/// Function that writes `count` bytes of registered memory at offset `at`, which is within the memory.
pub type pathcall_place_write_function =
    Option<unsafe extern "C" fn(user: *mut c_void, at: usize, from: *const u8, count: usize)>;

/// Clock: returns a monotonic time in nanoseconds.
pub type pathcall_place_clock = Option<unsafe extern "C" fn(user: *mut c_void) -> u64>;

/// `user` pointer of a registered function, with the gate for calls to the function.
pub(crate) struct UserPointer {
    at: *mut c_void,
    gate: CallGate,
}

// SAFETY: the library only passes the pointer on, and the caller guarantees that any thread may use it.
unsafe impl Send for UserPointer {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserPointer {}

impl UserPointer {
    pub(crate) fn new(at: *mut c_void, gate: &CallGate) -> Self {
        Self { at, gate: gate.clone() }
    }

    /// Calls the function; `None` if its builder or context is freed.
    fn call<T>(&self, function: impl FnOnce(*mut c_void) -> T) -> Option<T> {
        self.gate.call_if_open(|| function(self.at))
    }
}

/// Wraps a task's function as code for devices of the host.
pub(crate) fn code(
    function: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut u8, usize) -> i64,
    user: UserPointer,
) -> TaskCode {
    TaskCode::host(move |request, answer| {
        let (room, max) = (answer.as_mut_ptr(), answer.len());
        // SAFETY: pointers and lengths belong to slices; the caller guarantees that the function stays within them.
        let returned = user.call(|user| unsafe { function(user, request.as_ptr(), request.len(), room, max) });
        let returned = returned.ok_or_else(|| AppError("the context is freed".into()))?;
        usize::try_from(returned).map_err(|_| AppError(format!("the function refused the request: {returned}")))
    })
}

/// Wraps the function that writes the messages of later trips, each of at most `max` bytes.
pub(crate) fn next(
    function: unsafe extern "C" fn(*mut c_void, u32, *const u8, usize, *const u8, usize, *mut u8, usize) -> i64,
    user: UserPointer,
    max: usize,
) -> pathcall_place::context::NextFn {
    Arc::new(move |trip: usize, request: &Bytes, answer: &Bytes| {
        let mut message = vec![0; max];
        let (request, answer, to) =
            ((request.as_ptr(), request.len()), (answer.as_ptr(), answer.len()), message.as_mut_ptr());
        // SAFETY: as in `code`.
        let call = |user| unsafe { function(user, trip as u32, request.0, request.1, answer.0, answer.1, to, max) };
        let written = user.call(call).unwrap_or(0);
        // The function cannot have written more than `max` bytes. The responder rejects a message that is too short.
        message.truncate(usize::try_from(written).unwrap_or(0).min(max));
        message.into()
    })
}

/// Wraps a clock.
pub(crate) fn clock(
    function: unsafe extern "C" fn(*mut c_void) -> u64,
    user: UserPointer,
) -> pathcall_place::context::comm::TsFn {
    // A request that outlives its context reads the clock once more when it fails; its time is not used then.
    // SAFETY: the function takes only the `user` pointer registered with it.
    Arc::new(move || Instant(user.call(|user| unsafe { function(user) }).unwrap_or(0)))
}

/// Memory that is read and written by C functions.
pub(crate) struct CallbackMemory {
    pub(crate) bytes: usize,
    pub(crate) read: unsafe extern "C" fn(*mut c_void, usize, *mut u8, usize),
    pub(crate) write: unsafe extern "C" fn(*mut c_void, usize, *const u8, usize),
    pub(crate) user: UserPointer,
}

impl fmt::Debug for CallbackMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl MemoryWindow for CallbackMemory {
    fn len(&self) -> usize {
        if self.user.gate.is_open() { self.bytes } else { 0 }
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure> {
        // SAFETY: the range is within the memory, and `to` is a slice.
        let called = self.user.call(|user| unsafe { (self.read)(user, at, to.as_mut_ptr(), to.len()) });
        called.ok_or_else(|| WindowFailure("the context is freed".into()))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        // SAFETY: as in `read`.
        let called = self.user.call(|user| unsafe { (self.write)(user, at, bytes.as_ptr(), bytes.len()) });
        called.ok_or_else(|| WindowFailure("the context is freed".into()))
    }
}
