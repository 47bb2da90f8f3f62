//! Virtual time of a run: clock, event queue and trace, and the steps of a run alone or as a part of a combined run.

use std::time::Duration;

use pathcall_wire::Instant;

use crate::panics;
use crate::queue::EventQueue;
use crate::simulation::RunOutcome;
use crate::trace::Trace;

/// Clock, event queue and trace of a run.
#[derive(Debug)]
pub(crate) struct Timeline<E> {
    pub(crate) now: Instant,
    pub(crate) queue: EventQueue<E>,
    pub(crate) trace: Trace,
    /// Number of events that have happened.
    events: u64,
}

impl<E> Default for Timeline<E> {
    fn default() -> Self {
        Self { now: Instant(0), queue: EventQueue::default(), trace: Trace::default(), events: 0 }
    }
}

impl<E> Timeline<E> {
    /// Schedules an event.
    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.queue.push(at, event);
    }

    /// Schedules an event after this time.
    pub(crate) fn after(&mut self, time: Duration, event: E) {
        self.push(self.now + time, event);
    }

    /// Schedules a wake-up at `next`, unless an earlier one is scheduled; `wake` is the time of the earliest one.
    pub(crate) fn wake_at(&mut self, next: Option<Instant>, wake: &mut Option<Instant>, event: E) {
        let Some(next) = next.map(|next| next.max(self.now)) else { return };
        if wake.is_none_or(|wake| next < wake) {
            *wake = Some(next);
            self.queue.push(next, event);
        }
    }

    /// Takes the next event and proceeds to its time.
    ///
    /// # Errors
    /// If the run has more events than `events_max`: their number.
    pub(crate) fn pop(&mut self, events_max: u64) -> Result<Option<E>, u64> {
        let Some((at, event)) = self.queue.pop() else { return Ok(None) };
        self.now = at;
        self.events += 1;
        if self.events > events_max { Err(self.events) } else { Ok(Some(event)) }
    }

    /// Appends a line to the text of the trace.
    pub(crate) fn line(&mut self, what: impl FnOnce() -> String) {
        self.trace.line(self.now, what);
    }
}

/// Run in virtual time that proceeds step by step.
pub(crate) trait SteppedRun {
    /// Events of the run.
    type Event;
    /// Counts of the run.
    type Counts;
    /// Violations that the run can report.
    type Violation;

    /// Virtual time of the run.
    fn time(&mut self) -> &mut Timeline<Self::Event>;

    /// Time of the next event; `None`: the run has ended.
    fn next(&self) -> Option<Instant>;

    /// Executes the next event.
    fn step(&mut self) -> Result<(), Self::Violation>;

    /// Host of the next event, if the event has to wait while the host's machine is paused.
    fn host(&self) -> Option<usize> {
        None
    }

    /// Runs the final checks.
    fn check_end(&mut self) -> Result<(), Self::Violation>;

    /// Counts of the run so far.
    fn counts(&mut self) -> Self::Counts;

    /// Plays the run alone, to its end.
    fn play(&mut self) -> Result<(), Self::Violation> {
        while self.next().is_some() {
            self.step()?;
        }
        self.check_end()
    }

    /// Plays the run of a seed alone, and appends the trace to `text` if there is one. A panic is a violation.
    fn outcome(
        mut self,
        seed: u64,
        text: &mut Option<String>,
        panic: fn(String) -> Self::Violation,
    ) -> RunOutcome<Self::Counts, Self::Violation>
    where
        Self: Sized,
    {
        self.time().trace.text = text.take();
        let violation = panics::catch(|| self.play()).unwrap_or_else(|text| Err(panic(text))).err();
        let counts = self.counts();
        let time = self.time();
        *text = time.trace.text.take();
        let failure = violation.map(|violation| (time.now, violation));
        RunOutcome { seed, trace_hash: time.trace.hash, counts, failure }
    }
}
