//! Errors of calls, and their encoding in frames of the server.

use pathcall_wire::MapFrame;

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No answer for the give-up time.
    #[error("no answer from {who} for {millis} ms: is it running and reachable over UDP?")]
    Unreachable {
        /// "the element" or "the server".
        who: &'static str,
        /// Time without an answer in milliseconds.
        millis: u64,
    },
    /// A quantised value does not fit the lanes.
    #[error(
        "value {value} at position {position} does not fit {bits} bits: lower the filter's Precision or scale the data"
    )]
    Range {
        /// The quantised value.
        value: i64,
        /// Position in the call.
        position: usize,
        /// Available bits.
        bits: u8,
    },
    /// A sum exceeds 64 bits.
    #[error("the sum at position {position} exceeds 64 bits; it was not changed")]
    Overflow {
        /// Position in the call.
        position: usize,
    },
    /// The server's table of keys is full.
    #[error("the application has no room for another key")]
    KeysFull,
    /// A key is too long for a frame.
    #[error("key of {len} bytes at position {position}: at most {} bytes fit", pathcall_wire::pairs::MAX_KEY - 1)]
    KeyLength {
        /// Length of the key in bytes.
        len: usize,
        /// Position in the call.
        position: usize,
    },
    /// The workers of a round make different calls.
    #[error(
        "the callers of this application disagree about round {round}: all must make the same calls with arrays of the same length"
    )]
    Disagree {
        /// Number of the round.
        round: u32,
    },
    /// A caller abandoned a sum to which it contributed, or may have. Its next sum would belong to a different step
    /// than the next sums of the other callers.
    #[error("a caller of this application abandoned a sum: all callers must join again and restart at the same step")]
    SumAbandoned,
    /// A SyncAgtr application has all its workers.
    #[error("the application has its {threshold} callers already: raise CntFwd.threshold or stop a caller")]
    WorkersFull {
        /// Maximum number of workers.
        threshold: u32,
    },
    /// Values that only the element held are lost.
    #[error("values that only the element held are lost: {reason}")]
    DataLoss {
        /// Cause of the loss.
        reason: &'static str,
    },
    /// The server stores no further calls with ids.
    #[error("the server stores the maximum number of calls with ids: try again when some are done")]
    IdempotencyFull,
    /// The server has restarted, or the retention time of the journal has passed.
    #[error("the server no longer knows which calls of this journal took effect")]
    JournalForgotten,
    /// The caller abandoned this attempt of a call with an id, or its process was killed.
    #[error("this attempt of the call is abandoned and arrived too late")]
    AbandonedAttempt,
    /// The caller has used all sequence numbers of its flows. A new caller has new ones.
    #[error("the caller has used all sequence numbers of its flows: it must join again")]
    SequenceExhausted,
    /// Too many calls of plain gRPC clients wait.
    #[error("the server has the maximum number of waiting calls of plain gRPC clients: try again when some are done")]
    LoneCallsFull,
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Numbers of errors in the `index` field of a `MapError` frame; the operand is in `round`.
const DISAGREE: u32 = 1;
const OVERFLOW: u32 = 2;
const GIVEN_UP: u32 = 3;

impl CallError {
    /// Fields (index, round) of a `MapError` frame for this error; `None` if the error is not sent in frames.
    pub(super) fn to_fields(&self) -> Option<(u32, u32)> {
        match self {
            Self::Disagree { round } => Some((DISAGREE, *round)),
            Self::SumAbandoned => Some((GIVEN_UP, 0)),
            Self::Overflow { position } => Some((OVERFLOW, u32::try_from(*position).ok()?)),
            _ => None,
        }
    }

    pub(super) fn from_frame(frame: &MapFrame<&[u8]>) -> Option<Self> {
        let operand = frame.base().round();
        match frame.map().index() {
            DISAGREE => Some(Self::Disagree { round: operand }),
            GIVEN_UP => Some(Self::SumAbandoned),
            OVERFLOW => Some(Self::Overflow { position: operand as usize }),
            _ => None,
        }
    }
}
