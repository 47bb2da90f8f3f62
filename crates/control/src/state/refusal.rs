//! Reasons for refusing or ending a registration.

use std::time::Duration;

use pathcall_proto::LEASE_EXPIRES_IN_MS;
use tonic::{Code, Status};

/// Reason for refusing a call or ending a registration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationRefusal {
    /// A field is invalid.
    #[error("{field}: expected {expected}, got {got:?}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// Valid values.
        expected: &'static str,
        /// Received value.
        got: String,
    },
    /// Another live server owns the name.
    #[error("application {name:?} is owned by {owner}, which is alive; stop that server or use another AppName")]
    Owned {
        /// Name of the application.
        name: String,
        /// gRPC address of the owner.
        owner: String,
    },
    /// The name's live owner has other filters.
    #[error(
        "application {name:?} has other filters at its owner {owner}, which is alive: the filters of one AppName must \
         agree; stop that server or use another AppName"
    )]
    OtherFilters {
        /// Name of the application.
        name: String,
        /// gRPC address of the owner.
        owner: String,
    },
    /// The owner has disconnected, but may return: try again.
    #[error(
        "application {name:?} was owned by {owner}, which has just disconnected; unless it returns, the name is free \
         in {} ms", left.as_millis()
    )]
    LeaseExpiring {
        /// Name of the application.
        name: String,
        /// gRPC address of the owner.
        owner: String,
        /// Time until the lease expires.
        left: Duration,
    },
    /// Frames have to be signed, and the system has no random bytes for a key.
    #[error("application {0:?} needs a key for its tokens, and the system has no random bytes")]
    NoKey(String),
    /// No server has registered the application.
    #[error("no application {0}")]
    UnknownApplication(String),
    /// No server has joined the pool.
    #[error("no pool {0}")]
    UnknownPool(String),
    /// Some servers of the pool use tokens, others do not.
    #[error(
        "the frames of pool {name:?} {}: set the same authenticate_frames on all servers of a pool",
        if *signed {
            "carry tokens, and those of this server do not"
        } else {
            "carry no tokens, and those of this server do"
        }
    )]
    OtherTokens {
        /// Name of the pool.
        name: String,
        /// Whether the pool's frames carry tokens.
        signed: bool,
    },
    /// The application has no live owner.
    #[error("application {name:?} has no live owner")]
    NoOwner {
        /// Name of the application.
        name: String,
    },
    /// The endpoint has left.
    #[error("no endpoint {endpoint} in application {gaid}")]
    UnknownEndpoint {
        /// Id of the application.
        gaid: u32,
        /// Id of the endpoint.
        endpoint: u32,
    },
    /// A table is full.
    #[error("no room for another {what}: the maximum is {limit}")]
    Full {
        /// Kind of entry.
        what: &'static str,
        /// Maximum number of entries.
        limit: u32,
    },
    /// The element has failed.
    #[error("element {element} at {control_address} is out of service: {reason}; it may register again")]
    OutOfService {
        /// Id of the element.
        element: u32,
        /// Address of its control service.
        control_address: String,
        /// Reason.
        reason: String,
    },
    /// The same peer has registered over another stream.
    #[error("replaced by a later registration of the same peer")]
    Replaced,
}

impl RegistrationRefusal {
    /// gRPC status code of the refusal.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::Owned { .. } | Self::OtherFilters { .. } | Self::NoOwner { .. } | Self::OtherTokens { .. } => {
                Code::FailedPrecondition
            }
            Self::LeaseExpiring { .. } | Self::OutOfService { .. } => Code::Unavailable,
            Self::UnknownApplication(_) | Self::UnknownPool(_) | Self::UnknownEndpoint { .. } => Code::NotFound,
            Self::Full { .. } => Code::ResourceExhausted,
            Self::NoKey(_) => Code::Internal,
            Self::Replaced => Code::Aborted,
        }
    }
}

impl From<RegistrationRefusal> for Status {
    fn from(refusal: RegistrationRefusal) -> Self {
        let mut status = Self::new(refusal.code(), refusal.to_string());
        if let RegistrationRefusal::LeaseExpiring { left, .. } = refusal {
            // One millisecond more: the name is free after this time, not at it.
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            status.metadata_mut().insert(LEASE_EXPIRES_IN_MS, millis.into());
        }
        status
    }
}
