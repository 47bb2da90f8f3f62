//! Options of methods that the manifest, the channel and the state machines share.

use crate::OpType;

/// `Stream.modify`: `value = op(value, para)` on each value, in 32 bits (NetRPC Table 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Modify {
    /// Operator.
    pub op: OpType,
    /// Operand, in units of the quantised value; 0 for operators without one.
    pub para: i32,
}

impl Modify {
    /// Leaves the values unchanged.
    pub const NOP: Self = Self { op: OpType::Nop, para: 0 };

    /// Modified value; `None` if the value does not fit the 32 bits of operators.
    #[must_use]
    pub fn apply(self, value: i64) -> Option<i64> {
        match (self.op, i32::try_from(value)) {
            (OpType::Nop, _) => Some(value),
            (op, Ok(value)) => Some(i64::from(op.apply(value, self.para))),
            (_, Err(_)) => None,
        }
    }
}

/// `clear` of a sum (NetRPC §5.2.2): keeper of a round's sums until all workers have them. All calls of an application
/// have the same policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ClearPolicy {
    /// The server stores the sums before any worker gets them; then the element clears the row.
    #[default]
    Copy,
    /// The element sends the sums itself and uses two rows instead of one. Each worker keeps the sums for the others in
    /// case the element fails.
    Shadow,
    /// The element sends the sums itself, and the next round of the row clears them, even if a worker lacks them. Each
    /// worker keeps the sums for the others.
    Lazy,
}

impl ClearPolicy {
    /// Whether the element sends the sums of a round to the workers, past the server.
    #[must_use]
    pub const fn is_by_element(self) -> bool {
        matches!(self, Self::Shadow | Self::Lazy)
    }
}

/// `ack`: party that must have an addition before the call completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ack {
    /// The element. The caller keeps the additions until the server has committed them.
    #[default]
    Element,
    /// The server. The additions survive the loss of element and caller together.
    Server,
}

/// `read` of a query: what its answer contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadMode {
    /// Every addition that was complete when the query began, and all that an earlier query saw.
    #[default]
    Linearizable,
    /// Every addition that was complete a short time before.
    Recent,
}

impl ReadMode {
    /// All modes.
    pub const ALL: [Self; 2] = [Self::Linearizable, Self::Recent];

    /// Name in filters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Recent => "recent",
        }
    }
}

/// `lanes` of a sum: size of the values in a 32-bit lane. Smaller values are quantised with a scale that a block of
/// values shares, and several of them share a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LaneFormat {
    /// One value of 32 bits, quantised by `Precision`.
    #[default]
    Int32,
    /// Two values of 16 bits, the size of bf16.
    Int16,
    /// Four values of 8 bits.
    Int8,
}

impl LaneFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Int32, Self::Int16, Self::Int8];

    /// Name in filters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
        }
    }

    /// Bits of a value.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Int32 => 32,
            Self::Int16 => 16,
            Self::Int8 => 8,
        }
    }

    /// Maximum number of workers of a sum with shared scales: the sum of their values fits `bits`, and the counts
    /// of their votes fit 10 bits.
    #[must_use]
    pub const fn workers_max(self) -> u32 {
        match self {
            Self::Int32 => u32::MAX,
            Self::Int16 => 1023,
            Self::Int8 => 127,
        }
    }
}

/// `balance` of a cloned method: choice of the server for a call that is not cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// A random server.
    #[default]
    Random,
    /// The shorter queue of two random servers, as the element and the caller know them (RackSched, NetClone §3.7).
    Shortest,
    /// Each server in turn, in the order of their SIDs.
    RoundRobin,
}

/// Budget of extra requests of a cloned method, beyond one for each call: clones, repeats and hedges.
///
/// Each call adds `share` to the budget, an extra request takes the cost of its call. A request that may be cloned is
/// paid when it is sent, and refunded if its answer reports that it was not cloned. At any time the cost of all extra
/// requests is at most `share · calls + burst + per_second · time`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HedgeBudgetConfig {
    /// Extra requests per call.
    pub share: f64,
    /// Most extra requests that the budget can hold.
    pub burst: f64,
    /// Extra requests added per second, so that a few calls on a lossy link succeed.
    pub per_second: f64,
}

impl Default for HedgeBudgetConfig {
    /// Every call may be cloned. When a server fails, its calls have to be sent again at once.
    fn default() -> Self {
        Self { share: 1.0, burst: 500.0, per_second: 100.0 }
    }
}
