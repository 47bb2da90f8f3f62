//! Timers of executions.
//!
//! A held message leaves after the same time in every execution, so executions that hold one form a queue; longer times
//! (until a request is forgotten, or its deadline) are in [`Timers`].

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use super::super::context_map::Timers;
use super::super::{ContextId, earlier};

/// Timers of all executions.
#[derive(Debug)]
pub(super) struct ExecutionTimers {
    pub(super) timers: Timers,
    /// Time for which a message is held, see [`DelegateWorkerConfig::flush`](super::DelegateWorkerConfig::flush).
    flush: Duration,
    /// Times at which held messages leave, and their executions. An entry is valid only while its execution holds a
    /// message until this time.
    held: VecDeque<(Instant, ContextId)>,
}

impl ExecutionTimers {
    pub(super) fn new(flush: Duration) -> Self {
        Self { timers: Timers::default(), flush, held: VecDeque::new() }
    }

    /// Starts to hold a message of an execution; returns the time at which it leaves.
    pub(super) fn hold_message(&mut self, now: Instant, of: ContextId) -> Instant {
        let until = now + self.flush;
        self.held.push_back((until, of));
        until
    }

    /// Ends the holding of a message.
    pub(super) fn end_hold(&mut self, until: Instant, of: ContextId) {
        // Usually the entry is the first or the last; others are removed when their time comes.
        if self.held.front() == Some(&(until, of)) {
            self.held.pop_front();
        } else if self.held.back() == Some(&(until, of)) {
            self.held.pop_back();
        }
    }

    /// Returns the next execution whose held message is due, if the entry is valid.
    pub(super) fn flush_due(&mut self, now: Instant) -> Option<(Instant, ContextId)> {
        self.held.front().filter(|(until, _)| *until <= now)?;
        self.held.pop_front()
    }

    /// Time of the next entry, which may be obsolete.
    pub(super) fn next(&self) -> Option<Instant> {
        earlier(self.held.front().map(|held| held.0), self.timers.next())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.timers.is_empty()
    }
}
