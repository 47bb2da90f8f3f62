//! Event loop of a map run: nodes on their machines and the network in virtual time.
//!
//! ```text
//! queue ─► event ─► node (the real state machine) ─► frames ─► network ─► queue
//!                        └─► reports ─► checker
//! ```

mod failing;
mod killing;
mod machines;
mod part;
mod phases;
mod takeover;

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::map::server::QueryId;
use pathcall_endpoint::map::{Dest, Key};
use pathcall_wire::Instant;

use crate::environment::Environment;
use crate::map::MapCounts;
use crate::map::checker::{MapChecker, MapViolation};
use crate::map::link::{FrameArrival, LossCause};
use crate::map::network::{Datagram, ExtraDatagram, Network};
use crate::map::node::{Effects, MapNodeId, NodeReport};
use crate::map::nodes::Nodes;
use crate::map::owner::Owner;
use crate::map::scenario::Scenario;
use crate::map::windows::Windows;
use crate::timeline::Timeline;
use failing::Controller;
pub(crate) use failing::OwnerUpdate;
use phases::Phase;

/// Limit on the events of a run; the largest scenarios have a few hundred thousand.
const EVENTS_MAX: u64 = 20_000_000;
/// Pause before a caller retries to join in place of one that has not left yet.
const JOIN_AGAIN: Duration = Duration::from_millis(1);
/// Id of the final query.
const LAST_QUERY: QueryId = QueryId(u64::MAX);

pub(crate) enum MapEvent {
    /// A caller of an application joins.
    Join(usize, usize),
    /// An owner is queried.
    Ask(usize, usize),
    /// A node's machine pauses for this time.
    Pause(MapNodeId, Duration),
    /// A datagram arrives at a node's machine.
    Arrive(MapNodeId, Datagram),
    /// A node handles its inbox.
    Look(MapNodeId),
    /// A node's timer expires.
    Wake(MapNodeId),
    /// A caller's process is killed.
    Kill(usize, usize),
    /// The owner removes a caller.
    Leave(usize, usize),
    /// The controller takes a caller's slots back.
    Release(usize, usize),
    /// The owner learns that the element admits no more frames of a caller.
    Gone(usize, usize),
    /// An element fails: index of the failure.
    Fail(usize),
    /// The controller reacts to a failure.
    React(usize),
    /// The controller changes the memory of an application: index of the move.
    Move(usize),
    /// The old element of an application is informed.
    Remove(usize, usize),
    /// An owner continues without a silent element.
    Suspend(usize),
    /// An owner asks the controller for memory again.
    RequestMemory(usize),
    /// An update of the controller arrives at an owner.
    RenewOwner(usize),
    /// An update of the owner arrives at a caller.
    RenewCaller(usize, usize),
    /// An owner with a store ends: index of the crash.
    CrashOwner(usize),
    /// Another owner takes over in place of the one with this number.
    TakeOver(usize, u32),
    /// A caller learns that the owner with this number has ended.
    Detach(usize, usize, u32),
    /// A caller continues with the owner that has taken over from the one with this number.
    Resume(usize, usize, u32),
}

pub(crate) struct MapWorld<'a> {
    scenario: &'a Scenario,
    time: Timeline<MapEvent>,
    phase: Phase,
    environment: Environment,
    /// Datagrams that are inside the network function in front of the element.
    pub(crate) carried: Vec<Datagram>,
    /// Number of datagrams in transit.
    in_air: u64,
    /// Time from which each element takes frames.
    element_from: Vec<Instant>,
    controller: Controller,
    nodes: Nodes<'a>,
    network: Network<'a>,
    arrivals: Vec<FrameArrival>,
    extras: Vec<ExtraDatagram>,
    effects: Effects,
    checker: MapChecker<'a>,
    windows: Windows,
    /// Answers to the final queries.
    answers: BTreeMap<usize, NodeReport>,
    counts: MapCounts,
}

impl<'a> MapWorld<'a> {
    pub(crate) fn new(scenario: &'a Scenario, environment: Environment) -> Result<Self, MapViolation> {
        let callers = scenario.applications.iter().flat_map(|plan| &plan.callers);
        let nodes = Nodes::new(scenario, environment.switch.as_ref())?;
        let mut world = Self {
            scenario,
            time: Timeline::default(),
            phase: Phase::first(scenario),
            environment,
            carried: Vec::new(),
            in_air: 0,
            element_from: vec![Instant(0); scenario.elements.len()],
            controller: Controller::new(scenario),
            nodes,
            network: Network::new(scenario),
            arrivals: Vec::new(),
            extras: Vec::new(),
            effects: Effects::default(),
            checker: MapChecker::new(scenario),
            windows: Windows::new(callers.map(|caller| (caller.endpoint, caller.slot_base))),
            answers: BTreeMap::new(),
            counts: MapCounts::default(),
        };
        for (index, application) in scenario.applications.iter().enumerate() {
            for (number, caller) in application.callers.iter().enumerate() {
                world.time.push(caller.joins, MapEvent::Join(index, number));
                if let Some(death) = caller.crash {
                    world.time.push(death.at, MapEvent::Kill(index, number));
                }
            }
            for (number, query) in application.queries.iter().enumerate() {
                world.time.push(query.at, MapEvent::Ask(index, number));
            }
        }
        let own = scenario.failures.len() - world.environment.failures;
        for (index, failure) in scenario.failures.iter().enumerate().take(own) {
            world.time.push(failure.at, MapEvent::Fail(index));
        }
        for (index, change) in scenario.moves.iter().enumerate() {
            world.time.push(change.at, MapEvent::Move(index));
        }
        for (index, crash) in scenario.owner_crashes.iter().enumerate() {
            world.time.push(crash.at, MapEvent::CrashOwner(index));
        }
        for (node, host) in &scenario.hosts {
            for (at, pause) in &host.pauses {
                world.time.push(*at, MapEvent::Pause(*node, *pause));
            }
        }
        Ok(world)
    }

    fn handle_event(&mut self, event: MapEvent) -> Result<(), MapViolation> {
        // Messages wait until their receiver's machine is free.
        let to = match event {
            MapEvent::Ask(application, _)
            | MapEvent::Leave(application, _)
            | MapEvent::Gone(application, _)
            | MapEvent::RenewOwner(application) => Some(MapNodeId::Owner(application)),
            MapEvent::RenewCaller(application, number) => Some(MapNodeId::Caller(application, number)),
            _ => None,
        };
        if let Some(later) = to.and_then(|node| self.later(node)) {
            self.time.push(later, event);
            return Ok(());
        }
        match event {
            MapEvent::Join(application, number) => return self.join(application, number),
            MapEvent::Ask(application, number) => {
                let keys = self.scenario.applications[application].queries[number].keys.clone();
                return self.ask(application, QueryId(number as u64), keys);
            }
            MapEvent::Pause(node, time) => {
                self.time.node_line(node, || format!("STANDS STILL for {time:?}"));
                self.counts.pauses += 1;
                let until = self.time.now + time;
                self.nodes.host(node).stop(until);
            }
            MapEvent::Arrive(MapNodeId::Element(0), datagram) if self.environment.has_front(self.time.now) => {
                self.carried.push(datagram);
            }
            MapEvent::Arrive(to, datagram) => return self.arrive(to, datagram),
            MapEvent::Look(node) => {
                self.nodes.host(node).looks = false;
                return self.handle_datagrams(node);
            }
            MapEvent::Wake(node) => return self.wake(node),
            MapEvent::Kill(application, number) => self.kill(application, number),
            MapEvent::Leave(application, number) => return self.leave(application, number),
            MapEvent::Release(application, number) => self.release(application, number),
            MapEvent::Gone(application, number) => return self.report_departure(application, number),
            MapEvent::Fail(index) => self.fail(index),
            MapEvent::React(index) => return self.react(index),
            MapEvent::Move(index) => return self.move_memory(index),
            MapEvent::Suspend(application) => return self.suspend(application),
            MapEvent::RequestMemory(application) => return self.request_memory(application),
            MapEvent::Remove(application, element) => self.remove(application, element),
            MapEvent::RenewOwner(application) => return self.renew_owner(application),
            MapEvent::RenewCaller(application, number) => return self.renew_caller(application, number),
            MapEvent::CrashOwner(index) => self.crash_owner(index),
            MapEvent::TakeOver(application, life) => return self.take_over(application, life),
            MapEvent::Detach(application, number, life) => self.detach(application, number, life),
            MapEvent::Resume(application, number, life) => return self.resume(application, number, life),
        }
        Ok(())
    }

    fn join(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let (node, owner) = (MapNodeId::Caller(application, number), MapNodeId::Owner(application));
        if let Some(later) = self.later(owner).max(self.later(node)) {
            self.time.push(later, MapEvent::Join(application, number));
            return Ok(());
        }
        let plan = &self.scenario.applications[application];
        let caller = &plan.callers[number];
        let callers = &self.nodes.callers[application];
        if callers[number].is_killed() {
            return Ok(());
        }
        if caller.succeeds.is_some_and(|before| callers[before].is_member() || !callers[before].is_killed()) {
            self.time.after(JOIN_AGAIN, MapEvent::Join(application, number));
            return Ok(());
        }
        let mut can_join = false;
        self.on_owner(application, |owner, now, effects| can_join = owner.can_join(now, effects))?;
        if !can_join {
            self.time.after(JOIN_AGAIN, MapEvent::Join(application, number));
            return Ok(());
        }
        if caller.registered {
            self.register(application, number)?;
        }
        let (now, owners_now) = (self.local_time(node), self.local_time(owner));
        let owner_state = &mut self.nodes.owners[application];
        let joined = owner_state.join(owners_now, caller);
        let config = joined.map_err(|error| MapViolation::Join { node, error })?;
        self.windows.joined(caller.endpoint, config.rows);
        let element = owner_state.element();
        let first = caller.succeeds.map_or(0, |_| self.checker.resumed(application, number, config.start_chunk));
        let mut effects = std::mem::take(&mut self.effects);
        let life = self.nodes.owners[application].life();
        let state = &mut self.nodes.callers[application][number];
        state.owner = life;
        state.join(now, config, plan.token_key, element, first, &mut effects);
        self.set_alarm(owner);
        self.carry_out(node, effects, false)
    }

    fn ask(&mut self, application: usize, id: QueryId, keys: Option<Vec<Key>>) -> Result<(), MapViolation> {
        self.on_owner(application, |owner, now, effects| owner.query(now, id, keys, effects))
    }

    /// Runs `work` on an owner, at the time of its clock, and carries out the effects.
    fn on_owner(
        &mut self,
        application: usize,
        work: impl FnOnce(&mut Owner<'a>, Instant, &mut Effects),
    ) -> Result<(), MapViolation> {
        let node = MapNodeId::Owner(application);
        let now = self.local_time(node);
        let mut effects = std::mem::take(&mut self.effects);
        work(&mut self.nodes.owners[application], now, &mut effects);
        self.carry_out(node, effects, false)
    }

    /// Carries out the effects of a node: sends frames, checks reports, sets its alarm; keeps the buffers. `hostile`:
    /// the input was a hostile datagram.
    fn carry_out(&mut self, node: MapNodeId, mut effects: Effects, hostile: bool) -> Result<(), MapViolation> {
        for report in effects.reports.drain(..) {
            self.time.reported(node, &report);
            self.counts.calls += u64::from(matches!(report, NodeReport::Finished(..) | NodeReport::Cancelled(_)));
            let (nodes, now) = (&mut self.nodes, self.time.now);
            self.checker.check_lock_rivals(node, &report, |holder, step| nodes.considers_held(now, holder, step));
            self.checker.now = now;
            self.checker.check_report(node, &report)?;
            self.checker.check_recorded(node, &report, |application, key, threshold| {
                nodes.owners[application].has_decided(key, threshold)
            })?;
            if let (MapNodeId::Caller(application, number), NodeReport::Leaves) = (node, &report) {
                self.ends(application, number);
            }
            if let (MapNodeId::Owner(application), NodeReport::Answered(LAST_QUERY, _)) = (node, &report) {
                self.answers.insert(application, report);
            }
        }
        if let (true, MapNodeId::Owner(application)) = (std::mem::take(&mut effects.silent), node) {
            self.time.push(self.time.now, MapEvent::Suspend(application));
        }
        let mut frames = std::mem::take(&mut effects.frames);
        for (dest, bytes) in frames.drain(..) {
            if let MapNodeId::Caller(..) = node {
                self.windows.sent(&bytes)?;
            }
            let hostile = hostile && matches!(node, MapNodeId::Element(_));
            self.send(node, dest, Datagram { bytes, marked: false, hostile }, &mut effects);
        }
        effects.frames = frames;
        self.effects = effects;
        self.set_alarm(node);
        Ok(())
    }

    /// First hop of a frame to another host. An element that is gone lets frames pass.
    fn next_hop(&self, from: MapNodeId, to: MapNodeId, frame: &[u8]) -> MapNodeId {
        let now = self.time.now;
        let astray = self.scenario.detours.iter().any(|way| way.of(from, to) && (way.since..way.until).contains(&now));
        let element = self.nodes.element_on_route(from, to, frame).filter(|number| self.element_from[*number] <= now);
        element.filter(|_| !astray).map_or(to, MapNodeId::Element)
    }

    fn send(&mut self, from: MapNodeId, dest: Dest, frame: Datagram, effects: &mut Effects) {
        let to = match dest {
            Dest::Element => self.nodes.element_of(from).map(MapNodeId::Element),
            Dest::Endpoint(endpoint) | Dest::Inline(endpoint) => {
                self.nodes.at(endpoint).map(|to| self.next_hop(from, to, &frame.bytes))
            }
        };
        let Some(to) = to else { return effects.recycle(frame.bytes) };
        if matches!(dest, Dest::Inline(_)) {
            self.counts.inline += 1;
            self.counts.bare += u64::from(!matches!(to, MapNodeId::Element(_)));
        }
        self.arrivals.clear();
        let outcome = self.network.transmit(self.time.now, (from, to), &frame, &mut self.arrivals, &mut self.extras);
        self.counts.frames += 1;
        self.counts.lost += u64::from(outcome.lost.is_some());
        self.counts.cut += u64::from(outcome.lost == Some(LossCause::Cut));
        self.counts.repeated += u64::from(outcome.repeated);
        self.counts.reordered += u64::from(outcome.delayed);
        self.time.sent((from, to), &frame, outcome, &self.arrivals);
        for arrival in &self.arrivals {
            self.counts.marked += u64::from(arrival.marked);
            let bytes = effects.copy(&frame.bytes);
            let datagram = Datagram { bytes, marked: arrival.marked, hostile: frame.hostile };
            self.in_air += 1;
            self.time.push(arrival.at, MapEvent::Arrive(to, datagram));
        }
        effects.recycle(frame.bytes);
        for ExtraDatagram { at, datagram } in self.extras.drain(..) {
            self.counts.hostile += u64::from(datagram.hostile);
            self.counts.late += u64::from(!datagram.hostile);
            self.in_air += 1;
            self.time.push(at, MapEvent::Arrive(to, datagram));
        }
    }
}
