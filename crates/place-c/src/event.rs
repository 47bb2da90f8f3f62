//! What has happened, as C reads it.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use bytes::Bytes;
use pathcall_place::context::{Answer, Event, Failure, Incoming};

use crate::args::opaque;
use crate::error::{PATHCALL_PLACE_FAILED, PATHCALL_PLACE_OK, PATHCALL_PLACE_REFUSED, code, line};
use crate::{PATHCALL_PLACE_CPU, PATHCALL_PLACE_UNMEASURED};

/// A request is answered, or can't be.
pub const PATHCALL_PLACE_ANSWER: u32 = 1;
/// Of `pathcall_place_write` or `pathcall_place_read`: it is done, or can't be.
pub const PATHCALL_PLACE_ACCESSED: u32 = 2;
/// A request has come.
pub const PATHCALL_PLACE_REQUEST: u32 = 3;
/// One that was given to `pathcall_place_handle` is answered, or can't be.
pub const PATHCALL_PLACE_HANDLED: u32 = 4;

/// What an event keeps until it is freed.
pub struct pathcall_place_held {
    bytes: Bytes,
    text: CString,
    request: Option<Incoming>,
}

/// What has happened. Its bytes and its text are the library's, until `pathcall_place_event_free`.
#[repr(C)]
pub struct pathcall_place_event {
    /// `PATHCALL_PLACE_ANSWER`, `_ACCESSED`, `_REQUEST` or `_HANDLED`.
    pub what: u32,
    /// `PATHCALL_PLACE_OK`; `PATHCALL_PLACE_REFUSED`: by the application's function; `PATHCALL_PLACE_FAILED`: by all.
    pub status: i32,
    /// As it was given.
    pub tag: u64,
    /// The bytes of an answer, of what was read, or of a request that has come.
    pub bytes: *const u8,
    /// How many.
    pub count: usize,
    /// Why there are none; empty with `PATHCALL_PLACE_OK`.
    pub text: *const c_char,
    /// The path that an answer came by, from 0; -1: the processor did it in place of paths that failed.
    pub path: i32,
    /// Times that the request was sent.
    pub attempts: u32,
    /// Time within the hosts, nanoseconds, or `PATHCALL_PLACE_UNMEASURED`.
    pub intra_ns: u64,
    /// Time since the request was to be sent, nanoseconds.
    pub total_ns: u64,
    /// Of a request that has come: its type, from 0, as in the application's file.
    pub kind: u32,
    /// Which trip of its dataflow, from 0.
    pub trip: u32,
    /// The role that its path names.
    pub role: u32,
    /// The library's.
    pub held: *mut pathcall_place_held,
}

/// Frees what an event keeps; a request that has come and was neither handled nor answered fails. Null, and an event that
/// was freed, are none.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_event_free(event: *mut pathcall_place_event) {
    if event.is_null() {
        return;
    }
    code(|| {
        let event = opaque(event, "event")?;
        drop(event.take());
        Ok(PATHCALL_PLACE_OK)
    });
}

impl pathcall_place_event {
    /// What it keeps; it is empty then.
    pub(crate) fn take(&mut self) -> Option<Box<pathcall_place_held>> {
        let held = std::mem::replace(&mut self.held, ptr::null_mut());
        (self.bytes, self.count, self.text) = (ptr::null(), 0, c"".as_ptr());
        // SAFETY: it is null, or was made of a box by this library, and is taken once.
        (!held.is_null()).then(|| unsafe { Box::from_raw(held) })
    }

    /// The request of an event, to be handled or answered.
    pub(crate) fn request(&mut self) -> Option<Incoming> {
        if self.what != PATHCALL_PLACE_REQUEST {
            return None;
        }
        self.take()?.request
    }

    pub(crate) fn of(event: Event) -> Self {
        match event {
            Event::Answer(Answer { tag, result, path, attempts, intra_ns, total_ns }) => Self {
                tag,
                path: path.map_or(-1, |path| i32::from(path.0)),
                attempts,
                intra_ns: intra_ns.unwrap_or(PATHCALL_PLACE_UNMEASURED),
                total_ns,
                ..Self::with(PATHCALL_PLACE_ANSWER, result)
            },
            Event::Accessed { tag, result } => Self { tag, ..Self::with(PATHCALL_PLACE_ACCESSED, result) },
            Event::Request(request) => {
                let (head, bytes) = (request.head(), request.payload().clone());
                let (kind, trip, role) = (u32::from(head.kind), u32::from(head.trip), head.role as u32);
                let blank = Self::keeping(PATHCALL_PLACE_REQUEST, PATHCALL_PLACE_OK, bytes, c"", Some(request));
                Self { kind, trip, role, ..blank }
            }
            Event::Handled => Self::with(PATHCALL_PLACE_HANDLED, Ok(Bytes::new())),
        }
    }

    fn with(what: u32, result: Result<Bytes, Failure>) -> Self {
        match result {
            Ok(bytes) => Self::keeping(what, PATHCALL_PLACE_OK, bytes, c"", None),
            Err(error) => {
                let status = match &error {
                    Failure::App(_) => PATHCALL_PLACE_REFUSED,
                    Failure::Failed(_) => PATHCALL_PLACE_FAILED,
                };
                Self::keeping(what, status, Bytes::new(), &line(&error.to_string()), None)
            }
        }
    }

    fn keeping(what: u32, status: i32, bytes: Bytes, text: &CStr, request: Option<Incoming>) -> Self {
        let held = Box::new(pathcall_place_held { bytes, text: text.to_owned(), request });
        Self {
            what,
            status,
            tag: 0,
            bytes: held.bytes.as_ptr(),
            count: held.bytes.len(),
            text: held.text.as_ptr(),
            path: -1,
            attempts: 0,
            intra_ns: PATHCALL_PLACE_UNMEASURED,
            total_ns: 0,
            kind: 0,
            trip: 0,
            role: PATHCALL_PLACE_CPU,
            held: Box::into_raw(held),
        }
    }
}
