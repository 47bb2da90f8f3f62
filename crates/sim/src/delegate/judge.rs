//! What has to hold, whatever goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::trace::Tree;
use pathcall_endpoint::delegate::caller::{CallFailure, Outcome};
use pathcall_wire::Instant;

use super::plan::{CallPlan, DEPTH_MAX, End, Plan};

/// A request or a reply as payload: of which call, which request, and which of its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The call's index.
    pub call: usize,
    /// The request's.
    pub request: usize,
    /// The reply's.
    pub reply: usize,
}

/// What was wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A request ran twice.
    #[error("call {0} request {1} ran twice")]
    Twice(usize, usize),
    /// A reply was given twice, or after the call's end.
    #[error("{0:?} was given once more than it may")]
    Given(Tag),
    /// A reply that nobody sent.
    #[error("a reply that nobody sent was given: {0:?}")]
    MadeUp(Tag),
    /// A call ended twice.
    #[error("call {0} ended twice")]
    EndedTwice(usize),
    /// A call is complete, but not all of it.
    #[error(
        "call {call} is complete with {requests} of {requests_planned} requests done and {replies} of {replies_planned} replies there"
    )]
    NotComplete {
        /// The call.
        call: usize,
        /// Requests finished.
        requests: usize,
        /// Of how many.
        requests_planned: usize,
        /// Replies given.
        replies: usize,
        /// Of how many.
        replies_planned: usize,
    },
    /// A call was complete only when servers were asked.
    #[error("call {0} was not complete with its last reply, but only when servers were asked")]
    Asked(usize),
    /// A call failed although nothing was wrong.
    #[error("call {0} failed although all servers worked: {1}")]
    FailedWrongly(usize, CallFailure),
    /// A call failed otherwise than its server said.
    #[error("call {call} failed with {got}, expected {expected}")]
    Code {
        /// The call.
        call: usize,
        /// What its servers said.
        expected: u8,
        /// What its caller was told.
        got: u8,
    },
    /// A call was aborted where every server answers, but nobody knows whether they have stopped.
    #[error("the abort of call {0} was not confirmed although all servers answer")]
    Unconfirmed(usize),
    /// Work on a call began after it had been confirmed that nobody works on it, or where it had been aborted.
    #[error("work on call {0} began after its abort")]
    BegunLate(usize),
    /// A call has not ended in time.
    #[error("call {call}: nothing happened for {quiet:?}, and it has not ended; expected within {bound:?}")]
    Hangs {
        /// The call.
        call: usize,
        /// Since anything happened.
        quiet: Duration,
        /// How long that may be.
        bound: Duration,
    },
    /// A handler works on although its call is over and its server can be reached.
    #[error("a handler still works on call {0}, which has ended")]
    StillWorking(usize),
    /// A trace lacks spans although nothing was lost.
    #[error("the trace of call {call} has {spans} spans of {requests} requests")]
    Trace {
        /// The call.
        call: usize,
        /// Spans there.
        spans: usize,
        /// Requests.
        requests: usize,
    },
    /// A span begins before the one whose request led to it.
    #[error("a span of call {0} begins before the one that led to it")]
    SpanOrder(usize),
    /// Something is kept for ever.
    #[error("host {0} keeps something of calls that are over")]
    Left(usize),
    /// Somebody wants to be woken for ever.
    #[error("gave up after {0} events")]
    Endless(u64),
    /// The code panicked.
    #[error("{0}")]
    Panic(String),
}

/// What is known of a call.
#[derive(Debug, Clone)]
pub(super) struct Known {
    began: BTreeSet<usize>,
    finished: BTreeSet<usize>,
    sent: BTreeSet<Tag>,
    given: BTreeSet<Tag>,
    pub(super) outcome: Option<Outcome>,
    /// When it ended.
    ended: Instant,
    /// When anything last happened, but for pings.
    pub(super) active: Instant,
    /// When a response last came.
    pub(super) answered: Instant,
    pub(super) started: bool,
    /// Its caller's process died: nobody waits for it.
    pub(super) orphaned: bool,
    /// Hosts that were told of its abort.
    told: BTreeSet<(usize, u32)>,
    /// First codes that handlers failed with.
    pub(super) failed: Vec<u8>,
}

/// Judges a run.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    plan: &'a Plan,
    /// Time without anything happening after which each call has ended.
    bounds: Vec<Duration>,
    pub(super) calls: Vec<Known>,
}

impl<'a> Judge<'a> {
    /// `patience`: for how long others may hold up what each call waits for.
    pub(super) fn new(plan: &'a Plan, patience: Duration) -> Self {
        let known = Known {
            began: BTreeSet::new(),
            finished: BTreeSet::new(),
            sent: BTreeSet::new(),
            given: BTreeSet::new(),
            outcome: None,
            ended: Instant(0),
            active: Instant(0),
            answered: Instant(0),
            started: false,
            orphaned: false,
            told: BTreeSet::new(),
            failed: Vec::new(),
        };
        let bounds = plan.calls.iter().map(|plan| bound(plan) + patience).collect();
        Self { plan, bounds, calls: vec![known; plan.calls.len()] }
    }

    /// A handler begins to work.
    pub(super) fn began(&mut self, call: usize, request: usize, host: (usize, u32)) -> Result<(), Wrong> {
        let once = self.plan.calls[call].options.once;
        let known = &mut self.calls[call];
        let confirmed = known.outcome == Some(Outcome::Aborted { confirmed: true });
        if confirmed || known.told.contains(&host) {
            return Err(Wrong::BegunLate(call));
        }
        // What has to take effect once may be begun again, as long as it has not taken effect.
        if !known.began.insert(request) && !once {
            return Err(Wrong::Twice(call, request));
        }
        Ok(())
    }

    /// A request has taken effect.
    pub(super) fn finished(&mut self, call: usize, request: usize) -> Result<(), Wrong> {
        if self.calls[call].finished.insert(request) { Ok(()) } else { Err(Wrong::Twice(call, request)) }
    }

    /// A handler replies.
    pub(super) fn replied(&mut self, tag: Tag) {
        self.calls[tag.call].sent.insert(tag);
    }

    /// A host is told that a call is aborted.
    pub(super) fn told(&mut self, call: usize, host: (usize, u32)) {
        self.calls[call].told.insert(host);
    }

    /// The caller got a reply.
    pub(super) fn given(&mut self, call: usize, tag: Option<Tag>) -> Result<(), Wrong> {
        let nobody = Tag { call, request: usize::MAX, reply: 0 };
        let tag = tag.filter(|tag| tag.call == call).ok_or(Wrong::MadeUp(nobody))?;
        let known = &mut self.calls[call];
        if !known.sent.contains(&tag) {
            return Err(Wrong::MadeUp(tag));
        }
        let retried = self.plan.calls[call].options.once;
        let over = known.outcome.is_some() && !retried;
        if over || !known.given.insert(tag) { Err(Wrong::Given(tag)) } else { Ok(()) }
    }

    /// A call ended.
    pub(super) fn ended(&mut self, now: Instant, call: usize, outcome: &Outcome) -> Result<(), Wrong> {
        let (plan, calm) = (&self.plan.calls[call], self.plan.is_calm());
        let known = &mut self.calls[call];
        let again = plan.options.once && matches!(known.outcome, Some(Outcome::Failed(_)));
        if known.outcome.replace(outcome.clone()).is_some() && !again {
            return Err(Wrong::EndedTwice(call));
        }
        known.ended = now;
        match outcome {
            Outcome::Complete => {
                let (requests, replies) = (known.finished.len(), known.given.len());
                let (requests_planned, replies_planned) = (plan.requests.len(), plan.replies());
                let planned = requests == requests_planned && replies == replies_planned;
                if !planned || plan.is_doomed() {
                    return Err(Wrong::NotComplete { call, requests, requests_planned, replies, replies_planned });
                }
                if calm && known.answered != now {
                    return Err(Wrong::Asked(call));
                }
            }
            Outcome::Failed(failure) if calm => {
                let deadline = plan.options.deadline.is_some() && *failure == CallFailure::Deadline;
                if !plan.is_doomed() && !deadline && !gave_up_at_deadline(plan, failure) {
                    return Err(Wrong::FailedWrongly(call, failure.clone()));
                }
                return self.code(call, failure);
            }
            Outcome::Aborted { confirmed } => {
                // Who does not exist can't confirm.
                if calm && !confirmed && !plan.is_doomed() {
                    return Err(Wrong::Unconfirmed(call));
                }
            }
            Outcome::Failed(_) => {}
        }
        Ok(())
    }

    /// Whether the code is one that a handler said, where a handler did.
    fn code(&self, call: usize, failure: &CallFailure) -> Result<(), Wrong> {
        let (plan, failed) = (&self.plan.calls[call], &self.calls[call].failed);
        let deep = plan.requests.iter().any(|request| request.depth > DEPTH_MAX);
        let CallFailure::Server(Status { code: got, .. }) = failure else { return Ok(()) };
        let by_handler = plan.requests.iter().any(|request| matches!(request.end.1, End::Fail(code) if code == *got));
        let by_depth = deep && *got == Status::FAILED_PRECONDITION;
        let by_protocol = [Status::UNAVAILABLE, Status::ABORTED].contains(got);
        match failed.first() {
            Some(expected) if !by_handler && !by_depth && !by_protocol => {
                Err(Wrong::Code { call, expected: *expected, got: *got })
            }
            _ => Ok(()),
        }
    }

    /// Whether a call that nothing happened to for a while should have ended.
    pub(super) fn hangs(&self, now: Instant) -> Result<(), Wrong> {
        // Where requests wait for handlers of other calls, anything that happens may be what a call waits for.
        let last = self.calls.iter().map(|known| known.active).max().unwrap_or_default();
        let longest = self.longest();
        for (call, known) in self.calls.iter().enumerate() {
            let plan = &self.plan.calls[call];
            let over = known.outcome.is_some() && !plan.options.once
                || matches!(known.outcome, Some(Outcome::Complete | Outcome::Aborted { .. }));
            if !known.started || known.orphaned || over {
                continue;
            }
            let queues = self.plan.has_queues();
            let (active, bound) = if queues { (last, longest) } else { (known.active, self.bounds[call]) };
            let quiet = now.since(active);
            if quiet > bound {
                return Err(Wrong::Hangs { call, quiet, bound });
            }
        }
        Ok(())
    }

    /// The longest time without anything happening after which a call has ended.
    pub(super) fn longest(&self) -> Duration {
        self.bounds.iter().copied().max().unwrap_or_default()
    }

    /// A handler is at work: whether it may be, with what is known of its call.
    pub(super) fn works(&self, now: Instant, call: usize) -> Result<(), Wrong> {
        let (plan, known) = (&self.plan.calls[call], &self.calls[call]);
        // Who is told to stop is found level by level, and asked again in the next round.
        let depth = plan.requests.iter().map(|request| request.depth).max().unwrap_or(0) + 2;
        let bound = plan.options.ping_period * 3 + self.plan.delay.1 * 2 * depth;
        let over = matches!(known.outcome, Some(Outcome::Failed(_) | Outcome::Aborted { .. })) && !plan.options.once;
        if self.plan.is_calm() && over && now.since(known.ended) > bound.mul_f64(1.1) {
            return Err(Wrong::StillWorking(call));
        }
        Ok(())
    }

    /// The trace of a call.
    pub(super) fn traced(&self, call: usize, tree: &Tree) -> Result<(), Wrong> {
        let (requests, spans, whole) = (self.plan.calls[call].requests.len(), tree.spans.len(), tree.whole);
        let mut begun = Vec::new();
        for (depth, span) in &tree.spans {
            begun.truncate(*depth);
            // What was recorded has the age of the first time; the time by then does not count.
            if !self.plan.calls[call].options.once && begun.last().is_some_and(|before| *before > span.begin) {
                return Err(Wrong::SpanOrder(call));
            }
            begun.push(span.begin);
        }
        let complete = self.calls[call].outcome == Some(Outcome::Complete);
        if self.plan.is_calm() && complete && !(whole && spans == requests) {
            return Err(Wrong::Trace { call, spans, requests });
        }
        Ok(())
    }
}

/// Time without anything happening after which a call has ended: each level of its tree may take one time-out to
/// be found and to be given up, at clocks that are slow; what sleeps on purpose comes on top.
fn bound(plan: &CallPlan) -> Duration {
    let depth = plan.requests.iter().map(|request| request.depth).max().unwrap_or(0) + 3;
    let pauses =
        plan.requests.iter().flat_map(|request| request.steps.iter().map(|step| step.0).chain([request.end.0]));
    let sleep = pauses.max().unwrap_or_default();
    (plan.options.timeout + plan.options.ping_period * 2).mul_f64(1.1) * depth + sleep.mul_f64(1.1)
}

/// A server may see the call's deadline before its caller does.
fn gave_up_at_deadline(plan: &CallPlan, failure: &CallFailure) -> bool {
    let code = failure.status().code;
    plan.options.deadline.is_some() && [Status::ABORTED, Status::DEADLINE_EXCEEDED].contains(&code)
}
