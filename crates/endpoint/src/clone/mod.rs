//! State machines of *clone* on hosts: calls that any server of a pool can answer, steered and cloned by the element
//! (NetClone §3).
//!
//! ```text
//!            requests                                      requests, clones
//! CloneCaller ───────────▶ element ───────────────────────────────────▶ CloneWorker ─▶ n workers
//!    ▲ ◀── the first answer ──────┘ ◀── answers, each with the queue's length ──┘
//! ```
//!
//! [`CloneCaller`] holds the calls of one endpoint and answers each once; [`CloneWorker`] holds the request queue of a
//! server. Both take frames and `now`, and return frames (`transmit`), events and the next deadline. Tokens are the
//! driver's task: it signs outgoing frames and drops unauthenticated ones.
//!
//! A request may take effect at several servers, or several times at one: only [idempotent](CloneOptions::idempotent)
//! calls are cloned or repeated.

mod assembly;
mod caller;
mod options;
mod rng;
mod worker;

pub use caller::{
    CloneAnswer, CloneCall, CloneCallId, CloneCaller, CloneCallerConfig, CloneCallerStats, CloneFailure, Event,
    StartError,
};
pub use options::{Balance, CloneOptions, Hedge, HedgeBudgetConfig};
pub use worker::{
    CloneWorker, CloneWorkerConfig, CloneWorkerStats, FailureCause, FinishError, PoolRequest, PoolRequestId,
};

/// Longest request or answer in bytes; longer ones go by HTTP/2.
pub const MESSAGE_MAX: usize = pathcall_wire::clone::MAX_PARTS * pathcall_wire::clone::PART;

/// Pool: an application whose servers serve the same cloned methods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// Id of the application.
    pub gaid: u32,
    /// Version of the server list; groups are drawn under it.
    pub version: u32,
    /// Endpoints of the servers; the index of a server is its SID. At most [`pathcall_wire::clone::MAX_SERVERS`].
    pub servers: Vec<u32>,
}

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloneDestination {
    /// The element of the pool.
    Element,
    /// This endpoint, past the element.
    Endpoint(u32),
}
