//! What can be wrong with a run.

use pathcall_endpoint::map::{CallError, Key};
use pathcall_program::TableError;

use crate::party::Node;
use crate::windows::WindowError;

/// What went wrong in a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A call that has to work did not.
    #[error("{node} step {step}: expected an answer, got the error: {error}")]
    CallFailed {
        /// Who called.
        node: Node,
        /// Which step.
        step: usize,
        /// What it got.
        error: CallError,
    },
    /// A report that can't be: a call that ends twice, or after it was cancelled.
    #[error("{node} step {step}: {report} although it was {state}")]
    OutOfTurn {
        /// Who called.
        node: Node,
        /// Which step.
        step: usize,
        /// What was reported.
        report: &'static str,
        /// What was reported before.
        state: &'static str,
    },
    /// A call got something else than its operation gives.
    #[error("{node} step {step}: expected {expected}, got {got}")]
    Output {
        /// Who called.
        node: Node,
        /// Which step.
        step: usize,
        /// What its operation gives.
        expected: &'static str,
        /// What it got.
        got: String,
    },
    /// A sum is not that of the inputs.
    #[error("{node} step {step} lane {lane}: expected the sum {expected}, got {got}")]
    Sum {
        /// Who called.
        node: Node,
        /// Which step.
        step: usize,
        /// Which lane.
        lane: usize,
        /// The 64-bit sum.
        expected: i64,
        /// What it got.
        got: i64,
    },
    /// A key's value can't be.
    #[error("{node}, key {key:?}: expected a value in {low}..={high}, got {got}")]
    Value {
        /// Who asked.
        node: Node,
        /// For which key.
        key: Key,
        /// All that took effect before it was asked for, and of the rest what lowers it.
        low: i128,
        /// All that took effect before it was asked for, and of the rest what raises it.
        high: i128,
        /// What it got.
        got: i64,
    },
    /// Two hold one lock.
    #[error("{node} was granted {key:?}, which {holder} holds")]
    HeldTwice {
        /// Who was granted the lock.
        node: Node,
        /// The lock.
        key: Key,
        /// Who holds it.
        holder: Node,
    },
    /// A grant of a lock is not told from earlier ones by its token.
    #[error("{node} was granted {key:?} with the token {token}, but {last} was granted before")]
    TokenOrder {
        /// Who was granted the lock.
        node: Node,
        /// The lock.
        key: Key,
        /// Its token.
        token: u64,
        /// The token of an earlier grant.
        last: u64,
    },
    /// A count was reported before enough had counted.
    #[error("{node}: {key:?} was forwarded after {counted} of {threshold} counted it")]
    CountedEarly {
        /// Who was told.
        node: Node,
        /// The key.
        key: Key,
        /// How many have counted it.
        counted: u32,
        /// How many must.
        threshold: u32,
    },
    /// `CntFwd` to the server forwards one message, not fewer or more.
    #[error("{key:?} was forwarded {times} times, expected once")]
    Forwarded {
        /// The key.
        key: Key,
        /// How often.
        times: u32,
    },
    /// A query that has to work did not.
    #[error("{node} query {query}: expected values, got the error: {error}")]
    QueryFailed {
        /// Who was asked.
        node: Node,
        /// Which query.
        query: u64,
        /// What it said.
        error: CallError,
    },
    /// A query is answered twice, or was never asked.
    #[error("{node} query {query} was answered once more than it was asked")]
    Unasked {
        /// Who answered.
        node: Node,
        /// Which query.
        query: u64,
    },
    /// Calls that don't end although there are no faults any more.
    #[error("stuck without faults: {waiting} unfinished steps, the first is {node} step {step}")]
    Stuck {
        /// How many.
        waiting: usize,
        /// Who waits.
        node: Node,
        /// Which step.
        step: usize,
    },
    /// Somebody has things to do although every call has ended.
    #[error("{node} is not idle although every call has ended")]
    NotIdle {
        /// Who.
        node: Node,
    },
    /// A query at the end was not answered.
    #[error("{node} does not answer its last query although there are no faults")]
    Unanswered {
        /// Who was asked.
        node: Node,
    },
    /// A node asks to be woken again and again at one time.
    #[error("{node} asks to be woken now, for ever")]
    Busy {
        /// Who.
        node: Node,
    },
    /// The run does not come to an end.
    #[error("gave up after {events} events")]
    Endless {
        /// How many there were.
        events: u64,
    },
    /// A sender broke the rule of windows.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A caller was not let in.
    #[error("{node} could not join: {error}")]
    Join {
        /// Who.
        node: Node,
        /// Why.
        error: CallError,
    },
    /// The element refused a table that should fit.
    #[error("the element refused its tables: {0}")]
    Tables(#[from] TableError),
    /// Code under test panicked.
    #[error("{0}")]
    Panic(String),
}
