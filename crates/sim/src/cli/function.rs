//! What `pathcall sim function` has counted.

use super::ability::Rows;
use super::share;
use crate::function::Tally;

pub(super) fn counts(tally: &Tally) -> Rows {
    vec![
        ("packets", tally.packets.to_string()),
        ("left", share(tally.out, tally.packets)),
        ("in the element alone", share(tally.in_element, tally.out)),
        ("lost", share(tally.lost, tally.packets)),
        ("repeated", tally.repeated.to_string()),
        ("known for repeats", share(tally.refused, tally.repeated)),
        ("may be overtaken", tally.reordered.to_string()),
        ("without a server", tally.no_server.to_string()),
        ("reports of flows", tally.reports.to_string()),
        ("entries placed", tally.placed.to_string()),
        ("replaced", tally.replaced.to_string()),
        ("recalled", tally.recalled.to_string()),
        ("changes of groups", tally.groups.to_string()),
        ("asked for haste", tally.drains.to_string()),
        ("groups overdue", tally.overdue.to_string()),
        ("deaths of servers", tally.deaths.to_string()),
        ("virtual time", format!("{:.1} s", tally.virtual_time.as_secs_f64())),
    ]
}
