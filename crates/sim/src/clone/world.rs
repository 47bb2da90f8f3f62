//! Event loop of a clone run: hosts, the element and the network in virtual time.
//!
//! ```text
//! queue ─► event ─► caller, worker (the real ones) ─► frames ─► network ─► queue
//!             └───► element: the switch program ─────────────────────┘        └─► attacker
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::clone::{
    CloneCall, CloneCallId, CloneCaller, CloneCallerConfig, CloneWorker, CloneWorkerConfig, FailureCause, Pool,
    PoolRequestId,
};
use pathcall_wire::{CloneFrame, Flags, Instant};

use super::CloneCounts;
use super::checker::{CloneChecker, is_clone};
use super::element::Element;
use super::network::describe;
use super::part::PlacedExecution;
use super::payload::PayloadTag;
use super::plan::{self, CloneIncident, ClonePlan};
use super::streams::{StreamEvent, StreamWorld};
use super::violation::CloneViolation;
use crate::environment::Environment;
use crate::random::Random;
use crate::timeline::Timeline;

/// GAID of the pool.
pub(super) const GAID: u32 = 40;
/// First endpoint id of servers.
pub(super) const SERVER: u32 = 100;
/// First endpoint id of callers.
pub(super) const CALLER: u32 = 500;
/// Incarnation of the callers.
pub(super) const INCARNATION: u32 = 9;
/// Limit on the events of a run.
pub(super) const EVENTS_MAX: u64 = 2_000_000;
/// Calls of a period of a policy: few, so that short runs have several.
const POLICY_PERIOD: u32 = 16;
/// Memory limit of a server for requests, in bytes.
const MEMORY: usize = 400_000;

/// Sender or receiver of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CloneNode {
    Caller(usize),
    Server(usize),
    /// By rack.
    Element(usize),
    Attacker,
}

pub(crate) enum CloneEvent {
    /// A call starts.
    Call(usize),
    /// The application cancels a call.
    GiveUp(usize),
    /// A frame arrives.
    Frame { from: CloneNode, to: CloneNode, bytes: Vec<u8> },
    /// A timer expires.
    Wake(CloneNode),
    /// An execution ends.
    Done { server: usize, incarnation: u32, work: PoolRequestId, tag: PayloadTag, undone: bool },
    /// Something happens to a streaming call.
    Stream(usize, StreamEvent),
    /// A planned incident happens.
    CloneIncident(CloneIncident),
    /// The element forwards again, with empty tables.
    Up,
    /// The controller configures an element.
    Install(usize),
    /// A killed server starts again.
    Back(usize),
    /// A server leaves the pool, or joins it.
    Member(usize, bool),
    /// A pool update arrives at a node.
    PoolUpdate(CloneNode, Pool),
}

pub(super) struct CloneServer {
    pub(super) worker: Option<CloneWorker>,
    pub(super) incarnation: u32,
    pub(super) wake: Option<Instant>,
}

pub(crate) struct CloneWorld<'a> {
    pub(super) plan: &'a ClonePlan,
    pub(super) time: Timeline<CloneEvent>,
    pub(super) random: Random,
    /// Elements, by rack.
    pub(super) elements: Vec<Element>,
    pub(super) servers: Vec<CloneServer>,
    pub(super) callers: Vec<(CloneCaller, Option<Instant>)>,
    pub(super) pool: Pool,
    /// Open calls, by caller and call number.
    pub(super) ids: BTreeMap<(usize, u32), usize>,
    /// All calls, by caller and call number: frames may arrive late.
    pub(super) named: BTreeMap<(usize, u32), usize>,
    pub(super) checker: CloneChecker<'a>,
    pub(super) streams: Option<StreamWorld<'a>>,
    pub(super) environment: Environment,
    /// Frames that are inside the network function in front of the element.
    pub(crate) carried: Vec<Vec<u8>>,
    /// Executions whose work other parts run.
    pub(crate) placed: Vec<PlacedExecution>,
    pub(super) counts: CloneCounts,
}

impl<'a> CloneWorld<'a> {
    pub(crate) fn new(plan: &'a ClonePlan, environment: Environment) -> Self {
        let mut random = Random::new(plan.seed ^ 0x636c_6f6e_6573_2121);
        let members = (0..plan.servers.len()).filter(|server| plan.servers[*server].member);
        let pool = Pool { gaid: GAID, version: 1, servers: members.map(|server| SERVER + server as u32).collect() };
        let mut time = Timeline::default();
        time.queue.extend(plan.calls.iter().enumerate().map(|(index, call)| (call.at, CloneEvent::Call(index))));
        time.queue.extend(plan.incidents.iter().map(|(at, incident)| (*at, CloneEvent::CloneIncident(*incident))));
        let caller = |(index, caller): (usize, &super::plan::CloneCallerPlan)| {
            let config = CloneCallerConfig {
                last_call: caller.last_call,
                budgets: caller.budgets.to_vec(),
                retry_max: Duration::from_millis(100),
                filter_tables: plan.size.filters as u8,
                policy_period: POLICY_PERIOD,
                element_holds: plan.holding.is_some(),
                ..CloneCallerConfig::new(CALLER + index as u32, INCARNATION, pool.clone(), random.bits())
            };
            (CloneCaller::new(Instant(0), config), None)
        };
        let callers = plan.callers.iter().enumerate().map(caller).collect();
        let mut world = Self {
            plan,
            time,
            elements: (0..plan.elements())
                .map(|index| Element::new(plan, index, environment.switch.clone().filter(|_| index == 0)))
                .collect(),
            servers: Vec::new(),
            callers,
            pool,
            ids: BTreeMap::new(),
            named: BTreeMap::new(),
            checker: CloneChecker::new(plan, environment.total_pause()),
            streams: plan.streams.as_ref().map(|streams| StreamWorld::new(streams, plan.seed)),
            environment,
            carried: Vec::new(),
            placed: Vec::new(),
            counts: CloneCounts::default(),
            random,
        };
        world.servers = (0..plan.servers.len()).map(|server| world.server(server, 1)).collect();
        (0..world.elements.len()).for_each(|element| world.install(element));
        let starts: Vec<_> = world.streams.iter().flat_map(StreamWorld::starts).collect();
        world.time.queue.extend(starts);
        world
    }

    /// Creates the process of a server.
    fn server(&self, index: usize, incarnation: u32) -> CloneServer {
        let plan = &self.plan.servers[index];
        let endpoint = SERVER + index as u32;
        let sid = self.pool.servers.iter().position(|other| *other == endpoint).unwrap_or(0);
        let config = CloneWorkerConfig {
            queue_max: plan.queue_max,
            memory_max: MEMORY,
            partial_max: 8,
            partial_for: Duration::from_millis(300),
            ..CloneWorkerConfig::new(GAID, endpoint, incarnation, sid as u16, plan.workers)
        };
        CloneServer { worker: Some(CloneWorker::new(config)), incarnation, wake: None }
    }

    pub(super) fn check_no_state_left(&self) -> Result<(), CloneViolation> {
        self.streams.as_ref().map_or(Ok(()), StreamWorld::check_end)?;
        self.check_hedges()?;
        let redundant: u64 = self.callers.iter().map(|(caller, _)| caller.stats().redundant).sum();
        if self.is_filter_exact() {
            if redundant > 0 {
                return Err(CloneViolation::Redundant(redundant));
            }
            if self.has_single_parts() {
                self.check_filtered()?;
            }
        }
        for (index, (caller, _)) in self.callers.iter().enumerate() {
            if !caller.is_empty() {
                return Err(CloneViolation::Left(format!("caller {index}")));
            }
            // The last calls have detected the element again, if it forwards.
            let finds = self.checker.is_generous(index) && self.plan.ends_calmly(index);
            let finds = finds && !self.elements.iter().any(|element| element.silent);
            if finds && !caller.by_element() {
                return Err(CloneViolation::Past(index));
            }
        }
        for (index, server) in self.servers.iter().enumerate() {
            if server.worker.as_ref().is_some_and(|worker| !worker.is_empty() || worker.memory() > 0) {
                return Err(CloneViolation::Left(format!("server {index}")));
            }
        }
        Ok(())
    }

    pub(super) fn handle_event(&mut self, event: CloneEvent) -> Result<(), CloneViolation> {
        match event {
            CloneEvent::Call(call) => return self.call(call),
            CloneEvent::GiveUp(call) => {
                let caller = self.plan.calls[call].caller;
                let id = self.ids.iter().find(|(_, index)| **index == call).map(|(name, _)| *name);
                if let Some(name) = id {
                    self.ids.remove(&name);
                    self.checker.calls[call].ended = true;
                    self.callers[caller].0.cancel(self.time.now, CloneCallId(name.1));
                    self.line(CloneNode::Caller(caller), || format!("call {call} GIVEN UP"));
                }
            }
            CloneEvent::Frame { from, to, bytes } => return self.deliver_frame(from, to, bytes),
            CloneEvent::Wake(node) => return self.wakes(node),
            CloneEvent::Done { server, incarnation, work, tag, undone } => {
                return self.done((server, incarnation), work, tag, undone);
            }
            CloneEvent::Stream(call, event) => return Ok(self.stream_event(call, event)?),
            CloneEvent::CloneIncident(incident) => self.incident(incident),
            CloneEvent::Up => self.elements[0].silent = false,
            CloneEvent::Install(element) => {
                self.elements[element].silent = false;
                self.install(element);
            }
            CloneEvent::Back(server) => {
                let incarnation = self.servers[server].incarnation + 1;
                self.servers[server] = self.server(server, incarnation);
                self.line(CloneNode::Server(server), || "BACK".to_owned());
                self.change_membership(server, true);
            }
            CloneEvent::Member(server, member) => self.change_membership(server, member),
            CloneEvent::PoolUpdate(node, pool) => return self.update_pool(node, pool),
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<(), CloneViolation> {
        let plan = &self.plan.calls[index];
        self.counts.calls += 1;
        let request = PayloadTag { call: index as u32, execution: 0 }.message(plan.request);
        self.checker.made(self.time.now, index);
        let caller = &mut self.callers[plan.caller].0;
        let Ok(CloneCallId(seq)) = caller.start_call(self.time.now, CloneCall { request, options: plan.options })
        else {
            self.checker.calls[index].ended = true;
            return Ok(());
        };
        self.ids.insert((plan.caller, seq), index);
        self.named.insert((plan.caller, seq), index);
        self.line(CloneNode::Caller(plan.caller), || format!("call {index} is {seq}: {:?}", plan.options));
        if let Some(after) = plan.given_up {
            self.time.after(after, CloneEvent::GiveUp(index));
        }
        self.drain(CloneNode::Caller(plan.caller))
    }

    fn deliver_frame(&mut self, from: CloneNode, to: CloneNode, bytes: Vec<u8>) -> Result<(), CloneViolation> {
        self.line(to, || format!("got {}", describe(&bytes)));
        match to {
            CloneNode::Caller(index) => {
                let caller = &mut self.callers[index].0;
                let ignored = caller.stats().ignored;
                caller.receive(self.time.now, &bytes);
                // A caller ignores servers that only the element knows yet.
                let is_taken = caller.stats().ignored == ignored;
                if let Some((call, frame)) = self.answer_of(index, from, &bytes).filter(|_| is_taken) {
                    self.checker.record_answer(self.time.now, call, &frame);
                }
            }
            CloneNode::Server(index) => return self.at_server(from, index, &bytes),
            CloneNode::Element(0) if self.environment.has_front(self.time.now) => self.carried.push(bytes),
            CloneNode::Element(index) => return self.at_element(index, bytes),
            CloneNode::Attacker => {}
        }
        self.drain(to)
    }

    fn at_server(&mut self, from: CloneNode, index: usize, bytes: &[u8]) -> Result<(), CloneViolation> {
        let frame = CloneFrame::new_checked(bytes).ok().filter(|_| from != CloneNode::Attacker);
        if let Some(frame) = &frame {
            self.checker.check_arrival(self.call_of(frame), frame)?;
        }
        let (limits, Some(worker)) = (&self.plan.servers[index], &mut self.servers[index].worker) else {
            return Ok(());
        };
        let waiting = worker.waiting();
        worker.receive(self.time.now, bytes);
        let busy = frame.is_some_and(|frame| is_clone(&frame)) && waiting > 0;
        if busy && worker.waiting() > waiting {
            return Err(CloneViolation::QueuedBusy(index));
        }
        let (waiting, memory) = (worker.waiting(), worker.memory());
        if waiting > limits.queue_max || memory > MEMORY {
            return Err(CloneViolation::Bounds { server: index, waiting, memory });
        }
        self.drain(CloneNode::Server(index))
    }

    /// Open call that a frame of a server or the element answers.
    fn answer_of<'b>(&self, caller: usize, from: CloneNode, bytes: &'b [u8]) -> Option<(usize, CloneFrame<&'b [u8]>)> {
        let frame = CloneFrame::new_checked(bytes).ok().filter(|_| from != CloneNode::Attacker)?;
        // The element forwards forged frames that the caller ignores.
        let base = frame.base();
        let server = base.src().checked_sub(SERVER).is_some_and(|server| (server as usize) < self.servers.len());
        let genuine = server && base.dst_incarnation() == INCARNATION && base.has(Flags::FROM_SERVER);
        let call = self.ids.get(&(caller, base.seq())).filter(|_| genuine)?;
        Some((*call, frame))
    }

    /// Call that a request belongs to.
    pub(super) fn call_of(&self, frame: &CloneFrame<&[u8]>) -> Option<usize> {
        let caller = frame.base().src().checked_sub(CALLER)?;
        self.named.get(&(caller as usize, frame.base().seq())).copied()
    }

    fn wakes(&mut self, node: CloneNode) -> Result<(), CloneViolation> {
        let now = self.time.now;
        let due = |wake: &mut Option<Instant>| wake.take_if(|at| *at <= now).is_some();
        match node {
            CloneNode::Caller(index) => {
                let (caller, wake) = &mut self.callers[index];
                if due(wake) {
                    caller.poll(now);
                }
            }
            CloneNode::Server(index) => {
                let server = &mut self.servers[index];
                if due(&mut server.wake)
                    && let Some(worker) = &mut server.worker
                {
                    worker.poll(now);
                }
            }
            CloneNode::Element(index) => {
                if self.elements[index].holder.as_mut().is_some_and(|holder| due(&mut holder.wake)) {
                    self.send_hedges(index)?;
                }
            }
            CloneNode::Attacker => {}
        }
        self.drain(node)
    }

    fn done(
        &mut self,
        (index, incarnation): (usize, u32),
        work: PoolRequestId,
        tag: PayloadTag,
        undone: bool,
    ) -> Result<(), CloneViolation> {
        let server = &mut self.servers[index];
        let Some(worker) = server.worker.as_mut().filter(|_| server.incarnation == incarnation) else {
            return Ok(());
        };
        let reply = tag.message(self.plan.calls[tag.call as usize].reply);
        let fails = self.random.happens(self.plan.servers[index].fails) || undone;
        let fails = fails && !self.plan.is_way_slow(self.time.now);
        self.checker.done(self.time.now, tag, fails);
        // No plan has an answer that exceeds the size limit.
        let finished = match fails {
            true => worker.fail(work, reply, FailureCause::Server, plan::pushback(tag.call as usize)),
            false => worker.finish(work, reply),
        };
        debug_assert!(finished.is_ok(), "{finished:?}");
        self.drain(CloneNode::Server(index))
    }

    pub(super) fn line(&mut self, node: CloneNode, what: impl FnOnce() -> String) {
        self.time.line(|| format!("{:<10} {}", format!("{node:?}"), what()));
    }
}
