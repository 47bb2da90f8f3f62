//! Table of `pathcall sim all`.

use super::ability::Rows;
use super::share;
use crate::all::CombinedCounts;

pub(super) fn table_rows(counts: &CombinedCounts) -> Rows {
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
