//! Context API for applications (LEO Table II).
//!
//! ```text
//!             requester                                              responder
//!  send ─▶ select ─▶ its task ─▶ communication function ══▶ recv ─▶ handle(m, role) ─▶ device of that role
//!   t1       │                t2                        t3                                  │
//!  recv ◀── done ◀── t6, t5 ◀══════════ answer, t4 − t3 ◀════════════════════════════ t4 ◀──┘
//!            └ failed: sent again; at last, over the CPU
//! ```
//!
//! A [`PlaceContext`] is a requester, a responder, or both. It belongs to one thread. Only [`PlaceContext::wait`]
//! blocks. [`Builder`] registers the parts that differ between hosts: communication ([`comm`]: within a process,
//! [`remote`]: between hosts), memory ([`window`]), clocks, functions and devices. [`telemetry`] explains which paths
//! requests took, and why.
//!
//! | Table II | here |
//! |---|---|
//! | `init` | [`Builder::init`] |
//! | `send`, `recv` | [`PlaceContext::send`], [`PlaceContext::recv`], [`PlaceContext::wait`] |
//! | `write`, `read` | [`PlaceContext::write`], [`PlaceContext::read`] |
//! | `handle(m, r)` | [`PlaceContext::handle`] |
//! | `reg_comm_func`, `reg_mem_func`, `reg_ts_func`, `reg_app_func` | the same of [`Builder`] |
//!
//! **Failures of devices.** If a device refuses a job, fails it, answers with a wrong length or not in time, its path
//! has failed. The request is retried over another path, and finally over the CPU of the responder, so its answer
//! equals the CPU's. Executing a function on an accelerator twice must therefore do no harm.

#[cfg(unix)]
mod admin_socket;
mod buffer_pool;
mod builder;
pub mod comm;
mod device_queue;
mod error;
mod load;
mod path_trips;
mod pending;
pub mod remote;
mod requester;
mod responder;
mod tables;
pub mod telemetry;
pub mod window;

pub use builder::{Builder, Limits, NextFn, PlaceContext};
pub use device_queue::DeviceStats;
pub use error::InitError;
pub use pending::PendingWork;
pub use responder::ContextThread;
pub use tables::DeviceTables;

use bytes::Bytes;

use crate::device::AppError;
use crate::path::{KindId, PathId};
use comm::{AnswerError, ReplyTo, RequestHead};
use pathcall_wire::Instant;

/// Request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMessage {
    /// Request type: [`PlaceContext::kind`].
    pub kind: KindId,
    /// Address, for requests that keep their order per address.
    pub address: u64,
    /// Message number, for requests that keep their order per message.
    pub message: u64,
    /// Tag of the caller, returned with the answer.
    pub tag: u64,
    /// Its bytes.
    pub payload: Bytes,
}

/// Event of a context.
#[derive(Debug)]
pub enum Event {
    /// A request was answered, or failed.
    Answer(Answer),
    /// A [`PlaceContext::write`] or [`PlaceContext::read`] ended.
    Accessed {
        /// Tag of the caller.
        tag: u64,
        /// Bytes that were read; empty for a write.
        result: Result<Bytes, RequestError>,
    },
    /// A request arrived for [`PlaceContext::handle`]; see [`Builder::handles_itself`].
    Request(IncomingRequest),
    /// A request that was passed to [`PlaceContext::handle`] was answered, or failed.
    Handled,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Tag of the caller.
    pub tag: u64,
    /// Payload, or the error.
    pub result: Result<Bytes, RequestError>,
    /// Path of the answer; `None`: the CPUs executed the request after all paths had failed.
    pub path: Option<PathId>,
    /// Number of attempts.
    pub attempts: u32,
    /// Time within the hosts, `(t2−t1) + (t4−t3) + (t6−t5)`, in nanoseconds; `None` if the responder did not measure
    /// its part.
    pub intra_ns: Option<u64>,
    /// Time since the call of `send`, in nanoseconds.
    pub total_ns: u64,
}

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The application refused the request.
    #[error("{0}")]
    App(AppError),
    /// No path and no CPU answered; the last reason.
    #[error("no device answered: {0}")]
    Failed(String),
}

/// Error of a message that was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Too many requests are in flight.
    #[error("{0} requests are in flight, the maximum: receive answers first")]
    Full(u32),
    /// The message is too long.
    #[error("message of {got} bytes is too long: at most {max}")]
    TooLong {
        /// Length of the message in bytes.
        got: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// The request type does not exist.
    #[error("the application has no request type {}", .0.0)]
    Kind(KindId),
}

/// Request of the other side.
#[derive(Debug)]
pub struct IncomingRequest {
    head: RequestHead,
    payload: Bytes,
    at: Instant,
    reply: ReplyTo,
}

impl IncomingRequest {
    /// Header: type, trip, task, and the role of its path.
    #[must_use]
    pub fn head(&self) -> RequestHead {
        self.head
    }

    /// Its bytes.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Sends this answer, in place of [`PlaceContext::handle`].
    pub fn answer(self, now: Instant, payload: Bytes) {
        let time = pathcall_wire::place::HostTime::of(now.0.saturating_sub(self.at.0));
        self.reply.answer(time, payload);
    }

    /// Sends an error.
    pub fn fail(self, reason: AnswerError) {
        self.reply.fail(reason);
    }
}

/// Application hooks around the tasks of incoming requests, on the responder's thread: they provide the input of a
/// task, and use its result. They must be short and must not block.
pub trait TaskHooks: std::fmt::Debug + Send + Sync {
    /// Input of the task, in place of the request. Without a task, the input of [`after`](Self::after).
    ///
    /// # Errors
    /// [`AnswerError::App`]: the request cannot be executed.
    fn before(&self, _head: RequestHead, request: &Bytes) -> Result<Bytes, AnswerError> {
        Ok(request.clone())
    }

    /// Answer, in place of the task's result or error. `head` has the role that ran the task. A retried request may
    /// call it more than once.
    ///
    /// # Errors
    /// [`AnswerError::Failed`]: the request is retried over another path; [`AnswerError::App`]: the request cannot be
    /// executed.
    fn after(
        &self,
        _head: RequestHead,
        _request: &Bytes,
        made: Result<Bytes, AnswerError>,
    ) -> Result<Bytes, AnswerError> {
        made
    }
}
