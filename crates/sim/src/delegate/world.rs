//! The run: hosts, the network and virtual time.
//!
//! ```text
//! queue ─► event ─► host (the real caller and worker) ─► messages ─► network ─► queue
//!                     └─► work for handlers, replies, ends ─► judge
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, CallerEvent, Outcome};
use pathcall_endpoint::delegate::worker::WorkerEvent;
use pathcall_endpoint::delegate::{Context, Peer, for_caller};
use pathcall_wire::Instant;
use pathcall_wire::delegate::parse;

use super::Tally;
use super::host::{ABORTED_FOR, Host, Out, address, payload};
use super::judge::{Judge, Tag, Wrong};
use super::part::{Begun, Carried};
use super::plan::Plan;
use crate::around::Around;
use crate::queue::EventQueue;
use crate::random::Random;
use crate::trace::Millis;

/// Events of a run at most.
pub(super) const EVENTS_MAX: u64 = 5_000_000;
/// Pause between two looks at what hangs.
const CHECK: Duration = Duration::from_millis(5);
/// Pause before a call is made again that is to be done exactly once.
const AGAIN: Duration = Duration::from_millis(7);
/// How often a call is made again at most.
const AGAIN_MAX: u32 = 300;

/// How the calls at the end are made.
const LAST: CallOptions =
    CallOptions::new().ping_period(Duration::from_millis(5)).timeout(Duration::from_millis(20)).credit(1);

pub(super) enum Event {
    /// A call begins.
    Start(usize),
    /// Its caller gives it up.
    Abort(usize),
    /// Its caller makes it again.
    Again(usize),
    /// The caller has taken a reply.
    Consumed(usize, Context, Option<Context>),
    /// A message comes to an incarnation of a host.
    Deliver { to: (usize, u32), from: Peer, message: Bytes },
    /// A long message gets on, on its way to an incarnation of a host.
    Arriving { to: (usize, u32), message: Bytes },
    /// A host hears that its message was not delivered.
    Undelivered { host: (usize, u32), to: SocketAddr, message: Bytes },
    /// A host's timer.
    Wake(usize),
    /// A handler goes on: with its nth step.
    Step { host: (usize, u32), execution: Context, step: usize },
    /// What a handler did is durable.
    Durable { host: (usize, u32), execution: Context },
    /// A host's process dies.
    Crash(usize),
    /// Another one takes its place.
    Back(usize),
    /// What hangs?
    Check,
}

pub(crate) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: Instant,
    pub(super) queue: EventQueue<Event>,
    pub(super) events: u64,
    /// When all calls were over, and whether servers were told so.
    pub(super) over_at: Option<Instant>,
    pub(super) told: bool,
    pub(super) random: Random,
    pub(super) hosts: Vec<Host>,
    /// Calls by id: those of the plan.
    pub(super) ids: BTreeMap<Context, usize>,
    names: BTreeMap<usize, Context>,
    retries: BTreeMap<usize, u32>,
    pub(super) judge: Judge<'a>,
    pub(super) around: Around,
    /// Messages that pass what stands between hosts.
    pub(crate) carried: Vec<Carried>,
    /// Steps that others do.
    pub(crate) placed: Vec<Begun>,
    pub(crate) tally: Tally,
    pub(crate) hash: u64,
    /// What happens, for people.
    pub(crate) text: Option<String>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, around: Around) -> Self {
        let mut queue = EventQueue::default();
        for (index, call) in plan.calls.iter().enumerate() {
            queue.push(call.at, Event::Start(index));
        }
        for crash in &plan.crashes {
            queue.push(crash.at, Event::Crash(crash.host));
            queue.push(crash.back, Event::Back(crash.host));
        }
        queue.push(Instant(0) + CHECK, Event::Check);
        Self {
            plan,
            now: Instant(0),
            queue,
            events: 0,
            over_at: None,
            told: false,
            random: Random::new(plan.seed ^ 0x6e65_7477_6f72_6b21),
            hosts: (0..plan.hosts.len()).map(|index| Host::new(plan, index, 1)).collect(),
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            retries: BTreeMap::new(),
            judge: Judge::new(plan, around.patience),
            around,
            carried: Vec::new(),
            placed: Vec::new(),
            tally: Tally::default(),
            hash: 0,
            text: None,
        }
    }

    /// Time after which nobody knows of any call.
    pub(super) fn forgotten_after(&self) -> Duration {
        self.judge.longest() * 2 + ABORTED_FOR * 2 + Duration::from_millis(700)
    }

    pub(super) fn is_over(&self) -> bool {
        let over = |known: &super::judge::Known| match known.outcome {
            Some(Outcome::Failed(_)) => true,
            Some(_) => true,
            None => known.orphaned,
        };
        let again = |index: usize| {
            self.plan.calls[index].options.once
                && matches!(self.judge.calls[index].outcome, Some(Outcome::Failed(_)))
                && !self.judge.calls[index].orphaned
        };
        let back = self.plan.crashes.iter().map(|crash| crash.back).max().unwrap_or_default();
        self.now >= self.plan.faults_until.max(back)
            && self.judge.calls.iter().enumerate().all(|(index, known)| over(known) && !again(index))
            && self.hosts.iter().all(|host| host.up)
    }

    /// Calls that only tell servers which calls have ended.
    pub(super) fn last_calls(&mut self) {
        if !self.plan.calls.iter().any(|call| call.options.once) {
            return;
        }
        for host in 0..self.hosts.len() {
            let (mut out, now) = (Out::default(), self.hosts[host].local(self.now));
            let caller = &mut self.hosts[host].caller;
            if let Ok(id) = caller.open(now, LAST) {
                for to in 0..self.plan.hosts.len() {
                    let _ = caller.send(now, id, address(to), Bytes::new(), &mut out);
                }
            }
            self.route(host, out);
            self.arm(host);
        }
    }

    pub(super) fn nothing_is_left(&self) -> Result<(), Wrong> {
        // Records of a caller that died are the application's to delete.
        let lost = |index: &usize| self.plan.calls[*index].options.once && self.judge.calls[*index].orphaned;
        let records = (0..self.plan.calls.len()).any(|index| lost(&index));
        if records {
            return Ok(()); // Handlers may still be at work, and others wait for them.
        }
        for host in &self.hosts {
            if !host.caller.is_empty() || !host.worker.is_empty() {
                return Err(Wrong::Left(host.index));
            }
        }
        Ok(())
    }

    pub(super) fn happens(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Start(call) => self.start(call),
            Event::Abort(call) => {
                let Some((&id, host)) = self.names.get(&call).zip(Some(self.plan.calls[call].host)) else {
                    return Ok(());
                };
                self.judge.calls[call].active = self.now;
                return self.on(host, |host, now, out| host.caller.abort(now, id, out));
            }
            Event::Again(call) => {
                let id = self.names[&call];
                self.judge.calls[call].active = self.now;
                let retries = self.retries.entry(call).or_default();
                *retries += 1;
                if *retries > AGAIN_MAX {
                    let quiet = self.now.since(self.plan.faults_until);
                    return Err(Wrong::Hangs { call, quiet, bound: Duration::ZERO });
                }
                return self.on(self.plan.calls[call].host, |host, now, out| {
                    let _ = host.caller.retry(now, id, out);
                });
            }
            Event::Consumed(host, call, from) => {
                if let Some(&index) = self.ids.get(&call) {
                    self.judge.calls[index].active = self.now;
                }
                return self.on(host, |host, _, out| host.caller.consumed(call, from, out));
            }
            Event::Deliver { to, from, message } => return self.comes(to, from, message),
            Event::Arriving { to: (to, incarnation), message } => {
                if self.is_up(to, incarnation) {
                    self.gets_on(&message);
                    return self.on(to, |host, now, _| host.worker.arriving(now, &message));
                }
            }
            Event::Undelivered { host: (host, incarnation), to, message } => {
                if self.is_up(host, incarnation) {
                    return self.on(host, |host, now, out| {
                        if for_caller(&message) || matches!(message.get(1), Some(1)) {
                            host.worker.undelivered(now, to, &message, out);
                        }
                        host.caller.undelivered(now, to, &message, out);
                    });
                }
            }
            Event::Wake(host) => {
                if self.hosts[host].up && self.hosts[host].wake.is_some_and(|at| at <= self.now) {
                    self.hosts[host].wake = None;
                    return self.on(host, |host, now, out| {
                        host.worker.poll(now, out);
                        host.caller.poll(now, out);
                    });
                }
            }
            Event::Step { host: (host, incarnation), execution, step } => {
                if self.is_up(host, incarnation) {
                    return self.step(host, execution, step);
                }
            }
            Event::Durable { host: (host, incarnation), execution } => {
                if self.is_up(host, incarnation) {
                    return self.durable(host, execution);
                }
            }
            Event::Crash(host) => self.crash(host),
            Event::Back(host) => return self.back(host),
            Event::Check => {
                self.judge.hangs(self.now)?;
                for tag in self.hosts.iter().flat_map(|host| host.handlers.values()).filter_map(|handler| handler.tag) {
                    self.judge.works(self.now, tag.call)?;
                }
                self.queue.push(self.now + CHECK, Event::Check);
            }
        }
        Ok(())
    }

    fn start(&mut self, call: usize) {
        let plan = &self.plan.calls[call];
        let known = &mut self.judge.calls[call];
        known.active = self.now;
        if !self.hosts[plan.host].up {
            known.orphaned = true;
            return;
        }
        known.started = true;
        self.tally.calls += 1;
        self.tally.requests += plan.requests.len() as u64;
        let (mut out, now) = (Out::default(), self.hosts[plan.host].local(self.now));
        let caller = &mut self.hosts[plan.host].caller;
        let Ok(id) = caller.open(now, plan.options) else { return };
        self.ids.insert(id, call);
        self.names.insert(call, id);
        self.line(plan.host, || format!("call {call} is {id:?}"));
        let caller = &mut self.hosts[plan.host].caller;
        for request in 0..plan.roots {
            let to = address(plan.requests[request].host);
            let _ = caller.send(now, id, to, payload(Tag { call, request, reply: 0 }), &mut out);
        }
        if let Some(after) = plan.aborts {
            self.queue.push(self.now + after, Event::Abort(call));
        }
        self.route(plan.host, out);
        self.arm(plan.host);
    }

    pub(super) fn deliver(
        &mut self,
        (to, incarnation): (usize, u32),
        from: Peer,
        message: &Bytes,
    ) -> Result<(), Wrong> {
        if !self.is_up(to, incarnation) {
            return Ok(());
        }
        self.tally.delivered += 1;
        self.line(to, || match parse(message) {
            Ok((parsed, _)) => format!("got {parsed:?}"),
            Err(error) => format!("got no message: {error}"),
        });
        self.note(from, message, (to, incarnation));
        let message = message.clone();
        self.on(to, |host, now, out| match for_caller(&message) {
            true => host.caller.handle(now, from, &message, out),
            false => host.worker.handle(now, from, &message, out),
        })
    }

    /// Does something at a host, and what follows from it.
    pub(super) fn on(&mut self, host: usize, work: impl FnOnce(&mut Host, Instant, &mut Out)) -> Result<(), Wrong> {
        if !self.hosts[host].up {
            return Ok(());
        }
        let mut out = Out::default();
        let now = self.hosts[host].local(self.now);
        work(&mut self.hosts[host], now, &mut out);
        self.route(host, out);
        while let Some(event) = self.hosts[host].caller.next_event() {
            self.called(host, event)?;
        }
        while let Some(event) = self.hosts[host].worker.next_event() {
            self.line(host, || format!("{event:?}"));
            match event {
                WorkerEvent::Aborted { execution, .. } => drop(self.hosts[host].handlers.remove(&execution)),
                WorkerEvent::Forget { call, request } => {
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

    /// What a caller tells its application.
    fn called(&mut self, host: usize, event: CallerEvent) -> Result<(), Wrong> {
        let index = |id: &Context| self.ids.get(id).copied();
        match event {
            CallerEvent::Reply { call, from, item } => {
                let Some(index) = index(&call) else { return Ok(()) };
                self.tally.replies += 1;
                self.judge.given(index, super::host::tag(&item))?;
                let pause = self.plan.calls[index].consuming;
                self.queue.push(self.now + pause, Event::Consumed(host, call, from));
            }
            CallerEvent::Ended { call, outcome } => {
                let Some(index) = index(&call) else { return Ok(()) };
                self.mix(index as u64);
                self.line(host, || format!("call {index} {call:?} ENDED {outcome:?}"));
                self.tally.count(&outcome);
                self.judge.ended(self.now, index, &outcome)?;
                if self.plan.calls[index].options.once && matches!(outcome, Outcome::Failed(_)) {
                    self.queue.push(self.now + AGAIN, Event::Again(index));
                }
            }
            CallerEvent::Trace { call, tree } => {
                let Some(index) = index(&call) else { return Ok(()) };
                self.judge.traced(index, &tree)?;
            }
        }
        Ok(())
    }

    /// Sets a host's timer.
    pub(super) fn arm(&mut self, host: usize) {
        let of = &mut self.hosts[host];
        let next = of.worker.next_deadline().into_iter().chain(of.caller.next_deadline()).min();
        let next = next.map(|local| of.global(local).max(self.now));
        if next.is_some() && (of.wake.is_none() || next < of.wake) {
            of.wake = next;
            self.queue.extend(next.map(|at| (at, Event::Wake(host))));
        }
    }

    pub(super) fn is_up(&self, host: usize, incarnation: u32) -> bool {
        self.hosts[host].up && self.hosts[host].incarnation == incarnation
    }

    pub(super) fn line(&mut self, host: usize, what: impl FnOnce() -> String) {
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "{:>12} host {host} {}", Millis(self.now), what());
        }
    }

    pub(super) fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
