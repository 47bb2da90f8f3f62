//! Choice of an application between an element and software.
//!
//! On one host, an element would only be one more process that has to run for each frame. So the application uses an
//! element from the first caller on another host on, unless its path is pinned.

use std::sync::atomic::{AtomicBool, Ordering};

use pathcall_proto::manifest::MapPath;
use pathcall_proto::v1::NoMemoryReason;

/// State of the choice.
#[derive(Debug)]
pub(super) struct ElementChoice {
    /// Number of register rows that the application may request; 0 if it cannot use them.
    rows: u32,
    path: MapPath,
    /// Whether a caller on another host has joined.
    has_remote_callers: AtomicBool,
    /// Whether the application was idle and gives its memory back.
    is_idle: AtomicBool,
}

impl ElementChoice {
    pub(super) fn new(rows: u32, path: MapPath) -> Self {
        Self { rows, path, has_remote_callers: AtomicBool::new(false), is_idle: AtomicBool::new(false) }
    }

    /// Reason for which the application uses no element, if there is one.
    pub(super) fn no_memory_reason(&self) -> NoMemoryReason {
        match self.path {
            _ if self.rows == 0 => NoMemoryReason::NotUsable,
            MapPath::Software | MapPath::Direct => NoMemoryReason::Pinned,
            MapPath::Automatic if !self.has_remote_callers.load(Ordering::Relaxed) => NoMemoryReason::SameHost,
            MapPath::Automatic | MapPath::Element if self.is_idle.load(Ordering::Relaxed) => NoMemoryReason::Idle,
            MapPath::Automatic | MapPath::Element => NoMemoryReason::Unspecified,
        }
    }

    /// Maximum number of register rows that the application may request.
    pub(super) fn rows_max(&self) -> u32 {
        self.rows
    }

    pub(super) fn uses_element(&self) -> bool {
        self.no_memory_reason() == NoMemoryReason::Unspecified
    }

    /// Number of register rows to request. Before the first caller they are requested for a caller on another host.
    pub(super) fn rows_to_request(&self, is_active: bool) -> u32 {
        let is_undecided = self.no_memory_reason() == NoMemoryReason::SameHost && !is_active;
        if is_undecided || self.uses_element() { self.rows } else { 0 }
    }

    /// Records that a caller on another host joins. Returns whether an element is of use from now on.
    pub(super) fn on_remote_caller(&self) -> bool {
        let did_not = !self.uses_element();
        self.has_remote_callers.store(true, Ordering::Relaxed);
        did_not && self.uses_element()
    }

    /// Records whether the application is idle. Returns whether this is a change.
    pub(super) fn set_idle(&self, is_idle: bool) -> bool {
        self.is_idle.swap(is_idle, Ordering::Relaxed) != is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_path_requests_rows_until_it_is_known_that_all_are_on_one_host() {
        let choice = ElementChoice::new(8, MapPath::Automatic);
        assert_eq!([false, true].map(|is_active| choice.rows_to_request(is_active)), [8, 0]);
        assert!(choice.on_remote_caller() && !choice.on_remote_caller());
        assert_eq!(choice.rows_to_request(true), 8);
    }

    #[test]
    fn idle_application_requests_no_rows_until_it_is_used() {
        let choice = ElementChoice::new(8, MapPath::Element);
        assert!(choice.set_idle(true) && !choice.set_idle(true));
        assert_eq!((choice.rows_to_request(true), choice.no_memory_reason()), (0, NoMemoryReason::Idle));
        assert!(choice.set_idle(false));
        assert_eq!((choice.rows_to_request(true), choice.no_memory_reason()), (8, NoMemoryReason::Unspecified));
    }

    #[test]
    fn pinned_path_does_not_depend_on_callers() {
        for (path, rows, reason) in [
            (MapPath::Element, 8, NoMemoryReason::Unspecified),
            (MapPath::Software, 0, NoMemoryReason::Pinned),
            (MapPath::Direct, 0, NoMemoryReason::Pinned),
        ] {
            let choice = ElementChoice::new(8, path);
            for _ in 0..2 {
                assert_eq!((choice.rows_to_request(false), choice.no_memory_reason()), (rows, reason));
                assert!(!choice.on_remote_caller());
            }
            assert_eq!(ElementChoice::new(0, path).no_memory_reason(), NoMemoryReason::NotUsable);
        }
    }
}
