//! Invariant checks of streaming calls: the messages of one server in order, no loser that goes on, extra requests within
//! the budget, hedges when they are due, none while all servers are slow.

use pathcall_endpoint::clone::{HedgeAfter, Pushback};
use pathcall_wire::Instant;

use super::plan::StreamPlan;

/// Violation of an invariant of streaming calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamViolation {
    /// More requests than the hedging policy allows.
    #[error("streaming call {call} sent request {attempts}, at most {max} are allowed")]
    Attempts {
        /// Index of the call.
        call: usize,
        /// Requests that reached a server.
        attempts: u32,
        /// Most requests.
        max: u8,
    },
    /// More servers asked than there are.
    #[error("streaming call {0} asked more servers than there are")]
    Servers(usize),
    /// Extra requests beyond the budget.
    #[error("extra requests of streaming calls cost {extra}, but the budget allows {budget}")]
    Budget {
        /// Cost of the extra requests.
        extra: u64,
        /// Cost that the budget allows, rounded up.
        budget: u64,
    },
    /// Another server asked earlier than a failed answer allows.
    #[error("streaming call {0} asked another server earlier than a failed answer allows")]
    PushedBack(usize),
    /// A hedge while all servers are slow.
    #[error("streaming call {0} was hedged although all servers are slow together")]
    HedgedSlow(usize),
    /// A hedge that was due was not sent.
    #[error("streaming call {0} was not hedged after its delay")]
    NotHedged(usize),
    /// A failure as the result although another server could be asked.
    #[error("streaming call {0} ended with a failure although another server could be asked")]
    GaveUp(usize),
    /// A message out of order, or of another server than the first one.
    #[error("streaming call {call} got message {got} of server {server}, but waited for message {expected}")]
    Order {
        /// Index of the call.
        call: usize,
        /// Index of the server.
        server: usize,
        /// Number of the message.
        got: u32,
        /// Number of the next message.
        expected: u32,
    },
    /// A server that lost went on with the call.
    #[error("server {server} went on with streaming call {call}, which another server answers")]
    LoserGoesOn {
        /// Index of the call.
        call: usize,
        /// Index of the server.
        server: usize,
    },
    /// A call has not ended.
    #[error("streaming call {0} has not ended")]
    Hangs(usize),
    /// State of calls that have ended.
    #[error("the hedges keep state of streaming calls that have ended")]
    Left,
}

/// Checker of the streaming calls of a run.
#[derive(Debug, Default)]
pub(super) struct StreamChecker {
    calls: u64,
    /// Cost of the extra requests.
    extra: u64,
}

/// Requests of a call as the checker counts them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AskedServers {
    /// Requests sent, without those that reached no server.
    attempts: u32,
    /// Requests that reached no server and have not been replaced.
    unreached: u32,
    has_asked: bool,
    /// Time of the last request.
    last: Instant,
    /// Failed answers after the last request.
    pub(super) failed: u32,
    not_before: Instant,
    never: bool,
}

impl StreamChecker {
    pub(super) fn record_call(&mut self) {
        self.calls += 1;
    }

    /// Records a request to another server.
    pub(super) fn record_asked(
        &mut self,
        plan: &StreamPlan,
        now: Instant,
        call: usize,
        asked: &mut AskedServers,
    ) -> Result<(), StreamViolation> {
        let policy = &plan.calls[call];
        asked.attempts += 1;
        let replaces = asked.unreached > 0;
        let is_extra = std::mem::replace(&mut asked.has_asked, true) && !replaces;
        if now < asked.not_before || asked.never {
            return Err(StreamViolation::PushedBack(call));
        }
        if asked.attempts > u32::from(policy.hedge.max_attempts).max(1) {
            return Err(StreamViolation::Attempts { call, attempts: asked.attempts, max: policy.hedge.max_attempts });
        }
        asked.unreached = asked.unreached.saturating_sub(1);
        if is_extra && asked.failed == 0 && plan.is_known_slow(now) {
            return Err(StreamViolation::HedgedSlow(call));
        }
        (asked.last, asked.failed) = (now, 0);
        self.extra += u64::from(is_extra) * u64::from(policy.cost);
        let seconds = now.since(Instant(0)).as_secs_f64();
        let budget =
            plan.budget.share * self.calls as f64 + plan.budget.burst.max(1.0) + plan.budget.per_second * seconds;
        match self.extra as f64 > budget + 1e-6 {
            true => Err(StreamViolation::Budget { extra: self.extra, budget: budget.ceil() as u64 }),
            false => Ok(()),
        }
    }

    /// Checks, when a first message comes, that no hedge of a fixed delay is missing.
    pub(super) fn check_hedged(
        &self,
        plan: &StreamPlan,
        now: Instant,
        call: usize,
        asked: &AskedServers,
        servers_left: usize,
    ) -> Result<(), StreamViolation> {
        let HedgeAfter::Delay(delay) = plan.calls[call].hedge.after else { return Ok(()) };
        let is_free = plan.is_generous() && plan.slow.is_none() && asked.not_before <= now && !asked.never;
        let may = is_free && asked.may_ask(plan, call) && servers_left > 0 && asked.failed == 0 && asked.unreached == 0;
        match may && now.since(asked.last) > delay {
            true => Err(StreamViolation::NotHedged(call)),
            false => Ok(()),
        }
    }

    /// Checks that a call may end with a failure.
    pub(super) fn check_failure(
        &self,
        plan: &StreamPlan,
        call: usize,
        asked: &AskedServers,
        servers_left: usize,
    ) -> Result<(), StreamViolation> {
        let policy = &plan.calls[call];
        let is_pushed_back = policy.dropped.is_some_and(|dropped| asked.not_before >= policy.at + dropped);
        let is_free = plan.is_generous() && !asked.never && !is_pushed_back;
        let could = is_free && asked.may_ask(plan, call) && servers_left > 0;
        if could { Err(StreamViolation::GaveUp(call)) } else { Ok(()) }
    }
}

impl AskedServers {
    fn may_ask(&self, plan: &StreamPlan, call: usize) -> bool {
        self.attempts < u32::from(plan.calls[call].hedge.max_attempts)
    }

    /// Records a failed answer.
    pub(super) fn record_failure(&mut self, now: Instant, pushback: Option<Pushback>) {
        self.failed += 1;
        match pushback {
            None => {}
            Some(Pushback::After(time)) => self.not_before = self.not_before.max(now + time),
            Some(Pushback::Never) => self.never = true,
        }
    }

    /// Records that a request reached no server.
    pub(super) fn record_unreached(&mut self) {
        self.unreached += 1;
        self.attempts -= 1;
    }
}
