//! What follows costs at least so much; and one backlog makes it at most so much dearer than another.

use super::{Arrival, Way};

/// The least that requests to come can cost: each as if the others to come were not.
pub(super) fn rest_bound(kinds: &[Vec<Way>], rest: &[Arrival], backlog_ns: &[u64]) -> u64 {
    let mut passed = 0_u64;
    let mut sum = 0_u64;
    for arrival in rest {
        passed = passed.saturating_add(arrival.after_ns);
        let cost = |way: &Way| {
            let waits = way.busy.iter().map(|(at, _)| backlog_ns[*at].saturating_sub(passed));
            waits.fold(way.traverse_ns, u64::saturating_add)
        };
        sum = sum.saturating_add(kinds[usize::from(arrival.kind.0)].iter().map(cost).min().unwrap_or(0));
    }
    sum
}

/// Whether requests to come cost at most `spare` more behind one backlog than behind another, whatever paths they take.
///
/// Where both grow alike, the difference never grows: a request that passes a resource waits there longer by what the
/// one backlog has more now, at most.
pub(super) fn excess(kinds: &[Vec<Way>], rest: &[Arrival], one: &[u64], other: &[u64], spare: u64) -> bool {
    if one.iter().zip(other).all(|(one, other)| one <= other) {
        return true;
    }
    let more = |at: usize| one[at].saturating_sub(other[at]);
    let worst = |ways: &[Way]| {
        let sum = |way: &Way| way.busy.iter().map(|(at, _)| more(*at)).fold(0, u64::saturating_add);
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
