//! Handling of incoming messages: requests, pings and grants.

use std::cmp::Reverse;
use std::ops::Bound;

use bytes::Bytes;
use pathcall_wire::delegate::message::ended_before;
use pathcall_wire::delegate::{
    DelegateFlags, DelegateMessage, DelegateRequest, PAGE, Ping, PingSubject, Pong, ResponseGrant, list, parse,
};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{ContextId, MessageOutbox, PeerNode, RequestId, Status, failure, gc_time};
use super::execution::{Execution, Phase};
use super::{ABORTED_MAX, ARRIVING_MAX, AbortReason, DelegateWorker, ENDED_MAX, RequestOrder, WorkerEvent};

impl DelegateWorker {
    pub(super) fn handle_incoming(
        &mut self,
        now: Instant,
        from: PeerNode,
        message: &Bytes,
        out: &mut dyn MessageOutbox,
    ) {
        match parse(message) {
            Ok((DelegateMessage::Request(request), payload)) => {
                self.handle_request(now, from, &request, message.slice(payload..), out);
            }
            Ok((DelegateMessage::Ping(ping), _)) if self.is_from_caller(from, ping.call) => {
                self.handle_ping(now, &ping, from, out)
            }
            Ok((DelegateMessage::Grant(grant), _)) if self.is_from_caller(from, grant.call) => {
                self.handle_grant(now, grant, out)
            }
            _ => self.stats.refused += 1,
        }
    }

    /// Returns whether a message about a call came from its caller.
    fn is_from_caller(&self, from: PeerNode, call: ContextId) -> bool {
        from.node == call.node() || mutant::on(Mutant::DelegateStrangerHeard)
    }

    fn handle_request(
        &mut self,
        now: Instant,
        from: PeerNode,
        request: &DelegateRequest,
        payload: Bytes,
        out: &mut dyn MessageOutbox,
    ) {
        let once = request.flags & DelegateFlags::ONCE != 0;
        if from.node != request.sender && !mutant::on(Mutant::DelegateStrangerHeard) {
            self.stats.refused += 1;
            return;
        }
        self.arriving.remove(&(request.call, request.request));
        self.forget_ended_calls(now, request);
        if let Some(&id) = self.by_request.get(&(request.call, request.request))
            && !mutant::on(Mutant::DelegateRepeats)
        {
            self.stats.repeats += 1;
            let again = self.executions.get(&id).map(|execution| execution.phase);
            match again {
                Some(Phase::Recorded) => return self.send_recorded(request.call, request.request, out),
                // The request had no effect: it may run again.
                Some(Phase::Failed(_) | Phase::Aborted) if once => self.forget(id),
                _ => return,
            }
        }
        // A late copy of a request whose record was deleted.
        let over =
            self.records_deleted_up_to.get(&request.call.node()).is_some_and(|before| request.call.number() < *before);
        if once && over {
            self.stats.late += 1;
            return;
        }
        let refuse = |code, message: &str, out: &mut dyn MessageOutbox| {
            let (head, payload) = failure(request.call, request.request, &Status::new(code, message), None);
            out.send(request.reply, &head, &payload);
        };
        if request.depth > self.config.depth_max {
            let message = format!("the call passed through {} servers: is there a cycle?", request.depth);
            return refuse(Status::FAILED_PRECONDITION, &message, out);
        }
        let full = self.queued.bytes.saturating_add(payload.len()) > self.config.queued_max;
        if full || self.executions.len() >= self.config.executions_max {
            return refuse(Status::RESOURCE_EXHAUSTED, "the server's request queue is full", out);
        }
        let id = self.accept(now, request, payload);
        if self.aborted_calls.contains_key(&request.call) && !mutant::on(Mutant::DelegateLateBegun) {
            // The request is not begun, and pings of its caller are answered with the abort.
            self.stats.late += 1;
            return self.abort(now, id, AbortReason::Caller);
        }
        self.stats.requests += 1;
    }

    fn accept(&mut self, now: Instant, request: &DelegateRequest, payload: Bytes) -> ContextId {
        let context = self.new_context();
        let &DelegateRequest { flags, call, request: id, depth, gc, credit, deadline, age, reply, .. } = request;
        self.arrivals += 1;
        let deadline = (deadline != u32::MAX).then(|| Instant(now.0 + u64::from(deadline) * 1000));
        let execution = Execution {
            depth,
            traced: flags & DelegateFlags::TRACED != 0,
            once: flags & DelegateFlags::ONCE != 0,
            gc,
            credit,
            ended_code: request.ended,
            deadline,
            age,
            payload,
            phase: Phase::Queued,
            parents: request.manifest,
            granted: 1 << credit,
            expires: now + gc_time(gc),
            ..Execution::idle(now, context, call, id, reply)
        };
        let mut execution = Box::new(execution);
        execution.arm(now, &mut self.timers);
        let turn = self.queued.add(&execution);
        let key = match self.config.order {
            RequestOrder::FairShare => turn,
            RequestOrder::Arrival => 0,
            // Start time of the call by this node's clock.
            RequestOrder::OldestCall => now.0.saturating_sub(u64::from(age) * 1000),
        };
        self.executions.insert(context, execution);
        self.by_request.insert((call, id), context);
        self.queue.push(Reverse((key, self.arrivals, context)));
        context
    }

    /// Forgets executions of calls that a request reports as ended (DPC §4.4.4, optional active signalling).
    fn forget_ended_calls(&mut self, now: Instant, request: &DelegateRequest) {
        let (node, number) = (request.call.node(), request.call.number());
        let Some(before) = ended_before(number, request.ended).filter(|before| *before <= number) else { return };
        let (mut from, to) =
            (Bound::Included((ContextId::new(node, 0), RequestId::default())), ContextId::new(node, before));
        while !self.by_request.is_empty()
            && let Some((&known, &id)) =
                self.by_request.range((from, Bound::Excluded((to, RequestId::default())))).next()
        {
            from = Bound::Excluded(known);
            self.abort(now, id, AbortReason::Ended);
            let Some(execution) = self.executions.get(&id) else { continue };
            match execution.phase {
                Phase::Prepared => {}
                // If the table that remembers ended calls is full, the record stays.
                Phase::Recorded
                    if self.records_deleted_up_to.len() >= ENDED_MAX
                        && !self.records_deleted_up_to.contains_key(&node) => {}
                Phase::Recorded => {
                    let (call, request) = (execution.call, execution.request);
                    self.forget(id);
                    self.events.push_back(WorkerEvent::RecordObsolete { call, request });
                    self.records_deleted_up_to.insert(node, before);
                }
                _ => self.forget(id),
            }
        }
    }

    fn handle_ping(&mut self, now: Instant, ping: &Ping, from: PeerNode, out: &mut dyn MessageOutbox) {
        if ping.abort {
            // Every request of the call is pinged. Requests that arrive after the first of these pings are not begun.
            let known = self.aborted_calls.contains_key(&ping.call);
            self.remember_aborted(now, ping.call);
            if !known && !mutant::on(Mutant::DelegateAbortIgnored) {
                self.abort_call(now, ping.call, AbortReason::Caller);
            }
        }
        let id = match ping.subject {
            PingSubject::Request(request) => self.by_request.get(&(ping.call, request)).copied(),
            PingSubject::Context(context) => Some(context),
        };
        let &Ping { call, subject, round, .. } = ping;
        let sender = self.config.node;
        let Some(execution) = id.and_then(|id| self.executions.get_mut(&id)).filter(|e| e.call == call) else {
            // A server that does not know the request stays silent (DPC §4.4.3), unless the request is arriving just
            // now.
            if let PingSubject::Request(request) = subject
                && self.arriving.get(&(call, request)).is_some_and(|until| *until > now)
                && !mutant::on(Mutant::DelegateArrivingNotSent)
            {
                // No request of an aborted call is begun, however late it arrives.
                let flags = if self.aborted_calls.contains_key(&call) { DelegateFlags::ABORTED } else { 0 };
                let (context, code) = (ContextId::new(sender, 0), 0);
                let pong =
                    Pong { call, subject, round, flags, context, requests: 0, responses: 0, first: 1, code, sender };
                self.stats.pongs += 1;
                out.send(from.address, &pong.encode(0), &Bytes::new());
            }
            return;
        };
        if !matches!(execution.phase, Phase::Prepared | Phase::Recorded) && !mutant::on(Mutant::DelegatePingKeepsNot) {
            execution.expires = now + execution.gc_time();
        }
        let (context, (flags, code)) = (execution.context, execution.flags(now));
        // Messages of a request that waits to become durable were not sent.
        let (requests, responses) = match execution.phase {
            Phase::Prepared => (0, 0),
            _ => (execution.sent_to.len() as u32, execution.responses),
        };
        let first = ping.first.min(requests.saturating_add(1));
        let page = execution.sent_to[..requests as usize].iter().skip(first as usize - 1).take(PAGE);
        let addresses: Vec<u8> = page.flat_map(|address| list(*address)).collect();
        let count = (addresses.len() / pathcall_wire::delegate::address::V6) as u16;
        let pong = Pong { call, subject, round, flags, context, requests, responses, first, code, sender };
        self.stats.pongs += 1;
        out.send(from.address, &pong.encode(count), &addresses.into());
    }

    /// Records the progress of a long incoming message.
    pub(super) fn record_arriving(&mut self, now: Instant, head: &[u8]) {
        let Ok((DelegateMessage::Request(request), _)) = parse(head) else { return };
        let id = (request.call, request.request);
        if self.by_request.contains_key(&id) || self.arriving.len() >= ARRIVING_MAX && !self.arriving.contains_key(&id)
        {
            return;
        }
        // Half a timeout: a request is remembered for 1.5 timeouts.
        self.arriving.insert(id, now + gc_time(request.gc) / 3);
        if let Some(until) = self.aborted_calls.get(&request.call)
            && until.since(now) < self.config.aborted_for / 2
        {
            self.remember_aborted(now, request.call);
        }
    }

    /// Remembers that a call was aborted: its requests still in flight are not begun.
    fn remember_aborted(&mut self, now: Instant, call: ContextId) {
        let until = now + self.config.aborted_for;
        self.aborted_order.push_back((until, call));
        self.aborted_calls.insert(call, until);
        while self.aborted_order.len() > ABORTED_MAX {
            let Some((until, call)) = self.aborted_order.pop_front() else { break };
            if self.aborted_calls.get(&call) == Some(&until) {
                self.aborted_calls.remove(&call);
            }
        }
    }

    fn handle_grant(&mut self, now: Instant, grant: ResponseGrant, out: &mut dyn MessageOutbox) {
        let Some(execution) = self.executions.get_mut(&grant.context).filter(|e| e.call == grant.call) else { return };
        if execution.record_grant(grant.responses) {
            let null = execution.pump(now, &self.config, &mut self.timers, out);
            self.stats.nulls += u64::from(null);
            self.events.push_back(WorkerEvent::Granted { execution: grant.context });
        }
    }
}
