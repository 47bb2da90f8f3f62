//! State of one call, and the partial answers to it.

use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::{CloneFlags, CloneFrame, Instant, Mutant, mutant};

use super::super::assembly::{AddOutcome, Assembly};
use super::super::{CloneOptions, Pushback};

/// Partial answers of one call at most; another one evicts the oldest.
const PARTIAL_MAX: usize = 4;
/// Partial failures of one call at most; failures evict no answers, and answers no failures.
const PARTIAL_FAILURES_MAX: usize = 2;
/// Evicted answers that a call remembers, so that their later parts are ignored.
const EVICTED_MAX: usize = 16;
/// Servers that a call remembers as asked by name, and as many that work on it.
const ASKED_MAX: usize = 4;
/// Most failures of one call that are distinguished from repeated failures; further failures count as repeats.
const FAILURES_MAX: usize = 16;
/// Number of last attempts that are spread over the remaining time. A report of a working server restarts the pauses;
/// if the answers are then lost, the attempts would run out long before the deadline.
const SPREAD_ATTEMPTS: u8 = 128;

/// Call without an answer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Bytes,
    pub(super) parts: u16,
    pub(super) options: CloneOptions,
    pub(super) started_at: Instant,
    pub(super) deadline: Instant,
    /// Number of repeats; the attempt of the newest frames.
    pub(super) attempt: u8,
    /// Requests sent, without the element's clones.
    pub(super) requests: u32,
    /// Attempts whose clone was paid, one bit each; only the first 64.
    pub(super) reserved: u64,
    /// Version and group of the newest request that the element steers.
    pub(super) element_choice: Option<(u32, u32)>,
    /// Whether the newest attempt went through the element.
    pub(super) by_element: bool,
    /// Whether the newest attempt timed out: each attempt counts against the element once.
    pub(super) timed_out: bool,
    /// Time of the next repeat; `None`: no repeats.
    pub(super) retry_at: Option<Instant>,
    /// Whether the call was repeated to a server that does not work on it.
    pub(super) retried_elsewhere: bool,
    /// Requests that were sent to a server that already worked on the call.
    pub(super) reminders: u32,
    /// Number of attempts without an answer.
    pub(super) unanswered: u32,
    /// Time before which no other server may be asked, as servers wish.
    pub(super) not_before: Instant,
    /// Server after whose failed answer another one is asked at [`Self::not_before`].
    pub(super) ask_after: Option<u32>,
    /// Time of the next hedge.
    pub(super) hedge_at: Option<Instant>,
    /// Start of the wait for the next hedge.
    pub(super) hedge_since: Instant,
    /// Whether its latency is recorded in [`super::Slowdown`], after its answer or because it waits long.
    pub(super) latency_recorded: bool,
    /// Period that counts the call, 0 if none does; `None`: its policy is not chosen.
    pub(super) policy_period: Option<u32>,
    /// Whether no answer came within the first learned delay of hedges.
    pub(super) is_overdue: bool,
    /// Whether the element holds the first hedge, as far as known, and whether its time has come.
    pub(super) is_held: bool,
    pub(super) held_passed: bool,
    /// Attempt of the first hedge because the answer took long; 0: none.
    pub(super) hedge_attempt: u8,
    /// Timer that is set.
    pub(super) timer: Instant,
    /// Servers that reported to work on the call and have neither failed nor been asked since; the last few, latest
    /// last.
    pub(super) working: Vec<u32>,
    /// Servers that were asked by name, the last few.
    pub(super) asked: [u32; ASKED_MAX],
    /// Servers that have a request without an answer, as far as known: the last few requests.
    pub(super) open: [u32; ASKED_MAX],
    partial: Vec<Partial>,
    /// Last evicted answers, by attempt and server process.
    evicted: Vec<(u8, (u32, u32))>,
    /// Failed attempts, each with its server.
    failures: Vec<(u8, u32)>,
    /// Clones made by elements of attempts that have failed, one bit per attempt.
    clones: u64,
    /// Last failure: the answer of the call, if no other comes.
    pub(super) failure: Option<ServerReply>,
}

/// Reply of a server.
#[derive(Debug)]
pub(super) struct ServerReply {
    pub(super) reply: Bytes,
    pub(super) server: u32,
    pub(super) cloned: bool,
}

/// Partial answer of one attempt, from one server process. Parts of two answers are never mixed: both may be correct
/// and still differ.
#[derive(Debug)]
struct Partial {
    attempt: u8,
    server: (u32, u32),
    failed: bool,
    assembly: Assembly,
}

/// Bit of an attempt; 0 beyond the 64th.
pub(super) fn bit(attempt: u8) -> u64 {
    1_u64.checked_shl(attempt.into()).unwrap_or(0)
}

impl Call {
    pub(super) const fn new(
        request: Bytes,
        parts: u16,
        options: CloneOptions,
        started_at: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            request,
            parts,
            options,
            started_at,
            deadline,
            attempt: 0,
            requests: 0,
            reserved: 0,
            element_choice: None,
            by_element: false,
            timed_out: false,
            retry_at: None,
            retried_elsewhere: false,
            reminders: 0,
            unanswered: 0,
            not_before: started_at,
            ask_after: None,
            hedge_at: None,
            hedge_since: started_at,
            latency_recorded: false,
            policy_period: None,
            is_overdue: false,
            is_held: false,
            held_passed: false,
            hedge_attempt: 0,
            timer: Instant(u64::MAX),
            working: Vec::new(),
            asked: [0; ASKED_MAX],
            open: [0; ASKED_MAX],
            partial: Vec::new(),
            evicted: Vec::new(),
            failures: Vec::new(),
            clones: 0,
            failure: None,
        }
    }

    /// Time of the next action.
    pub(super) fn next_action(&self) -> Instant {
        self.retry_at.into_iter().chain(self.hedge_at).fold(self.deadline, Instant::min)
    }

    /// Remaining time in µs, at least 1, as the request carries it.
    pub(super) fn remaining_us(&self, now: Instant) -> u64 {
        u64::try_from(self.deadline.since(now).as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Adds a part of an answer.
    pub(super) fn add_part<T: AsRef<[u8]>>(&mut self, frame: &CloneFrame<T>) -> AddOutcome {
        let (head, base) = (frame.head(), frame.base());
        if head.parts() == 1 {
            return AddOutcome::Complete(Bytes::copy_from_slice(frame.payload()));
        }
        let (attempt, server) = (head.attempt(), (base.src(), base.src_incarnation()));
        let mixed = mutant::on(Mutant::CloneAnswerPatched);
        let known = |partial: &Partial| partial.attempt == attempt && partial.server == server || mixed;
        let at = self.partial.iter().position(known).or_else(|| {
            let failed = head.flags() & CloneFlags::FAILED != 0;
            self.insert_partial(Partial { attempt, server, failed, assembly: Assembly::new(head.parts()) })
        });
        at.map_or(AddOutcome::Incomplete, |at| {
            self.partial[at].assembly.add(head.part(), head.parts(), frame.payload())
        })
    }

    /// Adds a partial answer; `None` if it was evicted before. An evicted answer is not begun again: otherwise all
    /// would evict each other in turn, and none would become complete.
    fn insert_partial(&mut self, partial: Partial) -> Option<usize> {
        if self.evicted.contains(&(partial.attempt, partial.server)) {
            return None;
        }
        let max = if partial.failed { PARTIAL_FAILURES_MAX } else { PARTIAL_MAX };
        let alike = |other: &Partial| other.failed == partial.failed;
        if self.partial.iter().filter(|other| alike(other)).count() == max {
            let evicted = self.partial.remove(self.partial.iter().position(alike)?);
            if self.evicted.len() == EVICTED_MAX {
                self.evicted.remove(0);
            }
            self.evicted.push((evicted.attempt, evicted.server));
        }
        self.partial.push(partial);
        Some(self.partial.len() - 1)
    }

    /// Records the failure of an attempt at a server; false if it was known.
    pub(super) fn record_failure(&mut self, attempt: u8, reply: ServerReply) -> bool {
        let which = (attempt, reply.server);
        if self.failures.contains(&which) || self.failures.len() == FAILURES_MAX {
            return false;
        }
        self.failures.push(which);
        self.clones |= bit(attempt) * u64::from(reply.cloned);
        self.failure = Some(reply);
        true
    }

    /// Returns whether every server that was asked, as far as known, has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures.len() as u32 >= self.requests + self.clones.count_ones()
    }

    /// Shortest pause with which the last attempts reach the deadline.
    pub(super) fn min_pause(&self, now: Instant) -> Duration {
        let left = u8::MAX - self.attempt;
        if left > SPREAD_ATTEMPTS { Duration::ZERO } else { self.deadline.since(now) / (u32::from(left) + 1) }
    }

    /// Records when another server may be asked.
    pub(super) fn push_back(&mut self, now: Instant, pushback: Pushback) {
        let not_before = match pushback {
            Pushback::After(time) => now + time,
            Pushback::Never => Instant(u64::MAX),
        };
        self.not_before = self.not_before.max(not_before);
    }

    /// Returns whether servers wish that no other one is asked before the deadline.
    pub(super) fn is_pushed_back(&self) -> bool {
        self.not_before >= self.deadline
    }

    /// Returns whether the hedging policy, and the servers, allow another attempt.
    pub(super) fn may_hedge(&self) -> bool {
        self.has_attempts() && !self.is_pushed_back()
    }

    /// Returns whether the hedging policy allows another attempt.
    pub(super) fn has_attempts(&self) -> bool {
        self.options.idempotent && self.options.hedge.is_some_and(|hedge| self.sent() < hedge.max_attempts)
    }

    /// Times that the call was sent, with the hedge that the element holds or has sent.
    fn sent(&self) -> u8 {
        let held = self.is_held && !mutant::on(Mutant::CloneHedgedToo);
        self.attempt.saturating_add(1).saturating_add(u8::from(held))
    }

    /// Records that a server works on the call.
    pub(super) fn record_working(&mut self, server: u32) {
        self.clear_working(server);
        if self.working.len() == ASKED_MAX {
            self.working.remove(0);
        }
        self.working.push(server);
    }

    /// Records that a server no longer works on the call.
    pub(super) fn clear_working(&mut self, server: u32) {
        self.working.retain(|working| *working != server);
    }

    /// Records that a server was asked by name.
    pub(super) fn record_asked(&mut self, server: u32) {
        self.asked.rotate_right(1);
        self.asked[0] = server;
    }

    /// Records a request without an answer, at this server; returns the server of the one that is forgotten for it.
    pub(super) fn record_open(&mut self, server: u32) -> Option<u32> {
        self.open.rotate_right(1);
        let forgotten = std::mem::replace(&mut self.open[0], server);
        (forgotten != 0).then_some(forgotten)
    }

    /// Forgets one request at a server that has answered; false if none is known.
    pub(super) fn forget_open(&mut self, server: u32) -> bool {
        let known = self.open.iter_mut().find(|open| **open == server);
        known.map(|open| *open = 0).is_some()
    }

    /// Returns whether a server was asked by name.
    pub(super) fn has_asked(&self, server: u32) -> bool {
        self.asked.contains(&server)
    }
}
