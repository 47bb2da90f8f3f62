//! Table of `pathcall sim delegate`.

use super::ability::Rows;
use super::share;
use crate::delegate::DelegateCounts;

pub(super) fn table_rows(counts: &DelegateCounts) -> Rows {
    vec![
        ("calls", counts.calls.to_string()),
        ("requests planned", counts.requests.to_string()),
        ("executions", counts.executions.to_string()),
        ("replies", counts.replies.to_string()),
        ("complete", share(counts.complete, counts.calls)),
        ("failed", share(counts.failed, counts.calls)),
        ("aborted", share(counts.aborted, counts.calls)),
        ("messages", counts.messages.to_string()),
        ("lost", share(counts.lost, counts.messages)),
        ("replayed by attacker", counts.repeated.to_string()),
        ("forged", counts.forged.to_string()),
        ("processes that died", counts.crashes.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}
