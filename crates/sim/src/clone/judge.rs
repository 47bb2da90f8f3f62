//! What must be so, whatever happens: one whole answer or a failure at the deadline; no clone that was not allowed;
//! no more load than the budget; bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_endpoint::clone::{Answer, Event};
use pathcall_wire::{CloneFlags, CloneFrame, Instant, Kind, clone};

use super::payload::Tag;
use super::plan::{PURSES, Plan};

/// What was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A call ended twice, or was never made.
    #[error("call {0} ended, and had ended before")]
    EndedTwice(usize),
    /// An answer is not what a server said.
    #[error("call {call} was answered with {bytes} bytes that no server said to it")]
    MadeUp {
        /// The call.
        call: usize,
        /// Length of its answer.
        bytes: usize,
    },
    /// A call failed before its deadline, or was answered after it.
    #[error("call {call} ended after {after:?}, its deadline was {deadline:?}")]
    Deadline {
        /// The call.
        call: usize,
        /// When it ended.
        after: Duration,
        /// When it should have.
        deadline: Duration,
    },
    /// A call failed although servers could be reached.
    #[error("call {0} failed although servers could be reached for long")]
    Unanswered(usize),
    /// A call has no end.
    #[error("call {0} has not ended")]
    Hangs(usize),
    /// What may take effect once was begun twice.
    #[error("call {0} may take effect once, and was begun twice")]
    Twice(usize),
    /// A server got a clone that nobody may make.
    #[error("call {0} was cloned, and may not be")]
    Cloned(usize),
    /// A request that a server was given is not what was asked.
    #[error("server {0} was given a request that nobody made")]
    Request(usize),
    /// A caller had more requests sent than it may.
    #[error("caller {caller} had {extra} extra requests sent, at most {budget:.1} were allowed")]
    Budget {
        /// The caller.
        caller: usize,
        /// Extra requests.
        extra: u64,
        /// Allowed, rounded up.
        budget: u64,
    },
    /// A failure was given out although it was not yet the last word.
    #[error("call {0} was answered with a failure, and could have gone to another server")]
    GaveUp(usize),
    /// A failure was given out although there was an answer.
    #[error("call {0} was answered with a failure although another server had done it")]
    Worse(usize),
    /// A clone was queued although others waited.
    #[error("server {0} queued a clone although others waited")]
    QueuedBusy(usize),
    /// A server's queue or memory is beyond its bound.
    #[error("server {server} has {waiting} requests waiting and {memory} bytes, more than it may")]
    Bounds {
        /// The server.
        server: usize,
        /// Requests that wait.
        waiting: usize,
        /// Bytes of requests.
        memory: usize,
    },
    /// The element's table of loads and its shadow differ, or differ from what the server last said.
    #[error("the element's loads {loads:?} differ from their shadow {shadows:?}")]
    Shadow {
        /// Loads by SID.
        loads: Vec<u16>,
        /// Their shadow.
        shadows: Vec<u16>,
    },
    /// A second answer came to a caller although nothing went wrong.
    #[error("{0} second answers came to callers although nothing went wrong")]
    Redundant(u64),
    /// The element dropped a request that had a group.
    #[error("the element dropped request {0} for the version of its group")]
    Dropped(u32),
    /// The element passed on a cancellation whose group may be another one by now.
    #[error("the element passed on the cancellation of request {0}, of another version of the groups")]
    StaleCancel(u32),
    /// The element cloned a request though it knew that a server was busy.
    #[error("the element cloned request {0} to a server that it knew to be busy")]
    ClonedBusy(u32),
    /// The element steered what was addressed.
    #[error("the element sent request {0} to another server than it was addressed to")]
    Steered(u32),
    /// The element chose the longer queue.
    #[error("the element sent request {0} to the longer of two queues")]
    Longer(u32),
    /// Callers go past an element that answers.
    #[error("caller {0} goes past an element that answers")]
    Past(usize),
    /// Something is kept for ever.
    #[error("{0} keeps something of calls that are over")]
    Left(String),
    /// Somebody wants to be woken for ever.
    #[error("gave up after {0} events")]
    Endless(u64),
    /// The code panicked.
    #[error("{0}")]
    Panic(String),
}

/// What is known of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) made: Option<Instant>,
    pub(super) ended: bool,
    /// Executions that were begun, by their servers' endpoints and incarnations; the first is number 1.
    executions: Vec<(u32, u32)>,
    /// Of them, those that could not be done.
    failed: BTreeSet<u32>,
    /// When one of them was done first.
    done: Option<Instant>,
    /// The last attempt that was sent.
    attempt: u8,
}

/// What a caller had sent, of calls of one kind.
#[derive(Debug, Clone, Default)]
struct Sent {
    calls: u64,
    requests: u64,
    /// By call number and attempt, how often each came to the element: what the network repeats is not the caller's.
    came: BTreeMap<(u32, u8), u32>,
    /// Those that came once and were cloned.
    cloned: BTreeSet<(u32, u8)>,
}

/// Judges a run.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    plan: &'a Plan,
    /// For so long machines stand still, all of them together.
    stands: Duration,
    pub(super) calls: Vec<Known>,
    /// By caller and kind.
    sent: Vec<[Sent; PURSES]>,
}

/// After the faults a call is answered within this time.
const ANSWERED: Duration = Duration::from_millis(2_000);

impl<'a> Judge<'a> {
    pub(super) fn new(plan: &'a Plan, stands: Duration) -> Self {
        Self {
            plan,
            stands,
            calls: vec![Known::default(); plan.calls.len()],
            sent: vec![Default::default(); plan.callers.len()],
        }
    }

    pub(super) fn made(&mut self, now: Instant, call: usize) {
        self.calls[call].made = Some(now);
        self.sent(call).calls += 1;
    }

    /// A caller sends a frame.
    pub(super) fn sends(&mut self, now: Instant, call: usize, frame: &CloneFrame<&[u8]>) -> Result<(), Wrong> {
        if frame.kind() == Kind::CloneRequest && frame.head().part() == 0 {
            self.sent(call).requests += 1;
            self.calls[call].attempt = frame.head().attempt();
        }
        self.within_budget(now, call)
    }

    /// A request comes to the element.
    pub(super) fn steered(&mut self, call: usize, frame: &CloneFrame<&[u8]>) {
        if frame.kind() == Kind::CloneRequest && frame.head().part() == 0 {
            let name = (frame.base().seq(), frame.head().attempt());
            let sent = self.sent(call);
            let came = sent.came.entry(name).or_default();
            *came += 1;
            if *came > 1 {
                // Its answer may say that it was not cloned, and be the copy's.
                sent.cloned.remove(&name);
            }
        }
    }

    /// A request is cloned.
    pub(super) fn cloned(&mut self, now: Instant, call: usize, frame: &CloneFrame<&[u8]>) -> Result<(), Wrong> {
        let (name, sent) = ((frame.base().seq(), frame.head().attempt()), self.sent(call));
        if sent.came.get(&name) == Some(&1) {
            sent.cloned.insert(name);
        }
        self.within_budget(now, call)
    }

    /// What was sent of a call's kind.
    fn sent(&mut self, call: usize) -> &mut Sent {
        let plan = &self.plan.calls[call];
        &mut self.sent[plan.caller][usize::from(plan.options.purse)]
    }

    /// Whether all that a caller has sent of calls of one kind was paid for.
    fn within_budget(&self, now: Instant, call: usize) -> Result<(), Wrong> {
        let (caller, purse) = (self.plan.calls[call].caller, usize::from(self.plan.calls[call].options.purse));
        let (sent, budget) = (&self.sent[caller][purse], self.plan.callers[caller].budgets[purse]);
        let extra = (sent.requests + sent.cloned.len() as u64).saturating_sub(sent.calls);
        let time = now.since(Instant(0)).as_secs_f64();
        let allowed = budget.share * sent.calls as f64 + budget.burst.max(1.0) + budget.per_second * time;
        if extra as f64 > allowed + 1e-6 {
            return Err(Wrong::Budget { caller, extra, budget: allowed.ceil() as u64 });
        }
        Ok(())
    }

    /// A request comes to a server.
    pub(super) fn arrives(&self, call: Option<usize>, frame: &CloneFrame<&[u8]>) -> Result<(), Wrong> {
        let (Some(call), Kind::CloneRequest) = (call, frame.kind()) else { return Ok(()) };
        let (options, head) = (self.plan.calls[call].options, frame.head());
        let asked = head.flags() & CloneFlags::CLONE != 0;
        if head.clo() != 0 && !(asked && options.clone && options.idempotent) {
            return Err(Wrong::Cloned(call));
        }
        Ok(())
    }

    /// A server begins to work; the number of the execution.
    pub(super) fn begins(&mut self, server: usize, by: (u32, u32), request: &[u8]) -> Result<Tag, Wrong> {
        let tag = Tag::of(request).filter(|tag| tag.execution == 0).ok_or(Wrong::Request(server))?;
        let call = tag.call as usize;
        let known = self.calls.get_mut(call).ok_or(Wrong::Request(server))?;
        // A process that has just started can't know what the one before it was asked.
        let again = known.executions.iter().any(|before| before.0 != by.0 || before.1 == by.1);
        known.executions.push(by);
        if !self.plan.calls[call].options.idempotent && again {
            return Err(Wrong::Twice(call));
        }
        Ok(Tag { call: tag.call, execution: known.executions.len() as u32 })
    }

    /// A server is done with an execution.
    pub(super) fn done(&mut self, now: Instant, tag: Tag, fails: bool) {
        let known = &mut self.calls[tag.call as usize];
        if fails {
            known.failed.insert(tag.execution);
        } else {
            known.done.get_or_insert(now);
        }
    }

    /// Whether a failure may be the answer to a call: nobody else can be asked, and nobody else has done it.
    fn failure(&self, now: Instant, call: usize) -> Result<(), Wrong> {
        let (known, plan) = (&self.calls[call], &self.plan.calls[call]);
        let others = plan.options.hedge.is_some_and(|hedge| known.attempt + 1 < hedge.max_attempts);
        if others && plan.options.idempotent && self.is_generous(plan.caller) {
            return Err(Wrong::GaveUp(call));
        }
        let arrives = known.done.map(|done| done + self.plan.delay.1 * 3);
        match arrives.is_some_and(|at| at < now) && self.plan.is_calm() {
            true => Err(Wrong::Worse(call)),
            false => Ok(()),
        }
    }

    /// A call ends.
    pub(super) fn ends(&mut self, now: Instant, call: usize, event: &Event) -> Result<(), Wrong> {
        let deadline = self.plan.calls[call].options.deadline;
        let known = &mut self.calls[call];
        let after = now.since(known.made.unwrap_or(now));
        if std::mem::replace(&mut known.ended, true) {
            return Err(Wrong::EndedTwice(call));
        }
        match event {
            Event::Answered(_, Answer { reply, server, .. }) => {
                let tag = Tag::of(reply).filter(|tag| tag.call as usize == call && tag.execution > 0);
                let by = tag.and_then(|tag| known.executions.get(tag.execution as usize - 1));
                if by.map(|by| by.0) != Some(*server) {
                    return Err(Wrong::MadeUp { call, bytes: reply.len() });
                }
                if after > deadline + self.stands {
                    return Err(Wrong::Deadline { call, after, deadline });
                }
                if tag.is_some_and(|tag| known.failed.contains(&tag.execution)) {
                    return self.failure(now, call);
                }
            }
            Event::Failed(..) => {
                if after < deadline || after > deadline + self.stands {
                    return Err(Wrong::Deadline { call, after, deadline });
                }
                if self.must_be_answered(call) {
                    return Err(Wrong::Unanswered(call));
                }
            }
        }
        Ok(())
    }

    /// Whether a caller may send as much as it takes: who may send nothing twice may fail if anything is lost.
    pub(super) fn is_generous(&self, caller: usize) -> bool {
        self.plan.callers[caller].budgets.iter().all(|budget| budget.burst >= 10.0)
    }

    /// Whether servers could be reached for so long that a call should have been answered.
    fn must_be_answered(&self, call: usize) -> bool {
        let plan = &self.plan.calls[call];
        let made = self.calls[call].made.unwrap_or_default();
        let generous = self.is_generous(plan.caller);
        let calm_for = (made + plan.options.deadline).since(self.plan.faults_until.max(made));
        (plan.options.idempotent || self.plan.is_calm()) && generous && calm_for >= ANSWERED
    }

    /// What must be so when all is over.
    pub(super) fn over(&self) -> Result<(), Wrong> {
        match self.calls.iter().position(|known| known.made.is_some() && !known.ended) {
            Some(call) => Err(Wrong::Hangs(call)),
            None => Ok(()),
        }
    }
}

/// Whether a frame is a clone that may be dropped, of one part.
pub(super) fn is_clone(frame: &CloneFrame<&[u8]>) -> bool {
    frame.kind() == Kind::CloneRequest && frame.head().clo() == clone::CLONE
}
