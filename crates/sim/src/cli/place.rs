//! Table of `pathcall sim place`.

use super::ability::Rows;
use super::share;
use crate::place::PlaceCounts;

pub(super) fn table_rows(counts: &PlaceCounts) -> Rows {
    vec![
        ("requests", counts.requests.to_string()),
        ("answered", share(counts.answered, counts.requests)),
        ("given up", share(counts.given_up, counts.requests)),
        ("abandoned", share(counts.abandoned, counts.requests)),
        ("waited for order", share(counts.waited, counts.requests)),
        ("selector full", counts.full.to_string()),
        ("messages", counts.messages.to_string()),
        ("followed another", share(counts.followed, counts.messages)),
        ("path changes", counts.changes.to_string()),
        ("lost", share(counts.lost, counts.messages)),
        ("late", counts.overdue.to_string()),
        ("failed", share(counts.failed, counts.messages)),
        ("paths left", counts.left.to_string()),
        ("probes", counts.probes.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}
