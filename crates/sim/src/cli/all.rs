//! What `pathcall sim all` has counted.

use super::ability::Rows;
use super::share;
use crate::all::Tally;

pub(super) fn counts(tally: &Tally) -> Rows {
    let Tally { map, clone, delegate, function, place, .. } = tally;
    let most = [map.virtual_time, clone.virtual_time, delegate.virtual_time, function.virtual_time, place.virtual_time];
    vec![
        ("map: calls", map.calls.to_string()),
        ("clone: calls", clone.calls.to_string()),
        ("clone: answered", share(clone.answered, clone.calls)),
        ("delegate: calls", delegate.calls.to_string()),
        ("delegate: complete", share(delegate.complete, delegate.calls)),
        ("function: packets", function.packets.to_string()),
        ("place: requests", place.requests.to_string()),
        ("through the program", tally.frames.to_string()),
        ("by the function", tally.carried.to_string()),
        ("not come out", share(tally.held_back, tally.carried)),
        ("come out again", tally.again.to_string()),
        ("placed work", tally.placed.to_string()),
        ("done by nobody", share(tally.abandoned, tally.placed)),
        ("failures of elements", tally.failures.to_string()),
        ("waits for machines", tally.waited.to_string()),
        ("in another's name", tally.strange.to_string()),
        ("longest part's time", format!("{:.1} s", most.into_iter().max().unwrap_or_default().as_secs_f64())),
    ]
}
