//! Place as a part of a combined run: single steps, and requests that other parts make.

use pathcall_place::PathId;
use pathcall_wire::Instant;

use super::{EVENTS_MAX, PlaceEvent, PlaceWorld};
use crate::place::PlaceCounts;
use crate::place::checker::PlaceViolation;
use crate::timeline::{SteppedRun, Timeline};

impl SteppedRun for PlaceWorld<'_> {
    type Event = PlaceEvent;
    type Counts = PlaceCounts;
    type Violation = PlaceViolation;

    fn time(&mut self) -> &mut Timeline<PlaceEvent> {
        &mut self.time
    }

    fn next(&self) -> Option<Instant> {
        self.time.queue.next_at()
    }

    fn step(&mut self) -> Result<(), PlaceViolation> {
        let Some(event) = self.time.pop(EVENTS_MAX).map_err(PlaceViolation::Endless)? else { return Ok(()) };
        match event {
            PlaceEvent::Request(request) => self.make_request(request)?,
            PlaceEvent::Step(flight) => self.advance(flight)?,
            PlaceEvent::Executed(flight) => self.execute_request(flight)?,
            PlaceEvent::Answer(flight) => self.handle_answer(flight)?,
            PlaceEvent::Timeout(flight) => self.handle_overdue(flight)?,
            PlaceEvent::LossDetected(flight) => self.handle_detected_loss(flight)?,
            PlaceEvent::Failure(flight) => self.handle_failure(flight)?,
            PlaceEvent::ProcessorDone(request) => self.run_on_processor(request)?,
            PlaceEvent::Abandon(request) => self.abandon(request)?,
            PlaceEvent::Poll => self.poll_selector()?,
        }
        self.arm();
        self.check_always()
    }

    fn check_end(&mut self) -> Result<(), PlaceViolation> {
        self.counts.virtual_time += self.time.now.since(Instant(0));
        for path in (0..self.paths.paths.len() as u16).map(PathId) {
            let state = self.selector.state(path);
            self.counts.probes += state.probes;
            self.counts.left += state.times_left;
        }
        self.checker.check_end(&self.selector)
    }

    fn counts(&mut self) -> PlaceCounts {
        self.counts
    }
}

impl PlaceWorld<'_> {
    fn check_always(&self) -> Result<(), PlaceViolation> {
        self.checker.always(&self.selector, &self.in_flight)?;
        self.checker.check_stalls(self.time.now, &self.selector, &self.waiting)
    }

    /// Makes the next request now; `None`: the plan has no more.
    pub(crate) fn ask(&mut self, now: Instant) -> Result<Option<usize>, PlaceViolation> {
        if self.requests_made == self.plan.requests.len() {
            return Ok(None);
        }
        let request = self.requests_made;
        self.requests_made += 1;
        self.time.now = now;
        self.make_request(request)?;
        self.arm();
        self.check_always()?;
        Ok(Some(request))
    }
}
