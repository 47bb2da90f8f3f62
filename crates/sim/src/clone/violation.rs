//! Violations of the invariants of clone.

use std::time::Duration;

use pathcall_wire::clone::ServerReport;

use super::streams::StreamViolation;

/// Violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloneViolation {
    /// A call ended twice, or ended without having been made.
    #[error("call {0} ended twice")]
    EndedTwice(usize),
    /// The answer of a call was not sent by a server.
    #[error("call {call} was answered with {bytes} bytes that no server sent")]
    MadeUp {
        /// Index of the call.
        call: usize,
        /// Length of the answer in bytes.
        bytes: usize,
    },
    /// A call failed before its deadline, or was answered after it.
    #[error("call {call} ended after {after:?}, its deadline was {deadline:?}")]
    Deadline {
        /// Index of the call.
        call: usize,
        /// Time from its start to its end.
        after: Duration,
        /// Deadline, from its start.
        deadline: Duration,
    },
    /// A call failed although servers were reachable.
    #[error("call {0} failed although servers were reachable")]
    Unanswered(usize),
    /// A call has not ended.
    #[error("call {0} has not ended")]
    Hangs(usize),
    /// A call that is not idempotent was executed twice.
    #[error("call {0} is not idempotent but was executed twice")]
    Twice(usize),
    /// A request was cloned that must not be.
    #[error("call {0} was cloned although it must not be")]
    Cloned(usize),
    /// A request may be cloned while all servers are slow.
    #[error("call {0} may be cloned although all servers are slow together")]
    ClonedSlow(usize),
    /// A request may not be cloned although the servers are fast again.
    #[error("call {0} may not be cloned although the servers are fast again")]
    NotCloned(usize),
    /// A caller asked another server earlier than a failed answer allows.
    #[error("call {0} was sent again earlier than a failed answer allows")]
    PushedBack(usize),
    /// A server received a request that no caller sent.
    #[error("server {0} received a request that no caller sent")]
    Request(usize),
    /// A caller exceeded its hedge budget.
    #[error("caller {caller} sent extra requests that cost {extra}, but its hedge budget allows {budget:.1}")]
    Budget {
        /// Index of the caller.
        caller: usize,
        /// Cost of the extra requests.
        extra: u64,
        /// Cost that the budget allows, rounded up.
        budget: u64,
    },
    /// A caller reported a failure although it could have sent the request to another server.
    #[error("call {0} was answered with a failure although another server could be asked")]
    GaveUp(usize),
    /// A caller reported a failure although another server had completed the request.
    #[error("call {0} was answered with a failure although another server had completed it")]
    Worse(usize),
    /// A server queued a clone although its queue was not empty.
    #[error("server {0} queued a clone although its queue was not empty")]
    QueuedBusy(usize),
    /// A server's queue or memory exceeds its limit.
    #[error("server {server} exceeds its limits: {waiting} queued requests, {memory} bytes")]
    Bounds {
        /// Index of the server.
        server: usize,
        /// Number of queued requests.
        waiting: usize,
        /// Memory of requests, in bytes.
        memory: usize,
    },
    /// The element's load table and its shadow copy differ.
    #[error("the element's reports {loads:?} differ from their shadow copy {shadows:?}")]
    Shadow {
        /// Reports by SID.
        loads: Vec<ServerReport>,
        /// Shadow copy of the reports.
        shadows: Vec<ServerReport>,
    },
    /// The element's load table took an old report for a new one.
    #[error("the element replaced report {before} of server {sid} by its older report {after}")]
    OldReport {
        /// SID of the server.
        sid: usize,
        /// Number of the report that it had.
        before: u32,
        /// Number of the report that it has.
        after: u32,
    },
    /// Callers received slower answers although no fault was injected.
    #[error("callers received {0} slower answers although no fault was injected")]
    Redundant(u64),
    /// Not every clone had a second answer that was filtered, although no fault was injected.
    #[error("elements filtered {filtered} answers of {expected} clones although no fault was injected")]
    Filtered {
        /// Number of filtered answers.
        filtered: u64,
        /// Number of clones that servers have executed.
        expected: u64,
    },
    /// The element changed a request that another element had decided about.
    #[error("an element changed request {0}, which another element had decided about")]
    DecidedTwice(u32),
    /// The element dropped a request of the current group version.
    #[error("the element dropped request {0} because of its group version")]
    Dropped(u32),
    /// The element forwarded a cancellation of an old group version.
    #[error("the element forwarded the cancellation of request {0} with an old group version")]
    StaleCancel(u32),
    /// The element cloned a request although it knew that a server was busy.
    #[error("the element cloned request {0} to a server that it knew to be busy")]
    ClonedBusy(u32),
    /// The element sent a request to another server than the addressed one.
    #[error("the element sent request {0} to another server than it was addressed to")]
    Steered(u32),
    /// The element chose the longer of two queues.
    #[error("the element sent request {0} to the longer of two queues")]
    Longer(u32),
    /// A caller bypasses an element that responds.
    #[error("caller {0} bypasses an element that responds")]
    Past(usize),
    /// A host keeps state of calls that have ended.
    #[error("{0} keeps state of calls that have ended")]
    Left(String),
    /// A caller did not leave a policy that is worse than a random server.
    #[error("{direct} of {all} calls went past an element that made them slow")]
    SlowWay {
        /// Calls that went past it.
        direct: usize,
        /// All last calls.
        all: usize,
    },
    /// A caller sent a hedge although all servers are slow.
    #[error("caller {0} sent a hedge although all servers are slow together")]
    HedgedSlow(usize),
    /// The element sent a hedge that no request has asked for.
    #[error("the element sent a hedge of request {0}, which has not asked for it")]
    HedgeUnasked(u32),
    /// The element sent a hedge of an answered call.
    #[error("the element sent a hedge of request {0}, whose answer it had forwarded")]
    HedgeAnswered(u32),
    /// The element sent two hedges of a call.
    #[error("the element sent two hedges of request {0}")]
    HedgeTwice(u32),
    /// The element sent a hedge to the server that has the request.
    #[error("the element sent the hedge of request {0} to the server that has the request")]
    HedgeToFirst(u32),
    /// The element sent a hedge to a server although another one is idler.
    #[error("the element sent the hedge of request {0} to another server than the idlest")]
    HedgeToBusy(u32),
    /// The element sent a hedge before its time.
    #[error("the element sent the hedge of request {0} before its time")]
    HedgeEarly(u32),
    /// Callers report more hedges of the element than it has sent.
    #[error("callers report {reported} hedges of elements, which have sent {sent}")]
    HedgesReported {
        /// Hedges that callers report.
        reported: u64,
        /// Hedges that elements have sent.
        sent: u64,
    },
    /// Callers sent hedges themselves although the element held all.
    #[error("callers sent {0} hedges although the element held them")]
    HedgedToo(u64),
    /// A call that took long had no hedge.
    #[error("call {0} took longer than its hedging delay, and had no hedge")]
    NotHedged(usize),
    /// Violation of an invariant of streaming calls.
    #[error(transparent)]
    Stream(#[from] StreamViolation),
    /// The run does not end.
    #[error("the run did not end within {0} events")]
    Endless(u64),
    /// The code under test panicked.
    #[error("{0}")]
    Panic(String),
}
