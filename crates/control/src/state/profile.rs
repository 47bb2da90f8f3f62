//! Profiles of elements: what an element serves, and with rows of which width.
//!
//! ```text
//! element: lanes of its frames ─┬─► width_for ─► width of the rows that it grants, or none
//! owner: width, narrower too? ──┘
//! ```

use pathcall_proto::v1::NoMemoryReason;
use pathcall_wire::map::{takes_rows, widest_rows};

use super::{Application, ControllerState, Element, ElementRecord};

impl ElementRecord {
    /// Width of the rows that the element grants to an owner that requests `width`, or accepts fewer lanes; `None` if
    /// the element serves neither.
    pub(super) fn width_for(&self, width: u32, takes_narrow_rows: bool) -> Option<u32> {
        if self.without_map {
            return None;
        }
        if takes_rows(self.frame_lanes, width) {
            return Some(width);
        }
        takes_narrow_rows.then(|| widest_rows(self.frame_lanes).min(width))
    }
}

impl Element {
    /// Width of an application's rows on this element: of those that it has here, else of those that it would get.
    pub(super) fn width_for(&self, application: &Application) -> Option<u32> {
        let record = &application.record;
        let held = record.memory.filter(|memory| memory.element == self.record.element).map(|memory| memory.width);
        held.or_else(|| self.record.width_for(record.width, application.takes_narrow_rows))
    }
}

impl ControllerState {
    /// Reason, for status, why an application has no memory: the owner's, or that no live element serves its rows.
    pub(super) fn shown_reason(&self, application: &Application) -> i32 {
        let record = &application.record;
        let mut alive = self.elements.values().filter(|element| !element.lease.is_expired()).peekable();
        let serves =
            |record_of: &ElementRecord| record_of.width_for(record.width, application.takes_narrow_rows).is_some();
        let is_left_out = application.no_memory_reason == NoMemoryReason::Unspecified as i32
            && record.memory.is_none()
            && record.rows > 0
            && alive.peek().is_some()
            && !alive.any(|element| serves(&element.record));
        if is_left_out { NoMemoryReason::Profile as i32 } else { application.no_memory_reason }
    }
}
