//! Plan of a call, by which each attempt is made: its requests with their targets.
//!
//! ```text
//! plan ─▶ attempt 1 ─ a server is silent ─▶ attempt 2, without this server ─▶ …
//! ```
//!
//! `pathcall_endpoint::delegate::attempts` decides whether there is another attempt.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pathcall_driver::node::{Node, NodeCall};
use pathcall_endpoint::clone::Pushback;
use pathcall_endpoint::delegate;
use pathcall_endpoint::delegate::attempts::{CallAttempts, RetryBudget};
use pathcall_endpoint::delegate::caller::CallOptions;
use tonic::Status;

use super::directory::{Directory, NodeTarget};
use super::{envelope, failure};
use crate::headers;

/// Method of a call, its requests, and the parties that make it.
#[derive(Debug)]
pub(super) struct CallPlan {
    pub(super) node: Node,
    pub(super) directory: Directory,
    pub(super) options: CallOptions,
    pub(super) requests: Vec<PlannedRequest>,
    /// Name of the call in error messages.
    pub(super) method: String,
    /// Whether the call has exactly one reply.
    pub(super) unary: bool,
    /// Whether the call may be executed several times.
    pub(super) idempotent: bool,
    /// Budget for further attempts.
    pub(super) retries: Arc<RetryBudget>,
}

/// Request of a call, before its server is chosen.
#[derive(Debug)]
pub(super) struct PlannedRequest {
    pub(super) to: NodeTarget,
    pub(super) path: String,
    pub(super) metadata: HeaderMap,
    pub(super) message: Bytes,
}

impl CallPlan {
    /// Attempts of the call, of which the first is made now. An exactly-once call is repeated under its own id.
    pub(super) fn attempts(&self) -> CallAttempts {
        let repeatable = self.idempotent && !self.options.once;
        CallAttempts::new(self.directory.now(), self.options.deadline, self.unary, repeatable, &self.retries)
    }

    /// Makes the next attempt, at servers that have not failed in the call.
    ///
    /// # Errors
    /// UNAVAILABLE if the directory does not have a target; INVALID_ARGUMENT if a request's metadata are too long;
    /// RESOURCE_EXHAUSTED if the node has too many calls.
    pub(super) fn make(&self, attempts: &CallAttempts) -> Result<NodeCall, Status> {
        let options = self.options.deadline(attempts.time_left(self.directory.now()));
        let avoided = self.directory.with_avoided(attempts.avoided());
        let requests = self.requests.iter().map(|request| {
            let to = self.directory.choose(&request.to, &avoided)?;
            let encoded = envelope::encode(&request.path, &request.metadata, &avoided, &request.message);
            let invalid = |error| Status::invalid_argument(format!("{}: {error}", request.path));
            Ok((to, encoded.map_err(invalid)?))
        });
        let requests = requests.collect::<Result<Vec<_>, Status>>()?;
        let call = self.node.call(options, requests);
        call.map_err(|error| Status::resource_exhausted(format!("{}: {error}", self.method)))
    }
}

/// Pause that a server asks for in the status of a failure.
pub(super) fn pushback(status: &delegate::Status) -> Option<Pushback> {
    headers::pushback(failure::decode(status.clone()).metadata().as_ref())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pushback_of_a_status_is_read() {
        let asked = |asked: Option<&str>| {
            let mut status = Status::unavailable("busy");
            asked.map(|asked| status.metadata_mut().insert(headers::PUSHBACK, asked.parse().unwrap()));
            pushback(&failure::encode(&status))
        };
        assert_eq!(asked(None), None);
        assert_eq!(asked(Some("250")), Some(Pushback::After(Duration::from_millis(250))));
        assert_eq!(["-1", "soon"].map(|it| asked(Some(it))), [Some(Pushback::Never); 2]);
    }
}
