//! What becomes of messages and requests that are not simply answered: late, lost with their connection, given up, not
//! wanted any more.

use std::time::Duration;

use pathcall_place::Outcome;

use super::{Event, Flight, World};
use crate::place::judge::Wrong;
use crate::random::Chance;

/// How far apart failures on a broken connection are told, nanoseconds: what is asked meanwhile comes in between.
const FAILURES_APART: [u64; 4] = [0, 0, 300, 2_000];
/// Until the processor has done what was given up, nanoseconds at most; and how often it does.
const RESORT_NS: u64 = 20_000;
const RESORTED: Chance = Chance::percent(70);

impl World<'_> {
    pub(super) fn overdue(&mut self, flight: usize) -> Result<(), Wrong> {
        if self.flights[flight].over || self.flights[flight].failing {
            return Ok(());
        }
        self.tally.overdue += 1;
        self.breaks(self.flights[flight].line)
    }

    pub(super) fn heard(&mut self, flight: usize) -> Result<(), Wrong> {
        let Flight { line, connection, .. } = self.flights[flight];
        if self.connections[line].number == connection { self.breaks(line) } else { Ok(()) }
    }

    /// A connection is found broken: all that is on it has failed, which is told one by one, in order.
    pub(super) fn breaks(&mut self, line: usize) -> Result<(), Wrong> {
        let connection = &mut self.connections[line];
        connection.number += 1;
        connection.broken = false;
        let apart = Duration::from_nanos(self.random.pick(&FAILURES_APART));
        let mut at = connection.told.max(self.now);
        let mut now = Vec::new();
        for &flight in &connection.flights {
            if std::mem::replace(&mut self.flights[flight].failing, true) {
                continue;
            }
            if at == self.now {
                now.push(flight)
            } else {
                self.queue.push(at, Event::Fails(flight))
            }
            connection.told = at;
            at = at + apart;
        }
        now.into_iter().try_for_each(|flight| self.fails(flight))
    }

    pub(super) fn fails(&mut self, flight: usize) -> Result<(), Wrong> {
        let Flight { request, path, over, .. } = self.flights[flight];
        if over {
            return Ok(());
        }
        self.lands(flight);
        self.tally.failed += 1;
        self.note("has failed", request, Some(path));
        self.judge.failed(request);
        self.tell(request, Outcome::Failed, false)
    }

    /// The selector gives a request up: the processor does it, in place of all paths, or nobody.
    pub(super) fn given_up(&mut self, request: usize) -> Result<(), Wrong> {
        self.tally.given_up += 1;
        self.note("is given up", request, None);
        self.judge.given_up(request)?;
        if self.random.happens(RESORTED) {
            let after = Duration::from_nanos(self.random.below(RESORT_NS));
            self.queue.push(self.now + after, Event::Resorted(request));
            return Ok(());
        }
        self.judge.abandoned(request)?;
        self.is_over(request, Outcome::Abandoned)
    }

    pub(super) fn resorted(&mut self, request: usize) -> Result<(), Wrong> {
        if self.judge.has_ended(request) {
            return Ok(());
        }
        self.note("is done by the processor", request, None);
        self.judge.works(request)?;
        self.judge.answered(request)?;
        self.tell(request, Outcome::Done { intra_ns: None, total_ns: 0 }, true)
    }

    /// A flight is over.
    pub(super) fn lands(&mut self, flight: usize) {
        let Flight { request, path, line, .. } = self.flights[flight];
        self.really[usize::from(path.0)] -= 1;
        self.flights[flight].over = true;
        self.flying[request] = None;
        let flights = &mut self.connections[line].flights;
        flights.retain(|one| *one != flight);
    }

    pub(super) fn abandon(&mut self, request: usize) -> Result<(), Wrong> {
        if self.judge.has_ended(request) {
            return Ok(());
        }
        self.tally.abandoned += 1;
        self.note("is abandoned", request, None);
        self.judge.abandoned(request)?;
        if self.tickets[request].is_none() {
            self.done.push((request, false));
            return Ok(());
        }
        if let Some(flight) = self.flying[request] {
            self.lands(flight);
        }
        self.tell(request, Outcome::Abandoned, true)
    }
}
