//! Attempts of an idempotent call: if its servers fail before the first reply reaches the application, the call is made
//! again at other servers (DPC §7.3: a failed call is repeated as a whole).
//!
//! ```text
//! plan: requests with their targets ─▶ attempt 1 ─ a server is silent ─▶ attempt 2, without this server ─▶ …
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use pathcall_driver::node::{Node, NodeCall};
use pathcall_endpoint::clone::Pushback;
use pathcall_endpoint::delegate;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions};
use tokio::time::Instant;
use tonic::Status;

use super::directory::{Directory, NodeTarget};
use super::{envelope, failure};
use crate::headers;

/// Most attempts of a call.
const ATTEMPTS: u32 = 3;
/// Pause before a call is made again that a server has answered with UNAVAILABLE; it doubles each time.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest pause that a server may ask for; a call with a longer one is not made again.
const PUSHBACK_MAX: Duration = Duration::from_secs(60);

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
    /// Budget for further attempts; `None`: one attempt only.
    pub(super) retries: Option<Arc<RetryBudget>>,
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
    /// Makes the call at servers that are not in `avoided`.
    ///
    /// # Errors
    /// UNAVAILABLE if the directory does not have a target; INVALID_ARGUMENT if a request's metadata are too long;
    /// RESOURCE_EXHAUSTED if the node has too many calls.
    pub(super) fn make(&self, options: CallOptions, avoided: &[SocketAddr]) -> Result<NodeCall, Status> {
        let avoided = self.directory.with_avoided(avoided);
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

/// Attempts of a call.
#[derive(Debug)]
pub(super) struct Attempts {
    plan: CallPlan,
    began: Instant,
    deadline: Option<Instant>,
    made: u32,
    /// Servers that have failed in this call.
    avoided: Vec<SocketAddr>,
}

impl Attempts {
    /// Attempts of a call whose first one is made now.
    pub(super) fn new(plan: CallPlan) -> Self {
        let began = Instant::now();
        let deadline = plan.options.deadline.and_then(|time| began.checked_add(time));
        plan.retries.iter().for_each(|budget| budget.add_call());
        Self { plan, began, deadline, made: 1, avoided: Vec::new() }
    }

    /// Pause before the next attempt after this failure; `None` if there is none.
    pub(super) fn next(&mut self, failure: &CallFailure) -> Option<Duration> {
        let pause = match failure {
            CallFailure::Unconfirmed { server, .. } | CallFailure::Lost { server, .. } => {
                self.avoided.extend(*server);
                Duration::ZERO
            }
            CallFailure::Unreachable(server) => {
                self.avoided.push(*server);
                Duration::ZERO
            }
            CallFailure::Server(status) if status.code == delegate::Status::UNAVAILABLE => {
                pause_after(status, PAUSE * (1 << (self.made - 1)))?
            }
            CallFailure::Server(_) | CallFailure::Deadline | CallFailure::TooLarge(_) => return None,
        };
        let in_time = self.deadline.is_none_or(|deadline| Instant::now() + pause < deadline);
        let may = self.made < ATTEMPTS && in_time && self.plan.retries.as_ref().is_some_and(|budget| budget.spend());
        may.then(|| {
            self.made += 1;
            pause
        })
    }

    /// Time since the first attempt.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Makes the next attempt.
    ///
    /// # Errors
    /// As [`CallPlan::make`].
    pub(super) fn make(&self) -> Result<NodeCall, Status> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.plan.make(self.plan.options.deadline(left), &self.avoided)
    }
}

/// Pause that a server asks for after this failure; `None` if the call may not be made again.
fn pause_after(status: &delegate::Status, usual: Duration) -> Option<Duration> {
    let status = failure::decode(status.clone());
    match headers::pushback(status.metadata().as_ref()) {
        None => Some(usual),
        Some(Pushback::After(pause)) if pause <= PUSHBACK_MAX => Some(pause),
        Some(Pushback::After(_) | Pushback::Never) => None,
    }
}

/// Budget of further attempts: one for every five calls, and a thousand at once, so that the calls in progress at a
/// server that dies are made again, but an outage of all servers does not triple the load.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicU32);

impl RetryBudget {
    /// Credit of one call; a further attempt costs five.
    const CALL: u32 = 1;
    const ATTEMPT: u32 = 5;
    const CREDIT_MAX: u32 = 1_000 * Self::ATTEMPT;

    fn add_call(&self) {
        let add = |credit: u32| (credit < Self::CREDIT_MAX).then_some(credit + Self::CALL);
        // Full otherwise.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn spend(&self) -> bool {
        let spend = |credit: u32| credit.checked_sub(Self::ATTEMPT);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(Self::CREDIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushback_of_a_server_is_heeded() {
        let asked = |pushback: Option<&str>| {
            let mut status = Status::unavailable("busy");
            pushback.map(|asked| status.metadata_mut().insert(headers::PUSHBACK, asked.parse().unwrap()));
            pause_after(&failure::encode(&status), PAUSE)
        };
        assert_eq!(asked(None), Some(PAUSE));
        assert_eq!(asked(Some("250")), Some(Duration::from_millis(250)));
        assert_eq!(["-1", "soon", "60001", "18446744073709551615"].map(|it| asked(Some(it))), [None; 4]);
    }

    #[test]
    fn retry_budget_allows_a_burst_and_a_fifth_of_the_calls() {
        let budget = RetryBudget::default();
        let spent = || (0..).take_while(|_| budget.spend()).count();
        assert_eq!(spent(), 1_000);
        (0..100).for_each(|_| budget.add_call());
        assert_eq!(spent(), 20);
        (0..100_000).for_each(|_| budget.add_call());
        assert_eq!(spent(), 1_000);
    }
}
