//! When executions want to be looked at.
//!
//! A message that is held leaves after the same time everywhere, so those who hold one stand in line; what waits for
//! longer, until a request is forgotten or its call's time is over, is among the [`Timers`].

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use super::super::table::Timers;
use super::super::{Context, earlier};

/// Of all executions.
#[derive(Debug)]
pub(super) struct Alarms {
    pub(super) timers: Timers,
    /// See [`WorkerConfig::flush`](super::WorkerConfig::flush).
    flush: Duration,
    /// Who holds a message, and until when. An entry counts only as long as its execution says that it holds one until
    /// just then.
    held: VecDeque<(Instant, Context)>,
}

impl Alarms {
    pub(super) fn new(flush: Duration) -> Self {
        Self { timers: Timers::default(), flush, held: VecDeque::new() }
    }

    /// An execution holds a message from now on; until when.
    pub(super) fn hold(&mut self, now: Instant, of: Context) -> Instant {
        let until = now + self.flush;
        self.held.push_back((until, of));
        until
    }

    /// It holds none any more.
    pub(super) fn let_go(&mut self, until: Instant, of: Context) {
        // Mostly it is the first, or the last; others go when their time comes.
        if self.held.front() == Some(&(until, of)) {
            self.held.pop_front();
        } else if self.held.back() == Some(&(until, of)) {
            self.held.pop_back();
        }
    }

    /// The next who has held a message for long enough, if the entry counts.
    pub(super) fn flush_due(&mut self, now: Instant) -> Option<(Instant, Context)> {
        self.held.front().filter(|(until, _)| *until <= now)?;
        self.held.pop_front()
    }

    /// Not later than when the first wants to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        earlier(self.held.front().map(|held| held.0), self.timers.next())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.timers.is_empty()
    }
}
