//! Answers of servers: the first one ends its call; a failed answer lets another server try (gRPC A6).

use bytes::Bytes;
use pathcall_wire::{CloneFlags, CloneFrame, Instant, Mutant, mutant};

use super::super::Pushback;
use super::call::{Call, ServerReply, bit};
use super::{CloneAnswer, CloneCallId, CloneCaller, CloneFailure, Event, RETRIED_MAX};

impl CloneCaller {
    /// Handles the report of a server that it works on a call.
    pub(super) fn record_working_server(&mut self, now: Instant, seq: u32, server: u32) {
        let pause = |call: &Call| self.retry_pause(call, 1).max(call.min_pause(now));
        let Some(pause) = self.calls.get(&seq).map(pause) else { return };
        let Some(call) = self.calls.get_mut(&seq) else { return };
        self.stats.working += 1;
        call.record_working(server);
        call.unanswered = 0;
        call.retry_at = call.retry_at.map(|_| now + pause);
        self.arm(seq);
    }

    /// Completes a call with its answer.
    pub(super) fn handle_answer(&mut self, now: Instant, seq: u32, frame: &CloneFrame<&[u8]>, reply: Bytes) {
        let twice = mutant::on(Mutant::CloneAnsweredTwice);
        let Some(mut call) = self.calls.remove(&seq) else { return };
        let (head, cloned) = (frame.head(), frame.head().clo() != 0);
        if !cloned {
            self.refund(&mut call, head.attempt());
        }
        // A server that is reminded goes on with the same execution.
        if head.attempt() == 0 || call.requests == 1 + call.reminders {
            self.latency.record(now.since(call.started_at));
        }
        self.learn_from_answer(now, &call, head);
        self.record_latency(now, &mut call);
        self.record_server_state(&call, frame);
        self.record_end(now, &call);
        if call.options.cancel {
            self.cancel_others(seq, &call, frame);
        }
        if call.retried_elsewhere && head.attempt() < call.attempt {
            self.latency.record_premature_retry();
        } else if call.retried_elsewhere {
            self.retried_elsewhere.truncate(RETRIED_MAX - 1);
            self.retried_elsewhere.push_front((seq, head.attempt()));
        }
        if cloned {
            self.count_by_element(&call, head);
        }
        self.complete(now, seq, &call, ServerReply { reply, server: frame.base().src(), cloned });
        if twice {
            self.calls.insert(seq, call);
        }
    }

    /// Handles an answer to a call that was answered already.
    pub(super) fn handle_redundant(&mut self, seq: u32, attempt: u8) {
        self.stats.redundant += 1;
        let late = |(of, answered): &(u32, u8)| *of == seq && *answered != attempt;
        if let Some(at) = self.retried_elsewhere.iter().position(late) {
            self.retried_elsewhere.remove(at);
            self.latency.record_premature_retry();
        }
    }

    /// Handles a server's failure: another server is asked at once, or the working servers are awaited (gRPC A6).
    pub(super) fn handle_failure(&mut self, now: Instant, seq: u32, frame: &CloneFrame<&[u8]>, reply: Bytes) {
        let Some(mut call) = self.calls.remove(&seq) else { return };
        let (attempt, server) = (frame.head().attempt(), frame.base().src());
        let cloned = frame.head().flags() & CloneFlags::CLONE != 0;
        if call.record_failure(attempt, ServerReply { reply, server, cloned }) {
            self.stats.set_aside += 1;
            call.clear_working(server);
            if call.forget_open(server) {
                self.loads.record_answered(server);
            }
            if let Some(pushback) = Pushback::decode(frame.head().patience())
                && !mutant::on(Mutant::ClonePushbackIgnored)
            {
                call.push_back(now, pushback);
            }
            if !cloned {
                self.refund(&mut call, attempt);
                // The element has dropped the copy that it held.
                call.is_held &= attempt != 0;
            }
            if call.may_hedge() {
                call.hedge_at = Some(call.not_before.max(now));
            } else if call.has_attempts() {
                call.hedge_at = None;
                self.stats.refused.pushback += 1;
            } else if !cloned {
                self.ask_another_server(now, seq, &mut call, server);
            }
        }
        let over = call.has_failed() && !call.may_hedge() && call.ask_after.is_none();
        self.calls.insert(seq, call);
        if over { self.complete_with_failure(now, seq) } else { self.arm(seq) }
    }

    /// Completes a call with its last failure.
    pub(super) fn complete_with_failure(&mut self, now: Instant, seq: u32) {
        if let Some(mut call) = self.calls.remove(&seq)
            && let Some(reply) = call.failure.take()
        {
            // A failed answer does not tell a held hedge from a clone that was sent at once.
            let held = call.is_held && !call.options.clone;
            self.stats.hedged_by_element += u64::from(reply.cloned && held);
            self.stats.cloned += u64::from(reply.cloned && !held);
            self.record_failed(now, &mut call);
            self.record_failed_end(&call);
            self.complete(now, seq, &call, reply);
        }
    }

    /// Refunds the clone of an attempt that was not cloned.
    pub(super) fn refund(&mut self, call: &mut Call, attempt: u8) {
        if call.reserved & bit(attempt) != 0 {
            call.reserved &= !bit(attempt);
            // A held hedge that was not needed was not refused.
            self.stats.refused.busy += u64::from(!call.is_held || call.options.clone);
            self.budgets.refund(call.options.budget, call.options.cost);
        }
    }

    /// Forgets the requests of a call that has ended.
    pub(super) fn forget_requests(&mut self, call: &Call) {
        for server in call.open.into_iter().filter(|server| *server != 0) {
            self.loads.record_answered(server);
        }
    }

    /// Completes a call with a reply.
    pub(super) fn complete(&mut self, now: Instant, seq: u32, call: &Call, answer: ServerReply) {
        let ServerReply { reply, server, cloned } = answer;
        self.forget_requests(call);
        self.stats.answered += 1;
        let requests = call.requests + u32::from(cloned);
        let answer = CloneAnswer { reply, server, latency: now.since(call.started_at), cloned, requests };
        self.events.push_back(Event::Answered(CloneCallId(seq), answer));
    }

    /// Fails a call at its deadline.
    pub(super) fn fail(&mut self, now: Instant, seq: u32) {
        let Some(mut call) = self.calls.remove(&seq) else { return };
        self.stats.failed += 1;
        self.forget_requests(&call);
        self.record_latency(now, &mut call);
        self.record_end(now, &call);
        if call.options.cancel {
            self.cancel_all(seq, &call);
        }
        let failure = CloneFailure::Deadline { after: call.options.deadline, requests: call.requests };
        self.events.push_back(Event::Failed(CloneCallId(seq), failure));
    }
}
