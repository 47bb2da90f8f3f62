//! A context: what an application calls (LEO Table II). None of it waits, but `pathcall_place_wait`.

use std::ffi::c_char;
use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use pathcall_place::KindId;
use pathcall_place::context::comm::Fault;
use pathcall_place::context::{Context, Message, SendError};
use pathcall_place::device::AppError;

use crate::args::{bytes, elements, opaque, owned, role, text};
use crate::error::{
    Error, PATHCALL_PLACE_FULL, PATHCALL_PLACE_NOTHING, PATHCALL_PLACE_OK, PATHCALL_PLACE_TOO_LONG,
    PATHCALL_PLACE_UNKNOWN, code, line, put,
};
use crate::event::pathcall_place_event;
use crate::gate::Gate;

/// Either end of an application, or both. One thread at a time may use it.
pub struct pathcall_place_context {
    context: Context,
    gate: Gate,
}

/// A request to be made.
#[repr(C)]
pub struct pathcall_place_message {
    /// What it is about, for requests that keep their order per address.
    pub address: u64,
    /// The message that it is part of, for requests that keep their order per message.
    pub message: u64,
    /// Comes back with the answer.
    pub tag: u64,
    /// Its bytes, which are copied.
    pub bytes: *const u8,
    /// How many.
    pub count: usize,
    /// Its type, from `pathcall_place_kind`.
    pub kind: u32,
}

impl pathcall_place_context {
    pub(crate) fn new(context: Context, gate: Gate) -> Self {
        Self { context, gate }
    }
}

/// Frees a context: what it has not answered fails at the other side. Null is none. Waits for functions that were registered
/// and run; none is called afterwards, by whatever thread. Of such a function itself it is refused: nothing is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_free(context: *mut pathcall_place_context) {
    code(|| {
        if !context.is_null() {
            opaque(context, "context")?.gate.shut()?;
            drop(owned(context, "context")?);
        }
        Ok(PATHCALL_PLACE_OK)
    });
}

/// A type of request by its name in the application's file.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_kind(
    context: *mut pathcall_place_context,
    name: *const c_char,
    kind: *mut u32,
) -> i32 {
    code(|| {
        let (context, name) = (opaque(context, "context")?, text(name, "name")?);
        let found = context.context.kind(name);
        let found = found.ok_or_else(|| Error::unknown(format!("the application has no type of request `{name}`")))?;
        *opaque(kind, "kind")? = u32::from(found.0);
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Sends a message: chooses its path. Its answer is an event.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_send(
    context: *mut pathcall_place_context,
    message: *const pathcall_place_message,
) -> i32 {
    code(|| {
        let (context, given) = (opaque(context, "context")?, &elements(message, 1, "message")?[0]);
        let kind = u16::try_from(given.kind).map(KindId);
        let kind =
            kind.map_err(|_| Error::unknown(format!("the application has no type of request {}", given.kind)))?;
        let payload = Bytes::copy_from_slice(bytes(given.bytes, given.count, "bytes")?);
        let (address, message, tag) = (given.address, given.message, given.tag);
        context.context.send(Message { kind, address, message, tag, payload }).map_err(unsent)?;
        Ok(PATHCALL_PLACE_OK)
    })
}

/// The next thing that has happened, if there is one now; `PATHCALL_PLACE_NOTHING` otherwise. Free the event.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_recv(context: *mut pathcall_place_context, event: *mut pathcall_place_event) -> i32 {
    next(context, event, Context::recv)
}

/// The same, and waits for so long.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_wait(
    context: *mut pathcall_place_context,
    timeout_ns: u64,
    event: *mut pathcall_place_event,
) -> i32 {
    next(context, event, |context| context.wait(Duration::from_nanos(timeout_ns)))
}

/// Writes into memory that the other side has registered; the bytes are copied. Done, it is an event.
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
        let from = Bytes::copy_from_slice(bytes(from, count, "from")?);
        context.context.write(memory, at, from, tag).map_err(unsent)?;
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Reads memory that the other side has registered. The bytes come with an event.
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
        context.context.read(memory, at, count, tag).map_err(unsent)?;
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Has what is registered for a request that has come work on it, on that role; its answer leaves when it is done. The
/// event is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_handle(
    context: *mut pathcall_place_context,
    event: *mut pathcall_place_event,
    of: u32,
) -> i32 {
    code(|| {
        let (context, of) = (opaque(context, "context")?, role(of)?);
        let request = opaque(event, "event")?.request().ok_or_else(|| Error::invalid("the event is no request"))?;
        context.context.handle(request, of);
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Refuses a request that has come: it is not sent again. The event is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_refuse(event: *mut pathcall_place_event, why: *const c_char) -> i32 {
    code(|| {
        let why = text(why, "why")?.to_owned();
        let request = opaque(event, "event")?.request().ok_or_else(|| Error::invalid("the event is no request"))?;
        request.fail(Fault::App(AppError(why)));
        Ok(PATHCALL_PLACE_OK)
    })
}

/// Says of the last so many requests where they went and why, a line each, cut where there is no more room and always
/// ended: the bytes that all of it has, without the end.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_explain(
    context: *mut pathcall_place_context,
    count: usize,
    to: *mut c_char,
    room: usize,
) -> usize {
    said(context, to, room, |context, text| {
        // A string takes whatever is written.
        let _ = context.explain(count).try_for_each(|line| writeln!(text, "{line}"));
    })
}

/// Says what paths and devices have come to, in the same manner.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_status(context: *mut pathcall_place_context, to: *mut c_char, room: usize) -> usize {
    said(context, to, room, |context, text| {
        let _ = write!(text, "{}", context.telemetry());
    })
}

fn next(
    context: *mut pathcall_place_context,
    event: *mut pathcall_place_event,
    take: impl FnOnce(&mut Context) -> Option<pathcall_place::context::Event>,
) -> i32 {
    code(|| {
        let context = opaque(context, "context")?;
        if event.is_null() {
            return Err(Error::invalid("event is null"));
        }
        let Some(happened) = take(&mut context.context) else { return Ok(PATHCALL_PLACE_NOTHING) };
        // SAFETY: not null; the caller says that there is room for an event, of which nothing is read.
        unsafe { event.write(pathcall_place_event::of(happened)) };
        Ok(PATHCALL_PLACE_OK)
    })
}

fn said(
    context: *mut pathcall_place_context,
    to: *mut c_char,
    room: usize,
    say: impl FnOnce(&Context, &mut String),
) -> usize {
    let mut bytes = 0;
    code(|| {
        let mut text = String::new();
        say(&opaque(context, "context")?.context, &mut text);
        // SAFETY: the caller says that there is so much room.
        bytes = unsafe { put(&line(&text), to, room) };
        Ok(PATHCALL_PLACE_OK)
    });
    bytes
}

fn unsent(error: SendError) -> Error {
    let code = match &error {
        SendError::Full(_) => PATHCALL_PLACE_FULL,
        SendError::TooLong { .. } => PATHCALL_PLACE_TOO_LONG,
        SendError::Kind(_) => PATHCALL_PLACE_UNKNOWN,
    };
    Error { code, text: error.to_string() }
}
