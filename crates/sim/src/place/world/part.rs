//! Place as a part of a combined run: single steps, and requests that other parts make.

use pathcall_place::PathId;
use pathcall_wire::Instant;

use super::{EVENTS_MAX, Event, PlaceWorld};
use crate::place::checker::PlaceViolation;
use crate::stepping::SteppedRun;

impl SteppedRun for PlaceWorld<'_> {
    type Violation = PlaceViolation;

    fn next(&self) -> Option<Instant> {
        self.queue.next_at()
    }

    fn step(&mut self) -> Result<(), PlaceViolation> {
        let Some((at, event)) = self.queue.pop() else { return Ok(()) };
        self.now = at;
        self.events += 1;
        assert!(self.events < EVENTS_MAX, "no end after {} events", self.events);
        match event {
            Event::Request(request) => self.make_request(request)?,
            Event::Step(flight) => self.advance(flight)?,
            Event::Executed(flight) => self.execute_request(flight)?,
            Event::Answer(flight) => self.handle_answer(flight)?,
            Event::Timeout(flight) => self.handle_overdue(flight)?,
            Event::LossDetected(flight) => self.handle_detected_loss(flight)?,
            Event::Failure(flight) => self.handle_failure(flight)?,
            Event::ProcessorDone(request) => self.run_on_processor(request)?,
            Event::Abandon(request) => self.abandon(request)?,
        }
        self.checker.always(&self.selector, &self.in_flight)
    }

    fn host(&self) -> Option<usize> {
        None
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn check_end(&mut self) -> Result<(), PlaceViolation> {
        self.counts.virtual_time += self.now.since(Instant(0));
        for path in (0..self.paths.paths.len() as u16).map(PathId) {
            let state = self.selector.state(path);
            self.counts.probes += state.probes;
            self.counts.left += state.times_left;
        }
        self.checker.check_end(&self.selector)
    }
}

impl PlaceWorld<'_> {
    /// Makes the next request now; `None`: the plan has no more.
    pub(crate) fn ask(&mut self, now: Instant) -> Result<Option<usize>, PlaceViolation> {
        if self.requests_made == self.plan.requests.len() {
            return Ok(None);
        }
        let request = self.requests_made;
        self.requests_made += 1;
        self.now = now;
        self.make_request(request)?;
        self.checker.always(&self.selector, &self.in_flight)?;
        Ok(Some(request))
    }
}
