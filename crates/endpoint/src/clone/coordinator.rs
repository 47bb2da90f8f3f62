//! LÆDGE's coordinator: what clones calls where there is no element that can (NetClone §2.2).
//!
//! ```text
//! request ─▶ two servers idle ─▶ both      one ─▶ that one      none ─▶ queue
//! answer  ─▶ the first one to the caller; its server is idle: the next in the queue goes there
//! ```
//!
//! A server is idle that works on fewer requests of ours than it has workers, so nothing waits at servers. Every
//! answer has to come by, the second of two as well: they say who is idle. What is lost counts as answered after a
//! while.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::{CloneFlags, CloneFrame, Flags, Instant, Kind, Mutant, clone, mutant};

use super::draw::Draw;
use super::{Pool, To};
use crate::tables::ByName;

/// Who coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// The servers.
    pub pool: Pool,
    /// What frames say that they came by: not 0.
    pub switch_id: u16,
    /// Requests that a server works on at one time.
    pub workers: usize,
    /// Requests that wait at most; others are dropped, and asked again by their callers.
    pub queue_max: usize,
    /// A request that was not answered for so long is taken for lost.
    pub lost_after: Duration,
    /// Servers are drawn from it.
    pub seed: u64,
}

/// What a coordinator has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoordinatorStats {
    /// Requests that came.
    pub requests: u64,
    /// Requests that went to two servers.
    pub cloned: u64,
    /// Requests that had to wait.
    pub queued: u64,
    /// Requests that there was no room for.
    pub overflowed: u64,
    /// Second answers: they went no further.
    pub redundant: u64,
    /// Requests that were taken for lost.
    pub lost: u64,
    /// Frames of no meaning here.
    pub ignored: u64,
}

/// A call's attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    caller: u32,
    incarnation: u32,
    seq: u32,
    attempt: u8,
}

/// A request that is not answered, or whose second answer has not come.
#[derive(Debug)]
struct Flight {
    since: Instant,
    /// Frames of it that wait.
    waiting: Vec<Vec<u8>>,
    /// Who works on it, and who has answered.
    asked: [Option<Asked>; 2],
    /// Who answered first.
    winner: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    server: u32,
    answered: bool,
}

/// The coordinator of one pool.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    /// Requests that each server works on, in the order of SIDs.
    load: Vec<usize>,
    flights: ByName<Key, Flight>,
    /// Those that wait; some are gone.
    queue: VecDeque<Key>,
    waiting: usize,
    /// All flights by the time at which they began.
    order: VecDeque<(Instant, Key)>,
    outgoing: VecDeque<(u32, Vec<u8>)>,
    /// Room for frames, used again and again.
    spare: Vec<Vec<u8>>,
    numbered: u64,
    draw: Draw,
    stats: CoordinatorStats,
}

/// Buffers that are kept for later frames.
const SPARE_MAX: usize = 1024;

impl Coordinator {
    /// A coordinator that nobody has asked yet.
    #[must_use]
    pub fn new(config: CoordinatorConfig) -> Self {
        Self {
            load: vec![0; config.pool.servers.len()],
            flights: ByName::default(),
            queue: VecDeque::new(),
            waiting: 0,
            order: VecDeque::new(),
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            numbered: 0,
            draw: Draw::new(config.seed),
            stats: CoordinatorStats::default(),
            config,
        }
    }

    /// The pool is another one; servers that stay keep their load.
    pub fn pool(&mut self, pool: Pool) {
        let load = |server: &u32| self.sid(*server).map_or(0, |sid| self.load[sid]);
        self.load = pool.servers.iter().map(load).collect();
        self.config.pool = pool;
        self.dispatch();
    }

    /// Takes a frame.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.expire(now);
        let Ok(frame) = CloneFrame::new_checked(bytes) else {
            self.stats.ignored += 1;
            return;
        };
        let base = frame.base();
        let from_server = base.has(Flags::FROM_SERVER) && self.sid(base.src()).is_some();
        let ours = base.gaid() == self.config.pool.gaid && base.has(Flags::FROM_SERVER) == from_server;
        match frame.kind() {
            _ if !ours => self.stats.ignored += 1,
            Kind::CloneRequest if !from_server => self.request(now, &frame),
            Kind::CloneCancel if !from_server => self.cancel(&frame),
            Kind::CloneReply if from_server => self.reply(&frame),
            Kind::CloneWorking if from_server => self.send(base.dst(), bytes),
            _ => self.stats.ignored += 1,
        }
    }

    /// Does what is due at `now`.
    pub fn poll(&mut self, now: Instant) {
        self.expire(now);
    }

    /// Writes the next frame; `None`: there is none for now. All go to endpoints.
    pub fn transmit(&mut self, _now: Instant, out: &mut [u8]) -> Option<(To, usize)> {
        let (to, frame) = self.outgoing.pop_front()?;
        out[..frame.len()].copy_from_slice(&frame);
        let len = frame.len();
        self.recycle(frame);
        Some((To::Endpoint(to), len))
    }

    /// When to poll next; it may be early.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(since, _)| *since + self.config.lost_after)
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> CoordinatorStats {
        self.stats
    }

    /// Requests that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no request is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty() && self.outgoing.is_empty()
    }

    fn sid(&self, server: u32) -> Option<usize> {
        self.config.pool.servers.iter().position(|endpoint| *endpoint == server)
    }

    fn request(&mut self, now: Instant, frame: &CloneFrame<&[u8]>) {
        let (base, head) = (frame.base(), frame.head());
        if head.flags() & CloneFlags::DIRECT != 0 {
            return match self.sid(base.dst()) {
                Some(_) => self.send_stamped(base.dst(), frame.as_bytes(), 0, 0),
                None => self.stats.ignored += 1,
            };
        }
        let key =
            Key { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq(), attempt: head.attempt() };
        if !self.flights.contains_key(&key) {
            self.stats.requests += 1;
            if self.waiting >= self.config.queue_max {
                self.stats.overflowed += 1;
                return;
            }
            let flight = Flight { since: now, waiting: Vec::new(), asked: [None; 2], winner: None };
            self.flights.insert(key, flight);
            self.order.push_back((now, key));
            self.queue.push_back(key);
            self.waiting += 1;
            self.stats.queued += 1;
        }
        let copy = self.copy(frame.as_bytes());
        let Some(flight) = self.flights.get_mut(&key) else { return };
        if flight.waiting.len() >= clone::MAX_PARTS {
            self.stats.overflowed += 1;
            return self.recycle(copy);
        }
        flight.waiting.push(copy);
        if flight.asked[0].is_some() { self.send_waiting(key) } else { self.dispatch() }
    }

    /// Sends those that wait to idle servers.
    fn dispatch(&mut self) {
        while let Some(&key) = self.queue.front() {
            let waits = self.flights.get(&key).filter(|flight| flight.asked[0].is_none());
            let Some(may_clone) = waits.map(may_clone) else {
                self.queue.pop_front();
                continue;
            };
            let Some(first) = self.idle(None) else { return };
            let second = if may_clone { self.idle(Some(first)) } else { None };
            self.queue.pop_front();
            self.waiting -= 1;
            self.stats.cloned += u64::from(second.is_some());
            let servers = &self.config.pool.servers;
            let asked = |sid: usize| Asked { server: servers[sid], answered: false };
            let asked = [Some(asked(first)), second.map(asked)];
            for sid in [Some(first), second].into_iter().flatten() {
                self.load[sid] += 1;
            }
            if let Some(flight) = self.flights.get_mut(&key) {
                flight.asked = asked;
            }
            self.send_waiting(key);
        }
    }

    /// An idle server, at random, but not `other`.
    fn idle(&mut self, other: Option<usize>) -> Option<usize> {
        let idle = |sid: &usize| self.load[*sid] < self.config.workers && Some(*sid) != other;
        let count = (0..self.load.len()).filter(idle).count();
        let nth = self.draw.below(count as u32) as usize;
        let idle = |sid: &usize| self.load[*sid] < self.config.workers && Some(*sid) != other;
        (0..self.load.len()).filter(idle).nth(nth)
    }

    /// Sends the frames of a request that has its servers.
    fn send_waiting(&mut self, key: Key) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        let (frames, asked) = (std::mem::take(&mut flight.waiting), flight.asked);
        // None of them is a copy that may be dropped: the answers of both are counted on.
        let clo = if asked[1].is_some() { clone::ORIGINAL } else { 0 };
        self.numbered += 1;
        for frame in frames {
            for Asked { server, .. } in asked.into_iter().flatten() {
                self.send_stamped(server, &frame, clo, self.numbered);
            }
            self.recycle(frame);
        }
    }

    fn reply(&mut self, frame: &CloneFrame<&[u8]>) {
        let (base, head) = (frame.base(), frame.head());
        let key =
            Key { caller: base.dst(), incarnation: base.dst_incarnation(), seq: base.seq(), attempt: head.attempt() };
        let server = base.src();
        let Some(flight) = self.flights.get_mut(&key) else {
            // Asked directly, or taken for lost.
            return self.send(base.dst(), frame.as_bytes());
        };
        let open = flight.asked.iter_mut().flatten().find(|asked| asked.server == server && !asked.answered);
        let freed = open.is_some() && !mutant::on(Mutant::CloneLoadKept);
        if let Some(asked) = open {
            asked.answered = true;
        }
        // A failure wins nothing: another's answer may be better.
        let failed = head.flags() & CloneFlags::FAILED != 0;
        let first = failed || *flight.winner.get_or_insert(server) == server;
        let over = flight.asked.iter().flatten().all(|asked| asked.answered) && head.parts() == 1;
        if freed {
            self.free(server);
        }
        if over {
            self.flights.remove(&key);
        }
        if first {
            self.send(base.dst(), frame.as_bytes());
        } else {
            self.stats.redundant += u64::from(head.part() == 0);
        }
        self.dispatch();
    }

    /// The servers that have not answered are told.
    fn cancel(&mut self, frame: &CloneFrame<&[u8]>) {
        let (base, attempt) = (frame.base(), frame.head().attempt());
        let key = Key { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq(), attempt };
        let asked = self.flights.get(&key).map_or([None; 2], |flight| flight.asked);
        for Asked { server, .. } in asked.into_iter().flatten().filter(|asked| !asked.answered) {
            // One that is not begun is never answered.
            self.send_stamped(server, frame.as_bytes(), 0, 0);
        }
    }

    /// A server works on one request less.
    fn free(&mut self, server: u32) {
        if let Some(sid) = self.sid(server) {
            self.load[sid] = self.load[sid].saturating_sub(1);
        }
    }

    /// What was not answered for long is not counted on any more.
    fn expire(&mut self, now: Instant) {
        while let Some(&(since, key)) = self.order.front()
            && (since + self.config.lost_after <= now || !self.flights.contains_key(&key))
        {
            self.order.pop_front();
            if self.flights.get(&key).is_none_or(|flight| flight.since != since) {
                continue;
            }
            let Some(flight) = self.flights.remove(&key) else { continue };
            self.stats.lost += 1;
            self.waiting -= usize::from(flight.asked[0].is_none());
            for Asked { server, .. } in flight.asked.into_iter().flatten().filter(|asked| !asked.answered) {
                self.free(server);
            }
            flight.waiting.into_iter().for_each(|frame| self.recycle(frame));
        }
        self.dispatch();
    }

    /// Sends a request as an element would: numbered, addressed, with its mark.
    fn send_stamped(&mut self, to: u32, bytes: &[u8], clo: u8, number: u64) {
        let mut copy = self.copy(bytes);
        if let Ok(mut frame) = CloneFrame::new_checked(copy.as_mut_slice()) {
            frame.base_mut().set_dst(to);
            let own = frame.head().req_id() != 0;
            let mut head = frame.head_mut();
            head.set_clo(clo);
            head.set_switch_id(self.config.switch_id);
            if !own {
                head.set_req_id(number);
            }
        }
        self.outgoing.push_back((to, copy));
    }

    fn send(&mut self, to: u32, bytes: &[u8]) {
        let copy = self.copy(bytes);
        self.outgoing.push_back((to, copy));
    }

    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(frame);
        }
    }
}

/// Whether its caller lets a request be cloned.
fn may_clone(flight: &Flight) -> bool {
    let frame = flight.waiting.first().and_then(|frame| CloneFrame::new_checked(frame.as_slice()).ok());
    frame.is_some_and(|frame| frame.head().flags() & CloneFlags::CLONE != 0)
}
