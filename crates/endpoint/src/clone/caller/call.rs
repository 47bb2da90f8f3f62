//! One call, and the parts of answers to it.

use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::{CloneFlags, CloneFrame, Instant, Mutant, mutant};

use super::super::Options;
use super::super::assembly::{Assembly, Taken};

/// Answers of one call that have come in part, at most; the oldest gives way.
const PARTIAL_MAX: usize = 4;
/// The same of failures: these drive out no answer, and no answer them.
const PARTIAL_FAILURES_MAX: usize = 2;
/// Answers that gave way and are told from new ones.
const GAVE_WAY_MAX: usize = 16;
/// Servers that a call remembers to have asked itself, and as many that work on it.
const ASKED_MAX: usize = 4;
/// Failures of one call that are told from their repeats; more are taken for repeats.
const FAILURES_MAX: usize = 16;
/// The last attempts of a call are spread over the time that is left: whoever works on it begins the pauses anew, and if
/// the answers are lost, attempts would be used up long before the deadline.
const SPREAD: u8 = 128;

/// A call that is not answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Bytes,
    pub(super) parts: u16,
    pub(super) options: Options,
    pub(super) made: Instant,
    pub(super) deadline: Instant,
    /// How often it was sent again; the attempt of its newest frames.
    pub(super) attempt: u8,
    /// Requests that were sent, without clones by the element.
    pub(super) requests: u32,
    /// Attempts that were paid for as clones, a bit each; the first 64.
    pub(super) reserved: u64,
    /// Version and group of the newest request that an element was to steer.
    pub(super) steered: Option<(u32, u32)>,
    /// Whether the newest attempt went by way of the element.
    pub(super) by_element: bool,
    /// Whether nobody answered that one in time: the element is blamed once for each.
    pub(super) missed: bool,
    /// Sent again then; never again when `None`.
    pub(super) retry_at: Option<Instant>,
    /// Whether it was sent again to others than who works on it.
    pub(super) strayed: bool,
    /// How often nobody answered.
    pub(super) unanswered: u32,
    /// Sent to another server then.
    pub(super) hedge_at: Option<Instant>,
    /// The timer that is set.
    pub(super) timer: Instant,
    /// Who said that it works on it, and has neither failed nor been asked since; the last few, the last one last.
    pub(super) working: Vec<u32>,
    /// Servers that it was sent to by name, the last few.
    pub(super) asked: [u32; ASKED_MAX],
    partial: Vec<Partial>,
    /// The last answers that gave way to others, by attempt and server's process.
    gave_way: Vec<(u8, (u32, u32))>,
    /// Attempts that have failed, each at a server.
    failures: Vec<(u8, u32)>,
    /// Requests that were sent for it by elements: clones of attempts that have failed, a bit each.
    clones: u64,
    /// The last failure: the call's answer, if no other comes.
    pub(super) failure: Option<Said>,
}

/// What a server has said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) reply: Bytes,
    pub(super) server: u32,
    pub(super) cloned: bool,
}

/// An answer that has come in part: of one attempt, from one server's process. Parts of two answers never meet,
/// though both may be right: they need not be alike.
#[derive(Debug)]
struct Partial {
    attempt: u8,
    server: (u32, u32),
    failed: bool,
    assembly: Assembly,
}

/// The bit of an attempt; 0 beyond the 64th.
pub(super) fn bit(attempt: u8) -> u64 {
    1_u64.checked_shl(attempt.into()).unwrap_or(0)
}

impl Call {
    pub(super) const fn new(request: Bytes, parts: u16, options: Options, made: Instant, deadline: Instant) -> Self {
        Self {
            request,
            parts,
            options,
            made,
            deadline,
            attempt: 0,
            requests: 0,
            reserved: 0,
            steered: None,
            by_element: false,
            missed: false,
            retry_at: None,
            strayed: false,
            unanswered: 0,
            hedge_at: None,
            timer: Instant(u64::MAX),
            working: Vec::new(),
            asked: [0; ASKED_MAX],
            partial: Vec::new(),
            gave_way: Vec::new(),
            failures: Vec::new(),
            clones: 0,
            failure: None,
        }
    }

    /// When anything is to be done next.
    pub(super) fn next(&self) -> Instant {
        self.retry_at.into_iter().chain(self.hedge_at).fold(self.deadline, Instant::min)
    }

    /// The time that is left for it, as its request says it.
    pub(super) fn left(&self, now: Instant) -> u64 {
        u64::try_from(self.deadline.since(now).as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Takes a part of an answer.
    pub(super) fn take<T: AsRef<[u8]>>(&mut self, frame: &CloneFrame<T>) -> Taken {
        let (head, base) = (frame.head(), frame.base());
        if head.parts() == 1 {
            return Taken::Whole(Bytes::copy_from_slice(frame.payload()));
        }
        let (attempt, server) = (head.attempt(), (base.src(), base.src_incarnation()));
        let mixed = mutant::on(Mutant::CloneAnswerPatched);
        let known = |partial: &Partial| partial.attempt == attempt && partial.server == server || mixed;
        let at = self.partial.iter().position(known).or_else(|| {
            let failed = head.flags() & CloneFlags::FAILED != 0;
            self.begin(Partial { attempt, server, failed, assembly: Assembly::new(head.parts()) })
        });
        at.map_or(Taken::Part, |at| self.partial[at].assembly.take(head.part(), head.parts(), frame.payload()))
    }

    /// Finds a place for another answer in parts; `None`: it has given way before. What gives way does not come back: all
    /// would be begun anew in turn, and none be whole.
    fn begin(&mut self, partial: Partial) -> Option<usize> {
        if self.gave_way.contains(&(partial.attempt, partial.server)) {
            return None;
        }
        let max = if partial.failed { PARTIAL_FAILURES_MAX } else { PARTIAL_MAX };
        let alike = |other: &Partial| other.failed == partial.failed;
        if self.partial.iter().filter(|other| alike(other)).count() == max {
            let gone = self.partial.remove(self.partial.iter().position(alike)?);
            if self.gave_way.len() == GAVE_WAY_MAX {
                self.gave_way.remove(0);
            }
            self.gave_way.push((gone.attempt, gone.server));
        }
        self.partial.push(partial);
        Some(self.partial.len() - 1)
    }

    /// Notes that an attempt has failed at a server, and how; false: that was known.
    pub(super) fn fails(&mut self, attempt: u8, said: Said) -> bool {
        let which = (attempt, said.server);
        if self.failures.contains(&which) || self.failures.len() == FAILURES_MAX {
            return false;
        }
        self.failures.push(which);
        self.clones |= bit(attempt) * u64::from(said.cloned);
        self.failure = Some(said);
        true
    }

    /// Whether everybody who was asked, as far as is known, has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures.len() as u32 >= self.requests + self.clones.count_ones()
    }

    /// The shortest pause with which its last attempts last up to its deadline.
    pub(super) fn spread(&self, now: Instant) -> Duration {
        let left = u8::MAX - self.attempt;
        if left > SPREAD { Duration::ZERO } else { self.deadline.since(now) / (u32::from(left) + 1) }
    }

    /// Whether it may go to another server by its hedging policy.
    pub(super) fn may_hedge(&self) -> bool {
        self.options.idempotent
            && self.options.hedge.is_some_and(|hedge| self.attempt.saturating_add(1) < hedge.max_attempts)
    }

    /// Notes that a server says that it works on it.
    pub(super) fn works(&mut self, server: u32) {
        self.works_no_more(server);
        if self.working.len() == ASKED_MAX {
            self.working.remove(0);
        }
        self.working.push(server);
    }

    /// Notes that a server works on it no more.
    pub(super) fn works_no_more(&mut self, server: u32) {
        self.working.retain(|working| *working != server);
    }

    /// Notes that a server was asked by name.
    pub(super) fn asks(&mut self, server: u32) {
        self.asked.rotate_right(1);
        self.asked[0] = server;
    }

    /// Whether a server was asked by name.
    pub(super) fn has_asked(&self, server: u32) -> bool {
        self.asked.contains(&server)
    }
}
