//! The run beside others: step by step, with requests that others make.

use pathcall_place::PathId;
use pathcall_wire::Instant;

use super::{EVENTS_MAX, Event, World};
use crate::part::Part;
use crate::place::judge::Wrong;

impl Part for World<'_> {
    type Wrong = Wrong;

    fn next(&self) -> Option<Instant> {
        self.queue.next_at()
    }

    fn step(&mut self) -> Result<(), Wrong> {
        let Some((at, event)) = self.queue.pop() else { return Ok(()) };
        self.now = at;
        self.events += 1;
        assert!(self.events < EVENTS_MAX, "no end after {} events", self.events);
        match event {
            Event::Ask(request) => self.asks(request)?,
            Event::Step(flight) => self.moves(flight)?,
            Event::Works(flight) => self.works(flight)?,
            Event::Back(flight) => self.back(flight)?,
            Event::Overdue(flight) => self.overdue(flight)?,
            Event::Heard(flight) => self.heard(flight)?,
            Event::Fails(flight) => self.fails(flight)?,
            Event::Resorted(request) => self.resorted(request)?,
            Event::Abandon(request) => self.abandon(request)?,
        }
        self.judge.always(&self.selector, &self.really)
    }

    fn host(&self) -> Option<usize> {
        None
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn over(&mut self) -> Result<(), Wrong> {
        self.tally.virtual_time += self.now.since(Instant(0));
        for path in (0..self.paths.paths.len() as u16).map(PathId) {
            let state = self.selector.state(path);
            self.tally.probes += state.probes;
            self.tally.left += state.lefts;
        }
        self.judge.over(&self.selector)
    }
}

impl World<'_> {
    /// Has the next request made now; `None`: the plan has no more.
    pub(crate) fn ask(&mut self, now: Instant) -> Result<Option<usize>, Wrong> {
        if self.asked == self.plan.asks.len() {
            return Ok(None);
        }
        let request = self.asked;
        self.asked += 1;
        self.now = now;
        self.asks(request)?;
        self.judge.always(&self.selector, &self.really)?;
        Ok(Some(request))
    }
}
