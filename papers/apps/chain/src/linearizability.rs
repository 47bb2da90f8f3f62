//! Linearizability check of the history of one key (Wing and Gong, 1993; with the cache of visited states by Lowe,
//! 2017).

use std::collections::HashSet;

/// Maximum number of operations per history.
pub const OPERATIONS_MAX: usize = 128;

/// Effect of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationKind {
    /// Reads the value.
    Get,
    /// Replaces the value.
    Put(String),
    /// Appends to the value.
    Append(String),
}

/// Operation as its client observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Effect.
    pub kind: OperationKind,
    /// Start time.
    pub began: u64,
    /// End time and resulting value; `None` if the client has no answer: the operation may take effect at any later
    /// time or never.
    pub ended: Option<(u64, String)>,
}

impl Operation {
    fn apply(&self, value: &str) -> String {
        match &self.kind {
            OperationKind::Get => value.to_owned(),
            OperationKind::Put(put) => put.clone(),
            OperationKind::Append(append) => format!("{value}{append}"),
        }
    }
}

/// True if a linear order exists: the order contains all ended operations and any of the others, each operation has the
/// result that its client saw, and no operation comes before one that ended before its start. The key has no value at
/// first, which reads as the empty string.
///
/// # Panics
/// Panics with more than [`OPERATIONS_MAX`] operations.
#[must_use]
pub fn is_linearizable(operations: &[Operation]) -> bool {
    assert!(operations.len() <= OPERATIONS_MAX, "{} operations, at most {OPERATIONS_MAX}", operations.len());
    let all = (0..operations.len()).filter(|i| operations[*i].ended.is_some()).fold(0, |all, i| all | 1 << i);
    let mut tried = HashSet::new();
    let mut open = vec![(0_u128, String::new())];
    while let Some((taken, value)) = open.pop() {
        if taken & all == all {
            return true;
        }
        let left = || operations.iter().enumerate().filter(|(i, _)| taken & (1 << i) == 0);
        let first_end = left().filter_map(|(_, it)| it.ended.as_ref()).map(|(at, _)| *at).min().unwrap_or(u64::MAX);
        for (i, operation) in left().filter(|(_, it)| it.began <= first_end) {
            let after = operation.apply(&value);
            let fits = operation.ended.as_ref().is_none_or(|(_, seen)| *seen == after);
            if fits && tried.insert((taken | 1 << i, after.clone())) {
                open.push((taken | 1 << i, after));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: OperationKind, began: u64, ended: Option<(u64, &str)>) -> Operation {
        Operation { kind, began, ended: ended.map(|(at, value)| (at, value.to_owned())) }
    }

    fn get(began: u64, ended: u64, seen: &str) -> Operation {
        operation(OperationKind::Get, began, Some((ended, seen)))
    }

    fn append(what: &str, began: u64, ended: Option<(u64, &str)>) -> Operation {
        operation(OperationKind::Append(what.to_owned()), began, ended)
    }

    #[test]
    fn possible_order_is_linearizable() {
        assert!(is_linearizable(&[]));
        let both = [append("a", 0, Some((9, "ba"))), append("b", 1, Some((8, "b"))), get(2, 7, "")];
        assert!(is_linearizable(&both));
        let put = operation(OperationKind::Put("x".to_owned()), 0, Some((5, "x")));
        assert!(is_linearizable(&[put.clone(), get(6, 7, "x")]));
        assert!(!is_linearizable(&[put, get(6, 7, "")]), "a read of what was before");
    }

    #[test]
    fn stale_read_is_not_linearizable() {
        let write = append("a", 0, Some((10, "a")));
        assert!(is_linearizable(&[write.clone(), get(1, 2, ""), get(3, 4, "a")]));
        assert!(!is_linearizable(&[write, get(1, 2, "a"), get(3, 4, "")]));
    }

    #[test]
    fn duplicate_append_is_not_linearizable() {
        let once = [append("a", 0, Some((1, "a"))), get(2, 3, "aa")];
        assert!(!is_linearizable(&once));
        let not_heard = [append("a", 0, None), get(2, 3, ""), get(4, 5, "a")];
        assert!(is_linearizable(&not_heard), "an unanswered append may take effect late");
        assert!(!is_linearizable(&[append("a", 0, None), get(2, 3, "a"), get(4, 5, "")]));
    }
}
