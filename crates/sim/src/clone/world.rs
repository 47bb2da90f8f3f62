//! The run: hosts, the element between them, and virtual time.
//!
//! ```text
//! queue ─► event ─► caller, worker (the real ones) ─► frames ─► network ─► queue
//!             └───► element: the switch program ─────────────────────┘        └─► stranger
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use pathcall_endpoint::clone::{Ask, Blame, CallId, Caller, CallerConfig, Pool, WorkId, Worker, WorkerConfig};
use pathcall_wire::{CloneFrame, Instant};

use super::Tally;
use super::element::Element;
use super::judge::{Judge, Wrong, is_clone};
use super::network::describe;
use super::part::Begun;
use super::payload::Tag;
use super::plan::{Incident, Plan};
use crate::around::Around;
use crate::queue::EventQueue;
use crate::random::{Chance, Random};
use crate::trace::Millis;

/// The application.
pub(super) const GAID: u32 = 40;
/// Endpoints: servers from here.
pub(super) const SERVER: u32 = 100;
/// Callers from here.
pub(super) const CALLER: u32 = 500;
/// The incarnation of callers.
pub(super) const INCARNATION: u32 = 9;
/// Events of a run at most.
pub(super) const EVENTS_MAX: u64 = 2_000_000;
/// Bytes of requests that a server keeps.
const MEMORY: usize = 400_000;

/// Somebody who sends and gets frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Caller(usize),
    Server(usize),
    Element,
    Stranger,
}

pub(super) enum Happening {
    /// A call is made.
    Call(usize),
    /// Its application gives it up.
    GiveUp(usize),
    /// A frame arrives.
    Frame { from: Node, to: Node, bytes: Vec<u8> },
    /// A timer.
    Wake(Node),
    /// A server is done with a request.
    Done { server: usize, incarnation: u32, work: WorkId, tag: Tag, undone: bool },
    /// As planned.
    Incident(Incident),
    /// The element is there again, and knows nobody.
    Up,
    /// The element is told who is there.
    Install,
    /// A killed server is back.
    Back(usize),
    /// A server leaves the pool, or joins it.
    Member(usize, bool),
    /// Somebody hears of the pool.
    Told(Node, Pool),
}

pub(super) struct Server {
    pub(super) worker: Option<Worker>,
    pub(super) incarnation: u32,
    pub(super) wake: Option<Instant>,
}

pub(crate) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: Instant,
    pub(super) queue: EventQueue<Happening>,
    pub(super) events: u64,
    pub(super) random: Random,
    pub(super) element: Element,
    pub(super) servers: Vec<Server>,
    pub(super) callers: Vec<(Caller, Option<Instant>)>,
    pub(super) pool: Pool,
    /// Calls by caller and number, while they are not over.
    pub(super) ids: BTreeMap<(usize, u32), usize>,
    /// The same for good: frames may be late.
    pub(super) named: BTreeMap<(usize, u32), usize>,
    pub(super) judge: Judge<'a>,
    pub(super) around: Around,
    /// What is on its way through what stands before the element.
    pub(crate) carried: Vec<Vec<u8>>,
    /// Work that others do.
    pub(crate) placed: Vec<Begun>,
    pub(crate) tally: Tally,
    pub(crate) hash: u64,
    /// What happens, for people.
    pub(crate) text: Option<String>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, around: Around) -> Self {
        let mut random = Random::new(plan.seed ^ 0x636c_6f6e_6573_2121);
        let members = (0..plan.servers.len()).filter(|server| plan.servers[*server].member);
        let pool = Pool { gaid: GAID, version: 1, servers: members.map(|server| SERVER + server as u32).collect() };
        let mut queue = EventQueue::default();
        queue.extend(plan.calls.iter().enumerate().map(|(index, call)| (call.at, Happening::Call(index))));
        queue.extend(plan.incidents.iter().map(|(at, incident)| (*at, Happening::Incident(*incident))));
        let caller = |(index, caller): (usize, &super::plan::CallerPlan)| {
            let config = CallerConfig {
                last_call: caller.last_call,
                budgets: caller.budgets.to_vec(),
                retry_max: Duration::from_millis(100),
                filter_tables: plan.size.filters as u8,
                ..CallerConfig::new(CALLER + index as u32, INCARNATION, pool.clone(), random.bits())
            };
            (Caller::new(Instant(0), config), None)
        };
        let callers = plan.callers.iter().enumerate().map(caller).collect();
        let mut world = Self {
            plan,
            now: Instant(0),
            queue,
            events: 0,
            element: Element::new(plan, around.switch.clone()),
            servers: Vec::new(),
            callers,
            pool,
            ids: BTreeMap::new(),
            named: BTreeMap::new(),
            judge: Judge::new(plan, around.stands_for()),
            around,
            carried: Vec::new(),
            placed: Vec::new(),
            tally: Tally::default(),
            hash: 0,
            text: None,
            random,
        };
        world.servers = (0..plan.servers.len()).map(|server| world.server(server, 1)).collect();
        world.install();
        world
    }

    /// A server's process that has just started.
    fn server(&self, index: usize, incarnation: u32) -> Server {
        let plan = &self.plan.servers[index];
        let endpoint = SERVER + index as u32;
        let sid = self.pool.servers.iter().position(|other| *other == endpoint).unwrap_or(0);
        let config = WorkerConfig {
            queue_max: plan.queue_max,
            memory_max: MEMORY,
            partial_max: 8,
            partial_for: Duration::from_millis(300),
            ..WorkerConfig::new(GAID, endpoint, incarnation, sid as u16, plan.workers)
        };
        Server { worker: Some(Worker::new(config)), incarnation, wake: None }
    }

    /// Sums up what the parties have counted.
    pub(crate) fn count(&mut self) {
        for stats in self.callers.iter().map(|(caller, _)| caller.stats()) {
            self.tally.redundant += stats.redundant;
            self.tally.resent += stats.repeated + stats.hedged + stats.twice;
            self.tally.refused += stats.refused;
            self.tally.set_aside += stats.set_aside;
            self.tally.silent += stats.silent;
        }
        let workers = self.servers.iter().filter_map(|server| server.worker.as_ref());
        self.tally.clones_dropped = workers.map(|worker| worker.stats().clones_dropped).sum();
        self.tally.filtered += self.element.filtered();
    }

    pub(super) fn nothing_is_left(&self) -> Result<(), Wrong> {
        let redundant: u64 = self.callers.iter().map(|(caller, _)| caller.stats().redundant).sum();
        let steered = self.plan.calls.iter().all(|call| {
            !call.options.twice
                && call.options.hedge.is_none()
                && call.given_up.is_none()
                && call.options.deadline > Duration::from_secs(1)
        });
        let repeated = self.callers.iter().any(|(caller, _)| caller.stats().repeated > 0);
        // An element lets failures pass.
        let all_do_it = self.plan.servers.iter().all(|server| server.fails == Chance(0));
        if self.plan.is_calm() && steered && all_do_it && !repeated && redundant > 0 {
            return Err(Wrong::Redundant(redundant));
        }
        for (index, (caller, _)) in self.callers.iter().enumerate() {
            if !caller.is_empty() {
                return Err(Wrong::Left(format!("caller {index}")));
            }
            // Its last calls have found the element again, if it is there.
            let finds = self.judge.is_generous(index) && self.plan.ends_calmly(index) && !self.element.silent;
            if finds && !caller.by_element() {
                return Err(Wrong::Past(index));
            }
        }
        for (index, server) in self.servers.iter().enumerate() {
            if server.worker.as_ref().is_some_and(|worker| !worker.is_empty() || worker.memory() > 0) {
                return Err(Wrong::Left(format!("server {index}")));
            }
        }
        Ok(())
    }

    pub(super) fn happens(&mut self, happening: Happening) -> Result<(), Wrong> {
        match happening {
            Happening::Call(call) => return self.call(call),
            Happening::GiveUp(call) => {
                let caller = self.plan.calls[call].caller;
                let id = self.ids.iter().find(|(_, index)| **index == call).map(|(name, _)| *name);
                if let Some(name) = id {
                    self.ids.remove(&name);
                    self.judge.calls[call].ended = true;
                    self.callers[caller].0.give_up(CallId(name.1));
                    self.line(Node::Caller(caller), || format!("call {call} GIVEN UP"));
                }
            }
            Happening::Frame { from, to, bytes } => return self.arrives(from, to, bytes),
            Happening::Wake(node) => return self.wakes(node),
            Happening::Done { server, incarnation, work, tag, undone } => {
                return self.done((server, incarnation), work, tag, undone);
            }
            Happening::Incident(incident) => self.incident(incident),
            Happening::Up => self.element.silent = false,
            Happening::Install => {
                self.element.silent = false;
                self.install();
            }
            Happening::Back(server) => {
                let incarnation = self.servers[server].incarnation + 1;
                self.servers[server] = self.server(server, incarnation);
                self.line(Node::Server(server), || "BACK".to_owned());
                self.member(server, true);
            }
            Happening::Member(server, member) => self.member(server, member),
            Happening::Told(node, pool) => return self.told(node, pool),
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<(), Wrong> {
        let plan = &self.plan.calls[index];
        self.tally.calls += 1;
        let request = Tag { call: index as u32, execution: 0 }.message(plan.request);
        self.judge.made(self.now, index);
        let caller = &mut self.callers[plan.caller].0;
        let Ok(CallId(seq)) = caller.ask(self.now, Ask { request, options: plan.options }) else {
            self.judge.calls[index].ended = true;
            return Ok(());
        };
        self.ids.insert((plan.caller, seq), index);
        self.named.insert((plan.caller, seq), index);
        self.line(Node::Caller(plan.caller), || format!("call {index} is {seq}: {:?}", plan.options));
        if let Some(after) = plan.given_up {
            self.queue.push(self.now + after, Happening::GiveUp(index));
        }
        self.drain(Node::Caller(plan.caller))
    }

    fn arrives(&mut self, from: Node, to: Node, bytes: Vec<u8>) -> Result<(), Wrong> {
        self.line(to, || format!("got {}", describe(&bytes)));
        match to {
            Node::Caller(index) => self.callers[index].0.receive(self.now, &bytes),
            Node::Server(index) => return self.at_server(from, index, &bytes),
            Node::Element if self.around.has_front(self.now) => self.carried.push(bytes),
            Node::Element => return self.at_element(bytes),
            Node::Stranger => {}
        }
        self.drain(to)
    }

    fn at_server(&mut self, from: Node, index: usize, bytes: &[u8]) -> Result<(), Wrong> {
        let frame = CloneFrame::new_checked(bytes).ok().filter(|_| from != Node::Stranger);
        if let Some(frame) = &frame {
            self.judge.arrives(self.call_of(frame), frame)?;
        }
        let (limits, Some(worker)) = (&self.plan.servers[index], &mut self.servers[index].worker) else {
            return Ok(());
        };
        let waiting = worker.waiting();
        worker.receive(self.now, bytes);
        let busy = frame.is_some_and(|frame| is_clone(&frame)) && waiting > 0;
        if busy && worker.waiting() > waiting {
            return Err(Wrong::QueuedBusy(index));
        }
        let (waiting, memory) = (worker.waiting(), worker.memory());
        if waiting > limits.queue_max || memory > MEMORY {
            return Err(Wrong::Bounds { server: index, waiting, memory });
        }
        self.drain(Node::Server(index))
    }

    /// The call that a request is of.
    pub(super) fn call_of(&self, frame: &CloneFrame<&[u8]>) -> Option<usize> {
        let caller = frame.base().src().checked_sub(CALLER)?;
        self.named.get(&(caller as usize, frame.base().seq())).copied()
    }

    fn wakes(&mut self, node: Node) -> Result<(), Wrong> {
        let now = self.now;
        let due = |wake: &mut Option<Instant>| wake.take_if(|at| *at <= now).is_some();
        match node {
            Node::Caller(index) => {
                let (caller, wake) = &mut self.callers[index];
                if due(wake) {
                    caller.poll(now);
                }
            }
            Node::Server(index) => {
                let server = &mut self.servers[index];
                if due(&mut server.wake)
                    && let Some(worker) = &mut server.worker
                {
                    worker.poll(now);
                }
            }
            Node::Element | Node::Stranger => {}
        }
        self.drain(node)
    }

    fn done(&mut self, (index, incarnation): (usize, u32), work: WorkId, tag: Tag, undone: bool) -> Result<(), Wrong> {
        let server = &mut self.servers[index];
        let Some(worker) = server.worker.as_mut().filter(|_| server.incarnation == incarnation) else {
            return Ok(());
        };
        let reply = tag.message(self.plan.calls[tag.call as usize].reply);
        let fails = self.random.happens(self.plan.servers[index].fails) || undone;
        self.judge.done(self.now, tag, fails);
        // Plans have no answer that is too long.
        let finished = if fails { worker.fail(work, reply, Blame::Server) } else { worker.finish(work, reply) };
        debug_assert!(finished.is_ok(), "{finished:?}");
        self.drain(Node::Server(index))
    }

    pub(super) fn line(&mut self, node: Node, what: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "{:>12} {:<10} {}", Millis(self.now), format!("{node:?}"), what());
        }
    }

    pub(super) fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
