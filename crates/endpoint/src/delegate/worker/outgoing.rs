//! What leaves: requests and responses with their manifests, and how an execution comes to its end.

use std::cmp::Reverse;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::parts::SpanPartRepr;
use pathcall_wire::delegate::{Flags, Ids, Manifest, Message, Request, Response, TraceSpan, parse};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{Context, Outbox, Status, micros};
use super::alarms::Alarms;
use super::execution::{Form, Outgoing, Phase};
use super::{AbortReason, Execution, Worker, WorkerConfig, WorkerEvent, is_crowded};

/// How often work is looked at until its caller counts as gone: by so many parts of that time a standstill of this node
/// is known.
const LOOKS: u32 = 4;

impl Worker {
    /// A message that will never arrive: who waits for it is told, if that is possible.
    pub(super) fn not_delivered(&mut self, now: Instant, to: SocketAddr, message: &[u8], out: &mut dyn Outbox) {
        match parse(message) {
            Ok((Message::Request(request), _)) => {
                let (branch, seq) = (request.request.branch(), request.request.seq());
                let id = match seq.checked_sub(1) {
                    None => Some(branch.context()),
                    Some(seq) => self.by_request.get(&(request.call, branch.inherited(seq))).copied(),
                };
                let Some(execution) = id.and_then(|id| self.executions.get_mut(&id)) else { return };
                execution.outgoing.clear();
                let status =
                    Status::new(Status::UNAVAILABLE, format!("the call was passed on to {to}: nobody is there"));
                let (id, fault) = (execution.context, execution.fault(status.code));
                out.send(execution.reply, &fault.encode(), &super::super::text(&status.message));
                if execution.phase == Phase::Working {
                    let reason = AbortReason::Ended;
                    self.events.push_back(WorkerEvent::Aborted { execution: id, reason });
                }
                self.queued.leaves(execution);
                if execution.phase != Phase::Recorded {
                    execution.enter(now, Phase::Failed(status.code), &mut self.alarms);
                }
            }
            Ok((Message::Response(Response { call, .. }), _)) => self.abort_call(now, call, AbortReason::Unreachable),
            _ => {}
        }
    }

    /// Stops the work on all that this node has of a call.
    pub(super) fn abort_call(&mut self, now: Instant, call: Context, reason: AbortReason) {
        let first = (call, Default::default());
        let of_call = self.by_request.range(first..).take_while(|((of, _), _)| *of == call);
        for id in of_call.map(|(_, id)| *id).collect::<Vec<_>>() {
            self.abort(now, id, reason);
        }
    }

    /// Stops the work on a request, if it is in progress.
    pub(super) fn abort(&mut self, now: Instant, id: Context, reason: AbortReason) {
        let Some(execution) = self.executions.get_mut(&id).filter(|execution| execution.in_progress()) else { return };
        if execution.phase == Phase::Sealed {
            return; // It took effect, and says so.
        }
        if execution.phase != Phase::Queued {
            self.events.push_back(WorkerEvent::Aborted { execution: id, reason });
        }
        self.queued.leaves(execution);
        execution.outgoing.clear();
        self.stats.aborted += 1;
        execution.enter(now, Phase::Aborted, &mut self.alarms);
    }

    /// An execution has held a message until now, unless that has left meanwhile.
    pub(super) fn flush(&mut self, now: Instant, id: Context, until: Instant, out: &mut dyn Outbox) {
        if let Some(execution) = self.executions.get_mut(&id).filter(|e| e.flush_at == Some(until)) {
            execution.pump(now, &self.config, &mut self.alarms, out);
        }
    }

    /// The time that an execution was set for has come, unless that is an old entry.
    pub(super) fn due(&mut self, now: Instant, id: Context, at: Instant) {
        let Some(execution) = self.executions.get_mut(&id).filter(|e| e.timer == Some(at)) else { return };
        execution.timer = None;
        if execution.in_progress() && !execution.once {
            // This node stood still itself for so long, and has not heard whether anybody asked meanwhile.
            execution.expires = execution.expires + now.since(at);
        }
        let (late, expired) = (execution.deadline.is_some_and(|at| at <= now), execution.expires <= now);
        if execution.in_progress() && late && !execution.once {
            self.abort(now, id, AbortReason::Deadline);
        } else if execution.in_progress() && expired && !execution.once {
            // A caller that waits for it would have asked (DPC §4.4.4).
            self.abort(now, id, AbortReason::Orphaned);
        } else if expired && !execution.in_progress() {
            return self.forget(id);
        }
        let Some(execution) = self.executions.get_mut(&id) else { return };
        // What is done once is worked on without its caller.
        execution.deadline = execution.deadline.filter(|at| *at > now);
        if execution.expires <= now {
            execution.expires = now + execution.gc_time();
        }
        execution.arm(now, &mut self.alarms);
    }

    /// Forgets an execution.
    pub(super) fn forget(&mut self, id: Context) {
        let Some(mut execution) = self.executions.remove(&id) else { return };
        self.by_request.remove(&(execution.call, execution.request));
        self.queued.leaves(&mut execution);
        let executions = &self.executions;
        self.alarms.timers.tidy(executions.len(), |at, id| executions.get(&id).is_some_and(|e| e.timer == Some(at)));
        if self.queued.requests == 0 {
            self.queue.clear();
        } else if is_crowded(self.queue.len(), self.queued.requests) {
            self.queue.retain(|Reverse((.., id))| executions.get(id).is_some_and(|e| e.phase == Phase::Queued));
        }
    }
}

impl Execution {
    /// Sends what may leave, and the manifest with the last of it; whether that took a response without content.
    pub(super) fn pump(
        &mut self,
        now: Instant,
        config: &WorkerConfig,
        alarms: &mut Alarms,
        out: &mut dyn Outbox,
    ) -> bool {
        if self.once && self.phase == Phase::Working {
            return false; // Nothing leaves before all of it is durable (DPC §3.5.3).
        }
        while let Some(at) = self.may_leave(now) {
            let Some(outgoing) = self.outgoing.remove(at) else { break };
            let last = self.phase == Phase::Finished && self.outgoing.is_empty();
            self.send(now, config, outgoing, last, out);
            self.let_go(alarms);
            if last {
                self.enter(now, Phase::Complete(self.form), alarms);
                return false;
            }
        }
        if self.phase == Phase::Finished && self.outgoing.is_empty() {
            self.send_null(config.address, out);
            self.enter(now, Phase::Complete(self.form), alarms);
            return true;
        }
        let held = self.outgoing.front();
        let leaves = self.responses < self.granted || matches!(held, Some(Outgoing::Request(..)));
        if held.is_none() || !leaves {
            self.let_go(alarms);
        } else if self.flush_at.is_none() {
            self.flush_at = Some(alarms.hold(now, self.context));
        }
        false
    }

    /// It holds no message any more.
    fn let_go(&mut self, alarms: &mut Alarms) {
        if let Some(until) = self.flush_at.take() {
            alarms.let_go(until, self.context);
        }
    }

    /// Changes how far it is, and the time from which it is forgotten.
    pub(super) fn enter(&mut self, now: Instant, phase: Phase, alarms: &mut Alarms) {
        self.phase = phase;
        self.payload = Bytes::new();
        self.let_go(alarms);
        // What is done once is known until its call has ended.
        let kept = matches!(phase, Phase::Sealed | Phase::Recorded);
        self.expires = if kept { Instant(u64::MAX) } else { now + self.gc_time() };
        self.arm(now, alarms);
    }

    /// Has itself looked at in time; what is worked on for its caller now and then before: who comes too late for that
    /// stood still.
    pub(super) fn arm(&mut self, now: Instant, alarms: &mut Alarms) {
        let look = (!self.once).then(|| now + self.gc_time() / LOOKS);
        let sooner = self.deadline.into_iter().chain(look).filter(|_| self.in_progress());
        let next = sooner.fold(self.expires, Instant::min);
        if next.0 != u64::MAX {
            alarms.timers.set(&mut self.timer, self.context, next);
        }
    }

    /// Sends its span, if it is traced (DPC §3.5.2).
    pub(super) fn send_span(&self, out: &mut dyn Outbox) {
        if !self.traced {
            return;
        }
        let Self { call, request, context, age, arrived, began, ended, .. } = *self;
        let (began, ended) = (began.unwrap_or(arrived), ended.unwrap_or(arrived));
        // Replies may wait for a grant.
        let waiting = self.outgoing.iter().filter(|outgoing| matches!(outgoing, Outgoing::Request(..))).count();
        let replies = self.outgoing.len() - waiting;
        let span = SpanPartRepr {
            request,
            context,
            age,
            waited: micros(arrived, began),
            ran: micros(began, ended),
            requests: (self.sent_to.len() + waiting) as u32,
            responses: self.responses + replies as u32,
        };
        out.send(self.reply, &TraceSpan { call, span }.encode(), &self.label);
    }

    /// Sends one message; `last`: there is nothing after it.
    fn send(&mut self, now: Instant, config: &WorkerConfig, outgoing: Outgoing, last: bool, out: &mut dyn Outbox) {
        let first = self.sent_to.is_empty() && self.responses == 0;
        let sole = first && last;
        let parents = if first && !mutant::on(Mutant::DelegateManifestDropped) { self.parents.take() } else { None };
        match outgoing {
            Outgoing::Reply(item) => {
                self.responses += 1;
                let id = match sole {
                    true => Ids::Sole(self.request.branch()),
                    false => Ids::Numbered(self.context, self.responses),
                };
                self.form = if sole { Form::Sole } else { Form::Manifest };
                let manifest = self.carried(parents, first, last, config.address);
                out.send(
                    self.reply,
                    &Response { call: self.call, id, null: false, again: None, manifest }.encode(),
                    &item,
                );
            }
            Outgoing::Request(to, payload) => {
                self.sent_to.push(to);
                self.form = if sole { Form::Chained } else { Form::Manifest };
                let inherits = sole && !mutant::on(Mutant::DelegateChainRenamed);
                let request = match inherits {
                    true => self.request.branch().inherited(self.request.seq().saturating_add(1)),
                    false => self.context.request(self.sent_to.len() as u32).inherited(0),
                };
                let manifest = self.carried(parents, first, last, config.address);
                let head = Request {
                    flags: if self.traced { Flags::TRACED } else { 0 } | if self.once { Flags::ONCE } else { 0 },
                    call: self.call,
                    request,
                    depth: self.depth.saturating_add(1),
                    gc: self.gc,
                    credit: self.credit,
                    ended: self.ended_code,
                    deadline: self.deadline.map_or(u32::MAX, |at| micros(now, at)),
                    age: self.age(now),
                    reply: self.reply,
                    sender: config.node,
                    manifest,
                };
                out.send(to, &head.encode(), &payload);
            }
        }
    }

    /// The manifest that a message carries: that of the request before with the first, its own with the last.
    fn carried(&self, parents: Option<Manifest>, first: bool, last: bool, server: SocketAddr) -> Option<Manifest> {
        let early = mutant::on(Mutant::DelegateManifestEarly) && self.sent_to.len() as u32 + self.responses == 2;
        let own = (last && !first || early).then(|| self.manifest(server, false));
        parents.or(own)
    }

    /// All was sent, or there was nothing to send: the manifest that is left goes alone.
    fn send_null(&mut self, server: SocketAddr, out: &mut dyn Outbox) {
        let none = self.sent_to.is_empty() && self.responses == 0;
        let (id, manifest) = if none {
            self.form = Form::Sole;
            (Ids::Sole(self.request.branch()), self.parents.take())
        } else {
            self.form = Form::Manifest;
            (Ids::Numbered(self.context, self.responses + 1), Some(self.manifest(server, true)))
        };
        self.responses += 1;
        out.send(
            self.reply,
            &Response { call: self.call, id, null: true, again: None, manifest }.encode(),
            &Bytes::new(),
        );
    }
}
