//! What `pathcall sim delegate` has counted.

use super::ability::Rows;
use super::share;
use crate::delegate::Tally;

pub(super) fn counts(tally: &Tally) -> Rows {
    vec![
        ("calls", tally.calls.to_string()),
        ("requests planned", tally.requests.to_string()),
        ("requests worked on", tally.executions.to_string()),
        ("replies", tally.replies.to_string()),
        ("complete", share(tally.complete, tally.calls)),
        ("failed", share(tally.failed, tally.calls)),
        ("aborted", share(tally.aborted, tally.calls)),
        ("messages", tally.messages.to_string()),
        ("lost", share(tally.lost, tally.messages)),
        ("repeated by a stranger", tally.repeated.to_string()),
        ("forged", tally.forged.to_string()),
        ("processes that died", tally.crashes.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
    ]
}
