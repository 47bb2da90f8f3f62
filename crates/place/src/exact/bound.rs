//! Lower bound of the cost of later requests, and upper bound of the difference between two backlogs.

use super::{SolverPath, TimedRequest};

/// Least cost of later requests: each as if there were no other later ones.
pub(super) fn remaining_cost_bound(kinds: &[Vec<SolverPath>], rest: &[TimedRequest], backlog_ns: &[u64]) -> u64 {
    let mut passed = 0_u64;
    let mut sum = 0_u64;
    for arrival in rest {
        passed = passed.saturating_add(arrival.after_ns);
        let cost = |way: &SolverPath| {
            let waits = way.busy.iter().map(|(at, _)| backlog_ns[*at].saturating_sub(passed));
            waits.fold(way.traverse_ns, u64::saturating_add)
        };
        sum = sum.saturating_add(kinds[usize::from(arrival.kind.0)].iter().map(cost).min().unwrap_or(0));
    }
    sum
}

/// Whether later requests cost at most `spare` more with one backlog than with another, whatever paths they take.
///
/// If both backlogs grow by the same amount, the difference never grows: at each resource a request waits longer by
/// at most the current difference of the backlogs.
pub(super) fn differs_at_most(
    kinds: &[Vec<SolverPath>],
    rest: &[TimedRequest],
    one: &[u64],
    other: &[u64],
    spare: u64,
) -> bool {
    if one.iter().zip(other).all(|(one, other)| one <= other) {
        return true;
    }
    let more = |at: usize| one[at].saturating_sub(other[at]);
    let worst = |ways: &[SolverPath]| {
        let sum = |way: &SolverPath| way.busy.iter().map(|(at, _)| more(*at)).fold(0, u64::saturating_add);
        ways.iter().map(sum).max().unwrap_or(0)
    };
    let mut sum = 0_u64;
    for arrival in rest {
        sum = sum.saturating_add(worst(&kinds[usize::from(arrival.kind.0)]));
        if sum > spare {
            return false;
        }
    }
    true
}
