//! What `pathcall sim clone` has counted.

use super::ability::Rows;
use super::share;
use crate::clone::Tally;

pub(super) fn counts(tally: &Tally) -> Rows {
    vec![
        ("calls", tally.calls.to_string()),
        ("answered", share(tally.answered, tally.calls)),
        ("failed at deadlines", share(tally.failed, tally.calls)),
        ("requests worked on", tally.executions.to_string()),
        ("cloned", tally.cloned.to_string()),
        ("clones dropped", tally.clones_dropped.to_string()),
        ("second answers stopped", tally.filtered.to_string()),
        ("second answers come", tally.redundant.to_string()),
        ("failures set aside", tally.set_aside.to_string()),
        ("requests sent again", tally.resent.to_string()),
        ("refused by budgets", tally.refused.to_string()),
        ("silent elements", tally.silent.to_string()),
        ("frames", tally.frames.to_string()),
        ("lost", share(tally.lost, tally.frames)),
        ("repeated", share(tally.repeated, tally.frames)),
        ("forged", tally.forged.to_string()),
        ("restarts, moves", tally.incidents.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
    ]
}
