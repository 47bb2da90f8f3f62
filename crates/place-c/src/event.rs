//! Events of a context, in the layout that C reads.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use bytes::Bytes;
use pathcall_place::context::{Answer, Event, IncomingRequest, RequestError};

use crate::args::opaque;
use crate::error::{PATHCALL_PLACE_FAILED, PATHCALL_PLACE_OK, PATHCALL_PLACE_REFUSED, c_string, code};
use crate::{PATHCALL_PLACE_CPU, PATHCALL_PLACE_UNMEASURED};

/// Event kind: a request was answered or has failed.
pub const PATHCALL_PLACE_ANSWER: u32 = 1;
/// Event kind: a `pathcall_place_write` or `pathcall_place_read` is done or has failed.
pub const PATHCALL_PLACE_ACCESSED: u32 = 2;
/// Event kind: a request has arrived.
pub const PATHCALL_PLACE_REQUEST: u32 = 3;
/// Event kind: a request passed to `pathcall_place_handle` was answered or has failed.
pub const PATHCALL_PLACE_HANDLED: u32 = 4;

/// Data that an event owns until it is freed.
pub struct pathcall_place_event_data {
    bytes: Bytes,
    text: CString,
    request: Option<IncomingRequest>,
}

/// Event of a context. The library owns its bytes and its text, which stay valid until `pathcall_place_event_free`.
#[repr(C)]
pub struct pathcall_place_event {
    /// Kind of the event: `PATHCALL_PLACE_ANSWER`, `_ACCESSED`, `_REQUEST` or `_HANDLED`.
    pub what: u32,
    /// `PATHCALL_PLACE_OK`; `PATHCALL_PLACE_REFUSED` (by the application's function) or `PATHCALL_PLACE_FAILED`.
    pub status: i32,
    /// Tag of the message or access.
    pub tag: u64,
    /// Bytes of the answer, of the memory read, or of the request that has arrived.
    pub bytes: *const u8,
    /// Number of bytes.
    pub count: usize,
    /// Error text; empty with `PATHCALL_PLACE_OK`.
    pub text: *const c_char,
    /// Path of the answer, from 0; -1: all paths failed and the processor answered.
    pub path: i32,
    /// Number of times that the request was sent.
    pub attempts: u32,
    /// Time within the hosts, nanoseconds, or `PATHCALL_PLACE_UNMEASURED`.
    pub intra_ns: u64,
    /// Time from `pathcall_place_send` to the answer, nanoseconds.
    pub total_ns: u64,
    /// Type of the request that has arrived, from 0, in the order of the application's file.
    pub kind: u32,
    /// Trip of the request's dataflow, from 0.
    pub trip: u32,
    /// Role that the request's path names.
    pub role: u32,
    /// Data of the library.
    pub held: *mut pathcall_place_event_data,
}

/// Frees an event's data. A request that has arrived and was neither handled nor refused fails. A null pointer and an
/// event that was freed are ignored.
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
    /// Takes the event's data; the event is empty afterwards.
    pub(crate) fn take(&mut self) -> Option<Box<pathcall_place_event_data>> {
        let held = std::mem::replace(&mut self.held, ptr::null_mut());
        (self.bytes, self.count, self.text) = (ptr::null(), 0, c"".as_ptr());
        // SAFETY: null, or made from a box by this library and taken only once.
        (!held.is_null()).then(|| unsafe { Box::from_raw(held) })
    }

    /// Takes the request of an event, to be handled or refused.
    pub(crate) fn take_request(&mut self) -> Option<IncomingRequest> {
        if self.what != PATHCALL_PLACE_REQUEST {
            return None;
        }
        self.take()?.request
    }

    pub(crate) fn from_event(event: Event) -> Self {
        match event {
            Event::Answer(Answer { tag, result, path, attempts, intra_ns, total_ns }) => Self {
                tag,
                path: path.map_or(-1, |path| i32::from(path.0)),
                attempts,
                intra_ns: intra_ns.unwrap_or(PATHCALL_PLACE_UNMEASURED),
                total_ns,
                ..Self::with_result(PATHCALL_PLACE_ANSWER, result)
            },
            Event::Accessed { tag, result } => Self { tag, ..Self::with_result(PATHCALL_PLACE_ACCESSED, result) },
            Event::Request(request) => {
                let (head, bytes) = (request.head(), request.payload().clone());
                let (kind, trip, role) = (u32::from(head.kind), u32::from(head.trip), head.role as u32);
                let blank = Self::with_data(PATHCALL_PLACE_REQUEST, PATHCALL_PLACE_OK, bytes, c"", Some(request));
                Self { kind, trip, role, ..blank }
            }
            Event::Handled => Self::with_result(PATHCALL_PLACE_HANDLED, Ok(Bytes::new())),
        }
    }

    fn with_result(what: u32, result: Result<Bytes, RequestError>) -> Self {
        match result {
            Ok(bytes) => Self::with_data(what, PATHCALL_PLACE_OK, bytes, c"", None),
            Err(error) => {
                let status = match &error {
                    RequestError::App(_) => PATHCALL_PLACE_REFUSED,
                    RequestError::Failed(_) => PATHCALL_PLACE_FAILED,
                };
                Self::with_data(what, status, Bytes::new(), &c_string(&error.to_string()), None)
            }
        }
    }

    fn with_data(what: u32, status: i32, bytes: Bytes, text: &CStr, request: Option<IncomingRequest>) -> Self {
        let held = Box::new(pathcall_place_event_data { bytes, text: text.to_owned(), request });
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
