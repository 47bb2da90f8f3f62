//! The API of LEO's Table II: what applications call.
//!
//! ```text
//!             requester                                              responder
//!  send ─▶ select ─▶ its task ─▶ communication function ══▶ recv ─▶ handle(m, role) ─▶ device of that role
//!   t1       │                t2                        t3                                  │
//!  recv ◀── done ◀── t6, t5 ◀══════════ answer, t4 − t3 ◀════════════════════════════ t4 ◀──┘
//!            └ failed: sent again; at last, over the CPU
//! ```
//!
//! A [`Context`] is either end, or both. It belongs to one thread; nothing that it does waits, but [`Context::wait`],
//! which says so. [`Builder`] registers what is different from host to host: communication ([`comm`]: within a process,
//! [`remote`]: between hosts), memory ([`window`]), clocks, functions and devices. [`telemetry`] says where requests
//! went, and why.
//!
//! | Table II | here |
//! |---|---|
//! | `init` | [`Builder::init`] |
//! | `send`, `recv` | [`Context::send`], [`Context::recv`], [`Context::wait`] |
//! | `write`, `read` | [`Context::write`], [`Context::read`] |
//! | `handle(m, r)` | [`Context::handle`] |
//! | `reg_comm_func`, `reg_mem_func`, `reg_ts_func`, `reg_app_func` | the same of [`Builder`] |
//!
//! **A device that fails.** A job that a device refuses, fails, answers with a wrong length or not in time is a failure of
//! its path: the request is sent again, over another path or at last over the CPU of the responder, so that its answer is
//! the CPU's. Functions of accelerators must therefore be such that doing them twice does no harm.

mod bench;
mod builder;
pub mod comm;
#[cfg(unix)]
mod door;
mod error;
mod flight;
mod held;
mod load;
pub mod remote;
mod rooms;
mod serve;
mod tables;
pub mod telemetry;
pub mod window;

pub use bench::BenchStats;
pub use builder::{Builder, Context, Limits, NextFn};
pub use error::InitError;
pub use held::Held;
pub use serve::Server;
pub use tables::Tables;

use bytes::Bytes;

use crate::device::AppError;
use crate::path::{KindId, PathId};
use comm::{Fault, Head, ReplyTo};
use pathcall_wire::Instant;

/// A request to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type: [`Context::kind`].
    pub kind: KindId,
    /// What it is about, for requests that keep their order per address.
    pub address: u64,
    /// The message that it is part of, for requests that keep their order per message.
    pub message: u64,
    /// Comes back with the answer.
    pub tag: u64,
    /// Its bytes.
    pub payload: Bytes,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// A request is answered, or can't be.
    Answer(Answer),
    /// Of [`Context::write`] and [`Context::read`]: it is done, or can't be.
    Accessed {
        /// As given.
        tag: u64,
        /// The bytes that were read; none of a write.
        result: Result<Bytes, Failure>,
    },
    /// A request has come, and waits for [`Context::handle`]; see [`Builder::handles_itself`].
    Request(Incoming),
    /// One that was given to [`Context::handle`] is answered, or can't be.
    Handled,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// As given.
    pub tag: u64,
    /// Its bytes, or why there are none.
    pub result: Result<Bytes, Failure>,
    /// The path that it came by; none: the CPU did it in place of paths that failed.
    pub path: Option<PathId>,
    /// Times that it was sent.
    pub attempts: u32,
    /// Time within the hosts, `(t2−t1) + (t4−t3) + (t6−t5)`, nanoseconds; none if the responder did not measure its part.
    pub intra_ns: Option<u64>,
    /// Time since it was to be sent, nanoseconds.
    pub total_ns: u64,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The application says so.
    #[error("{0}")]
    App(AppError),
    /// No path, and not the CPU either, has an answer: the last reason.
    #[error("no device answered: {0}")]
    Failed(String),
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There are too many.
    #[error("{0} requests are in flight, as many as may be: take answers first")]
    Full(u32),
    /// It is too long.
    #[error("the message has {got} bytes, at most {max}")]
    TooLong {
        /// Its bytes.
        got: usize,
        /// What there may be.
        max: usize,
    },
    /// There is no such type.
    #[error("the application has no type of request {}", .0.0)]
    Kind(KindId),
}

/// A request that has come.
#[derive(Debug)]
pub struct Incoming {
    head: Head,
    payload: Bytes,
    at: Instant,
    reply: ReplyTo,
}

impl Incoming {
    /// What it is: type, trip, task, and the role that its path names.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Its bytes.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Answers it with these bytes, in place of [`Context::handle`].
    pub fn answer(self, now: Instant, payload: Bytes) {
        let time = pathcall_wire::place::HostTime::of(now.0.saturating_sub(self.at.0));
        self.reply.answer(time, payload);
    }

    /// Says that it has no answer.
    pub fn fail(self, why: Fault) {
        self.reply.fail(why);
    }
}

/// What an application does with requests on the responder's own thread, around the task that a device does: it fetches
/// what the task is to work on, and keeps what the task has made. Short, and without waiting: others wait meanwhile.
pub trait Around: std::fmt::Debug + Send + Sync {
    /// What the task gets, in place of what came. Without a task, what [`after`](Self::after) gets.
    ///
    /// # Errors
    /// [`Fault::App`]: the request can't be done.
    fn before(&self, _head: Head, request: &Bytes) -> Result<Bytes, Fault> {
        Ok(request.clone())
    }

    /// What is answered, in place of what the task has made or why it made nothing; `head` has the role that it was done
    /// by. It may be called more than once for a request, since one that seems lost is sent again.
    ///
    /// # Errors
    /// [`Fault::Failed`]: another path is to try; [`Fault::App`]: the request can't be done.
    fn after(&self, _head: Head, _request: &Bytes, made: Result<Bytes, Fault>) -> Result<Bytes, Fault> {
        made
    }
}
