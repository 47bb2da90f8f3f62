//! Invariant checks of delegate.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::trace::CallTree;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOutcome};
use pathcall_wire::Instant;

use super::plan::{DEPTH_MAX, DelegateCallPlan, DelegatePlan, HandlerEnd};
use super::services::ServiceViolation;

/// Payload of a request or a reply: call, request, and number of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageTag {
    /// The call's index.
    pub call: usize,
    /// Index of the request.
    pub request: usize,
    /// Index of the reply.
    pub reply: usize,
}

/// Violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelegateViolation {
    /// A request was executed twice.
    #[error("call {0} request {1} ran twice")]
    Twice(usize, usize),
    /// A reply was delivered twice, or after the end of its call.
    #[error("reply {0:?} was delivered twice, or after the end of its call")]
    Given(MessageTag),
    /// A reply was delivered that no handler sent.
    #[error("a reply was delivered that no handler sent: {0:?}")]
    MadeUp(MessageTag),
    /// A call ended twice.
    #[error("call {0} ended twice")]
    EndedTwice(usize),
    /// A call ended as complete although requests or replies are missing.
    #[error(
        "call {call} is complete with {requests} of {requests_planned} requests done and {replies} of {replies_planned} replies delivered"
    )]
    NotComplete {
        /// Index of the call.
        call: usize,
        /// Number of finished requests.
        requests: usize,
        /// Number of planned requests.
        requests_planned: usize,
        /// Number of delivered replies.
        replies: usize,
        /// Number of planned replies.
        replies_planned: usize,
    },
    /// A call was detected as complete only after pings to the servers.
    #[error("call {0} completed only after pings, not with its last reply")]
    Asked(usize),
    /// A call failed although no fault was injected.
    #[error("call {0} failed although no fault was injected: {1}")]
    FailedWrongly(usize, CallFailure),
    /// A call failed with another code than its server's.
    #[error("call {call} failed with {got}, expected {expected}")]
    Code {
        /// Index of the call.
        call: usize,
        /// Code of the server.
        expected: u8,
        /// Code that the caller received.
        got: u8,
    },
    /// An abort was not confirmed although every server responds.
    #[error("the abort of call {0} was not confirmed although all servers respond")]
    Unconfirmed(usize),
    /// Work on a call began after its abort was confirmed, or on a server that had aborted it.
    #[error("work on call {0} began after its abort")]
    BegunLate(usize),
    /// A call has not ended in time.
    #[error("call {call} has not ended after {quiet:?} without activity (limit {bound:?})")]
    Hangs {
        /// Index of the call.
        call: usize,
        /// Time since the last activity.
        quiet: Duration,
        /// Limit on that time.
        bound: Duration,
    },
    /// A handler is still running although its call has ended and its server is reachable.
    #[error("a handler of call {0} is still running after the end of the call")]
    StillWorking(usize),
    /// A trace lacks spans although no message was lost.
    #[error("the trace of call {call} has {spans} spans for {requests} requests")]
    Trace {
        /// Index of the call.
        call: usize,
        /// Number of spans.
        spans: usize,
        /// Number of requests.
        requests: usize,
    },
    /// A span begins before its parent.
    #[error("a span of call {0} begins before its parent")]
    SpanOrder(usize),
    /// A host keeps state of calls that have ended.
    #[error("host {0} keeps state of calls that have ended")]
    Left(usize),
    /// A call to services violates an invariant.
    #[error("{0}")]
    Service(#[from] ServiceViolation),
    /// The run does not end.
    #[error("the run did not end within {0} events")]
    Endless(u64),
    /// The code under test panicked.
    #[error("{0}")]
    Panic(String),
}

/// Record of a call.
#[derive(Debug, Clone)]
pub(super) struct CallRecord {
    began: BTreeSet<usize>,
    finished: BTreeSet<usize>,
    sent: BTreeSet<MessageTag>,
    given: BTreeSet<MessageTag>,
    pub(super) outcome: Option<CallOutcome>,
    /// Time of the end.
    ended: Instant,
    /// Time of the last activity, pings excluded.
    pub(super) active: Instant,
    /// Time of the last response.
    pub(super) answered: Instant,
    pub(super) started: bool,
    /// Whether its caller's process died.
    pub(super) orphaned: bool,
    /// Hosts that received its abort.
    told: BTreeSet<(usize, u32)>,
    /// First codes that handlers failed with.
    pub(super) failed: Vec<u8>,
}

/// Checker of a run.
#[derive(Debug)]
pub(super) struct DelegateChecker<'a> {
    plan: &'a DelegatePlan,
    /// Limit on the time without activity of each open call.
    bounds: Vec<Duration>,
    pub(super) calls: Vec<CallRecord>,
}

impl<'a> DelegateChecker<'a> {
    /// Creates the checker. `wait_limit` is the time that other parts may add to each wait.
    pub(super) fn new(plan: &'a DelegatePlan, wait_limit: Duration) -> Self {
        let known = CallRecord {
            began: BTreeSet::new(),
            finished: BTreeSet::new(),
            sent: BTreeSet::new(),
            given: BTreeSet::new(),
            outcome: None,
            ended: Instant(0),
            active: Instant(0),
            answered: Instant(0),
            started: false,
            orphaned: false,
            told: BTreeSet::new(),
            failed: Vec::new(),
        };
        let slowness = |call| match (plan.attempt(call), &plan.services) {
            (Some(_), Some(services)) => services.slowness_max(),
            _ => 1,
        };
        let bounds = plan.all_calls().enumerate().map(|(call, plan)| bound(plan, slowness(call)) + wait_limit);
        let bounds: Vec<_> = bounds.collect();
        Self { plan, calls: vec![known; bounds.len()], bounds }
    }

    /// Records the start of a handler.
    pub(super) fn began(&mut self, call: usize, request: usize, host: (usize, u32)) -> Result<(), DelegateViolation> {
        let once = self.plan.call(call).options.once;
        let known = &mut self.calls[call];
        let confirmed = known.outcome == Some(CallOutcome::Aborted { confirmed: true });
        if confirmed || known.told.contains(&host) {
            return Err(DelegateViolation::BegunLate(call));
        }
        // An exactly-once request may start again as long as it has not taken effect.
        if !known.began.insert(request) && !once {
            return Err(DelegateViolation::Twice(call, request));
        }
        Ok(())
    }

    /// Records that a request has taken effect.
    pub(super) fn finished(&mut self, call: usize, request: usize) -> Result<(), DelegateViolation> {
        if self.calls[call].finished.insert(request) { Ok(()) } else { Err(DelegateViolation::Twice(call, request)) }
    }

    /// Records a reply that a handler sends.
    pub(super) fn replied(&mut self, tag: MessageTag) {
        self.calls[tag.call].sent.insert(tag);
    }

    /// Records that a host received the abort of a call.
    pub(super) fn record_abort(&mut self, call: usize, host: (usize, u32)) {
        self.calls[call].told.insert(host);
    }

    /// Checks a reply that the caller received.
    pub(super) fn check_reply(&mut self, call: usize, tag: Option<MessageTag>) -> Result<(), DelegateViolation> {
        let nobody = MessageTag { call, request: usize::MAX, reply: 0 };
        let tag = tag.filter(|tag| tag.call == call).ok_or(DelegateViolation::MadeUp(nobody))?;
        let known = &mut self.calls[call];
        if !known.sent.contains(&tag) {
            return Err(DelegateViolation::MadeUp(tag));
        }
        let retried = self.plan.call(call).options.once;
        let over = known.outcome.is_some() && !retried;
        if over || !known.given.insert(tag) { Err(DelegateViolation::Given(tag)) } else { Ok(()) }
    }

    /// Checks the end of a call.
    pub(super) fn ended(&mut self, now: Instant, call: usize, outcome: &CallOutcome) -> Result<(), DelegateViolation> {
        let (plan, calm) = (self.plan.call(call), self.plan.is_calm(call));
        let known = &mut self.calls[call];
        let again = plan.options.once && matches!(known.outcome, Some(CallOutcome::Failed(_)));
        if known.outcome.replace(outcome.clone()).is_some() && !again {
            return Err(DelegateViolation::EndedTwice(call));
        }
        known.ended = now;
        match outcome {
            CallOutcome::Complete => {
                let (requests, replies) = (known.finished.len(), known.given.len());
                let (requests_planned, replies_planned) = (plan.requests.len(), plan.replies());
                let planned = requests == requests_planned && replies == replies_planned;
                if !planned || plan.cannot_complete() {
                    return Err(DelegateViolation::NotComplete {
                        call,
                        requests,
                        requests_planned,
                        replies,
                        replies_planned,
                    });
                }
                if calm && known.answered != now {
                    return Err(DelegateViolation::Asked(call));
                }
            }
            CallOutcome::Failed(failure) if calm => {
                let deadline = plan.options.deadline.is_some() && *failure == CallFailure::Deadline;
                if !plan.cannot_complete() && !deadline && !ended_at_deadline(plan, failure) {
                    return Err(DelegateViolation::FailedWrongly(call, failure.clone()));
                }
                return self.code(call, failure);
            }
            CallOutcome::Aborted { confirmed } => {
                // A server that does not exist cannot confirm.
                if calm && !confirmed && !plan.cannot_complete() {
                    return Err(DelegateViolation::Unconfirmed(call));
                }
            }
            CallOutcome::Failed(_) => {}
        }
        Ok(())
    }

    /// Checks that the code of a failure is one that a handler or the protocol produced.
    fn code(&self, call: usize, failure: &CallFailure) -> Result<(), DelegateViolation> {
        let (plan, failed) = (self.plan.call(call), &self.calls[call].failed);
        let deep = plan.requests.iter().any(|request| request.depth > DEPTH_MAX);
        let CallFailure::Server(Status { code: got, .. }) = failure else { return Ok(()) };
        let by_handler =
            plan.requests.iter().any(|request| matches!(request.end.1, HandlerEnd::Fail(code) if code == *got));
        let by_depth = deep && *got == Status::FAILED_PRECONDITION;
        let by_protocol = [Status::UNAVAILABLE, Status::ABORTED].contains(got);
        match failed.first() {
            Some(expected) if !by_handler && !by_depth && !by_protocol => {
                Err(DelegateViolation::Code { call, expected: *expected, got: *got })
            }
            _ => Ok(()),
        }
    }

    /// Checks that no open call exceeds its limit on the time without activity.
    pub(super) fn check_inactivity(&self, now: Instant) -> Result<(), DelegateViolation> {
        // If requests wait for handlers of other calls, activity of any call may unblock this one.
        let last = self.calls.iter().map(|known| known.active).max().unwrap_or_default();
        let longest_limit = self.longest_limit();
        for (call, known) in self.calls.iter().enumerate() {
            let plan = self.plan.call(call);
            let over = known.outcome.is_some() && !plan.options.once
                || matches!(known.outcome, Some(CallOutcome::Complete | CallOutcome::Aborted { .. }));
            if !known.started || known.orphaned || over {
                continue;
            }
            let queues = self.plan.has_queues();
            let (active, bound) = if queues { (last, longest_limit) } else { (known.active, self.bounds[call]) };
            let quiet = now.since(active);
            if quiet > bound {
                return Err(DelegateViolation::Hangs { call, quiet, bound });
            }
        }
        Ok(())
    }

    /// Largest limit on the time without activity.
    pub(super) fn longest_limit(&self) -> Duration {
        self.bounds.iter().copied().max().unwrap_or_default()
    }

    /// Checks that a handler may still be running.
    pub(super) fn check_handler_running(&self, now: Instant, call: usize) -> Result<(), DelegateViolation> {
        let (plan, known) = (self.plan.call(call), &self.calls[call]);
        // The abort reaches servers level by level, and again in each ping round.
        let depth = plan.requests.iter().map(|request| request.depth).max().unwrap_or(0) + 2;
        let bound = plan.options.ping_period * 3 + self.plan.delay.1 * 2 * depth;
        let over =
            matches!(known.outcome, Some(CallOutcome::Failed(_) | CallOutcome::Aborted { .. })) && !plan.options.once;
        if self.plan.is_calm(call) && over && now.since(known.ended) > bound.mul_f64(1.1) {
            return Err(DelegateViolation::StillWorking(call));
        }
        Ok(())
    }

    /// Checks the trace of a call.
    pub(super) fn traced(&self, call: usize, tree: &CallTree) -> Result<(), DelegateViolation> {
        let (requests, spans, whole) = (self.plan.call(call).requests.len(), tree.spans.len(), tree.complete);
        let mut begun = Vec::new();
        for (depth, span) in &tree.spans {
            begun.truncate(*depth);
            // A restored record has the time of the first execution, so spans of exactly-once calls are not ordered.
            if !self.plan.call(call).options.once && begun.last().is_some_and(|before| *before > span.begin) {
                return Err(DelegateViolation::SpanOrder(call));
            }
            begun.push(span.begin);
        }
        let complete = self.calls[call].outcome == Some(CallOutcome::Complete);
        if self.plan.is_calm(call) && complete && !(whole && spans == requests) {
            return Err(DelegateViolation::Trace { call, spans, requests });
        }
        Ok(())
    }
}

/// Limit on the time without activity. Each level of the tree may take one timeout until it is found and given up, on
/// slow clocks; pauses of handlers, which may be some times longer, are added.
fn bound(plan: &DelegateCallPlan, slowness: u32) -> Duration {
    let depth = plan.requests.iter().map(|request| request.depth).max().unwrap_or(0) + 3;
    let pauses =
        plan.requests.iter().flat_map(|request| request.steps.iter().map(|step| step.0).chain([request.end.0]));
    let sleep = pauses.max().unwrap_or_default() * slowness;
    (plan.options.timeout + plan.options.ping_period * 2).mul_f64(1.1) * depth + sleep.mul_f64(1.1)
}

/// A server may detect the call's deadline before its caller does.
fn ended_at_deadline(plan: &DelegateCallPlan, failure: &CallFailure) -> bool {
    let code = failure.status().code;
    plan.options.deadline.is_some() && [Status::ABORTED, Status::DEADLINE_EXCEEDED].contains(&code)
}
