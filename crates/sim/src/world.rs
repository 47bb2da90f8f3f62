//! The run: nodes, links and virtual time.
//!
//! ```text
//! queue ─► event ─► node (the real state machine) ─► frames ─► links ─► queue
//!                        └─► reports ─► judge
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::map::server::{QueryId, ServerStats};
use pathcall_endpoint::map::{Dest, Renewal};
use pathcall_wire::Instant;

use crate::caller::Caller;
use crate::element::Element;
use crate::judge::{Failure, Judge};
use crate::link::{Arrival, Faulty, Link, Wire};
use crate::owner::Owner;
use crate::party::{Effects, Node, Party, Report};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::windows::Windows;

/// Once there are no faults, all calls end within it.
const BOUND: Duration = Duration::from_secs(60);
/// Late repeats arrive, and what was cancelled comes to its end, within it.
const SETTLE: Duration = Duration::from_secs(30);
/// Events of a run at most; the largest scenarios have a few hundred thousand.
const EVENTS_MAX: u64 = 20_000_000;
/// Times that a node may be woken at one time.
const WAKES_MAX: u32 = 1_000;
/// The name of the query at the end.
const LAST_QUERY: QueryId = QueryId(u64::MAX);

pub(crate) enum Event {
    Join(usize, usize),
    Arrive {
        to: Node,
        frame: Vec<u8>,
        marked: bool,
    },
    Wake(Node),
    /// The element fails, for the n-th time.
    Fail(usize),
    /// The controller has found out and acts.
    Act(usize),
    /// Its word comes to a caller.
    Word(usize, usize, Renewal),
}

/// A node's alarm: when it is set to, and how often it rang at one time.
#[derive(Default)]
struct Alarm {
    set: Option<Instant>,
    rang: (Instant, u32),
}

pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) now: Instant,
    pub(crate) queue: EventQueue,
    events: u64,
    /// Frames on their way.
    in_air: u64,
    /// The element takes no frames before it.
    pub(crate) element_from: Instant,
    /// When the controller's last word comes to a caller: words keep their order.
    pub(crate) words: BTreeMap<Node, Instant>,
    pub(crate) parties: Parties<'a>,
    /// Which node has this endpoint.
    nodes: BTreeMap<u32, Node>,
    links: BTreeMap<(Node, Node), Box<dyn Link>>,
    pub(crate) random: Random,
    alarms: BTreeMap<Node, Alarm>,
    arrivals: Vec<Arrival>,
    pub(crate) effects: Effects,
    judge: Judge<'a>,
    windows: Windows,
    /// Answers to the queries at the end.
    answers: BTreeMap<usize, Report>,
    pub(crate) trace: Trace<'a>,
    tally: Tally,
}

pub(crate) type EventQueue = crate::queue::EventQueue<Event>;

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, trace: Trace<'a>) -> Result<Self, Failure> {
        let mut nodes = BTreeMap::new();
        let mut queue = EventQueue::default();
        for (index, application) in scenario.applications.iter().enumerate() {
            nodes.insert(application.endpoint, Node::Owner(index));
            for (number, caller) in application.callers.iter().enumerate() {
                nodes.insert(caller.endpoint, Node::Caller(index, number));
                queue.push(caller.joins, Event::Join(index, number));
            }
        }
        for (index, failure) in scenario.failures.iter().enumerate() {
            queue.push(failure.at, Event::Fail(index));
        }
        let callers = scenario.applications.iter().flat_map(|plan| &plan.callers);
        let windows = Windows::new(callers.map(|caller| (caller.endpoint, caller.slot_base)));
        let mut world = Self {
            scenario,
            now: Instant(0),
            queue,
            events: 0,
            in_air: 0,
            element_from: Instant(0),
            words: BTreeMap::new(),
            parties: Parties::new(scenario)?,
            nodes,
            links: BTreeMap::new(),
            random: Random::new(scenario.seed),
            alarms: BTreeMap::new(),
            arrivals: Vec::new(),
            effects: Effects::default(),
            judge: Judge::new(scenario),
            windows,
            answers: BTreeMap::new(),
            trace,
            tally: Tally::default(),
        };
        for application in 0..world.parties.owners.len() {
            world.set_alarm(Node::Owner(application));
        }
        Ok(world)
    }

    /// Plays the scenario to its end, or to the first thing that is wrong.
    pub(crate) fn play(&mut self) -> Result<(), Failure> {
        let bound = self.scenario.faults_until + BOUND;
        if !self.advance(bound, |world| world.judge.all_ended())? {
            return Err(self.judge.stuck());
        }
        let bound = self.now + SETTLE;
        self.advance(bound, |world| world.in_air == 0 && world.busy_caller().is_none())?;
        if let Some(node) = self.busy_caller() {
            return Err(Failure::NotIdle { node });
        }
        self.judge.at_end()?;
        self.last_queries()
    }

    /// How far it came.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally { virtual_time: self.now.since(Instant(0)), ..self.tally };
        for stats in self.parties.callers.iter().flatten().map(Caller::stats) {
            tally.retransmits += stats.retransmits;
            tally.lanes_element += stats.lanes_element;
            tally.lanes_software += stats.lanes_software;
            tally.lane_bytes_sent += stats.lane_bytes_sent;
        }
        tally.lane_bytes_received = self.server_stats().iter().map(|stats| stats.lane_bytes_received).sum();
        tally
    }

    pub(crate) fn server_stats(&self) -> Vec<ServerStats> {
        self.parties.owners.iter().map(Owner::stats).collect()
    }

    pub(crate) fn into_trace(self) -> Trace<'a> {
        self.trace
    }

    /// A caller with something under way; those apart whose call waits for one that was cancelled.
    fn busy_caller(&self) -> Option<Node> {
        let applications = self.scenario.applications.iter().zip(&self.parties.callers).enumerate();
        let busy = applications.flat_map(|(index, (plan, callers))| {
            let callers = plan.callers.iter().zip(callers).enumerate();
            callers.map(move |(number, (plan, caller))| (Node::Caller(index, number), plan, caller))
        });
        let mut busy =
            busy.filter(|(_, plan, caller)| !plan.steps.iter().any(|step| step.may_starve) && !caller.is_idle());
        busy.next().map(|(node, ..)| node)
    }

    /// Asks for the values of every application that has some, and compares them.
    fn last_queries(&mut self) -> Result<(), Failure> {
        for application in 0..self.parties.owners.len() {
            if !self.judge.has_values(application) {
                continue;
            }
            let node = Node::Owner(application);
            let mut effects = std::mem::take(&mut self.effects);
            self.parties.owners[application].query(self.now, LAST_QUERY, None, &mut effects);
            self.carry_out(node, effects)?;
            let bound = self.now + BOUND;
            if !self.advance(bound, |world| world.answers.contains_key(&application))? {
                return Err(Failure::Unanswered { node });
            }
            if let Some(Report::Answered(_, Ok(values))) = self.answers.get(&application) {
                self.judge.final_values(application, values)?;
            }
        }
        Ok(())
    }

    /// Lets things happen until `done`, at most until `bound`; whether it is done.
    fn advance(&mut self, bound: Instant, done: impl Fn(&Self) -> bool) -> Result<bool, Failure> {
        while !done(self) {
            let Some((at, event)) = self.queue.pop() else { return Ok(false) };
            if at > bound {
                self.queue.push(at, event);
                return Ok(false);
            }
            self.now = at;
            self.events += 1;
            if self.events > EVENTS_MAX {
                return Err(Failure::Endless { events: self.events });
            }
            self.happen(event)?;
        }
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Result<(), Failure> {
        let now = self.now;
        let mut effects = std::mem::take(&mut self.effects);
        let node = match event {
            Event::Join(application, number) => {
                let node = Node::Caller(application, number);
                let plan = &self.scenario.applications[application];
                let caller = &plan.callers[number];
                if let Some(element) = self.parties.element.as_mut().filter(|_| caller.registered) {
                    element.register(plan, caller)?;
                }
                let joined = self.parties.owners[application].join(now, caller);
                let config = joined.map_err(|error| Failure::Join { node, error })?;
                self.parties.callers[application][number].join(now, config, &mut effects);
                node
            }
            Event::Arrive { to, mut frame, marked } => {
                self.in_air -= 1;
                self.arrive(to, &mut frame, marked, &mut effects)?;
                effects.recycle(frame);
                to
            }
            Event::Fail(index) => return self.fail(index, effects),
            Event::Act(index) => return self.act(index, effects),
            Event::Word(application, number, renewal) => {
                let plan = &self.scenario.applications[application].callers[number];
                self.windows.renewed(plan.endpoint);
                self.trace.told(now, Node::Caller(application, number), &renewal);
                self.parties.callers[application][number].renew(now, &renewal, &mut effects);
                Node::Caller(application, number)
            }
            Event::Wake(node) => {
                let alarm = self.alarms.entry(node).or_default();
                if alarm.set == Some(now) {
                    alarm.set = None;
                }
                // An alarm that the node no longer wants must not hide that it set none.
                if let Some(party) = self.parties.get(node).filter(|party| party.deadline().is_some_and(|at| at <= now))
                {
                    alarm.rang = (now, if alarm.rang.0 == now { alarm.rang.1 + 1 } else { 1 });
                    if alarm.rang.1 > WAKES_MAX {
                        return Err(Failure::Busy { node });
                    }
                    party.wake(now, &mut effects);
                }
                node
            }
        };
        self.carry_out(node, effects)
    }

    fn arrive(&mut self, to: Node, frame: &mut [u8], marked: bool, effects: &mut Effects) -> Result<(), Failure> {
        if to == Node::Element && self.now < self.element_from {
            return Ok(());
        }
        self.trace.arrived(self.now, to, frame);
        match to {
            Node::Element => self.windows.at_element(frame)?,
            Node::Caller(application, number) => {
                let endpoint = self.scenario.applications[application].callers[number].endpoint;
                self.windows.delivered(endpoint, frame);
            }
            Node::Owner(_) => {}
        }
        if let Some(party) = self.parties.get(to) {
            party.handle(self.now, frame, marked, effects);
        }
        if let Some(decision) = effects.decision.take() {
            self.trace.decided(self.now, to, decision);
        }
        Ok(())
    }

    /// Sends what a node wants sent, hears its reports, sets its alarm; keeps the buffers.
    pub(crate) fn carry_out(&mut self, node: Node, mut effects: Effects) -> Result<(), Failure> {
        for report in effects.reports.drain(..) {
            self.trace.reported(self.now, node, &report);
            self.tally.calls += u64::from(matches!(report, Report::Finished(..) | Report::Cancelled(_)));
            self.judge.hear(node, &report)?;
            if let (Node::Owner(application), Report::Answered(LAST_QUERY, _)) = (node, &report) {
                self.answers.insert(application, report);
            }
        }
        let mut frames = std::mem::take(&mut effects.frames);
        for (dest, frame) in frames.drain(..) {
            if let Node::Caller(..) = node {
                self.windows.sent(&frame)?;
            }
            self.send(node, dest, frame, &mut effects);
        }
        effects.frames = frames;
        self.effects = effects;
        self.set_alarm(node);
        Ok(())
    }

    fn send(&mut self, from: Node, dest: Dest, frame: Vec<u8>, effects: &mut Effects) {
        let to = match dest {
            Dest::Element => self.parties.element.as_ref().map(|_| Node::Element),
            Dest::Endpoint(endpoint) => self.nodes.get(&endpoint).copied(),
        };
        let Some(to) = to else { return effects.recycle(frame) };
        let (scenario, random) = (self.scenario, &mut self.random);
        let link = self.links.entry((from, to)).or_insert_with(|| {
            let wire = Wire::new(scenario.wire, random.fork());
            Box::new(Faulty::new(wire, scenario.faults, scenario.faults_until, random.fork()))
        });
        self.arrivals.clear();
        let fate = link.carry(self.now, frame.len(), &mut self.arrivals);
        self.tally.frames += 1;
        self.tally.lost += u64::from(fate.lost.is_some());
        self.tally.repeated += u64::from(fate.repeated);
        self.tally.reordered += u64::from(fate.delayed);
        self.trace.sent(self.now, from, to, &frame, fate, &self.arrivals);
        for arrival in &self.arrivals {
            self.tally.marked += u64::from(arrival.marked);
            self.in_air += 1;
            let frame = effects.copy(&frame);
            self.queue.push(arrival.at, Event::Arrive { to, frame, marked: arrival.marked });
        }
        effects.recycle(frame);
    }

    /// Has a node woken at its deadline.
    fn set_alarm(&mut self, node: Node) {
        let Some(deadline) = self.parties.get(node).and_then(|party| party.deadline()) else { return };
        let deadline = deadline.max(self.now);
        let alarm = self.alarms.entry(node).or_default();
        if alarm.set.is_none_or(|set| deadline < set) {
            alarm.set = Some(deadline);
            self.queue.push(deadline, Event::Wake(node));
        }
    }
}

/// All nodes.
pub(crate) struct Parties<'a> {
    pub(crate) element: Option<Element>,
    pub(crate) owners: Vec<Owner<'a>>,
    /// By application.
    pub(crate) callers: Vec<Vec<Caller<'a>>>,
}

impl<'a> Parties<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, Failure> {
        let applications = &scenario.applications;
        Ok(Self {
            element: scenario.element.map(|size| Element::new(size, applications)).transpose()?,
            owners: applications.iter().map(Owner::new).collect(),
            callers: applications.iter().map(|plan| plan.callers.iter().map(Caller::new).collect()).collect(),
        })
    }

    fn get(&mut self, node: Node) -> Option<&mut dyn Party> {
        match node {
            Node::Element => self.element.as_mut().map(|element| element as &mut dyn Party),
            Node::Owner(application) => self.owners.get_mut(application).map(|owner| owner as &mut dyn Party),
            Node::Caller(application, number) => {
                self.callers.get_mut(application)?.get_mut(number).map(|caller| caller as &mut dyn Party)
            }
        }
    }
}
