//! The run: nodes on their machines, the network and virtual time.
//!
//! ```text
//! queue ─► event ─► node (the real state machine) ─► frames ─► network ─► queue
//!                        └─► reports ─► judge
//! ```

mod failing;
mod killing;
mod machines;
mod part;
mod phases;

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::map::server::{QueryId, ServerStats};
use pathcall_endpoint::map::{Dest, Key};
use pathcall_wire::Instant;

use crate::around::Around;
use crate::caller::Caller;
use crate::element::Element;
use crate::judge::{Failure, Judge};
use crate::link::{Arrival, Loss};
use crate::network::{Datagram, Extra, Network};
use crate::owner::Owner;
use crate::parties::Parties;
use crate::party::{Effects, Node, Report};
use crate::queue::EventQueue;
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::windows::Windows;
use failing::Controller;
pub(crate) use failing::OwnerWord;
use phases::Phase;

/// Events of a run at most; the largest scenarios have a few hundred thousand.
const EVENTS_MAX: u64 = 20_000_000;
/// Pause before a caller tries again to join in place of one that has not left yet.
const JOIN_AGAIN: Duration = Duration::from_millis(1);
/// The name of the query at the end.
const LAST_QUERY: QueryId = QueryId(u64::MAX);

enum Event {
    /// A caller of an application joins.
    Join(usize, usize),
    /// An application's owner is asked.
    Ask(usize, usize),
    /// A node's machine stands still for so long.
    Pause(Node, Duration),
    /// A datagram comes to a node's machine.
    Arrive(Node, Datagram),
    /// A node takes what waits.
    Look(Node),
    /// A node's alarm rings.
    Wake(Node),
    /// A caller's process is killed.
    Kill(usize, usize),
    /// Its owner counts a caller as gone.
    Leave(usize, usize),
    /// The element lets in nothing more of it.
    Release(usize, usize),
    /// Its owner hears of that.
    Gone(usize, usize),
    /// An element fails: the n-th failure.
    Fail(usize),
    /// The controller has found out and acts.
    Act(usize),
    /// The controller gives an application other memory: the n-th move.
    Move(usize),
    /// The element that an application has left hears of it.
    Remove(usize, usize),
    /// An owner goes on without an element that is silent.
    Suspend(usize),
    /// It asks the controller for memory again.
    AskAnew(usize),
    /// The controller's word comes to an application's owner.
    Renew(usize),
    /// The owner's word comes to a caller: what holds, and the element that it is to send by.
    Word(usize, usize),
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    now: Instant,
    queue: EventQueue<Event>,
    events: u64,
    phase: Phase,
    around: Around,
    /// Datagrams on their way through what stands before the element.
    pub(crate) carried: Vec<Datagram>,
    /// Datagrams that nobody has taken yet.
    in_air: u64,
    /// An element takes no frames before it.
    element_from: Vec<Instant>,
    controller: Controller,
    parties: Parties<'a>,
    network: Network<'a>,
    arrivals: Vec<Arrival>,
    extras: Vec<Extra>,
    effects: Effects,
    judge: Judge<'a>,
    windows: Windows,
    /// Answers to the queries at the end.
    answers: BTreeMap<usize, Report>,
    trace: Trace<'a>,
    tally: Tally,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, trace: Trace<'a>, around: Around) -> Result<Self, Failure> {
        let callers = scenario.applications.iter().flat_map(|plan| &plan.callers);
        let parties = Parties::new(scenario, around.switch.as_ref())?;
        let mut world = Self {
            scenario,
            now: Instant(0),
            queue: EventQueue::default(),
            events: 0,
            phase: Phase::first(scenario),
            around,
            carried: Vec::new(),
            in_air: 0,
            element_from: vec![Instant(0); scenario.elements.len()],
            controller: Controller::new(scenario),
            parties,
            network: Network::new(scenario),
            arrivals: Vec::new(),
            extras: Vec::new(),
            effects: Effects::default(),
            judge: Judge::new(scenario),
            windows: Windows::new(callers.map(|caller| (caller.endpoint, caller.slot_base))),
            answers: BTreeMap::new(),
            trace,
            tally: Tally::default(),
        };
        for (index, application) in scenario.applications.iter().enumerate() {
            for (number, caller) in application.callers.iter().enumerate() {
                world.queue.push(caller.joins, Event::Join(index, number));
                if let Some(death) = caller.dies {
                    world.queue.push(death.at, Event::Kill(index, number));
                }
            }
            for (number, query) in application.queries.iter().enumerate() {
                world.queue.push(query.at, Event::Ask(index, number));
            }
        }
        let own = scenario.failures.len() - world.around.failures;
        for (index, failure) in scenario.failures.iter().enumerate().take(own) {
            world.queue.push(failure.at, Event::Fail(index));
        }
        for (index, change) in scenario.moves.iter().enumerate() {
            world.queue.push(change.at, Event::Move(index));
        }
        for (node, host) in &scenario.hosts {
            for (at, pause) in &host.pauses {
                world.queue.push(*at, Event::Pause(*node, *pause));
            }
        }
        Ok(world)
    }

    /// How far it came.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally { virtual_time: self.now.since(Instant(0)), ..self.tally };
        for stats in self.parties.callers.iter().flatten().map(Caller::stats) {
            tally.retransmits += stats.retransmits;
            tally.unauthentic += stats.frames_unauthentic;
            tally.lanes_element += stats.lanes_element;
            tally.lanes_software += stats.lanes_software;
            tally.lane_bytes_sent += stats.lane_bytes_sent;
        }
        for stats in self.server_stats() {
            tally.lane_bytes_received += stats.lane_bytes_received;
            tally.keys_evicted += stats.keys_evicted;
            tally.unauthentic += stats.frames_unauthentic;
        }
        tally.unauthentic += self.parties.elements.iter().map(Element::unauthentic).sum::<u64>();
        tally
    }

    pub(crate) fn server_stats(&self) -> Vec<ServerStats> {
        self.parties.owners.iter().map(Owner::stats).collect()
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    pub(crate) fn into_trace(self) -> Trace<'a> {
        self.trace
    }

    fn happen(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Join(application, number) => self.join(application, number),
            Event::Ask(application, number) => {
                if let Some(later) = self.later(Node::Owner(application)) {
                    self.queue.push(later, event);
                    return Ok(());
                }
                let keys = self.scenario.applications[application].queries[number].keys.clone();
                self.ask(application, QueryId(number as u64), keys)
            }
            Event::Pause(node, time) => {
                self.trace.paused(self.now, node, time);
                self.tally.pauses += 1;
                let until = self.now + time;
                self.parties.host(node).stop(until);
                Ok(())
            }
            Event::Arrive(Node::Element(0), datagram) if self.around.has_front(self.now) => {
                self.carried.push(datagram);
                Ok(())
            }
            Event::Arrive(to, datagram) => self.arrive(to, datagram),
            Event::Look(node) => {
                self.parties.host(node).looks = false;
                self.look(node)
            }
            Event::Wake(node) => self.wake(node),
            Event::Kill(application, number) => {
                self.kill(application, number);
                Ok(())
            }
            Event::Leave(application, number) => self.leave(application, number),
            Event::Release(application, number) => {
                self.release(application, number);
                Ok(())
            }
            Event::Gone(application, number) => self.gone(application, number),
            Event::Fail(index) => {
                self.fail(index);
                Ok(())
            }
            Event::Act(index) => self.act(index),
            Event::Move(index) => self.move_memory(index),
            Event::Suspend(application) => self.suspend(application),
            Event::AskAnew(application) => self.ask_anew(application),
            Event::Remove(application, element) => {
                self.remove(application, element);
                Ok(())
            }
            Event::Renew(application) => self.renew_owner(application),
            Event::Word(application, number) => self.renew_caller(application, number),
        }
    }

    fn join(&mut self, application: usize, number: usize) -> Result<(), Failure> {
        let (node, owner) = (Node::Caller(application, number), Node::Owner(application));
        if let Some(later) = self.later(owner).max(self.later(node)) {
            self.queue.push(later, Event::Join(application, number));
            return Ok(());
        }
        let plan = &self.scenario.applications[application];
        let caller = &plan.callers[number];
        let callers = &self.parties.callers[application];
        if callers[number].is_killed() {
            return Ok(());
        }
        if caller.succeeds.is_some_and(|before| callers[before].is_member() || !callers[before].is_killed()) {
            self.queue.push(self.now + JOIN_AGAIN, Event::Join(application, number));
            return Ok(());
        }
        let (now, owners_now) = (self.shown(node), self.shown(owner));
        let mut effects = std::mem::take(&mut self.effects);
        let lets_in = self.parties.owners[application].lets_in(owners_now, &mut effects);
        self.carry_out(owner, effects, false)?;
        if !lets_in {
            self.queue.push(self.now + JOIN_AGAIN, Event::Join(application, number));
            return Ok(());
        }
        if caller.registered {
            self.register(application, number)?;
        }
        let owner_state = &mut self.parties.owners[application];
        let joined = owner_state.join(owners_now, caller);
        let config = joined.map_err(|error| Failure::Join { node, error })?;
        let element = owner_state.element();
        let first = caller.succeeds.map_or(0, |_| self.judge.resumed(application, number, config.start_chunk));
        let mut effects = std::mem::take(&mut self.effects);
        self.parties.callers[application][number].join(now, config, plan.token_key, element, first, &mut effects);
        self.set_alarm(owner);
        self.carry_out(node, effects, false)
    }

    fn ask(&mut self, application: usize, id: QueryId, keys: Option<Vec<Key>>) -> Result<(), Failure> {
        let node = Node::Owner(application);
        let now = self.shown(node);
        let mut effects = std::mem::take(&mut self.effects);
        self.parties.owners[application].query(now, id, keys, &mut effects);
        self.carry_out(node, effects, false)
    }

    /// Sends what a node wants sent, hears its reports, sets its alarm; keeps the buffers.
    /// `hostile`: what it does, it does because of something that nobody has sent.
    fn carry_out(&mut self, node: Node, mut effects: Effects, hostile: bool) -> Result<(), Failure> {
        for report in effects.reports.drain(..) {
            self.trace.reported(self.now, node, &report);
            self.tally.calls += u64::from(matches!(report, Report::Finished(..) | Report::Cancelled(_)));
            let (parties, now) = (&mut self.parties, self.now);
            self.judge.look_at_rivals(node, &report, |holder, step| parties.believes(now, holder, step));
            self.judge.hear(node, &report)?;
            if let (Node::Caller(application, number), Report::Leaves) = (node, &report) {
                self.ends(application, number);
            }
            if let (Node::Owner(application), Report::Answered(LAST_QUERY, _)) = (node, &report) {
                self.answers.insert(application, report);
            }
        }
        if let (true, Node::Owner(application)) = (std::mem::take(&mut effects.silent), node) {
            self.queue.push(self.now, Event::Suspend(application));
        }
        let mut frames = std::mem::take(&mut effects.frames);
        for (dest, bytes) in frames.drain(..) {
            if let Node::Caller(..) = node {
                self.windows.sent(&bytes)?;
            }
            let hostile = hostile && matches!(node, Node::Element(_));
            self.send(node, dest, Datagram { bytes, marked: false, hostile }, &mut effects);
        }
        effects.frames = frames;
        self.effects = effects;
        self.set_alarm(node);
        Ok(())
    }

    /// Where a frame to another host comes first: an element that is gone lets it pass.
    fn next_hop(&self, from: Node, to: Node, frame: &[u8]) -> Node {
        let now = self.now;
        let astray = self.scenario.detours.iter().any(|way| way.of(from, to) && (way.since..way.until).contains(&now));
        let element = self.parties.on_the_way(from, to, frame).filter(|number| self.element_from[*number] <= now);
        element.filter(|_| !astray).map_or(to, Node::Element)
    }

    fn send(&mut self, from: Node, dest: Dest, frame: Datagram, effects: &mut Effects) {
        let to = match dest {
            Dest::Element => self.parties.element_of(from).map(Node::Element),
            Dest::Endpoint(endpoint) | Dest::Inline(endpoint) => {
                self.parties.at(endpoint).map(|to| self.next_hop(from, to, &frame.bytes))
            }
        };
        let Some(to) = to else { return effects.recycle(frame.bytes) };
        if matches!(dest, Dest::Inline(_)) {
            self.tally.inline += 1;
            self.tally.bare += u64::from(!matches!(to, Node::Element(_)));
        }
        self.arrivals.clear();
        let fate = self.network.carry(self.now, (from, to), &frame, &mut self.arrivals, &mut self.extras);
        self.tally.frames += 1;
        self.tally.lost += u64::from(fate.lost.is_some());
        self.tally.cut += u64::from(fate.lost == Some(Loss::Cut));
        self.tally.repeated += u64::from(fate.repeated);
        self.tally.reordered += u64::from(fate.delayed);
        self.trace.sent(self.now, (from, to), &frame, fate, &self.arrivals);
        for arrival in &self.arrivals {
            self.tally.marked += u64::from(arrival.marked);
            let bytes = effects.copy(&frame.bytes);
            let datagram = Datagram { bytes, marked: arrival.marked, hostile: frame.hostile };
            self.in_air += 1;
            self.queue.push(arrival.at, Event::Arrive(to, datagram));
        }
        effects.recycle(frame.bytes);
        for Extra { at, datagram } in self.extras.drain(..) {
            self.tally.hostile += u64::from(datagram.hostile);
            self.tally.late += u64::from(!datagram.hostile);
            self.in_air += 1;
            self.queue.push(at, Event::Arrive(to, datagram));
        }
    }
}
