//! What leaves: requests and responses with their manifests, and how an execution comes to its end.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::parts::SpanPartRepr;
use pathcall_wire::delegate::{Flags, Ids, Manifest, Message, Request, Response, TraceSpan, parse};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{Context, Outbox, Status, micros};
use super::execution::{Form, Outgoing, Phase};
use super::{AbortReason, Execution, Worker, WorkerEvent};

impl Worker {
    /// Sends what may leave, and the manifest with the last of it.
    pub(super) fn pump(&mut self, now: Instant, id: Context, out: &mut dyn Outbox) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if execution.once && execution.phase == Phase::Working {
            return; // Nothing leaves before all of it is durable (DPC §3.5.3).
        }
        while let Some(at) = execution.may_leave(now) {
            let Some(outgoing) = execution.outgoing.remove(at) else { break };
            let last = execution.phase == Phase::Finished && execution.outgoing.is_empty();
            execution.send(now, self.config, outgoing, last, out);
            execution.flush_at = None;
            if last {
                return self.complete(now, id);
            }
        }
        if execution.phase == Phase::Finished && execution.outgoing.is_empty() {
            self.stats.nulls += 1;
            execution.send_null(self.config.address, out);
            return self.complete(now, id);
        }
        let held = execution.outgoing.front();
        let leaves = execution.responses < execution.granted || matches!(held, Some(Outgoing::Request(..)));
        execution.flush_at = match held {
            Some(_) if leaves => execution.flush_at.or(Some(now + self.config.flush)),
            _ => None,
        };
        self.arm(id);
    }

    fn complete(&mut self, now: Instant, id: Context) {
        let Some(execution) = self.executions.get(&id) else { return };
        self.set_phase(now, id, Phase::Complete(execution.form));
    }

    /// Sends a traced execution's span (DPC §3.5.2).
    pub(super) fn send_span(&mut self, id: Context, out: &mut dyn Outbox) {
        let Some(execution) = self.executions.get(&id).filter(|execution| execution.traced) else { return };
        let Execution { call, request, context, age, arrived, began, ended, .. } = *execution;
        let (began, ended) = (began.unwrap_or(arrived), ended.unwrap_or(arrived));
        // Replies may wait for a grant.
        let waiting = execution.outgoing.iter().filter(|outgoing| matches!(outgoing, Outgoing::Request(..))).count();
        let replies = execution.outgoing.len() - waiting;
        let span = SpanPartRepr {
            request,
            context,
            age,
            waited: micros(began.since(arrived)),
            ran: micros(ended.since(began)),
            requests: (execution.sent_to.len() + waiting) as u32,
            responses: execution.responses + replies as u32,
        };
        out.send(execution.reply, &TraceSpan { call, span }.encode(), &execution.label);
    }

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
                if execution.phase != Phase::Recorded {
                    self.set_phase(now, id, Phase::Failed(status.code));
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
        if execution.phase == Phase::Queued {
            let (key, arrival) = execution.queue_key;
            self.queue.remove(&(key, arrival, id));
        } else {
            self.events.push_back(WorkerEvent::Aborted { execution: id, reason });
        }
        execution.outgoing.clear();
        execution.flush_at = None;
        self.stats.aborted += 1;
        self.set_phase(now, id, Phase::Aborted);
    }

    /// Changes how far a request is, and the time from which it is forgotten.
    pub(super) fn set_phase(&mut self, now: Instant, id: Context, phase: Phase) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        execution.phase = phase;
        execution.payload = Bytes::new();
        // What is done once is known until its call has ended.
        let kept = matches!(phase, Phase::Sealed | Phase::Recorded);
        execution.expires = if kept { Instant(u64::MAX) } else { now + execution.gc_time() };
        self.arm(id);
    }

    /// Sets the timer of an execution.
    pub(super) fn arm(&mut self, id: Context) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        let next = Some(execution.next_timer()).filter(|at| at.0 != u64::MAX);
        if next != execution.timer {
            if let Some(old) = execution.timer {
                self.timers.remove(&(old, id));
            }
            execution.timer = next;
            self.timers.extend(next.map(|at| (at, id)));
        }
    }

    /// An execution's timer has run out, and is out of the list.
    pub(super) fn due(&mut self, now: Instant, id: Context, out: &mut dyn Outbox) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        execution.timer = None;
        if execution.flush_at.is_some_and(|at| at <= now) {
            self.pump(now, id, out);
        }
        let Some(execution) = self.executions.get(&id) else { return };
        let (late, expired) = (execution.deadline.is_some_and(|at| at <= now), execution.expires <= now);
        if execution.in_progress() && late && !execution.once {
            self.abort(now, id, AbortReason::Deadline);
        } else if execution.in_progress() && expired && !execution.once {
            // A caller that waits for it would have asked (DPC §4.4.4).
            self.abort(now, id, AbortReason::Orphaned);
        } else if expired && !execution.in_progress() {
            return self.forget(id);
        }
        if let Some(execution) = self.executions.get_mut(&id) {
            // What is done once is worked on without its caller.
            execution.deadline = execution.deadline.filter(|at| *at > now);
            if execution.expires <= now {
                execution.expires = now + execution.gc_time();
            }
        }
        self.arm(id);
    }

    /// Forgets an execution.
    pub(super) fn forget(&mut self, id: Context) {
        let Some(execution) = self.executions.remove(&id) else { return };
        self.by_request.remove(&(execution.call, execution.request));
        if let Some(timer) = execution.timer {
            self.timers.remove(&(timer, id));
        }
        let (key, arrival) = execution.queue_key;
        self.queue.remove(&(key, arrival, id));
    }
}

impl Execution {
    /// Sends one message; `last`: there is nothing after it.
    fn send(
        &mut self,
        now: Instant,
        config: super::WorkerConfig,
        outgoing: Outgoing,
        last: bool,
        out: &mut dyn Outbox,
    ) {
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
                    deadline: self.deadline.map_or(u32::MAX, |at| micros(at.since(now))),
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
