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

/// `balance` of a cloned method: choice of the server for a call that is not cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// A random server.
    #[default]
    Random,
    /// The shorter queue of two random servers, as the element knows them (RackSched, NetClone §3.7).
    Shortest,
    /// Each server in turn, in the order of their SIDs.
    RoundRobin,
}
