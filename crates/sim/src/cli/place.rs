//! What `pathcall sim place` has counted.

use super::ability::Rows;
use super::share;
use crate::place::Tally;

pub(super) fn counts(tally: &Tally) -> Rows {
    vec![
        ("requests", tally.requests.to_string()),
        ("answered", share(tally.answered, tally.requests)),
        ("given up", share(tally.given_up, tally.requests)),
        ("abandoned", share(tally.abandoned, tally.requests)),
        ("waited for others", share(tally.waited, tally.requests)),
        ("selector full", tally.full.to_string()),
        ("messages", tally.messages.to_string()),
        ("follow one before", share(tally.followed, tally.messages)),
        ("changes of path", tally.changes.to_string()),
        ("lost", share(tally.lost, tally.messages)),
        ("late", tally.overdue.to_string()),
        ("failed", share(tally.failed, tally.messages)),
        ("paths left", tally.left.to_string()),
        ("probes", tally.probes.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
    ]
}
