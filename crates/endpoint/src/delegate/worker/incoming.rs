//! What comes: requests, pings, grants.

use std::cmp::Reverse;
use std::ops::Bound;

use bytes::Bytes;
use pathcall_wire::delegate::message::ended_before;
use pathcall_wire::delegate::{Fault, Flags, Grant, Message, PAGE, Ping, Pong, Request, Subject, list, parse};
use pathcall_wire::{Instant, Mutant, mutant};

use super::super::{Context, Outbox, Peer, RequestId, Status, gc_time, text};
use super::execution::{Execution, Phase};
use super::{ABORTED_MAX, ARRIVING_MAX, AbortReason, ENDED_MAX, Order, Worker, WorkerEvent};

impl Worker {
    pub(super) fn incoming(&mut self, now: Instant, from: Peer, message: &Bytes, out: &mut dyn Outbox) {
        match parse(message) {
            Ok((Message::Request(request), payload)) => {
                self.requested(now, from, &request, message.slice(payload..), out);
            }
            Ok((Message::Ping(ping), _)) if self.is_callers(from, ping.call) => self.pinged(now, &ping, from, out),
            Ok((Message::Grant(grant), _)) if self.is_callers(from, grant.call) => self.granted(now, grant, out),
            _ => self.stats.refused += 1,
        }
    }

    /// Whether a message about a call came from its caller.
    fn is_callers(&self, from: Peer, call: Context) -> bool {
        from.node == call.node() || mutant::on(Mutant::DelegateStrangerHeard)
    }

    fn requested(&mut self, now: Instant, from: Peer, request: &Request, payload: Bytes, out: &mut dyn Outbox) {
        let once = request.flags & Flags::ONCE != 0;
        if from.node != request.sender && !mutant::on(Mutant::DelegateStrangerHeard) {
            self.stats.refused += 1;
            return;
        }
        self.arriving.remove(&(request.call, request.request));
        self.ended(now, request);
        if let Some(&id) = self.by_request.get(&(request.call, request.request))
            && !mutant::on(Mutant::DelegateRepeats)
        {
            self.stats.repeats += 1;
            let again = self.executions.get(&id).map(|execution| execution.phase);
            match again {
                Some(Phase::Recorded) => return self.send_recorded(request.call, request.request, out),
                // It took no effect: it may be tried again.
                Some(Phase::Failed(_) | Phase::Aborted) if once => self.forget(id),
                _ => return,
            }
        }
        // A late copy of what was recorded, and is not any more.
        let over = self.ended_before.get(&request.call.node()).is_some_and(|before| request.call.number() < *before);
        if once && over {
            self.stats.late += 1;
            return;
        }
        let refuse = |code, message: &str, out: &mut dyn Outbox| {
            let fault = Fault { call: request.call, request: request.request, code };
            out.send(request.reply, &fault.encode(), &text(message));
        };
        if request.depth > self.config.depth_max {
            let message = format!("the call went through {} servers: is there a cycle?", request.depth);
            return refuse(Status::FAILED_PRECONDITION, &message, out);
        }
        let full = self.queued.bytes.saturating_add(payload.len()) > self.config.queued_max;
        if full || self.executions.len() >= self.config.executions_max {
            return refuse(Status::RESOURCE_EXHAUSTED, "the server has no room for another request", out);
        }
        let id = self.accept(now, request, payload);
        if self.aborted_calls.contains_key(&request.call) && !mutant::on(Mutant::DelegateLateBegun) {
            // It is not begun, and its caller is told so when it asks.
            self.stats.late += 1;
            return self.abort(now, id, AbortReason::Caller);
        }
        self.stats.requests += 1;
    }

    fn accept(&mut self, now: Instant, request: &Request, payload: Bytes) -> Context {
        let context = self.new_context();
        let &Request { flags, call, request: id, depth, gc, credit, deadline, age, reply, .. } = request;
        self.arrivals += 1;
        let deadline = (deadline != u32::MAX).then(|| Instant(now.0 + u64::from(deadline) * 1000));
        let execution = Execution {
            depth,
            traced: flags & Flags::TRACED != 0,
            once: flags & Flags::ONCE != 0,
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
        execution.arm(now, &mut self.alarms);
        let turn = self.queued.enters(&execution);
        let key = match self.config.order {
            Order::Share => turn,
            Order::Arrival => 0,
            // When the call was begun, by this node's clock.
            Order::OldestCall => now.0.saturating_sub(u64::from(age) * 1000),
        };
        self.executions.insert(context, execution);
        self.by_request.insert((call, id), context);
        self.queue.push(Reverse((key, self.arrivals, context)));
        context
    }

    /// Forgets what the hint in a request says is over (DPC §4.4.4, optional active signalling).
    fn ended(&mut self, now: Instant, request: &Request) {
        let (node, number) = (request.call.node(), request.call.number());
        let Some(before) = ended_before(number, request.ended).filter(|before| *before <= number) else { return };
        let (mut from, to) =
            (Bound::Included((Context::new(node, 0), RequestId::default())), Context::new(node, before));
        while !self.by_request.is_empty()
            && let Some((&known, &id)) =
                self.by_request.range((from, Bound::Excluded((to, RequestId::default())))).next()
        {
            from = Bound::Excluded(known);
            self.abort(now, id, AbortReason::Ended);
            let Some(execution) = self.executions.get(&id) else { continue };
            match execution.phase {
                Phase::Sealed => {}
                // Without a place to remember that it is over, it stays.
                Phase::Recorded if self.ended_before.len() >= ENDED_MAX && !self.ended_before.contains_key(&node) => {}
                Phase::Recorded => {
                    let (call, request) = (execution.call, execution.request);
                    self.forget(id);
                    self.events.push_back(WorkerEvent::Forget { call, request });
                    self.ended_before.insert(node, before);
                }
                _ => self.forget(id),
            }
        }
    }

    fn pinged(&mut self, now: Instant, ping: &Ping, from: Peer, out: &mut dyn Outbox) {
        if ping.abort {
            // Every request of the call is pinged. What comes after the first of these pings is not begun.
            let known = self.aborted_calls.contains_key(&ping.call);
            self.remember_aborted(now, ping.call);
            if !known && !mutant::on(Mutant::DelegateAbortIgnored) {
                self.abort_call(now, ping.call, AbortReason::Caller);
            }
        }
        let id = match ping.subject {
            Subject::Request(request) => self.by_request.get(&(ping.call, request)).copied(),
            Subject::Context(context) => Some(context),
        };
        let &Ping { call, subject, round, .. } = ping;
        let sender = self.config.node;
        let Some(execution) = id.and_then(|id| self.executions.get_mut(&id)).filter(|e| e.call == call) else {
            // Who does not know it says nothing (DPC §4.4.3), unless it is just on its way here.
            if let Subject::Request(request) = subject
                && self.arriving.get(&(call, request)).is_some_and(|until| *until > now)
                && !mutant::on(Mutant::DelegateArrivingUnsaid)
            {
                // Nothing of an aborted call is begun, however long it takes to come.
                let flags = if self.aborted_calls.contains_key(&call) { Flags::ABORTED } else { 0 };
                let (context, code) = (Context::new(sender, 0), 0);
                let pong =
                    Pong { call, subject, round, flags, context, requests: 0, responses: 0, first: 1, code, sender };
                self.stats.pongs += 1;
                out.send(from.address, &pong.encode(0), &Bytes::new());
            }
            return;
        };
        if !matches!(execution.phase, Phase::Sealed | Phase::Recorded) && !mutant::on(Mutant::DelegatePingKeepsNot) {
            execution.expires = now + execution.gc_time();
        }
        let (context, (flags, code)) = (execution.context, execution.flags(now));
        // What waits to become durable was not sent.
        let (requests, responses) = match execution.phase {
            Phase::Sealed => (0, 0),
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

    /// A long message gets on.
    pub(super) fn on_its_way(&mut self, now: Instant, head: &[u8]) {
        let Ok((Message::Request(request), _)) = parse(head) else { return };
        let id = (request.call, request.request);
        if self.by_request.contains_key(&id) || self.arriving.len() >= ARRIVING_MAX && !self.arriving.contains_key(&id)
        {
            return;
        }
        // Half a time-out: what is known of a request is kept for three halves.
        self.arriving.insert(id, now + gc_time(request.gc) / 3);
        if let Some(until) = self.aborted_calls.get(&request.call)
            && until.since(now) < self.config.aborted_for / 2
        {
            self.remember_aborted(now, request.call);
        }
    }

    /// Remembers that a call was aborted: requests of it that are still on their way are not begun.
    fn remember_aborted(&mut self, now: Instant, call: Context) {
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

    fn granted(&mut self, now: Instant, grant: Grant, out: &mut dyn Outbox) {
        let Some(execution) = self.executions.get_mut(&grant.context).filter(|e| e.call == grant.call) else { return };
        if grant.responses > execution.granted {
            execution.granted = grant.responses;
            let null = execution.pump(now, &self.config, &mut self.alarms, out);
            self.stats.nulls += u64::from(null);
            self.events.push_back(WorkerEvent::Granted { execution: grant.context });
        }
    }
}
