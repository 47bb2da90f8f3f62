//! Event loop of a place run: requests, the real selector and both hosts in virtual time.
//!
//! ```text
//! queue ─► event ─► selector (the real one) ─► flights ─► nodes, links, network ─► queue
//!                      ▲                          └─ lost, late: the path's connection breaks ─┐
//!                      └───────────────────── outcomes ◀───────────────────────────────────────┘
//! ```
//!
//! Paths over the same stations share a reliable connection: messages stay in order. When a message is lost, or late,
//! the connection breaks, and all messages in flight on it fail in the order in which they were sent.

mod outcomes;
mod part;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use pathcall_place::select::{Released, SelectionReason};
use pathcall_place::{Decision, Dispatch, PathId, Paths, RequestOutcome, SelectionRequest, Selector, Ticket};
use pathcall_wire::Instant;

use super::PlaceCounts;
use super::checker::{PlaceChecker, PlaceViolation};
use super::host_pair::{HostPair, StepResult};
use super::plan::PlacePlan;
use super::station::StationFaultKind;
use crate::random::{Chance, Random};
use crate::timeline::Timeline;
use crate::trace::Millis;

/// Time until a host detects a loss, if it does.
const LOSS_DETECTION: Duration = Duration::from_micros(5);
/// Chance that an outcome is reported twice.
const REPORTED_TWICE: Chance = Chance::percent(5);
/// Number of tickets of ended requests that are kept for repeated outcomes.
const ENDED_MAX: usize = 64;
/// Limit on the events of a run, against endless loops.
const EVENTS_MAX: u64 = 5_000_000;

#[derive(Debug)]
pub(crate) enum PlaceEvent {
    /// A request is made.
    Request(usize),
    /// A message arrives at the next step of its path.
    Step(usize),
    /// The responder has executed the request of a message.
    Executed(usize),
    /// The answer of a message arrives.
    Answer(usize),
    /// The timeout of a message expires.
    Timeout(usize),
    /// A host detects the loss of a message.
    LossDetected(usize),
    /// The failure of a message is reported to its host.
    Failure(usize),
    /// The processor has executed a request that the selector gave up.
    ProcessorDone(usize),
    /// The caller abandons a request.
    Abandon(usize),
    /// The selector wishes to be polled.
    Poll,
}

/// Message of a request on a path.
#[derive(Debug, Clone, Copy)]
struct Flight {
    request: usize,
    path: PathId,
    line: usize,
    /// Number of the line's connection at the time of sending.
    connection: u32,
    step: usize,
    sent_at: Instant,
    /// Network delay so far, in nanoseconds.
    network: u64,
    executed: bool,
    /// Whether its connection is known to be broken.
    failing: bool,
    is_done: bool,
}

/// Connection of a line.
#[derive(Debug, Clone, Default)]
struct Connection {
    number: u32,
    /// Whether a message was lost on it and no host has detected that yet.
    broken: bool,
    /// Messages in flight, in the order of sending.
    flights: VecDeque<usize>,
    /// Time of the last failure report.
    last_report: Instant,
}

pub(crate) struct PlaceWorld<'a> {
    plan: &'a PlacePlan,
    paths: &'a Paths,
    time: Timeline<PlaceEvent>,
    hosts: HostPair,
    random: Random,
    selector: Selector,
    checker: PlaceChecker<'a>,
    /// Tickets by request, once the selector has accepted it.
    tickets: Vec<Option<Ticket>>,
    by_ticket: BTreeMap<usize, usize>,
    /// Tickets of the last requests that have ended.
    ended: VecDeque<(usize, Ticket)>,
    /// Requests that the selector has not accepted.
    backlog: VecDeque<usize>,
    /// Number of requests that other parts have made; those that have ended, and whether they were answered.
    requests_made: usize,
    pub(crate) done: Vec<(usize, bool)>,
    flights: Vec<Flight>,
    /// Message in flight of each request.
    flight_of: Vec<Option<usize>>,
    connections: Vec<Connection>,
    /// Number of messages in flight on each path.
    in_flight: Vec<u32>,
    /// Requests in the selector that are not in flight: whether each is one, and their number by type.
    is_waiting: Vec<bool>,
    waiting: Vec<u32>,
    /// Time of the next poll.
    wake: Option<Instant>,
    /// Last path of each request type.
    before: Vec<Option<PathId>>,
    counts: PlaceCounts,
}

impl<'a> PlaceWorld<'a> {
    /// Creates the world. `supplied`: other parts make the requests.
    pub(crate) fn new(plan: &'a PlacePlan, paths: &'a Paths, supplied: bool) -> Self {
        let mut random = Random::new(plan.seed ^ 0x706c_6163_6500_0002);
        let mut hosts = HostPair::new(paths, plan.network, random.fork());
        for (station, fault) in &plan.station_faults {
            hosts.add_fault(*station, *fault);
        }
        let mut time = Timeline::default();
        if !supplied {
            time.queue
                .extend(plan.requests.iter().enumerate().map(|(request, ask)| (ask.at, PlaceEvent::Request(request))));
        }
        Self {
            time,
            hosts,
            random,
            selector: Selector::new(paths, plan.strategy, plan.config),
            checker: PlaceChecker::new(plan, paths),
            tickets: vec![None; plan.requests.len()],
            by_ticket: BTreeMap::new(),
            ended: VecDeque::new(),
            backlog: VecDeque::new(),
            requests_made: 0,
            done: Vec::new(),
            flights: Vec::new(),
            flight_of: vec![None; plan.requests.len()],
            connections: vec![Connection::default(); paths.paths.len()],
            in_flight: vec![0; paths.paths.len()],
            is_waiting: vec![false; plan.requests.len()],
            waiting: vec![0; paths.kinds.len()],
            wake: None,
            before: vec![None; paths.kinds.len()],
            counts: PlaceCounts::default(),
            plan,
            paths,
        }
    }

    fn make_request(&mut self, request: usize) -> Result<(), PlaceViolation> {
        self.counts.requests += 1;
        self.checker.record_request(request);
        if let Some(after) = self.plan.requests[request].abandoned {
            self.time.after(after, PlaceEvent::Abandon(request));
        }
        self.backlog.push_back(request);
        self.select_waiting()
    }

    /// Passes waiting requests to the selector, in order.
    fn select_waiting(&mut self) -> Result<(), PlaceViolation> {
        while let Some(&request) = self.backlog.front() {
            if !self.checker.has_ended(request) {
                let ask = &self.plan.requests[request];
                let selection = SelectionRequest { kind: ask.kind, address: ask.address, message: ask.message };
                let before = self.checker.learned(&self.selector);
                match self.selector.select(self.time.now, &selection) {
                    Decision::Full => {
                        self.counts.full += 1;
                        return self.checker.full(request, self.selector.held());
                    }
                    Decision::Wait { ticket } => {
                        self.counts.waited += 1;
                        self.note("waits", request, None);
                        self.record_ticket(request, ticket);
                        self.set_waiting(request, true);
                        self.send_released()?;
                    }
                    Decision::Send(dispatch) => {
                        self.record_ticket(request, dispatch.ticket);
                        self.checker.check_binding(&before, &self.selector, request, &dispatch)?;
                        self.send_request(request, dispatch)?;
                    }
                }
            }
            self.backlog.pop_front();
        }
        Ok(())
    }

    fn record_ticket(&mut self, request: usize, ticket: Ticket) {
        self.tickets[request] = Some(ticket);
        self.by_ticket.insert(ticket.index(), request);
    }

    /// Records whether a request waits in the selector.
    fn set_waiting(&mut self, request: usize, waits: bool) {
        if std::mem::replace(&mut self.is_waiting[request], waits) != waits {
            let waiting = &mut self.waiting[usize::from(self.plan.requests[request].kind.0)];
            *waiting = if waits { *waiting + 1 } else { *waiting - 1 };
        }
    }

    /// Sets the timer of the selector.
    fn arm(&mut self) {
        self.time.wake_at(self.selector.poll_at(), &mut self.wake, PlaceEvent::Poll);
    }

    fn poll_selector(&mut self) -> Result<(), PlaceViolation> {
        if self.wake.take_if(|at| *at <= self.time.now).is_none() {
            return Ok(());
        }
        self.counts.polls += 1;
        self.send_released()?;
        self.select_waiting()
    }

    /// Sends a request over a path.
    fn send_request(&mut self, request: usize, Dispatch { path, reason, .. }: Dispatch) -> Result<(), PlaceViolation> {
        self.checker.record_send(self.time.now, request, path)?;
        self.counts.messages += 1;
        self.counts.followed += u64::from(reason == SelectionReason::Follows);
        let before = self.before[usize::from(self.plan.requests[request].kind.0)].replace(path);
        self.counts.changes += u64::from(before.is_some_and(|before| before != path));
        self.note("goes", request, Some(path));
        let line = self.hosts.line(path);
        let connection = &mut self.connections[line];
        let (number, flight) = (connection.number, self.flights.len());
        connection.flights.push_back(flight);
        self.flight_of[request] = Some(flight);
        self.set_waiting(request, false);
        self.checker.record_flight(self.time.now, path, self.in_flight[usize::from(path.0)]);
        self.in_flight[usize::from(path.0)] += 1;
        self.flights.push(Flight {
            request,
            path,
            line,
            connection: number,
            step: 0,
            sent_at: self.time.now,
            network: 0,
            executed: false,
            failing: false,
            is_done: false,
        });
        self.time.after(self.plan.time_out, PlaceEvent::Timeout(flight));
        self.advance(flight)
    }

    /// Whether the connection of a message is broken.
    fn is_cut(&self, flight: usize) -> bool {
        let Flight { line, connection, .. } = self.flights[flight];
        let now = &self.connections[line];
        now.number != connection || now.broken
    }

    fn advance(&mut self, flight: usize) -> Result<(), PlaceViolation> {
        if self.is_cut(flight) || self.flights[flight].is_done {
            return Ok(());
        }
        let Flight { path, line, step, executed, .. } = self.flights[flight];
        let (at, done, network, back) = match self.hosts.step(self.time.now.0, path, step) {
            StepResult::Arrives { at, done, network } => (at, done, network, false),
            StepResult::Returns { at, done, network } => (at, done, network, true),
            StepResult::Lost => {
                self.counts.lost += 1;
                self.note("is lost", self.flights[flight].request, Some(path));
                self.connections[line].broken = true;
                if self.plan.detects_loss {
                    self.time.after(LOSS_DETECTION, PlaceEvent::LossDetected(flight));
                }
                return Ok(());
            }
        };
        if !executed && self.hosts.is_work(path, step) {
            self.flights[flight].executed = true;
            self.time.push(Instant(done), PlaceEvent::Executed(flight));
        }
        let known = &mut self.flights[flight];
        known.step += 1;
        known.network += network;
        self.time.push(Instant(at), if back { PlaceEvent::Answer(flight) } else { PlaceEvent::Step(flight) });
        Ok(())
    }

    fn execute_request(&mut self, flight: usize) -> Result<(), PlaceViolation> {
        let Flight { request, path, .. } = self.flights[flight];
        if self.checker.has_ended(request) {
            return Ok(());
        }
        self.note("is worked on", request, Some(path));
        self.checker.record_execution(request)
    }

    fn handle_answer(&mut self, flight: usize) -> Result<(), PlaceViolation> {
        if self.is_cut(flight) || self.flights[flight].is_done {
            return Ok(());
        }
        let Flight { request, path, sent_at, network, .. } = self.flights[flight];
        self.remove_from_connection(flight);
        self.counts.answered += 1;
        self.note("is answered", request, Some(path));
        let total_ns = self.time.now.0 - sent_at.0;
        let measured = !self.random.happens(self.plan.unmeasured);
        let intra_ns = measured.then(|| total_ns - network + self.random.range(0..=self.plan.noise_ns));
        self.checker.answered(request)?;
        self.checker.record_flight_end(self.time.now, path, Some(total_ns));
        self.report_outcome(request, RequestOutcome::Done { intra_ns, total_ns }, true)
    }

    /// Reports an outcome to the selector, and carries out what the selector releases.
    fn report_outcome(&mut self, request: usize, outcome: RequestOutcome, ends: bool) -> Result<(), PlaceViolation> {
        let Some(ticket) = self.tickets[request] else { return Ok(()) };
        if ends {
            self.report_final_outcome(request, outcome)?;
        } else if !self.selector.done(self.time.now, ticket, outcome) {
            return Err(PlaceViolation::Ticket { request, is: "is in flight or waits", answer: "rejected" });
        }
        self.send_released()?;
        self.select_waiting()?;
        // Reports an outcome for an old ticket, whose index may be in use again.
        let Some(&(request, ticket)) = self.ended.get(self.random.index(ENDED_MAX)) else { return Ok(()) };
        if self.random.happens(REPORTED_TWICE) && self.selector.done(self.time.now, ticket, outcome) {
            return Err(PlaceViolation::Ticket { request, is: "has ended long since", answer: "accepted" });
        }
        Ok(())
    }

    /// Sends what the selector releases.
    fn send_released(&mut self) -> Result<(), PlaceViolation> {
        loop {
            let before = self.checker.learned(&self.selector);
            match self.selector.poll(self.time.now) {
                Some(Released::Send(dispatch)) => {
                    let request = self.by_ticket[&dispatch.ticket.index()];
                    self.checker.check_binding(&before, &self.selector, request, &dispatch)?;
                    self.send_request(request, dispatch)?;
                }
                Some(Released::GivenUp { ticket }) => self.handle_given_up(self.by_ticket[&ticket.index()])?,
                None => return Ok(()),
            }
        }
    }

    /// Reports the final outcome of a request to the selector, perhaps twice.
    fn report_final_outcome(&mut self, request: usize, outcome: RequestOutcome) -> Result<(), PlaceViolation> {
        let Some(ticket) = self.tickets[request] else { return Ok(()) };
        if !self.selector.done(self.time.now, ticket, outcome) {
            return Err(PlaceViolation::Ticket {
                request,
                is: "is in flight, waits, or was given up",
                answer: "rejected",
            });
        }
        if self.random.happens(REPORTED_TWICE) && self.selector.done(self.time.now, ticket, outcome) {
            return Err(PlaceViolation::Ticket { request, is: "has ended", answer: "accepted" });
        }
        self.done.push((request, matches!(outcome, RequestOutcome::Done { .. })));
        self.ended.truncate(ENDED_MAX - 1);
        self.ended.push_front((request, ticket));
        Ok(())
    }

    fn note(&mut self, what: &str, request: usize, path: Option<PathId>) {
        let number = path.map_or(u64::MAX, |path| u64::from(path.0));
        for word in [self.time.now.0, request as u64, number, what.len() as u64] {
            let hash = &mut self.time.trace.hash;
            *hash = (*hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        let Some(text) = &mut self.time.trace.text else { return };
        let ask = &self.plan.requests[request];
        let kind = &self.paths.kinds[usize::from(ask.kind.0)].name;
        let by = path.map_or(String::new(), |path| format!(" by {}", self.paths.paths[usize::from(path.0)].name));
        let (at, address, message) = (Millis(self.time.now), ask.address, ask.message);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{at} ms: {kind} {request}, address {address}, message {message}, {what}{by}");
    }
}

/// Description of the planned faults of stations.
pub(super) fn station_faults(plan: &PlacePlan) -> String {
    let paths = plan.paths();
    let one = |(station, fault): &(usize, super::station::StationFault)| {
        let resource = &paths.resources[*station];
        let what = match fault.what {
            StationFaultKind::Slow(times) => format!("is {times} times as slow"),
            StationFaultKind::Stands => "stands still".to_owned(),
            StationFaultKind::Dead => "is dead".to_owned(),
        };
        let (from, until) = (Millis(fault.from), Millis(fault.until));
        format!("{:?} {} {what} from {from} to {until} ms\n", resource.side, resource.name)
    };
    plan.station_faults.iter().map(one).collect()
}
