//! Table of `pathcall sim clone`.

use super::ability::Rows;
use super::share;
use crate::clone::CloneCounts;

pub(super) fn table_rows(counts: &CloneCounts) -> Rows {
    vec![
        ("calls", counts.calls.to_string()),
        ("answered", share(counts.answered, counts.calls)),
        ("failed at deadlines", share(counts.failed, counts.calls)),
        ("executions", counts.executions.to_string()),
        ("cloned", counts.cloned.to_string()),
        ("clones dropped", counts.clones_dropped.to_string()),
        ("answers filtered", counts.filtered.to_string()),
        ("slower answers", counts.redundant.to_string()),
        ("failures set aside", counts.set_aside.to_string()),
        ("requests repeated", counts.resent.to_string()),
        ("refused by budgets", counts.refused.to_string()),
        ("silent elements", counts.silent.to_string()),
        ("frames", counts.frames.to_string()),
        ("lost", share(counts.lost, counts.frames)),
        ("repeated", share(counts.repeated, counts.frames)),
        ("forged", counts.forged.to_string()),
        ("incidents", counts.incidents.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}
