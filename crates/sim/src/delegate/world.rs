//! Event loop of a delegate run: hosts and the network in virtual time.
//!
//! ```text
//! queue ─► event ─► host (the real caller and worker) ─► messages ─► network ─► queue
//!                     └─► requests for handlers, replies, ends ─► checker
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome, CallerEvent};
use pathcall_endpoint::delegate::worker::WorkerEvent;
use pathcall_endpoint::delegate::{ContextId, NodeId, PeerNode, is_for_caller};
use pathcall_wire::Instant;
use pathcall_wire::delegate::parse;

use super::DelegateCounts;
use super::checker::{DelegateChecker, DelegateViolation};
use super::host::{ABORTED_FOR, DelegateHost, OutgoingMessages};
use super::part::{MessageInFunction, PlacedStep};
use super::plan::DelegatePlan;
use super::services::Services;
use crate::environment::Environment;
use crate::random::Random;
use crate::timeline::Timeline;

/// Limit on the events of a run.
pub(super) const EVENTS_MAX: u64 = 5_000_000;
/// Interval of the checks for calls that hang.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Pause before an exactly-once call is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(7);
/// Limit on the retries of a call.
const RETRIES_MAX: u32 = 300;

pub(crate) enum DelegateEvent {
    /// A call starts.
    Start(usize),
    /// The caller aborts a call.
    Abort(usize),
    /// The caller retries a call.
    Again(usize),
    /// The caller has consumed a reply of this size.
    Consumed(usize, ContextId, Option<ContextId>, usize),
    /// A message arrives at an incarnation of a host.
    Deliver { to: (usize, u32), from: PeerNode, message: Bytes },
    /// A long message makes progress towards an incarnation of a host.
    Arriving { to: (usize, u32), message: Bytes },
    /// A host receives the error that a message of its shard was not delivered.
    Undelivered { host: (usize, u32), shard: usize, to: SocketAddr, message: Bytes },
    /// A timer of a host expires.
    Wake(usize),
    /// A handler runs its nth step.
    Step { host: (usize, u32), execution: ContextId, step: usize },
    /// The effect of a handler is durable.
    Durable { host: (usize, u32), execution: ContextId },
    /// The process of a host dies.
    Crash(usize),
    /// The process of a host starts again.
    Back(usize),
    /// A call to services starts.
    StartService(usize),
    /// A call to services is made again by an incarnation of its host.
    Repeat { host: (usize, u32), call: usize },
    /// The checker looks for calls that hang.
    Check,
}

pub(crate) struct DelegateWorld<'a> {
    pub(super) plan: &'a DelegatePlan,
    pub(super) time: Timeline<DelegateEvent>,
    /// Time when all calls had ended; whether servers were told so.
    pub(super) ended_at: Option<Instant>,
    pub(super) told: bool,
    /// Shards that know the last calls of a caller: caller, host and index.
    pub(super) told_shards: BTreeSet<(NodeId, usize, usize)>,
    pub(super) random: Random,
    pub(super) hosts: Vec<DelegateHost>,
    /// Planned calls, by id.
    pub(super) ids: BTreeMap<ContextId, usize>,
    names: BTreeMap<usize, ContextId>,
    retries: BTreeMap<usize, u32>,
    pub(super) checker: DelegateChecker<'a>,
    pub(super) environment: Environment,
    /// Messages that are inside the network function between hosts.
    pub(crate) carried: Vec<MessageInFunction>,
    /// Steps that other parts run.
    pub(crate) placed: Vec<PlacedStep>,
    pub(super) services: Option<Services<'a>>,
    pub(super) counts: DelegateCounts,
}

impl<'a> DelegateWorld<'a> {
    pub(crate) fn new(plan: &'a DelegatePlan, environment: Environment) -> Self {
        let mut time = Timeline::default();
        for (index, call) in plan.calls.iter().enumerate() {
            time.push(call.at, DelegateEvent::Start(index));
        }
        let services = plan.services.iter().flat_map(|services| &services.crashes);
        for crash in plan.crashes.iter().chain(services) {
            time.push(crash.at, DelegateEvent::Crash(crash.host));
            time.push(crash.back, DelegateEvent::Back(crash.host));
        }
        for (call, service_call) in plan.services.iter().flat_map(|services| services.calls.iter().enumerate()) {
            time.push(service_call.attempts[0].at, DelegateEvent::StartService(call));
        }
        time.after(CHECK_INTERVAL, DelegateEvent::Check);
        Self {
            plan,
            time,
            ended_at: None,
            told: false,
            told_shards: BTreeSet::new(),
            random: Random::new(plan.seed ^ 0x6e65_7477_6f72_6b21),
            hosts: (0..plan.hosts.len()).map(|index| DelegateHost::new(plan, index, 1)).collect(),
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            retries: BTreeMap::new(),
            checker: DelegateChecker::new(plan, environment.wait_limit),
            environment,
            carried: Vec::new(),
            placed: Vec::new(),
            services: Services::new(plan),
            counts: DelegateCounts::default(),
        }
    }

    /// Time after which no host may keep state of a call.
    pub(super) fn state_retention(&self) -> Duration {
        self.checker.longest_limit() * 2 + ABORTED_FOR * 2 + Duration::from_millis(700)
    }

    pub(super) fn is_over(&self) -> bool {
        let over = |known: &super::checker::CallRecord| match known.outcome {
            Some(CallOutcome::Failed(_)) => true,
            Some(_) => true,
            None => known.orphaned,
        };
        let again = |index: usize| {
            self.plan.call(index).options.once
                && matches!(self.checker.calls[index].outcome, Some(CallOutcome::Failed(_)))
                && !self.checker.calls[index].orphaned
        };
        let back = self.plan.crashes.iter().map(|crash| crash.back).max().unwrap_or_default();
        // Most attempts of calls to services are not needed.
        let planned = |index: usize, known: &super::checker::CallRecord| known.started || index < self.plan.calls.len();
        let mut calls = self.checker.calls.iter().enumerate().filter(|(index, known)| planned(*index, known));
        self.time.now >= self.plan.faults_until.max(back)
            && self.services.as_ref().is_none_or(|services| services.is_over(self.time.now))
            && calls.all(|(index, known)| over(known) && !again(index))
            && self.hosts.iter().all(|host| host.up)
    }

    pub(super) fn check_no_state_left(&self) -> Result<(), DelegateViolation> {
        // The application has to delete the records of a caller that died.
        let lost = |index: &usize| self.plan.calls[*index].options.once && self.checker.calls[*index].orphaned;
        let records = (0..self.plan.calls.len()).any(|index| lost(&index));
        if records {
            // Handlers may still be running, and others may wait for them.
            return Ok(());
        }
        for host in &self.hosts {
            if !host.caller.is_empty() || !host.worker.is_empty() {
                return Err(DelegateViolation::Left(host.index));
            }
        }
        Ok(())
    }

    pub(super) fn handle_event(&mut self, event: DelegateEvent) -> Result<(), DelegateViolation> {
        match event {
            DelegateEvent::Start(call) => return self.start(call, self.plan.call(call).options, &[]),
            DelegateEvent::StartService(call) => return self.start_service(call),
            DelegateEvent::Repeat { host: (host, incarnation), call } => {
                if self.is_up(host, incarnation) {
                    return self.make_attempt(call);
                }
            }
            DelegateEvent::Abort(call) => {
                let Some((&id, host)) = self.names.get(&call).zip(Some(self.plan.call(call).host)) else {
                    return Ok(());
                };
                self.checker.calls[call].active = self.time.now;
                return self.on(host, |host, now, out| host.caller.abort(now, id, out));
            }
            DelegateEvent::Again(call) => {
                let id = self.names[&call];
                self.checker.calls[call].active = self.time.now;
                let retries = self.retries.entry(call).or_default();
                *retries += 1;
                if *retries > RETRIES_MAX {
                    let quiet = self.time.now.since(self.plan.faults_until);
                    return Err(DelegateViolation::Hangs { call, quiet, bound: Duration::ZERO });
                }
                return self.on(self.plan.calls[call].host, |host, now, out| {
                    let _ = host.caller.retry(now, id, out);
                });
            }
            DelegateEvent::Consumed(host, call, from, bytes) => {
                if let Some(&index) = self.ids.get(&call) {
                    self.checker.calls[index].active = self.time.now;
                }
                return self.on(host, |host, _, out| host.caller.record_consumed(call, from, bytes, out));
            }
            DelegateEvent::Deliver { to, from, message } => return self.receive_or_carry(to, from, message),
            DelegateEvent::Arriving { to: (to, incarnation), message } => {
                if self.is_up(to, incarnation) {
                    self.record_progress(&message);
                    return self.on(to, |host, now, _| host.worker.arriving(now, &message));
                }
            }
            DelegateEvent::Undelivered { host: (host, incarnation), shard, to, message } => {
                if self.is_up(host, incarnation) {
                    self.record_undelivered(host, to, &message);
                    return self.on(host, |host, now, out| {
                        if is_for_caller(&message) || matches!(message.get(1), Some(1)) {
                            host.worker.undelivered(now, (shard, to), &message, out);
                        }
                        host.caller.undelivered(now, (shard, to), &message, out);
                    });
                }
            }
            DelegateEvent::Wake(host) => {
                if self.hosts[host].up && self.hosts[host].wake.is_some_and(|at| at <= self.time.now) {
                    self.hosts[host].wake = None;
                    return self.on(host, |host, now, out| {
                        host.worker.poll(now, out);
                        host.caller.poll(now, out);
                    });
                }
            }
            DelegateEvent::Step { host: (host, incarnation), execution, step } => {
                if self.is_up(host, incarnation) {
                    return self.step(host, execution, step);
                }
            }
            DelegateEvent::Durable { host: (host, incarnation), execution } => {
                if self.is_up(host, incarnation) {
                    return self.durable(host, execution);
                }
            }
            DelegateEvent::Crash(host) => self.crash(host),
            DelegateEvent::Back(host) => return self.back(host),
            DelegateEvent::Check => {
                self.checker.check_inactivity(self.time.now)?;
                for tag in self.hosts.iter().flat_map(|host| host.handlers.values()).filter_map(|handler| handler.tag) {
                    self.checker.check_handler_running(self.time.now, tag.call)?;
                }
                self.time.after(CHECK_INTERVAL, DelegateEvent::Check);
            }
        }
        Ok(())
    }

    /// Starts a call, whose requests should avoid these servers.
    pub(super) fn start(
        &mut self,
        call: usize,
        options: CallOptions,
        avoided: &[SocketAddr],
    ) -> Result<(), DelegateViolation> {
        let plan = self.plan.call(call);
        let known = &mut self.checker.calls[call];
        known.active = self.time.now;
        if !self.hosts[plan.host].up {
            known.orphaned = true;
            return Ok(());
        }
        known.started = true;
        self.counts.calls += 1;
        self.counts.requests += plan.requests.len() as u64;
        let (mut out, now) = (OutgoingMessages::default(), self.hosts[plan.host].local(self.time.now));
        let caller = &mut self.hosts[plan.host].caller;
        let Ok(id) = caller.open(now, options) else { return Ok(()) };
        self.ids.insert(id, call);
        self.names.insert(call, id);
        self.line(plan.host, || format!("call {call} is {id:?}"));
        for request in 0..plan.roots {
            let (to, payload) = self.address_request(plan.host, call, request, avoided)?;
            let _ = self.hosts[plan.host].caller.send(now, id, to, payload, &mut out);
        }
        if let Some(after) = plan.aborts {
            self.time.after(after, DelegateEvent::Abort(call));
        }
        self.route(plan.host, out);
        self.arm(plan.host);
        Ok(())
    }

    pub(super) fn deliver(
        &mut self,
        (to, incarnation): (usize, u32),
        from: PeerNode,
        message: &Bytes,
    ) -> Result<(), DelegateViolation> {
        if !self.is_up(to, incarnation) {
            return Ok(());
        }
        self.counts.delivered += 1;
        self.line(to, || match parse(message) {
            Ok((parsed, _)) => format!("got {parsed:?}"),
            Err(error) => format!("got no message: {error}"),
        });
        self.note(from, message, (to, incarnation));
        if self.handle_load(to, from, message) {
            return Ok(());
        }
        let message = message.clone();
        self.on(to, |host, now, out| match is_for_caller(&message) {
            true => host.caller.handle(now, from, &message, out),
            false => host.worker.handle(now, from, &message, out),
        })?;
        self.report_load(to, from.address, &message);
        Ok(())
    }

    /// Runs `work` on a host, and handles all outputs.
    pub(super) fn on(
        &mut self,
        host: usize,
        work: impl FnOnce(&mut DelegateHost, Instant, &mut OutgoingMessages),
    ) -> Result<(), DelegateViolation> {
        if !self.hosts[host].up {
            return Ok(());
        }
        let mut out = OutgoingMessages::default();
        let now = self.hosts[host].local(self.time.now);
        work(&mut self.hosts[host], now, &mut out);
        self.route(host, out);
        while let Some(event) = self.hosts[host].caller.next_event() {
            self.called(host, event)?;
        }
        while let Some(event) = self.hosts[host].worker.next_event() {
            self.line(host, || format!("{event:?}"));
            match event {
                WorkerEvent::Aborted { execution, .. } => drop(self.hosts[host].handlers.remove(&execution)),
                WorkerEvent::RecordObsolete { call, request } => {
                    self.hosts[host].durable.remove(&(call, request));
                    self.hosts[host].deleted.push(call);
                }
                WorkerEvent::Granted { .. } => {}
            }
        }
        self.begin_work(host)?;
        self.arm(host);
        Ok(())
    }

    /// Handles an event of a caller.
    fn called(&mut self, host: usize, event: CallerEvent) -> Result<(), DelegateViolation> {
        let index = |id: &ContextId| self.ids.get(id).copied();
        match event {
            CallerEvent::Reply { call, from, item } => {
                let Some(index) = index(&call) else { return Ok(()) };
                self.counts.replies += 1;
                self.checker.check_reply(index, super::host::tag(&item))?;
                self.take_service_reply(host, index, &item)?;
                let pause = self.plan.call(index).consuming;
                self.time.after(pause, DelegateEvent::Consumed(host, call, from, item.len()));
            }
            CallerEvent::Ended { call, outcome } => {
                let Some(index) = index(&call) else { return Ok(()) };
                self.time.trace.mix(index as u64);
                self.line(host, || format!("call {index} {call:?} ENDED {outcome:?}"));
                self.counts.count(&outcome);
                self.checker.ended(self.time.now, index, &outcome)?;
                self.end_attempt(host, index, &outcome)?;
                if self.plan.call(index).options.once && matches!(outcome, CallOutcome::Failed(_)) {
                    self.time.after(RETRY_PAUSE, DelegateEvent::Again(index));
                }
            }
            CallerEvent::Trace { call, tree } => {
                let Some(index) = index(&call) else { return Ok(()) };
                self.checker.traced(index, &tree)?;
            }
        }
        Ok(())
    }

    /// Sets the timer of a host.
    pub(super) fn arm(&mut self, host: usize) {
        let of = &mut self.hosts[host];
        let next = of.worker.next_deadline().into_iter().chain(of.caller.next_deadline()).min();
        let next = next.map(|local| of.global(local));
        self.time.wake_at(next, &mut of.wake, DelegateEvent::Wake(host));
    }

    pub(super) fn is_up(&self, host: usize, incarnation: u32) -> bool {
        self.hosts[host].up && self.hosts[host].incarnation == incarnation
    }

    pub(super) fn line(&mut self, host: usize, what: impl FnOnce() -> String) {
        self.time.line(|| format!("host {host} {}", what()));
    }
}
