//! The hosts' ends of *clone*: calls that any of several servers can answer, steered and cloned on their way
//! (NetClone §3).
//!
//! ```text
//!            requests                                      requests, clones
//! Caller ────────────────▶ element ───────────────────────────────────────▶ Worker ─▶ n workers
//!    ▲ ◀── the first answer ──────┘ ◀──────── answers, each with the queue's length ──┘
//! ```
//!
//! [`Caller`] has the calls of one endpoint and answers each once, whatever comes; [`Worker`] has the queue of a
//! server. Both take frames and `now`, and give frames (`transmit`), events and the next deadline; none does I/O,
//! reads a clock or knows of tokens: who drives them signs what leaves and drops what is not signed.
//!
//! A request takes effect at several servers, or several times at one; only calls that are [idempotent](
//! Options::idempotent) are cloned or sent again.

mod assembly;
mod caller;
mod draw;
mod options;
mod worker;

pub use caller::{Answer, Ask, AskError, CallId, Caller, CallerConfig, CallerStats, Event, Failure};
pub use options::{Balance, Budget, Hedge, Options};
pub use worker::{Blame, FinishError, Work, WorkId, Worker, WorkerConfig, WorkerStats};

/// Payload of the longest request or answer in bytes; longer ones go by HTTP/2.
pub const MESSAGE_MAX: usize = pathcall_wire::clone::MAX_PARTS * pathcall_wire::clone::PART;

/// Servers that answer alike: an application as its callers know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// The application.
    pub gaid: u32,
    /// Counts the changes of the list; groups are drawn under it.
    pub version: u32,
    /// The servers' endpoints; a server's place is its SID. At most [`pathcall_wire::clone::MAX_SERVERS`].
    pub servers: Vec<u32>,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    /// To the element of the pool.
    Element,
    /// To this endpoint, past the element.
    Endpoint(u32),
}
