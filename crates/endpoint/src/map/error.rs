//! Why a call could not be done, and how the server says so in a frame.

use pathcall_wire::MapFrame;

/// Why a call could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody answered for so long that the call was given up.
    #[error("no answer from {who} for {millis} ms: is it running and reachable over UDP?")]
    Unreachable {
        /// "the element" or "the server".
        who: &'static str,
        /// How long nothing came.
        millis: u64,
    },
    /// A value does not fit where it has to.
    #[error(
        "value {value} at position {position} does not fit {bits} bits: lower the filter's Precision or scale the data"
    )]
    Range {
        /// The quantised value.
        value: i64,
        /// Its place in the call.
        position: usize,
        /// Bits that there are.
        bits: u8,
    },
    /// A sum left 64 bits.
    #[error("the sum at position {position} leaves 64 bits; it was not changed")]
    Overflow {
        /// Its place in the call.
        position: usize,
    },
    /// The server's table of keys is full.
    #[error("the application has no room for another key")]
    KeysFull,
    /// A key is longer than a frame carries.
    #[error("key of {len} bytes at position {position}: at most {} bytes travel", pathcall_wire::pairs::MAX_KEY - 1)]
    KeyLength {
        /// Its length in bytes.
        len: usize,
        /// Its place in the call.
        position: usize,
    },
    /// The workers of a round do not ask for the same thing.
    #[error(
        "the callers of this application disagree about round {round}: all must make the same calls with arrays of the same length"
    )]
    Disagree {
        /// The round.
        round: u32,
    },
    /// A caller has given up a sum that its values count in, or may: its next sum would meet another one of the others.
    #[error(
        "a caller of this application gave up a sum before it had it: all its callers begin anew, at the same step"
    )]
    GivenUp,
    /// All places of a SyncAgtr application are taken.
    #[error("the application has its {threshold} callers already: raise CntFwd.threshold or stop one")]
    WorkersFull {
        /// Workers that there may be.
        threshold: u32,
    },
    /// What only the element held is gone with it.
    #[error("values that only the element held are lost: {reason}")]
    DataLoss {
        /// What happened to it.
        reason: &'static str,
    },
    /// The server has no room for a further call with an id.
    #[error("the server remembers as many calls with ids as it may: try again when some are done")]
    BooksFull,
    /// The server has started anew, or has not heard of the caller for too long.
    #[error("the server no longer knows which calls of this journal took effect")]
    Forgotten,
    /// A try of a call with an id that its caller has given up, or whose process was killed.
    #[error("this try of the call was given up: it comes too late")]
    Late,
    /// The numbers of the caller's frames have run out: another caller has new ones.
    #[error("the caller has used up the numbers of its frames: it is to join anew")]
    Spent,
    /// The endpoint was shut down.
    #[error("the endpoint is closed")]
    Closed,
}

/// Numbers of the errors that travel in a `MapError` frame's `index`; its operand is in `round`.
const DISAGREE: u32 = 1;
const OVERFLOW: u32 = 2;
const GIVEN_UP: u32 = 3;

impl CallError {
    /// The error as the fields of a `MapError` frame: (index, round). Only errors about a round travel.
    pub(super) fn to_fields(&self) -> Option<(u32, u32)> {
        match self {
            Self::Disagree { round } => Some((DISAGREE, *round)),
            Self::GivenUp => Some((GIVEN_UP, 0)),
            Self::Overflow { position } => Some((OVERFLOW, u32::try_from(*position).ok()?)),
            _ => None,
        }
    }

    pub(super) fn from_frame(frame: &MapFrame<&[u8]>) -> Option<Self> {
        let operand = frame.base().round();
        match frame.map().index() {
            DISAGREE => Some(Self::Disagree { round: operand }),
            GIVEN_UP => Some(Self::GivenUp),
            OVERFLOW => Some(Self::Overflow { position: operand as usize }),
            _ => None,
        }
    }
}
