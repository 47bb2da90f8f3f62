//! Why a registration is refused, or ends.

use std::time::Duration;

use pathcall_proto::LAPSES_IN_MS;
use tonic::{Code, Status};

/// Why a call is refused or a registration ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field can't be used.
    #[error("{field}: expected {expected}, got {got:?}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// Another live server owns the name.
    #[error("application {name:?} is owned by {owner}, alive; stop it or use another AppName")]
    Owned {
        /// The application.
        name: String,
        /// gRPC address of the owner.
        owner: String,
    },
    /// The name's live owner has other filters.
    #[error(
        "application {name:?} has other filters at its owner {owner}, alive: the filters of one AppName must agree; \
         stop it or use another AppName"
    )]
    OtherFilters {
        /// The application.
        name: String,
        /// gRPC address of the owner.
        owner: String,
    },
    /// The owner is gone, but may come back: try again.
    #[error(
        "application {name:?} was owned by {owner} until a moment ago; unless it comes back, the name is free in \
         {} ms", left.as_millis()
    )]
    Lapsing {
        /// The application.
        name: String,
        /// gRPC address of the owner.
        owner: String,
        /// Time until its lease is over.
        left: Duration,
    },
    /// It wants its frames signed, and the system gives no randomness for a key.
    #[error("application {0:?} wants tokens, and there is no randomness for its key")]
    NoKey(String),
    /// Nobody has registered the application.
    #[error("no application {0}")]
    UnknownApplication(String),
    /// Nobody has joined the pool.
    #[error("no pool {0}")]
    UnknownPool(String),
    /// Its frames carry tokens and the server wants none, or the other way round.
    #[error(
        "the frames of pool {name:?} {}: all servers of a pool say the same of tokens",
        if *signed { "carry tokens, and this server wants none" } else { "carry no tokens, and this server wants some" }
    )]
    OtherTokens {
        /// The pool.
        name: String,
        /// Whether its frames carry tokens.
        signed: bool,
    },
    /// The application's owner is gone.
    #[error("application {name:?} has no live owner")]
    NoOwner {
        /// The application.
        name: String,
    },
    /// The endpoint has left.
    #[error("no endpoint {endpoint} in application {gaid}")]
    UnknownEndpoint {
        /// The application.
        gaid: u32,
        /// The endpoint.
        endpoint: u32,
    },
    /// A table has reached its limit.
    #[error("no room for another {what}: there are {limit} already")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: u32,
    },
    /// The element failed its tables.
    #[error("element {element} at {control_address} is out of service: {reason}; it may register again")]
    OutOfService {
        /// The element.
        element: u32,
        /// Where its control service was expected.
        control_address: String,
        /// What happened.
        reason: String,
    },
    /// The same peer has registered over another stream.
    #[error("replaced by a later registration of the same peer")]
    Replaced,
}

impl Refusal {
    /// The gRPC status code that says it.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::Owned { .. } | Self::OtherFilters { .. } | Self::NoOwner { .. } | Self::OtherTokens { .. } => {
                Code::FailedPrecondition
            }
            Self::Lapsing { .. } | Self::OutOfService { .. } => Code::Unavailable,
            Self::UnknownApplication(_) | Self::UnknownPool(_) | Self::UnknownEndpoint { .. } => Code::NotFound,
            Self::Full { .. } => Code::ResourceExhausted,
            Self::NoKey(_) => Code::Internal,
            Self::Replaced => Code::Aborted,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut status = Self::new(refusal.code(), refusal.to_string());
        if let Refusal::Lapsing { left, .. } = refusal {
            // A moment more: the name is free after it, not at it.
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            status.metadata_mut().insert(LAPSES_IN_MS, millis.into());
        }
        status
    }
}
