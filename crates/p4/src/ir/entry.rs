//! Table entries, of programs and controllers.

use super::ActionId;

/// Table entry: keys, action and action data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableEntry {
    /// One match for each key of the table.
    pub keys: Vec<Match>,
    /// Action on a hit.
    pub action: ActionId,
    /// Action data, one value for each parameter.
    pub args: Vec<u128>,
}

/// Match value of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Match {
    /// Value; bits beyond the prefix are 0.
    pub value: u128,
    /// Prefix length in bits; the full width for an exact key.
    pub prefix_bits: u16,
}
