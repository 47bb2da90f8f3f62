//! A server's queue: one dispatcher, `workers` at work, first come, first served (NetClone §4.2).
//!
//! ```text
//! parts ─▶ receive ─▶ whole requests ─▶ queue ─▶ begin ─▶ Work … finish ─▶ answer, with the queue's length
//!             ├ a clone, and others wait: dropped (§3.4)      └ long: "it is worked on"
//!             ├ a copy of what is here: not begun twice; its caller is told
//!             └ a cancellation: what has not begun is taken out, and what has is unwanted
//! ```

mod api;
mod jobs;
mod outgoing;
mod partial;
mod remembered;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::{CloneFrame, Flags, Instant, Kind, Mutant, clone, mutant};

pub use api::{Blame, FinishError, Work, WorkId, WorkerConfig, WorkerStats};

use super::{To, assembly};
use jobs::{Job, Jobs};
use outgoing::{Asked, Outgoing};
use partial::Partials;
use remembered::Remembered;

/// Timers that may be of the past before they are swept out, beyond two for each request: how far ahead they are, callers
/// say.
const STALE_MAX: usize = 1024;

/// Cancelled requests that the application is told of when it asks next, at most.
const GIVEN_UP_MAX: usize = 64;

/// A request's name: what all its copies and attempts have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    caller: u32,
    incarnation: u32,
    seq: u32,
}

/// The queue of one server.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    jobs: Jobs,
    partials: Partials,
    remembered: Remembered,
    /// When callers are told; those of jobs that are done are skipped.
    timers: BinaryHeap<Reverse<(Instant, WorkId)>>,
    outgoing: VecDeque<Outgoing>,
    /// Of the jobs at work, those that nobody wants any more and the application has not heard of.
    unwanted: VecDeque<WorkId>,
    /// Requests that were cancelled while they waited, and the application has not heard of.
    given_up: VecDeque<Work>,
    /// Requests that are worked on.
    busy: usize,
    stats: WorkerStats,
}

impl Worker {
    /// A server that nobody has asked yet.
    #[must_use]
    pub fn new(config: WorkerConfig) -> Self {
        Self {
            jobs: Jobs::default(),
            partials: Partials::new(config.partial_max, config.partial_for),
            remembered: Remembered::new(config.remembered),
            timers: BinaryHeap::new(),
            outgoing: VecDeque::new(),
            unwanted: VecDeque::new(),
            given_up: VecDeque::new(),
            busy: 0,
            stats: WorkerStats::default(),
            config,
        }
    }

    /// The server has another place in the pool.
    pub const fn moved(&mut self, sid: u16) {
        self.config.sid = sid;
    }

    /// Takes a frame. What is none, or not for this process, is counted and dropped.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) {
        let Some(frame) = CloneFrame::new_checked(frame).ok().filter(|frame| self.is_for_us(frame)) else {
            self.stats.ignored += 1;
            return;
        };
        let base = frame.base();
        let key = Key { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
        match frame.kind() {
            Kind::CloneCancel => self.cancel(now, key, frame.head().attempt()),
            _ => self.request(now, key, &frame),
        }
    }

    /// The next request to be worked on; `None`: nobody waits, or as many are worked on as may be.
    pub fn begin(&mut self, now: Instant) -> Option<Work> {
        if self.busy >= self.config.begun_max.max(self.config.workers) {
            return None;
        }
        let (id, job) = self.jobs.begin()?;
        self.busy += 1;
        let request = std::mem::take(&mut job.request);
        Some(Work { id, caller: job.key.caller, waited: now.since(job.since), request })
    }

    /// A request at work that nobody wants an answer to any more; each once. It is at work until it is finished or
    /// dropped all the same.
    pub fn unwanted(&mut self) -> Option<WorkId> {
        self.unwanted.pop_front()
    }

    /// A request that was cancelled before it was begun; of many at once, a few.
    pub fn given_up(&mut self) -> Option<Work> {
        self.given_up.pop_front()
    }

    /// A request is done: its answer is sent, with the number of those that wait now.
    ///
    /// # Errors
    /// [`FinishError`]. The request is done with all the same, and its caller may ask again.
    pub fn finish(&mut self, id: WorkId, reply: Bytes) -> Result<(), FinishError> {
        let asked = self.end(id)?.asked;
        self.answer(asked, self.in_queue(), reply)
    }

    /// A request has failed here, and another server's answer is better, if one comes: the reply says why, and is the
    /// call's answer if none does.
    ///
    /// # Errors
    /// As of [`finish`](Self::finish).
    pub fn fail(&mut self, id: WorkId, reply: Bytes, blame: Blame) -> Result<(), FinishError> {
        let asked = self.end(id)?.asked;
        let marked = blame != Blame::Request || asked.clo() != 0;
        self.stats.failed += u64::from(marked);
        let asked = if marked { asked.failed() } else { asked };
        let waiting = match blame {
            Blame::Server => self.in_queue().max(1),
            Blame::Request | Blame::Policy => self.in_queue(),
        };
        self.answer(asked, waiting, reply)
    }

    /// A request is done and there is no answer; its caller may ask again.
    pub fn drop_work(&mut self, id: WorkId) {
        // Who drops what is not at work drops nothing.
        let _ = self.end(id);
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant) {
        while let Some(&Reverse((at, id))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let due = self.jobs.get_mut(id).filter(|job| job.tell_at == Some(at));
            if let Some(asked) = due.map(|job| (job.tell_at = None, job.asked).1) {
                self.tell(asked);
            }
        }
        self.stats.expired += self.partials.expire(now);
    }

    /// Writes the next frame; `None`: there is none for now.
    pub fn transmit(&mut self, _now: Instant, out: &mut [u8]) -> Option<(To, usize)> {
        loop {
            match self.outgoing.front_mut()?.emit(&self.config, out) {
                Some(sent) => return Some(sent),
                None => drop(self.outgoing.pop_front()),
            }
        }
    }

    /// When to poll next; it may be early.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let tell = self.timers.peek().map(|Reverse((at, _))| *at);
        tell.into_iter().chain(self.partials.deadline()).min()
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> WorkerStats {
        self.stats
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.jobs.waiting()
    }

    /// Requests that wait, and those that are worked on beyond the number of workers: what elements are told (STATE).
    fn in_queue(&self) -> usize {
        self.jobs.waiting() + self.busy.saturating_sub(self.config.workers)
    }

    /// Requests that are worked on.
    #[must_use]
    pub const fn busy(&self) -> usize {
        self.busy
    }

    /// Bytes of requests that wait or have come in part.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.jobs.memory() + self.partials.memory()
    }

    /// Whether no request is here, in part or whole.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.len() == 0 && self.partials.is_empty() && self.outgoing.is_empty()
    }

    fn is_for_us(&self, frame: &CloneFrame<&[u8]>) -> bool {
        let base = frame.base();
        matches!(frame.kind(), Kind::CloneRequest | Kind::CloneCancel)
            && base.gaid() == self.config.gaid
            && base.dst() == self.config.endpoint
            && [0, self.config.incarnation].contains(&base.dst_incarnation())
            && !base.has(Flags::FROM_SERVER)
    }

    fn request(&mut self, now: Instant, key: Key, frame: &CloneFrame<&[u8]>) {
        let asked = Asked::of(frame);
        if let Some(id) = self.jobs.find(&key) {
            return self.repeated(id, asked);
        }
        if self.remembered.knows(&key, asked.attempt()) && !mutant::on(Mutant::CloneWorkedTwice) {
            self.stats.repeats += 1;
            return;
        }
        let unwanted = asked.clo() == clone::CLONE && self.in_queue() > 0;
        if unwanted && !mutant::on(Mutant::CloneQueuedBusy) {
            self.stats.clones_dropped += u64::from(frame.head().part() == 0);
            return;
        }
        let room = self.config.memory_max.saturating_sub(self.memory());
        let full = self.jobs.waiting() >= self.config.queue_max && !mutant::on(Mutant::CloneQueueUnbounded);
        if full || frame.payload().len() > room {
            self.stats.overflowed += 1;
            return;
        }
        if let Some((asked, request)) = self.partials.take(now, key, asked, frame, room, &mut self.stats) {
            self.queue(now, key, asked, request, frame.head().patience());
        }
    }

    fn answer(&mut self, asked: Asked, waiting: usize, reply: Bytes) -> Result<(), FinishError> {
        let parts = assembly::parts(reply.len()).ok_or(FinishError::TooLong(reply.len()))?;
        self.stats.answered += 1;
        self.stats.idle += u64::from(waiting == 0);
        self.outgoing.push_back(Outgoing::new(Kind::CloneReply, asked, waiting, reply, parts));
        Ok(())
    }

    /// Puts a whole request into the queue.
    fn queue(&mut self, now: Instant, key: Key, asked: Asked, request: Bytes, patience: u32) {
        self.stats.queued += 1;
        self.stats.clones += u64::from(asked.clo() == clone::CLONE);
        let tell_at = (patience > 0).then(|| now + Duration::from_micros(patience.into()));
        let newest = asked.attempt();
        let id =
            self.jobs.push(Job { key, asked, newest, request, since: now, begun: false, unwanted: false, tell_at });
        self.timers.extend(tell_at.map(|at| Reverse((at, id))));
        if self.timers.len() > 2 * self.jobs.len() + STALE_MAX {
            let jobs = &mut self.jobs;
            self.timers.retain(|Reverse((at, id))| jobs.get_mut(*id).is_some_and(|job| job.tell_at == Some(*at)));
        }
    }

    /// A copy of a request that is here: it is answered as the newest attempt. What was cloned is answered as that
    /// as long as the element is asked: by another attempt's id it would not know the other server's answer.
    fn repeated(&mut self, id: WorkId, asked: Asked) {
        self.stats.repeats += 1;
        let Some(job) = self.jobs.get_mut(id).filter(|job| asked.attempt() > job.newest) else { return };
        job.newest = asked.attempt();
        let before = job.asked;
        if before.clo() == 0 || !(before.by_element() && asked.by_element()) {
            job.asked = asked;
        }
        if before.by_element() && !asked.by_element() {
            // Who goes past an element because it is silent hears by this that it is not.
            self.tell(before);
        }
        self.tell(asked);
    }

    /// Tells a caller that its request is worked on.
    fn tell(&mut self, asked: Asked) {
        self.stats.working += 1;
        let waiting = self.in_queue();
        self.outgoing.push_back(Outgoing::new(Kind::CloneWorking, asked, waiting, Bytes::new(), 1));
    }

    /// A call is answered, or given up: what has not begun is not begun.
    fn cancel(&mut self, now: Instant, key: Key, attempt: u8) {
        self.partials.forget(&key);
        if let Some(id) = self.jobs.find(&key)
            && let Some(job) = self.jobs.get_mut(id)
        {
            if !job.begun {
                let removed = self.jobs.remove(id).filter(|_| self.given_up.len() < GIVEN_UP_MAX);
                if let Some(Job { key, since, request, .. }) = removed {
                    self.given_up.push_back(Work { id, caller: key.caller, waited: now.since(since), request });
                }
                self.stats.cancelled += 1;
            } else if !std::mem::replace(&mut job.unwanted, true) {
                self.unwanted.push_back(id);
            }
        }
        self.remembered.note(key, attempt);
    }

    /// A worker is free.
    fn end(&mut self, id: WorkId) -> Result<Job, FinishError> {
        self.jobs.get_mut(id).filter(|job| job.begun).ok_or(FinishError::Unknown(id))?;
        let job = self.jobs.remove(id).ok_or(FinishError::Unknown(id))?;
        self.busy -= 1;
        if job.unwanted {
            self.unwanted.retain(|unwanted| *unwanted != id);
        }
        self.remembered.note(job.key, job.newest);
        Ok(job)
    }
}
