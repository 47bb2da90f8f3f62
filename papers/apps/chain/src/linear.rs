//! Whether what clients saw of one key could have happened one after the other (Wing and Gong, 1993; the memory
//! of states that were tried is Lowe's, 2017).

use std::collections::HashSet;

/// Operations on a key that can be judged.
pub const OPERATIONS_MAX: usize = 128;

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Sees the value.
    Get,
    /// Replaces it.
    Put(String),
    /// Adds to its end.
    Append(String),
}

/// An operation, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: Kind,
    /// When it began.
    pub began: u64,
    /// When it ended, and the value after it; none: that was never heard, it may have happened or may yet.
    pub ended: Option<(u64, String)>,
}

impl Operation {
    fn apply(&self, value: &str) -> String {
        match &self.kind {
            Kind::Get => value.to_owned(),
            Kind::Put(put) => put.clone(),
            Kind::Append(append) => format!("{value}{append}"),
        }
    }
}

/// Whether there is an order of all operations that ended, and of some others, in which each gives what its
/// client saw, and none comes before one that had ended when it began. The key has no value first, which reads
/// as the empty one.
///
/// # Panics
/// With more than [`OPERATIONS_MAX`].
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

    fn operation(kind: Kind, began: u64, ended: Option<(u64, &str)>) -> Operation {
        Operation { kind, began, ended: ended.map(|(at, value)| (at, value.to_owned())) }
    }

    fn get(began: u64, ended: u64, seen: &str) -> Operation {
        operation(Kind::Get, began, Some((ended, seen)))
    }

    fn append(what: &str, began: u64, ended: Option<(u64, &str)>) -> Operation {
        operation(Kind::Append(what.to_owned()), began, ended)
    }

    #[test]
    fn orders_that_time_allows_are_found() {
        assert!(is_linearizable(&[]));
        let both = [append("a", 0, Some((9, "ba"))), append("b", 1, Some((8, "b"))), get(2, 7, "")];
        assert!(is_linearizable(&both));
        let put = operation(Kind::Put("x".to_owned()), 0, Some((5, "x")));
        assert!(is_linearizable(&[put.clone(), get(6, 7, "x")]));
        assert!(!is_linearizable(&[put, get(6, 7, "")]), "a read of what was before");
    }

    #[test]
    fn what_goes_back_in_time_is_none() {
        let write = append("a", 0, Some((10, "a")));
        assert!(is_linearizable(&[write.clone(), get(1, 2, ""), get(3, 4, "a")]));
        assert!(!is_linearizable(&[write, get(1, 2, "a"), get(3, 4, "")]));
    }

    #[test]
    fn twice_is_not_once() {
        let once = [append("a", 0, Some((1, "a"))), get(2, 3, "aa")];
        assert!(!is_linearizable(&once));
        let not_heard = [append("a", 0, None), get(2, 3, ""), get(4, 5, "a")];
        assert!(is_linearizable(&not_heard), "it may come late");
        assert!(!is_linearizable(&[append("a", 0, None), get(2, 3, "a"), get(4, 5, "")]));
    }
}
