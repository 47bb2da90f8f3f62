//! Violations that the map simulation can report.

use pathcall_endpoint::map::server::durable::DamagedRecord;
use pathcall_endpoint::map::{CallError, Key};
use pathcall_program::TableChangeError;

use crate::map::node::MapNodeId;
use crate::map::windows::WindowError;

/// Violation of an invariant of map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapViolation {
    /// An owner cannot continue from the store of a former one.
    #[error("{node} cannot take over: {error}")]
    Restore {
        /// The owner.
        node: MapNodeId,
        /// Error of the records.
        error: DamagedRecord,
    },
    /// An owner that has taken over does not know a caller of the former one.
    #[error("{node} cannot continue with the owner that has taken over")]
    NotResumed {
        /// The caller.
        node: MapNodeId,
    },
    /// A call failed that must succeed.
    #[error("{node} step {step}: expected an answer, got the error: {error}")]
    CallFailed {
        /// Caller of the step.
        node: MapNodeId,
        /// Index of the step.
        step: usize,
        /// Error of the call.
        error: CallError,
    },
    /// An unexpected report: a call that ends twice, or after it was cancelled.
    #[error("{node} step {step}: {report} although it was {state}")]
    OutOfTurn {
        /// Caller of the step.
        node: MapNodeId,
        /// Index of the step.
        step: usize,
        /// Report of the caller.
        report: &'static str,
        /// State of the call before the report.
        state: &'static str,
    },
    /// A call returned another kind of output than its operation.
    #[error("{node} step {step}: expected {expected}, got {got}")]
    Output {
        /// Caller of the step.
        node: MapNodeId,
        /// Index of the step.
        step: usize,
        /// Output that the operation returns.
        expected: &'static str,
        /// Output of the call.
        got: String,
    },
    /// A sum is wrong.
    #[error("{node} step {step} lane {lane}: expected the sum {expected}, got {got}")]
    Sum {
        /// Caller of the step.
        node: MapNodeId,
        /// Index of the step.
        step: usize,
        /// Index of the lane.
        lane: usize,
        /// Expected 64-bit sum.
        expected: i64,
        /// Sum that the caller received.
        got: i64,
    },
    /// The handler got the sum of a round twice.
    #[error("{node}: the handler got the sum of chunk {chunk} again")]
    HandledAgain {
        /// Owner of the application.
        node: MapNodeId,
        /// Number of the chunk.
        chunk: u64,
    },
    /// The result of a gradient is not the sum of what left the workers.
    #[error("{node} step {step} value {value}: {sent} left the workers, got {got}")]
    Gradient {
        /// Caller of the step.
        node: MapNodeId,
        /// Index of the step.
        step: usize,
        /// Index of the value.
        value: usize,
        /// Sum of what left the workers, as a decimal number.
        sent: String,
        /// Result of the caller, as a decimal number.
        got: String,
    },
    /// The value of a key is impossible.
    #[error("{node}, key {key:?}: expected a value in {low}..={high}, got {got}")]
    Value {
        /// Node that received the value.
        node: MapNodeId,
        /// Key of the value.
        key: Key,
        /// Smallest possible value: all additions that had ended before the read, and all negative ones under way.
        low: i128,
        /// Largest possible value: all additions that had ended before the read, and all positive ones under way.
        high: i128,
        /// Value that the node received.
        got: i64,
    },
    /// Two callers hold the same lock.
    #[error("{node} was granted {key:?}, which {holder} holds")]
    HeldTwice {
        /// Caller that was granted the lock.
        node: MapNodeId,
        /// Key of the lock.
        key: Key,
        /// Current holder.
        holder: MapNodeId,
    },
    /// The fencing token of a grant is not greater than that of an earlier grant.
    #[error("{node} was granted {key:?} with the token {token}, but {last} was granted before")]
    TokenOrder {
        /// Caller that was granted the lock.
        node: MapNodeId,
        /// Key of the lock.
        key: Key,
        /// Fencing token of the grant.
        token: u64,
        /// Fencing token of an earlier grant.
        last: u64,
    },
    /// A ballot was reported as reached before enough callers had voted.
    #[error("{node}: {key:?} was forwarded after {counted} of {threshold} votes")]
    CountedEarly {
        /// Caller that received the report.
        node: MapNodeId,
        /// Key of the ballot.
        key: Key,
        /// Number of callers that have voted.
        counted: u32,
        /// Threshold of the ballot.
        threshold: u32,
    },
    /// A caller got a decision that the server should have recorded.
    #[error("{node}: {key:?} was decided, but the server has no record of it")]
    DecisionUnrecorded {
        /// Caller that got the decision, or the owner at the end.
        node: MapNodeId,
        /// Key of the ballot.
        key: Key,
    },
    /// `CntFwd` to the server did not forward exactly one message.
    #[error("{key:?} was forwarded {times} times, expected once")]
    Forwarded {
        /// Key of the ballot.
        key: Key,
        /// Number of forwarded messages.
        times: u32,
    },
    /// A query failed that must succeed.
    #[error("{node} query {query}: expected values, got the error: {error}")]
    QueryFailed {
        /// Owner that was asked.
        node: MapNodeId,
        /// Number of the query.
        query: u64,
        /// Error of the query.
        error: CallError,
    },
    /// A query was answered twice, or was never made.
    #[error("{node} query {query} was answered twice, or never made")]
    Unasked {
        /// Owner that answered.
        node: MapNodeId,
        /// Number of the query.
        query: u64,
    },
    /// Calls do not end although there are no faults any more.
    #[error("stuck without faults: {waiting} unfinished steps, the first is {node} step {step}")]
    Stuck {
        /// Number of calls.
        waiting: usize,
        /// Caller of one of them.
        node: MapNodeId,
        /// Its step.
        step: usize,
    },
    /// A node is not idle although every call has ended.
    #[error("{node} is not idle although every call has ended")]
    NotIdle {
        /// Node that is not idle.
        node: MapNodeId,
    },
    /// The final query was not answered.
    #[error("{node} does not answer its last query although there are no faults")]
    Unanswered {
        /// Owner that was asked.
        node: MapNodeId,
    },
    /// A node requests a wake-up for the current time again and again.
    #[error("{node} requests a wake-up for the current time without end")]
    Busy {
        /// Node that requests the wake-ups.
        node: MapNodeId,
    },
    /// The run does not end.
    #[error("the run did not end within {0} events")]
    Endless(u64),
    /// A sender violated the window rule.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A caller could not join.
    #[error("{node} could not join: {error}")]
    Join {
        /// Caller that could not join.
        node: MapNodeId,
        /// Error of the owner.
        error: CallError,
    },
    /// The element rejected a table that should fit.
    #[error("the element refused its tables: {0}")]
    Tables(#[from] TableChangeError),
    /// The code under test panicked.
    #[error("{0}")]
    Panic(String),
}
