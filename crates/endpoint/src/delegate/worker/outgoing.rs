//! Outgoing messages of an execution: requests and responses with their manifests, and the end of the execution.

use std::cmp::Reverse;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::delegate::parts::SpanPartRepr;
use pathcall_wire::delegate::{
    DelegateFlags, DelegateMessage, DelegateRequest, DelegateResponse, RequestManifest, ResponseId, TraceSpan, parse,
};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::caller::CallFailure;
use super::super::{ContextId, MessageOutbox, micros};
use super::execution::{OutgoingMessage, Phase, ResultForm};
use super::execution_timers::ExecutionTimers;
use super::{AbortReason, DelegateWorker, DelegateWorkerConfig, Execution, WorkerEvent, is_mostly_obsolete};

/// Number of checks of an execution until its expiry: they detect when this node stood still for a part of that time.
const CHECKS_PER_EXPIRY: u32 = 4;

impl DelegateWorker {
    /// Handles a message that will never arrive; notifies its caller, if possible.
    pub(super) fn handle_undelivered(
        &mut self,
        now: Instant,
        to: SocketAddr,
        message: &[u8],
        out: &mut dyn MessageOutbox,
    ) {
        match parse(message) {
            Ok((DelegateMessage::Request(request), _)) => {
                let (branch, seq) = (request.request.branch(), request.request.seq());
                let id = match seq.checked_sub(1) {
                    None => Some(branch.context()),
                    Some(seq) => self.by_request.get(&(request.call, branch.inherited(seq))).copied(),
                };
                let Some(execution) = id.and_then(|id| self.executions.get_mut(&id)) else { return };
                execution.outgoing.clear();
                let status = CallFailure::DelegatedNowhere(to).status();
                let id = execution.context;
                execution.send_failure(&status, Some(to), out);
                if execution.phase == Phase::Working {
                    let reason = AbortReason::Ended;
                    self.events.push_back(WorkerEvent::Aborted { execution: id, reason });
                }
                self.queued.remove(execution);
                if execution.phase != Phase::Recorded {
                    execution.enter_phase(now, Phase::Failed(status.code), &mut self.timers);
                }
            }
            Ok((DelegateMessage::Response(DelegateResponse { call, .. }), _)) => {
                self.abort_call(now, call, AbortReason::Unreachable)
            }
            _ => {}
        }
    }

    /// Aborts all executions of a call.
    pub(super) fn abort_call(&mut self, now: Instant, call: ContextId, reason: AbortReason) {
        let first = (call, Default::default());
        let of_call = self.by_request.range(first..).take_while(|((of, _), _)| *of == call);
        for id in of_call.map(|(_, id)| *id).collect::<Vec<_>>() {
            self.abort(now, id, reason);
        }
    }

    /// Aborts an execution, if it is in progress.
    pub(super) fn abort(&mut self, now: Instant, id: ContextId, reason: AbortReason) {
        let Some(execution) = self.executions.get_mut(&id).filter(|execution| execution.in_progress()) else { return };
        if execution.phase == Phase::Prepared {
            return; // The effect may be durable: the execution continues.
        }
        if execution.phase != Phase::Queued {
            self.events.push_back(WorkerEvent::Aborted { execution: id, reason });
        }
        self.queued.remove(execution);
        execution.outgoing.clear();
        self.stats.aborted += 1;
        execution.enter_phase(now, Phase::Aborted, &mut self.timers);
    }

    /// Flushes the held message of an execution, unless it has left meanwhile.
    pub(super) fn flush(&mut self, now: Instant, id: ContextId, until: Instant, out: &mut dyn MessageOutbox) {
        if let Some(execution) = self.executions.get_mut(&id).filter(|e| e.flush_at == Some(until)) {
            execution.pump(now, &self.config, &mut self.timers, out);
        }
    }

    /// Handles an expired timer of an execution, unless it is obsolete.
    pub(super) fn due(&mut self, now: Instant, id: ContextId, at: Instant) {
        let Some(execution) = self.executions.get_mut(&id).filter(|e| e.timer == Some(at)) else { return };
        execution.timer = None;
        if execution.in_progress() && !execution.once {
            // This node stood still for this long, and may have missed pings.
            execution.expires = execution.expires + now.since(at);
        }
        let (late, expired) = (execution.deadline.is_some_and(|at| at <= now), execution.expires <= now);
        if execution.in_progress() && late && !execution.once {
            self.abort(now, id, AbortReason::Deadline);
        } else if execution.in_progress() && expired && !execution.once {
            // A waiting caller would have sent a ping (DPC §4.4.4).
            self.abort(now, id, AbortReason::Orphaned);
        } else if expired && !execution.in_progress() {
            return self.forget(id);
        }
        let Some(execution) = self.executions.get_mut(&id) else { return };
        // An exactly-once request runs on without its caller.
        execution.deadline = execution.deadline.filter(|at| *at > now);
        if execution.expires <= now {
            execution.expires = now + execution.gc_time();
        }
        execution.arm(now, &mut self.timers);
    }

    /// Removes an execution.
    pub(super) fn forget(&mut self, id: ContextId) {
        let Some(mut execution) = self.executions.remove(&id) else { return };
        self.by_request.remove(&(execution.call, execution.request));
        self.queued.remove(&mut execution);
        let executions = &self.executions;
        self.timers
            .timers
            .remove_obsolete(executions.len(), |at, id| executions.get(&id).is_some_and(|e| e.timer == Some(at)));
        if self.queued.requests == 0 {
            self.queue.clear();
        } else if is_mostly_obsolete(self.queue.len(), self.queued.requests) {
            self.queue.retain(|Reverse((.., id))| executions.get(id).is_some_and(|e| e.phase == Phase::Queued));
        }
    }
}

impl Execution {
    /// Sends the messages that may leave, and the manifest with the last one; returns whether a response without
    /// content was needed.
    pub(super) fn pump(
        &mut self,
        now: Instant,
        config: &DelegateWorkerConfig,
        timers: &mut ExecutionTimers,
        out: &mut dyn MessageOutbox,
    ) -> bool {
        if self.once && self.phase == Phase::Working {
            return false; // No message leaves before the record is durable (DPC §3.5.3).
        }
        while let Some(at) = self.next_sendable(now) {
            let Some(outgoing) = self.outgoing.remove(at) else { break };
            let last = self.phase == Phase::Finished && self.outgoing.is_empty();
            self.send(now, config, outgoing, last, out);
            self.end_hold(timers);
            if last {
                self.enter_phase(now, Phase::Complete(self.form), timers);
                return false;
            }
        }
        if self.phase == Phase::Finished && self.outgoing.is_empty() {
            self.send_null(config.address, out);
            self.enter_phase(now, Phase::Complete(self.form), timers);
            return true;
        }
        let held = self.outgoing.front();
        let leaves = self.may_respond() || matches!(held, Some(OutgoingMessage::Request(..)));
        if held.is_none() || !leaves {
            self.end_hold(timers);
        } else if self.flush_at.is_none() {
            self.flush_at = Some(timers.hold_message(now, self.context));
        }
        false
    }

    /// Ends the holding of a message.
    fn end_hold(&mut self, timers: &mut ExecutionTimers) {
        if let Some(until) = self.flush_at.take() {
            timers.end_hold(until, self.context);
        }
    }

    /// Enters a phase, and sets the time at which the execution is forgotten.
    pub(super) fn enter_phase(&mut self, now: Instant, phase: Phase, timers: &mut ExecutionTimers) {
        self.phase = phase;
        self.payload = Bytes::new();
        self.end_hold(timers);
        // An exactly-once request is remembered until its call has ended.
        let kept = matches!(phase, Phase::Prepared | Phase::Recorded);
        self.expires = if kept { Instant(u64::MAX) } else { now + self.gc_time() };
        self.arm(now, timers);
    }

    /// Sets the timer. A request in progress is checked several times before its expiry: a late check shows that this
    /// node stood still.
    pub(super) fn arm(&mut self, now: Instant, timers: &mut ExecutionTimers) {
        let next_check = (!self.once).then(|| now + self.gc_time() / CHECKS_PER_EXPIRY);
        let earlier_checks = self.deadline.into_iter().chain(next_check).filter(|_| self.in_progress());
        let next = earlier_checks.fold(self.expires, Instant::min);
        if next.0 != u64::MAX {
            timers.timers.set(&mut self.timer, self.context, next);
        }
    }

    /// Sends the span, if the call is traced (DPC §3.5.2).
    pub(super) fn send_span(&self, out: &mut dyn MessageOutbox) {
        if !self.traced {
            return;
        }
        let Self { call, request, context, age, arrived, began, ended, .. } = *self;
        let (began, ended) = (began.unwrap_or(arrived), ended.unwrap_or(arrived));
        // Replies may wait for a grant.
        let waiting = self.outgoing.iter().filter(|outgoing| matches!(outgoing, OutgoingMessage::Request(..))).count();
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

    /// Sends one message; `last`: no other follows.
    fn send(
        &mut self,
        now: Instant,
        config: &DelegateWorkerConfig,
        outgoing: OutgoingMessage,
        last: bool,
        out: &mut dyn MessageOutbox,
    ) {
        let first = self.sent_to.is_empty() && self.responses == 0;
        let sole = first && last;
        let parents = if first && !mutant::on(Mutant::DelegateManifestDropped) { self.parents.take() } else { None };
        match outgoing {
            OutgoingMessage::Reply(item) => {
                // Nothing waits behind the last response.
                if last {
                    self.responses += 1
                } else {
                    self.count_response(item.len())
                }
                let id = match sole {
                    true => ResponseId::Sole(self.request.branch()),
                    false => ResponseId::Numbered(self.context, self.responses),
                };
                self.form = if sole { ResultForm::Sole } else { ResultForm::Manifest };
                let manifest = self.manifest_to_attach(parents, first, last, config.address);
                out.send(
                    self.reply,
                    &DelegateResponse { call: self.call, id, null: false, again: None, manifest }.encode(),
                    &item,
                );
            }
            OutgoingMessage::Request(to, payload) => {
                self.sent_to.push(to);
                self.form = if sole { ResultForm::Chained } else { ResultForm::Manifest };
                let inherits = sole && !mutant::on(Mutant::DelegateChainRenamed);
                let request = match inherits {
                    true => self.request.branch().inherited(self.request.seq().saturating_add(1)),
                    false => self.context.request(self.sent_to.len() as u32).inherited(0),
                };
                let manifest = self.manifest_to_attach(parents, first, last, config.address);
                let head = DelegateRequest {
                    flags: if self.traced { DelegateFlags::TRACED } else { 0 }
                        | if self.once { DelegateFlags::ONCE } else { 0 },
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

    /// Manifest that a message carries: the parent's with the first message, its own with the last one.
    fn manifest_to_attach(
        &self,
        parents: Option<RequestManifest>,
        first: bool,
        last: bool,
        server: SocketAddr,
    ) -> Option<RequestManifest> {
        let early = mutant::on(Mutant::DelegateManifestEarly) && self.sent_to.len() as u32 + self.responses == 2;
        let own = (last && !first || early).then(|| self.manifest(server, false));
        parents.or(own)
    }

    /// Sends the remaining manifest in a response without content.
    fn send_null(&mut self, server: SocketAddr, out: &mut dyn MessageOutbox) {
        let none = self.sent_to.is_empty() && self.responses == 0;
        let (id, manifest) = if none {
            self.form = ResultForm::Sole;
            (ResponseId::Sole(self.request.branch()), self.parents.take())
        } else {
            self.form = ResultForm::Manifest;
            (ResponseId::Numbered(self.context, self.responses + 1), Some(self.manifest(server, true)))
        };
        self.responses += 1;
        out.send(
            self.reply,
            &DelegateResponse { call: self.call, id, null: true, again: None, manifest }.encode(),
            &Bytes::new(),
        );
    }
}
