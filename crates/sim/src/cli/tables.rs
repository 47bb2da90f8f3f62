//! Tables of `pathcall sim`: rows of the counts of each simulation.

use crate::all::CombinedCounts;
use crate::clone::CloneCounts;
use crate::delegate::DelegateCounts;
use crate::function::FunctionCounts;
use crate::map::MapCounts;
use crate::place::PlaceCounts;

/// Rows of a table: name and value.
pub(super) type Rows = Vec<(&'static str, String)>;

fn share(part: u64, of: u64) -> String {
    format!("{part} ({:.1} %)", part as f64 * 100.0 / of.max(1) as f64)
}

pub(super) fn map(counts: &MapCounts) -> Rows {
    vec![
        ("calls", counts.calls.to_string()),
        ("frames", counts.frames.to_string()),
        ("lost", share(counts.lost, counts.frames)),
        ("of them, link cut", counts.cut.to_string()),
        ("repeated", share(counts.repeated, counts.frames)),
        ("repeated late", counts.late.to_string()),
        ("reordered", share(counts.reordered, counts.frames)),
        ("congestion marks", share(counts.marked, counts.frames)),
        ("hostile datagrams", counts.hostile.to_string()),
        ("refused by token", counts.unauthentic.to_string()),
        ("host pauses", counts.pauses.to_string()),
        ("retransmits", counts.retransmits.to_string()),
        ("lanes in the element", share(counts.lanes_element, counts.lanes_element + counts.lanes_software)),
        ("keys evicted", counts.keys_evicted.to_string()),
        ("silent elements", counts.suspended.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}

pub(super) fn clone(counts: &CloneCounts) -> Rows {
    vec![
        ("calls", counts.calls.to_string()),
        ("answered", share(counts.answered, counts.calls)),
        ("failed at deadlines", share(counts.failed, counts.calls)),
        ("executions", counts.executions.to_string()),
        ("cloned", counts.cloned.to_string()),
        ("held hedges sent", counts.hedges.to_string()),
        ("clones dropped", counts.clones_dropped.to_string()),
        ("answers filtered", counts.filtered.to_string()),
        ("slower answers", counts.redundant.to_string()),
        ("failures set aside", counts.set_aside.to_string()),
        ("requests repeated", counts.resent.to_string()),
        ("extra refused", counts.refused.to_string()),
        ("silent elements", counts.silent.to_string()),
        ("frames", counts.frames.to_string()),
        ("lost", share(counts.lost, counts.frames)),
        ("repeated", share(counts.repeated, counts.frames)),
        ("forged", counts.forged.to_string()),
        ("incidents", counts.incidents.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}

pub(super) fn delegate(counts: &DelegateCounts) -> Rows {
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
        ("calls to services", counts.service_calls.to_string()),
        ("made again", counts.repeats.to_string()),
        ("then successful", share(counts.repaired, counts.service_calls)),
        ("load reports", counts.load_reports.to_string()),
        ("choices that avoid", counts.avoided.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}

pub(super) fn function(counts: &FunctionCounts) -> Rows {
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

pub(super) fn place(counts: &PlaceCounts) -> Rows {
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
        ("polls for stalls", counts.polls.to_string()),
        ("probes", counts.probes.to_string()),
        ("virtual time", format!("{:.1} s", counts.virtual_time.as_secs_f64())),
    ]
}

pub(super) fn all(counts: &CombinedCounts) -> Rows {
    let CombinedCounts { map, clone, delegate, function, place, .. } = counts;
    let most = [map.virtual_time, clone.virtual_time, delegate.virtual_time, function.virtual_time, place.virtual_time];
    vec![
        ("map: calls", map.calls.to_string()),
        ("clone: calls", clone.calls.to_string()),
        ("clone: answered", share(clone.answered, clone.calls)),
        ("delegate: calls", delegate.calls.to_string()),
        ("delegate: complete", share(delegate.complete, delegate.calls)),
        ("function: packets", function.packets.to_string()),
        ("place: requests", place.requests.to_string()),
        ("frames processed", counts.frames.to_string()),
        ("carried by function", counts.carried.to_string()),
        ("lost in function", share(counts.held_back, counts.carried)),
        ("repeated by function", counts.again.to_string()),
        ("placed work", counts.placed.to_string()),
        ("placed, abandoned", share(counts.abandoned, counts.placed)),
        ("element failures", counts.failures.to_string()),
        ("waits for machines", counts.waited.to_string()),
        ("forged across parts", counts.strange.to_string()),
        ("longest part's time", format!("{:.1} s", most.into_iter().max().unwrap_or_default().as_secs_f64())),
    ]
}
