//! Outcomes of requests other than an answer: late, lost with their connection, given up, abandoned.

use std::time::Duration;

use pathcall_place::RequestOutcome;

use super::{Flight, PlaceEvent, PlaceWorld};
use crate::place::checker::PlaceViolation;
use crate::random::Chance;

/// Intervals between the failure reports of a broken connection, in nanoseconds; other requests are made in between.
const FAILURES_APART: [u64; 4] = [0, 0, 300, 2_000];
/// Limit on the time that the processor takes for a request that was given up, in nanoseconds; and chance that it
/// executes the request.
const PROCESSOR_TIME_MAX_NS: u64 = 20_000;
const PROCESSOR_EXECUTES: Chance = Chance::percent(70);

impl PlaceWorld<'_> {
    pub(super) fn handle_overdue(&mut self, flight: usize) -> Result<(), PlaceViolation> {
        if self.flights[flight].is_done || self.flights[flight].failing {
            return Ok(());
        }
        self.counts.overdue += 1;
        self.break_connection(self.flights[flight].line)
    }

    pub(super) fn handle_detected_loss(&mut self, flight: usize) -> Result<(), PlaceViolation> {
        let Flight { line, connection, .. } = self.flights[flight];
        if self.connections[line].number == connection { self.break_connection(line) } else { Ok(()) }
    }

    /// Breaks a connection: all messages on it have failed, which is reported one by one, in order.
    pub(super) fn break_connection(&mut self, line: usize) -> Result<(), PlaceViolation> {
        let connection = &mut self.connections[line];
        connection.number += 1;
        connection.broken = false;
        let apart = Duration::from_nanos(self.random.pick(&FAILURES_APART));
        let mut at = connection.last_report.max(self.time.now);
        let mut now = Vec::new();
        for &flight in &connection.flights {
            if std::mem::replace(&mut self.flights[flight].failing, true) {
                continue;
            }
            if at == self.time.now {
                now.push(flight)
            } else {
                self.time.push(at, PlaceEvent::Failure(flight))
            }
            connection.last_report = at;
            at = at + apart;
        }
        now.into_iter().try_for_each(|flight| self.handle_failure(flight))
    }

    pub(super) fn handle_failure(&mut self, flight: usize) -> Result<(), PlaceViolation> {
        let Flight { request, path, is_done, .. } = self.flights[flight];
        if is_done {
            return Ok(());
        }
        self.remove_from_connection(flight);
        self.counts.failed += 1;
        self.note("has failed", request, Some(path));
        self.checker.failed(request);
        self.checker.record_flight_end(self.time.now, path, None);
        self.set_waiting(request, true);
        self.report_outcome(request, RequestOutcome::Failed, false)
    }

    /// Handles a request that the selector gave up: the processor executes it, or it is abandoned.
    pub(super) fn handle_given_up(&mut self, request: usize) -> Result<(), PlaceViolation> {
        self.counts.given_up += 1;
        self.note("is given up", request, None);
        self.set_waiting(request, false);
        self.checker.record_given_up(request)?;
        if self.random.happens(PROCESSOR_EXECUTES) {
            let after = Duration::from_nanos(self.random.below(PROCESSOR_TIME_MAX_NS));
            self.time.after(after, PlaceEvent::ProcessorDone(request));
            return Ok(());
        }
        self.checker.record_abandoned(request)?;
        self.report_final_outcome(request, RequestOutcome::Abandoned)
    }

    pub(super) fn run_on_processor(&mut self, request: usize) -> Result<(), PlaceViolation> {
        if self.checker.has_ended(request) {
            return Ok(());
        }
        self.note("is done by the processor", request, None);
        self.checker.record_execution(request)?;
        self.checker.answered(request)?;
        self.report_outcome(request, RequestOutcome::Done { intra_ns: None, total_ns: 0 }, true)
    }

    /// Removes a message from its connection.
    pub(super) fn remove_from_connection(&mut self, flight: usize) {
        let Flight { request, path, line, .. } = self.flights[flight];
        self.in_flight[usize::from(path.0)] -= 1;
        self.flights[flight].is_done = true;
        self.flight_of[request] = None;
        let flights = &mut self.connections[line].flights;
        flights.retain(|one| *one != flight);
    }

    pub(super) fn abandon(&mut self, request: usize) -> Result<(), PlaceViolation> {
        if self.checker.has_ended(request) {
            return Ok(());
        }
        self.counts.abandoned += 1;
        self.note("is abandoned", request, None);
        self.set_waiting(request, false);
        self.checker.record_abandoned(request)?;
        if self.tickets[request].is_none() {
            self.done.push((request, false));
            return Ok(());
        }
        if let Some(flight) = self.flight_of[request] {
            self.remove_from_connection(flight);
        }
        self.report_outcome(request, RequestOutcome::Abandoned, true)
    }
}
