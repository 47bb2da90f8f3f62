//! Context: calls of a running application (LEO Table II). Only `pathcall_place_wait` and `pathcall_place_free` wait.

use std::ffi::c_char;
use std::time::Duration;

use bytes::Bytes;
use pathcall_place::KindId;
use pathcall_place::admin_socket::AdminQuery;
use pathcall_place::context::comm::AnswerError;
use pathcall_place::context::{IncomingRequest, PlaceContext, RequestMessage, SendError};
use pathcall_place::device::AppError;

use crate::args::{elements, opaque, owned, role, text};
use crate::call_gate::CallGate;
use crate::error::{
    Error, PATHCALL_PLACE_FULL, PATHCALL_PLACE_NOTHING, PATHCALL_PLACE_OK, PATHCALL_PLACE_TOO_LONG,
    PATHCALL_PLACE_UNKNOWN, c_string, code, copy_text,
};
use crate::event::pathcall_place_event;

/// Requester or responder of an application, or both. One thread at a time may use a context.
pub struct pathcall_place_context {
    context: PlaceContext,
    gate: CallGate,
}

/// Request to be sent.
#[repr(C)]
pub struct pathcall_place_message {
    /// Address, for requests that keep their order per address.
    pub address: u64,
    /// Number of the message that the request is part of, for requests that keep their order per message.
    pub message: u64,
    /// Tag, returned with the answer.
    pub tag: u64,
    /// Payload, which is copied.
    pub bytes: *const u8,
    /// Number of bytes.
    pub count: usize,
    /// Type of the request, from `pathcall_place_kind`.
    pub kind: u32,
}

impl pathcall_place_context {
    pub(crate) fn new(context: PlaceContext, gate: CallGate) -> Self {
        Self { context, gate }
    }
}

/// Frees a context; unanswered requests fail at the other side. A null pointer is ignored. Waits for calls
/// in progress of registered functions; no thread calls such a function afterwards. A registered function must not free
/// its own context: the call fails, and nothing is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_free(context: *mut pathcall_place_context) {
    code(|| {
        if !context.is_null() {
            opaque(context, "context")?.gate.close()?;
            drop(owned(context, "context")?);
        }
        Ok(PATHCALL_PLACE_OK)
    });
}

/// Finds a type of request by its name in the application's file.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_kind(
    context: *mut pathcall_place_context,
    name: *const c_char,
    kind: *mut u32,
) -> i32 {
    code(|| {
        let (context, name) = (opaque(context, "context")?, text(name, "name")?);
        let found = context.context.kind(name);
        let found = found.ok_or_else(|| Error::unknown(format!("the application has no request type `{name}`")))?;
        *opaque(kind, "kind")? = u32::from(found.0);
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Selects the path of a message and sends it. An event reports the answer.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_send(
    context: *mut pathcall_place_context,
    message: *const pathcall_place_message,
) -> i32 {
    code(|| {
        let (context, given) = (opaque(context, "context")?, &elements(message, 1, "message")?[0]);
        let kind = u16::try_from(given.kind).map(KindId);
        let kind = kind.map_err(|_| Error::unknown(format!("the application has no request type {}", given.kind)))?;
        let payload = Bytes::copy_from_slice(elements(given.bytes, given.count, "bytes")?);
        let (address, message, tag) = (given.address, given.message, given.tag);
        context.context.send(RequestMessage { kind, address, message, tag, payload }).map_err(send_error)?;
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Takes the next event, if there is one; `PATHCALL_PLACE_NOTHING` otherwise. The caller frees the event.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_recv(context: *mut pathcall_place_context, event: *mut pathcall_place_event) -> i32 {
    take_event(context, event, PlaceContext::recv)
}

/// Takes the next event, and waits for it up to `timeout_ns`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_wait(
    context: *mut pathcall_place_context,
    timeout_ns: u64,
    event: *mut pathcall_place_event,
) -> i32 {
    take_event(context, event, |context| context.wait(Duration::from_nanos(timeout_ns)))
}

/// Writes to memory that the other side has registered; the bytes are copied. An event reports the end of the write.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_write(
    context: *mut pathcall_place_context,
    memory: *const c_char,
    at: u64,
    from: *const u8,
    count: usize,
    tag: u64,
) -> i32 {
    code(|| {
        let (context, memory) = (opaque(context, "context")?, text(memory, "memory")?);
        let from = Bytes::copy_from_slice(elements(from, count, "from")?);
        context.context.write(memory, at, from, tag).map_err(send_error)?;
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Reads memory that the other side has registered. An event delivers the bytes.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_read(
    context: *mut pathcall_place_context,
    memory: *const c_char,
    at: u64,
    count: u64,
    tag: u64,
) -> i32 {
    code(|| {
        let (context, memory) = (opaque(context, "context")?, text(memory, "memory")?);
        context.context.read(memory, at, count, tag).map_err(send_error)?;
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Runs the registered function of a request that has arrived, on that role, and sends the answer when it is done. The
/// event is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_handle(
    context: *mut pathcall_place_context,
    event: *mut pathcall_place_event,
    of: u32,
) -> i32 {
    code(|| {
        let (context, of) = (opaque(context, "context")?, role(of)?);
        let request = taken_request(event)?;
        context.context.handle(request, of);
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Refuses a request that has arrived; the requester does not send it again. The event is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_refuse(event: *mut pathcall_place_event, reason: *const c_char) -> i32 {
    code(|| {
        let reason = text(reason, "reason")?.to_owned();
        let request = taken_request(event)?;
        request.fail(AnswerError::App(AppError(reason)));
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Writes one line for each of the last `count` requests: its path and the reason for it. The text is truncated to
/// `room` bytes and always terminated. Returns the length of the whole text without the terminator.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_explain(
    context: *mut pathcall_place_context,
    count: usize,
    to: *mut c_char,
    room: usize,
) -> usize {
    write_text(context, to, room, AdminQuery::Explain(count))
}

/// Writes the statistics of paths and devices, in the same manner.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_status(context: *mut pathcall_place_context, to: *mut c_char, room: usize) -> usize {
    write_text(context, to, room, AdminQuery::Status)
}

fn take_event(
    context: *mut pathcall_place_context,
    event: *mut pathcall_place_event,
    take: impl FnOnce(&mut PlaceContext) -> Option<pathcall_place::context::Event>,
) -> i32 {
    code(|| {
        let context = opaque(context, "context")?;
        if event.is_null() {
            return Err(Error::invalid("event is null"));
        }
        let Some(next) = take(&mut context.context) else { return Ok(PATHCALL_PLACE_NOTHING) };
        // SAFETY: not null; the caller guarantees room for an event, which is not read.
        unsafe { event.write(pathcall_place_event::from_event(next)) };
        Ok(PATHCALL_PLACE_OK)
    })
}

fn write_text(context: *mut pathcall_place_context, to: *mut c_char, room: usize, query: AdminQuery) -> usize {
    let mut bytes = 0;
    code(|| {
        let text = opaque(context, "context")?.context.answer_query(query);
        // SAFETY: the caller guarantees `room` bytes.
        bytes = unsafe { copy_text(&c_string(&text), to, room) };
        Ok(PATHCALL_PLACE_OK)
    });
    bytes
}

/// Takes the request of an event from C.
fn taken_request(event: *mut pathcall_place_event) -> Result<IncomingRequest, Error> {
    opaque(event, "event")?.take_request().ok_or_else(|| Error::invalid("the event is not a request"))
}

fn send_error(error: SendError) -> Error {
    let code = match &error {
        SendError::Full(_) => PATHCALL_PLACE_FULL,
        SendError::TooLong { .. } => PATHCALL_PLACE_TOO_LONG,
        SendError::Kind(_) => PATHCALL_PLACE_UNKNOWN,
    };
    Error { code, text: error.to_string() }
}
