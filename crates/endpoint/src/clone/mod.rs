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
mod worker;

use std::time::Duration;

use pathcall_wire::clone::NO_ATTEMPT;

pub use caller::{
    CloneAnswer, CloneCall, CloneCallId, CloneCaller, CloneCallerConfig, CloneCallerStats, CloneFailure, ClonePolicy,
    Event, PolicyReason, PolicyStats, RefusedExtra, StartError, StreamCallEnd, StreamCallId, StreamHedges,
    StreamOptions, StreamStep,
};
pub use pathcall_wire::policy::{Balance, HedgeBudgetConfig};
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

/// Time after which a call goes to another server, repeatedly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HedgeAfter {
    /// This time (A6: `hedgingDelay`).
    Delay(Duration),
    /// A time that the caller learns from the calls with the same budget, so that this share of them is hedged, in
    /// thousandths. It is smaller as long as the answers of hedges seldom come first.
    Share(u16),
}

impl HedgeAfter {
    /// Share of the calls to hedge, if the delay is learned.
    fn share(self) -> Option<f64> {
        match self {
            Self::Share(thousandths) => Some(f64::from(thousandths) / 1000.0),
            Self::Delay(_) => None,
        }
    }
}

/// What a caller knows of the loads of servers when it chooses the shorter queue of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownLoads {
    /// Nothing. Comparisons need it.
    Nothing,
    /// The servers' last reports. Comparisons need it.
    Reports,
    /// These, and the caller's own requests without an answer.
    #[default]
    ReportsAndRequests,
}

/// Hedging policy, with the names of gRPC A6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hedge {
    /// Time after which the call goes to another server, repeatedly.
    pub after: HedgeAfter,
    /// Most times that the call is sent, including the first (A6: `maxAttempts`).
    pub max_attempts: u8,
}

/// Wish of a server whose answer is a failed answer, about further attempts of the call (gRPC A6:
/// `grpc-retry-pushback-ms`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushback {
    /// No attempt before this time has passed.
    After(Duration),
    /// No attempt.
    Never,
}

impl Pushback {
    /// Value of the answer's `patience`.
    fn encode(pushback: Option<Self>) -> u32 {
        match pushback {
            None => 0,
            Some(Self::After(time)) => u32::try_from(time.as_micros()).unwrap_or(u32::MAX).clamp(1, NO_ATTEMPT - 1),
            Some(Self::Never) => NO_ATTEMPT,
        }
    }

    /// Reads the answer's `patience`.
    fn decode(patience: u32) -> Option<Self> {
        match patience {
            0 => None,
            NO_ATTEMPT => Some(Self::Never),
            time => Some(Self::After(Duration::from_micros(time.into()))),
        }
    }
}

/// Options of a cloned call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneOptions {
    /// Whether the call may take effect more than once. Otherwise it is sent once, to one server, and never cloned.
    pub idempotent: bool,
    /// Whether the caller chooses `clone`, `balance` and `hedge` itself, from the latencies of the calls with the same
    /// budget; those given here are not used.
    pub automatic: bool,
    /// Whether the element may clone the request.
    pub clone: bool,
    /// Whether the caller itself sends the request to two servers at once (C-Clone).
    pub send_to_two: bool,
    /// Choice of the server if the request is not cloned.
    pub balance: Balance,
    /// Whether the request goes through the element although the element need not act on it.
    pub through_element: bool,
    /// Hedging policy, if the call is hedged.
    pub hedge: Option<Hedge>,
    /// Whether the first answer cancels the request at the other servers: a server that has not begun the request skips
    /// it.
    pub cancel: bool,
    /// Time after which a server reports that it works on the request, which avoids a needless repeat. `None`: half the
    /// time to the repeat; zero: never.
    pub patience: Option<Duration>,
    /// Index of the caller's budget that pays for extra requests: calls of one kind share a budget.
    pub budget: u8,
    /// Units of the budget that one extra request of this call takes: more for a dear call.
    pub cost: u16,
    /// Time after which the call fails.
    pub deadline: Duration,
    /// Whether the request begins with its remaining time, 8 bytes, in µs, at least 1. The caller fills it in at each
    /// send.
    pub timed: bool,
}

impl Default for CloneOptions {
    /// Idempotent calls, steered and cloned by the element, with a deadline of one second.
    fn default() -> Self {
        Self {
            idempotent: true,
            automatic: false,
            clone: true,
            send_to_two: false,
            balance: Balance::Random,
            through_element: false,
            hedge: None,
            cancel: false,
            patience: None,
            budget: 0,
            cost: 1,
            deadline: Duration::from_secs(1),
            timed: false,
        }
    }
}
