//! Entries of tables, as programs and controllers write them.

use super::ActionId;

/// An entry: what it matches and what is done then.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// For each key of the table.
    pub keys: Vec<Match>,
    /// The action.
    pub action: ActionId,
    /// A value for each of its parameters.
    pub args: Vec<u128>,
}

/// What one key of an entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Match {
    /// The value; bits beyond the prefix are 0.
    pub value: u128,
    /// How many of the highest bits count: all of them in an exact key.
    pub prefix_bits: u16,
}
