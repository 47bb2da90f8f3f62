//! The run: requests, the real selector, both hosts, and virtual time.
//!
//! ```text
//! queue ─► event ─► selector (the real one) ─► flights ─► nodes, links, network ─► queue
//!                      ▲                          └─ lost, late: the path's connection breaks ─┐
//!                      └───────────────────── outcomes ◀───────────────────────────────────────┘
//! ```
//!
//! Paths over the same stations share a reliable connection: messages stay in order, and when one is lost, or late, it
//! breaks. Then all that is in flight on it has failed, in the order in which it was sent.

mod fates;
mod part;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use pathcall_place::select::{Released, Why};
use pathcall_place::{Decision, Go, Outcome, PathId, Paths, Request, Selector, Ticket};
use pathcall_wire::Instant;

use super::Tally;
use super::bed::{Bed, Next};
use super::beds;
use super::judge::{Judge, Wrong};
use super::plan::Plan;
use super::station::Trouble;
use crate::queue::EventQueue;
use crate::random::{Chance, Random};
use crate::trace::Millis;

/// From a loss until the host hears of it, where it does.
const HEARD: Duration = Duration::from_micros(5);
/// How often an outcome is told once more.
const TOLD_TWICE: Chance = Chance::percent(5);
/// Tickets of requests that have ended, of which some are told of again.
const ENDED_MAX: usize = 64;
/// Events of a run at most: more, and it goes round in circles.
const EVENTS_MAX: u64 = 5_000_000;

#[derive(Debug)]
enum Event {
    /// A request is made.
    Ask(usize),
    /// A flight comes to the next step of its way.
    Step(usize),
    /// The responder has worked on it.
    Works(usize),
    /// It is back.
    Back(usize),
    /// It should be back.
    Overdue(usize),
    /// A host hears that it was lost.
    Heard(usize),
    /// A host is told that it failed, with its connection.
    Fails(usize),
    /// The processor has done a request that was given up.
    Resorted(usize),
    /// Nobody wants a request any more.
    Abandon(usize),
}

/// A request on a path.
#[derive(Debug, Clone, Copy)]
struct Flight {
    request: usize,
    path: PathId,
    line: usize,
    /// The line's connection when it was sent.
    connection: u32,
    step: usize,
    went: Instant,
    /// On the network so far, nanoseconds.
    network: u64,
    worked: bool,
    /// Its connection is known to be broken.
    failing: bool,
    over: bool,
}

/// The connection of a line.
#[derive(Debug, Clone, Default)]
struct Connection {
    number: u32,
    /// Something was lost, which nobody has heard of yet.
    broken: bool,
    /// In the order in which they were sent.
    flights: VecDeque<usize>,
    /// When the last failure is told.
    told: Instant,
}

pub(crate) struct World<'a> {
    plan: &'a Plan,
    paths: &'a Paths,
    pub(super) now: Instant,
    queue: EventQueue<Event>,
    events: u64,
    bed: Bed,
    random: Random,
    selector: Selector,
    judge: Judge<'a>,
    /// Of each request, once the selector has it.
    tickets: Vec<Option<Ticket>>,
    by_ticket: BTreeMap<usize, usize>,
    /// Of requests that have ended, the last ones.
    ended: VecDeque<(usize, Ticket)>,
    /// Requests that were not taken in.
    backlog: VecDeque<usize>,
    /// Requests that others have had made, and those of them that are over: whether they are answered.
    asked: usize,
    pub(crate) done: Vec<(usize, bool)>,
    flights: Vec<Flight>,
    /// Where each request is.
    flying: Vec<Option<usize>>,
    connections: Vec<Connection>,
    /// Messages in flight on each path.
    really: Vec<u32>,
    /// The last path of each type of request.
    before: Vec<Option<PathId>>,
    pub(crate) tally: Tally,
    pub(crate) hash: u64,
    pub(crate) text: Option<String>,
}

impl<'a> World<'a> {
    /// `supplied`: others say when requests are made.
    pub(crate) fn new(plan: &'a Plan, paths: &'a Paths, supplied: bool) -> Self {
        let mut random = Random::new(plan.seed ^ 0x706c_6163_6500_0002);
        let mut bed = Bed::new(paths, plan.between, random.fork());
        for (station, spell) in &plan.spells {
            bed.befall(*station, *spell);
        }
        let mut queue = EventQueue::default();
        if !supplied {
            queue.extend(plan.asks.iter().enumerate().map(|(request, ask)| (ask.at, Event::Ask(request))));
        }
        Self {
            now: Instant(0),
            queue,
            events: 0,
            bed,
            random,
            selector: Selector::new(paths, plan.strategy, plan.config),
            judge: Judge::new(plan, paths),
            tickets: vec![None; plan.asks.len()],
            by_ticket: BTreeMap::new(),
            ended: VecDeque::new(),
            backlog: VecDeque::new(),
            asked: 0,
            done: Vec::new(),
            flights: Vec::new(),
            flying: vec![None; plan.asks.len()],
            connections: vec![Connection::default(); paths.paths.len()],
            really: vec![0; paths.paths.len()],
            before: vec![None; paths.kinds.len()],
            tally: Tally::default(),
            hash: 0,
            text: None,
            plan,
            paths,
        }
    }

    fn asks(&mut self, request: usize) -> Result<(), Wrong> {
        self.tally.requests += 1;
        self.judge.asked(request);
        if let Some(after) = self.plan.asks[request].abandoned {
            self.queue.push(self.now + after, Event::Abandon(request));
        }
        self.backlog.push_back(request);
        self.takes_in()
    }

    /// The selector is asked about what it has not taken in, in order.
    fn takes_in(&mut self) -> Result<(), Wrong> {
        while let Some(&request) = self.backlog.front() {
            if !self.judge.has_ended(request) {
                let ask = &self.plan.asks[request];
                let asked = Request { kind: ask.kind, address: ask.address, message: ask.message };
                match self.selector.select(self.now, &asked) {
                    Decision::Full => {
                        self.tally.full += 1;
                        return self.judge.full(request, self.selector.held());
                    }
                    Decision::Wait { ticket } => {
                        self.tally.waited += 1;
                        self.note("waits", request, None);
                        self.known_by(request, ticket);
                    }
                    Decision::Go(go) => {
                        self.known_by(request, go.ticket);
                        self.goes(request, go)?;
                    }
                }
            }
            self.backlog.pop_front();
        }
        Ok(())
    }

    fn known_by(&mut self, request: usize, ticket: Ticket) {
        self.tickets[request] = Some(ticket);
        self.by_ticket.insert(ticket.index(), request);
    }

    /// A request goes.
    fn goes(&mut self, request: usize, Go { path, why, .. }: Go) -> Result<(), Wrong> {
        self.judge.goes(self.now, request, path)?;
        self.tally.messages += 1;
        self.tally.followed += u64::from(why == Why::Follows);
        let before = self.before[usize::from(self.plan.asks[request].kind.0)].replace(path);
        self.tally.changes += u64::from(before.is_some_and(|before| before != path));
        self.note("goes", request, Some(path));
        let line = self.bed.line(path);
        let connection = &mut self.connections[line];
        let (number, flight) = (connection.number, self.flights.len());
        connection.flights.push_back(flight);
        self.flying[request] = Some(flight);
        self.really[usize::from(path.0)] += 1;
        self.flights.push(Flight {
            request,
            path,
            line,
            connection: number,
            step: 0,
            went: self.now,
            network: 0,
            worked: false,
            failing: false,
            over: false,
        });
        self.queue.push(self.now + self.plan.time_out, Event::Overdue(flight));
        self.moves(flight)
    }

    /// Whether a flight has no connection any more.
    fn is_cut(&self, flight: usize) -> bool {
        let Flight { line, connection, .. } = self.flights[flight];
        let now = &self.connections[line];
        now.number != connection || now.broken
    }

    fn moves(&mut self, flight: usize) -> Result<(), Wrong> {
        if self.is_cut(flight) || self.flights[flight].over {
            return Ok(());
        }
        let Flight { path, line, step, worked, .. } = self.flights[flight];
        let (at, done, network, back) = match self.bed.step(self.now.0, path, step) {
            Next::Goes { at, done, network } => (at, done, network, false),
            Next::Back { at, done, network } => (at, done, network, true),
            Next::Lost => {
                self.tally.lost += 1;
                self.note("is lost", self.flights[flight].request, Some(path));
                self.connections[line].broken = true;
                if self.plan.loud {
                    self.queue.push(self.now + HEARD, Event::Heard(flight));
                }
                return Ok(());
            }
        };
        if !worked && self.bed.is_work(path, step) {
            self.flights[flight].worked = true;
            self.queue.push(Instant(done), Event::Works(flight));
        }
        let known = &mut self.flights[flight];
        known.step += 1;
        known.network += network;
        self.queue.push(Instant(at), if back { Event::Back(flight) } else { Event::Step(flight) });
        Ok(())
    }

    fn works(&mut self, flight: usize) -> Result<(), Wrong> {
        let Flight { request, path, .. } = self.flights[flight];
        if self.judge.has_ended(request) {
            return Ok(());
        }
        self.note("is worked on", request, Some(path));
        self.judge.works(request)
    }

    fn back(&mut self, flight: usize) -> Result<(), Wrong> {
        if self.is_cut(flight) || self.flights[flight].over {
            return Ok(());
        }
        let Flight { request, path, went, network, .. } = self.flights[flight];
        self.lands(flight);
        self.tally.answered += 1;
        self.note("is answered", request, Some(path));
        let total_ns = self.now.0 - went.0;
        let measured = !self.random.happens(self.plan.unmeasured);
        let intra_ns = measured.then(|| total_ns - network + self.random.range(0..=self.plan.noise_ns));
        self.judge.answered(request)?;
        self.tell(request, Outcome::Done { intra_ns, total_ns }, true)
    }

    /// The selector is told of an outcome, and of what it hands out is done what it says.
    fn tell(&mut self, request: usize, outcome: Outcome, ends: bool) -> Result<(), Wrong> {
        let Some(ticket) = self.tickets[request] else { return Ok(()) };
        if ends {
            self.is_over(request, outcome)?;
        } else if !self.selector.done(self.now, ticket, outcome) {
            return Err(Wrong::Ticket { request, is: "is in flight or waits", said: "not taken" });
        }
        while let Some(released) = self.selector.poll(self.now) {
            match released {
                Released::Go(go) => {
                    let request = self.by_ticket[&go.ticket.index()];
                    self.goes(request, go)?;
                }
                Released::GivenUp { ticket } => self.given_up(self.by_ticket[&ticket.index()])?,
            }
        }
        self.takes_in()?;
        // Of one whose place somebody else may have by now.
        let Some(&(request, ticket)) = self.ended.get(self.random.index(ENDED_MAX)) else { return Ok(()) };
        if self.random.happens(TOLD_TWICE) && self.selector.done(self.now, ticket, outcome) {
            return Err(Wrong::Ticket { request, is: "has ended long since", said: "taken" });
        }
        Ok(())
    }

    /// The selector is told of an outcome that ends a request, and perhaps of it again.
    fn is_over(&mut self, request: usize, outcome: Outcome) -> Result<(), Wrong> {
        let Some(ticket) = self.tickets[request] else { return Ok(()) };
        if !self.selector.done(self.now, ticket, outcome) {
            return Err(Wrong::Ticket { request, is: "is in flight, waits, or was given up", said: "not taken" });
        }
        if self.random.happens(TOLD_TWICE) && self.selector.done(self.now, ticket, outcome) {
            return Err(Wrong::Ticket { request, is: "has ended", said: "taken" });
        }
        self.done.push((request, matches!(outcome, Outcome::Done { .. })));
        self.ended.truncate(ENDED_MAX - 1);
        self.ended.push_front((request, ticket));
        Ok(())
    }

    fn note(&mut self, what: &str, request: usize, path: Option<PathId>) {
        let number = path.map_or(u64::MAX, |path| u64::from(path.0));
        for word in [self.now.0, request as u64, number, what.len() as u64] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        let Some(text) = &mut self.text else { return };
        let ask = &self.plan.asks[request];
        let kind = &self.paths.kinds[usize::from(ask.kind.0)].name;
        let by = path.map_or(String::new(), |path| format!(" by {}", self.paths.paths[usize::from(path.0)].name));
        let (at, address, message) = (Millis(self.now), ask.address, ask.message);
        // A string takes whatever is written.
        let _ = writeln!(text, "{at} ms: {kind} {request}, address {address}, message {message}, {what}{by}");
    }
}

/// What is to befall stations, in words.
pub(super) fn spells(plan: &Plan) -> String {
    let paths = beds::paths(plan.hosts, plan.app);
    let one = |(station, spell): &(usize, super::station::Spell)| {
        let resource = &paths.resources[*station];
        let what = match spell.what {
            Trouble::Slow(times) => format!("is {times} times as slow"),
            Trouble::Stands => "stands still".to_owned(),
            Trouble::Dead => "is dead".to_owned(),
        };
        let (from, until) = (Millis(spell.from), Millis(spell.until));
        format!("{:?} {} {what} from {from} to {until} ms\n", resource.side, resource.name)
    };
    plan.spells.iter().map(one).collect()
}
