//! Invariant checks of clone: each call has one whole answer, or fails at its deadline; only permitted clones; load
//! within the hedge budget; bounded queues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_endpoint::clone::{CloneAnswer, Event, Pushback};
use pathcall_wire::{CloneFlags, CloneFrame, FrameKind, Instant, clone};

use super::automatic::DirectCalls;
use super::payload::PayloadTag;
use super::plan::{ClonePlan, HEDGE_BUDGETS, pushback};
use super::violation::CloneViolation;

/// Record of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct CallRecord {
    pub(super) made: Option<Instant>,
    pub(super) ended: bool,
    /// Executions, by endpoint and incarnation of their servers; the first has number 1.
    executions: Vec<(u32, u32)>,
    /// Executions that failed.
    failed: BTreeSet<u32>,
    /// Time of the first successful execution.
    done: Option<Instant>,
    /// Number of the last attempt that was sent.
    attempt: u8,
    /// Hedges that the element may have sent: 1 if the caller has granted one, and knows of no reason against it.
    granted: u8,
    /// Time before which no other server may be asked.
    not_before: Instant,
    /// Servers, by endpoint, that have reported to work on the call.
    working: BTreeSet<u32>,
    /// Attempts and servers of the failed answers that the caller has.
    failed_answers: BTreeSet<(u8, u32)>,
}

/// Requests that one caller sent under one hedge budget.
#[derive(Debug, Clone, Default)]
struct SentRequests {
    calls: u64,
    /// Cost of one request for each call, and of the requests that were sent.
    calls_cost: u64,
    requests_cost: u64,
    /// Arrivals at the element, by call number and attempt. Repeats by the network do not count against the caller.
    came: BTreeMap<(u32, u8), u32>,
    /// Requests that arrived once and were cloned, with their cost.
    cloned: BTreeMap<(u32, u8), u64>,
}

/// Checker of a run.
#[derive(Debug)]
pub(super) struct CloneChecker<'a> {
    plan: &'a ClonePlan,
    /// Total time of all pauses of machines.
    total_pause: Duration,
    pub(super) calls: Vec<CallRecord>,
    /// By caller and hedge budget.
    sent: Vec<[SentRequests; HEDGE_BUDGETS]>,
    direct: DirectCalls,
    /// Hedges that the caller of the slow time had sent when it knew that all servers are slow.
    pub(super) hedged_before: Option<u64>,
}

/// Time within which a call must be answered after the end of the faults.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2_000);

impl<'a> CloneChecker<'a> {
    pub(super) fn new(plan: &'a ClonePlan, total_pause: Duration) -> Self {
        Self {
            plan,
            total_pause,
            calls: vec![CallRecord::default(); plan.calls.len()],
            sent: vec![Default::default(); plan.callers.len()],
            direct: DirectCalls::default(),
            hedged_before: None,
        }
    }

    pub(super) fn made(&mut self, now: Instant, call: usize) {
        self.calls[call].made = Some(now);
        let cost = u64::from(self.plan.calls[call].options.cost);
        let sent = self.sent(call);
        (sent.calls, sent.calls_cost) = (sent.calls + 1, sent.calls_cost + cost);
    }

    /// Records a frame that a caller sends.
    pub(super) fn record_sent_frame(
        &mut self,
        now: Instant,
        call: usize,
        frame: &CloneFrame<&[u8]>,
    ) -> Result<(), CloneViolation> {
        if frame.kind() == FrameKind::CloneRequest && frame.head().part() == 0 {
            let known = &self.calls[call];
            let reminds = frame.head().flags() & CloneFlags::DIRECT != 0 && known.working.contains(&frame.base().dst());
            if now < known.not_before && !reminds {
                return Err(CloneViolation::PushedBack(call));
            }
            self.sent(call).requests_cost += u64::from(self.plan.calls[call].options.cost);
            self.calls[call].attempt = frame.head().attempt();
            self.calls[call].granted |= u8::from(frame.base().round() != 0);
            self.plan.check_slow_time(call, frame)?;
            self.direct.record(self.plan, call, frame);
        }
        self.within_budget(now, call)
    }

    /// Records a frame of a server that arrives at the caller of an open call.
    pub(super) fn record_answer(&mut self, now: Instant, call: usize, frame: &CloneFrame<&[u8]>) {
        let (known, head, server) = (&mut self.calls[call], frame.head(), frame.base().src());
        let reports = frame.kind() == FrameKind::CloneWorking && head.clo() == 0;
        let fails = head.flags() & (CloneFlags::FAILED | CloneFlags::CLONE) == CloneFlags::FAILED;
        if head.attempt() == 0 && (reports || fails && head.parts() == 1) {
            known.granted = 0;
        }
        if frame.kind() == FrameKind::CloneWorking {
            known.working.insert(server);
        } else if head.flags() & CloneFlags::FAILED != 0
            && head.parts() == 1
            && known.failed_answers.insert((head.attempt(), server))
        {
            known.not_before = known.not_before.max(match pushback(call) {
                None => known.not_before,
                Some(Pushback::After(time)) => now + time,
                Some(Pushback::Never) => Instant(u64::MAX),
            });
        }
    }

    /// Records the arrival of a request at the element.
    pub(super) fn record_at_element(&mut self, call: usize, frame: &CloneFrame<&[u8]>) {
        if frame.kind() == FrameKind::CloneRequest && frame.head().part() == 0 {
            let name = (frame.base().seq(), frame.head().attempt());
            let sent = self.sent(call);
            let came = sent.came.entry(name).or_default();
            *came += 1;
            if *came > 1 {
                // The answer may be that of the repeated copy, which was not cloned.
                sent.cloned.remove(&name);
            }
        }
    }

    /// Records a clone.
    pub(super) fn cloned(
        &mut self,
        now: Instant,
        call: usize,
        frame: &CloneFrame<&[u8]>,
    ) -> Result<(), CloneViolation> {
        let cost = u64::from(self.plan.calls[call].options.cost);
        let (name, sent) = ((frame.base().seq(), frame.head().attempt()), self.sent(call));
        if sent.came.get(&name) == Some(&1) {
            sent.cloned.insert(name, cost);
        }
        self.within_budget(now, call)
    }

    /// Requests under the hedge budget of a call.
    fn sent(&mut self, call: usize) -> &mut SentRequests {
        let plan = &self.plan.calls[call];
        &mut self.sent[plan.caller][usize::from(plan.options.budget)]
    }

    /// Checks that a caller has not exceeded the hedge budget of a call.
    fn within_budget(&self, now: Instant, call: usize) -> Result<(), CloneViolation> {
        let (caller, hedge_budget) = (self.plan.calls[call].caller, usize::from(self.plan.calls[call].options.budget));
        let (sent, budget) = (&self.sent[caller][hedge_budget], self.plan.callers[caller].budgets[hedge_budget]);
        let extra = (sent.requests_cost + sent.cloned.values().sum::<u64>()).saturating_sub(sent.calls_cost);
        let time = now.since(Instant(0)).as_secs_f64();
        let allowed = budget.share * sent.calls as f64 + budget.burst.max(1.0) + budget.per_second * time;
        if extra as f64 > allowed + 1e-6 {
            return Err(CloneViolation::Budget { caller, extra, budget: allowed.ceil() as u64 });
        }
        Ok(())
    }

    /// Checks a request that arrives at a server.
    pub(super) fn check_arrival(&self, call: Option<usize>, frame: &CloneFrame<&[u8]>) -> Result<(), CloneViolation> {
        let (Some(call), FrameKind::CloneRequest) = (call, frame.kind()) else { return Ok(()) };
        let (options, head) = (self.plan.calls[call].options, frame.head());
        let asked = head.flags() & CloneFlags::CLONE != 0;
        let may = (options.clone || options.automatic) && options.idempotent;
        let held = options.idempotent && (options.hedge.is_some() || options.automatic) && self.plan.holding.is_some();
        let may = asked && may || held && frame.base().round() != 0;
        if head.clo() != 0 && !may { Err(CloneViolation::Cloned(call)) } else { Ok(()) }
    }

    /// Records the start of an execution; returns the tag with its number.
    pub(super) fn begins(
        &mut self,
        server: usize,
        by: (u32, u32),
        request: &[u8],
    ) -> Result<PayloadTag, CloneViolation> {
        let tag = PayloadTag::of(request).filter(|tag| tag.execution == 0).ok_or(CloneViolation::Request(server))?;
        let call = tag.call as usize;
        let known = self.calls.get_mut(call).ok_or(CloneViolation::Request(server))?;
        // A restarted process cannot know the requests of its predecessor.
        let again = known.executions.iter().any(|before| before.0 != by.0 || before.1 == by.1);
        known.executions.push(by);
        if !self.plan.calls[call].options.idempotent && again {
            return Err(CloneViolation::Twice(call));
        }
        Ok(PayloadTag { call: tag.call, execution: known.executions.len() as u32 })
    }

    /// Records the end of an execution.
    pub(super) fn done(&mut self, now: Instant, tag: PayloadTag, fails: bool) {
        let known = &mut self.calls[tag.call as usize];
        if fails {
            known.failed.insert(tag.execution);
        } else {
            known.done.get_or_insert(now);
        }
    }

    /// Checks that a call may end with a server's failure: no other server can be asked, and none has completed it.
    fn failure(&self, now: Instant, call: usize, is_spent: bool) -> Result<(), CloneViolation> {
        let (known, plan) = (&self.calls[call], &self.plan.calls[call]);
        let others = plan.options.hedge.is_some_and(|hedge| known.attempt + 1 + known.granted < hedge.max_attempts)
            && pushback(call).is_none();
        if others && plan.options.idempotent && self.is_generous(plan.caller) && !is_spent {
            return Err(CloneViolation::GaveUp(call));
        }
        let arrives = known.done.map(|done| done + self.plan.delay.1 * 3);
        match arrives.is_some_and(|at| at < now) && self.plan.is_calm() {
            true => Err(CloneViolation::Worse(call)),
            false => Ok(()),
        }
    }

    /// Checks the end of a call. `is_spent`: its caller's hedge budgets have refused an extra request.
    pub(super) fn ends(
        &mut self,
        now: Instant,
        call: usize,
        event: &Event,
        is_spent: bool,
    ) -> Result<(), CloneViolation> {
        let deadline = self.plan.calls[call].options.deadline;
        let known = &mut self.calls[call];
        let after = now.since(known.made.unwrap_or(now));
        if std::mem::replace(&mut known.ended, true) {
            return Err(CloneViolation::EndedTwice(call));
        }
        match event {
            Event::Answered(_, CloneAnswer { reply, server, .. }) => {
                let tag = PayloadTag::of(reply).filter(|tag| tag.call as usize == call && tag.execution > 0);
                let by = tag.and_then(|tag| known.executions.get(tag.execution as usize - 1));
                if by.map(|by| by.0) != Some(*server) {
                    return Err(CloneViolation::MadeUp { call, bytes: reply.len() });
                }
                if after > deadline + self.total_pause {
                    return Err(CloneViolation::Deadline { call, after, deadline });
                }
                if tag.is_some_and(|tag| known.failed.contains(&tag.execution)) {
                    return self.failure(now, call, is_spent);
                }
            }
            Event::Failed(..) => {
                if after < deadline || after > deadline + self.total_pause {
                    return Err(CloneViolation::Deadline { call, after, deadline });
                }
                if self.must_be_answered(call) {
                    return Err(CloneViolation::Unanswered(call));
                }
            }
        }
        Ok(())
    }

    /// Whether the caller's hedge budgets are large. A caller with a small budget may fail after a loss.
    pub(super) fn is_generous(&self, caller: usize) -> bool {
        self.plan.callers[caller].budgets.iter().all(|budget| budget.burst >= 10.0)
    }

    /// Whether servers were reachable long enough before the deadline for an answer.
    fn must_be_answered(&self, call: usize) -> bool {
        let plan = &self.plan.calls[call];
        let made = self.calls[call].made.unwrap_or_default();
        let generous = self.is_generous(plan.caller);
        let calm_for = (made + plan.options.deadline).since(self.plan.faults_until.max(made));
        (plan.options.idempotent || self.plan.is_calm()) && generous && calm_for >= ANSWER_TIMEOUT
    }

    /// Checks at the end of the run.
    pub(super) fn check_end(&self) -> Result<(), CloneViolation> {
        match self.calls.iter().position(|known| known.made.is_some() && !known.ended) {
            Some(call) => Err(CloneViolation::Hangs(call)),
            None => self.direct.check(),
        }
    }
}

/// Whether a frame is a droppable clone with one part.
pub(super) fn is_clone(frame: &CloneFrame<&[u8]>) -> bool {
    let head = frame.head();
    frame.kind() == FrameKind::CloneRequest && head.clo() == clone::CLONE && head.flags() & CloneFlags::CLONE != 0
}
