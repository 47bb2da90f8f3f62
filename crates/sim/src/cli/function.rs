//! Table of `pathcall sim function`.

use super::ability::Rows;
use super::share;
use crate::function::FunctionCounts;

pub(super) fn table_rows(counts: &FunctionCounts) -> Rows {
    vec![
        ("packets", counts.packets.to_string()),
        ("packets out", share(counts.out, counts.packets)),
        ("in the element alone", share(counts.in_element, counts.out)),
        ("lost", share(counts.lost, counts.packets)),
        ("repeated", counts.repeated.to_string()),
        ("repeats recognised", share(counts.refused, counts.repeated)),
        ("reordered", counts.reordered.to_string()),
        ("without a server", counts.no_server.to_string()),
        ("flow reports", counts.reports.to_string()),
        ("entries placed", counts.placed.to_string()),
        ("replaced", counts.replaced.to_string()),
        ("recalled", counts.recalled.to_string()),
        ("group changes", counts.groups.to_string()),
        ("drain requests", counts.drains.to_string()),
        ("groups overdue", counts.overdue.to_string()),
        ("server deaths", counts.deaths.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}
