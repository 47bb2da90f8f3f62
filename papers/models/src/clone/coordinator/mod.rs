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

mod api;
mod flight;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use pathcall_endpoint::clone::{Pool, To};
use pathcall_sim::random::Random;
use pathcall_wire::{CloneFlags, CloneFrame, Flags, Instant, Kind, clone};

pub use api::{CoordinatorConfig, CoordinatorStats};
use flight::{Asked, Flight, Key};

/// The coordinator of one pool.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    /// Requests that each server works on, in the order of SIDs.
    load: Vec<usize>,
    flights: HashMap<Key, Flight>,
    /// Those that wait; some are gone.
    queue: VecDeque<Key>,
    waiting: usize,
    /// All flights by the time at which they began.
    order: VecDeque<(Instant, Key)>,
    outgoing: VecDeque<(u32, Vec<u8>)>,
    /// Room for frames, used again and again.
    spare: Vec<Vec<u8>>,
    numbered: u64,
    random: Random,
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
            flights: HashMap::new(),
            queue: VecDeque::new(),
            waiting: 0,
            order: VecDeque::new(),
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            numbered: 0,
            random: Random::new(config.seed),
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
        let key = Key { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
        match self.flights.get(&key).map(|flight| (flight.attempt, flight.cancelled)) {
            None => {
                self.stats.requests += 1;
                if !self.begin(now, key, head.attempt()) {
                    return;
                }
            }
            Some((newest, cancelled)) if cancelled || newest > head.attempt() => {
                self.stats.ignored += 1;
                return;
            }
            Some((newest, _)) if newest < head.attempt() => {
                self.again(key, head.attempt(), head.flags() & CloneFlags::CLONE != 0);
            }
            Some(_) => {}
        }
        let copy = self.copy(frame.as_bytes());
        let Some(flight) = self.flights.get_mut(&key) else { return };
        if flight.waiting.len() >= clone::MAX_PARTS {
            self.stats.overflowed += 1;
            return self.recycle(copy);
        }
        flight.waiting.push(copy);
        if flight.queued { self.dispatch() } else { self.send_waiting(key) }
    }

    /// A call that is not known; false: there is no room for it.
    fn begin(&mut self, now: Instant, key: Key, attempt: u8) -> bool {
        if self.waiting >= self.config.queue_max {
            self.stats.overflowed += 1;
            return false;
        }
        self.flights.insert(key, Flight::new(now, attempt));
        self.order.push_back((now, key));
        self.enqueue(key);
        true
    }

    fn enqueue(&mut self, key: Key) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.queued = true;
            self.queue.push_back(key);
            self.waiting += 1;
            self.stats.queued += 1;
        }
    }

    /// A known call is sent again. It goes to servers that do not work on it, if any is idle: who does may have gone, or
    /// its answer been lost. If none is, it goes to those who do, once more, and does not wait.
    fn again(&mut self, key: Key, attempt: u8, may_clone: bool) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        let stale = flight.renew(attempt);
        let (queued, at_work) = (flight.queued, flight.at_work().next().is_some());
        stale.into_iter().for_each(|frame| self.recycle(frame));
        if queued {
            return;
        }
        if !at_work {
            self.enqueue(key);
        } else if self.ask_idle(key, may_clone) == 0
            && let Some(flight) = self.flights.get_mut(&key)
        {
            flight.ask_again(may_clone);
        }
    }

    /// Sends those that wait to idle servers.
    fn dispatch(&mut self) {
        while let Some(&key) = self.queue.front() {
            let waits = self.flights.get(&key).filter(|flight| flight.queued);
            let Some(may_clone) = waits.map(Flight::may_clone) else {
                self.queue.pop_front();
                continue;
            };
            if self.ask_idle(key, may_clone) == 0 {
                return;
            }
            self.queue.pop_front();
            self.waiting -= 1;
            if let Some(flight) = self.flights.get_mut(&key) {
                flight.queued = false;
            }
            self.send_waiting(key);
        }
    }

    /// Lets idle servers work on a call that do not yet: two if it may be cloned. How many there are.
    fn ask_idle(&mut self, key: Key, may_clone: bool) -> usize {
        let mut count = 0;
        while count < 1 + usize::from(may_clone)
            && let Some(asked) = self.flights.get(&key).filter(|flight| flight.has_place()).map(|flight| flight.asked)
            && let Some(sid) = self.idle(&asked)
        {
            self.load[sid] += 1;
            let server = self.config.pool.servers[sid];
            if let Some(flight) = self.flights.get_mut(&key) {
                flight.ask(server);
            }
            count += 1;
        }
        self.stats.cloned += u64::from(count == 2);
        count
    }

    /// An idle server, at random, but none of those.
    fn idle(&mut self, but: &[Option<Asked>]) -> Option<usize> {
        let Self { load, config, random, .. } = self;
        let servers = &config.pool.servers;
        let idle = |sid: &usize| {
            load[*sid] < config.workers && !but.iter().flatten().any(|asked| asked.server == servers[*sid])
        };
        let count = (0..load.len()).filter(idle).count();
        let nth = random.below(count.max(1) as u64) as usize;
        (0..load.len()).filter(idle).nth(nth)
    }

    /// Sends the frames of a call's newest attempt to its servers.
    fn send_waiting(&mut self, key: Key) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        let (frames, asked) = (std::mem::take(&mut flight.waiting), flight.asked_now());
        // None of them is a copy that may be dropped: the answers of all are counted on.
        let clo = if asked.iter().flatten().count() > 1 { clone::ORIGINAL } else { 0 };
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
        let key = Key { caller: base.dst(), incarnation: base.dst_incarnation(), seq: base.seq() };
        let server = base.src();
        let Some(flight) = self.flights.get_mut(&key) else {
            // Asked directly, or taken for lost.
            return self.send(base.dst(), frame.as_bytes());
        };
        let freed = flight.answers(server) && !flight.cancelled;
        // A failure wins nothing: another's answer may be better.
        let failed = head.flags() & CloneFlags::FAILED != 0;
        let first = failed || *flight.winner.get_or_insert(server) == server;
        let over = !flight.queued && flight.at_work().next().is_none() && head.parts() == 1;
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

    /// Nobody wants a call any more. The servers that have not answered are told, and not counted on: what is not begun
    /// is never answered, and what is may be broken off. Answers that come go nowhere.
    fn cancel(&mut self, frame: &CloneFrame<&[u8]>) {
        let base = frame.base();
        let key = Key { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
        if self.flights.get(&key).is_none_or(|flight| flight.cancelled) {
            return;
        }
        let Some(mut flight) = self.flights.remove(&key) else { return };
        self.let_go(&mut flight);
        flight.cancel();
        for server in flight.at_work() {
            self.send_stamped(server, frame.as_bytes(), 0, 0);
        }
        // Also if all have begun to answer: parts of what lost are still to come.
        if flight.asked.iter().flatten().next().is_some() {
            self.flights.insert(key, flight);
        }
        self.dispatch();
    }

    /// Nothing is counted on for a flight any more.
    fn let_go(&mut self, flight: &mut Flight) {
        self.waiting -= usize::from(flight.queued);
        flight.waiting.drain(..).for_each(|frame| self.recycle(frame));
        flight.at_work().for_each(|server| self.free(server));
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
            let Some(mut flight) = self.flights.remove(&key) else { continue };
            if !flight.cancelled {
                self.stats.lost += u64::from(flight.queued || flight.at_work().next().is_some());
                self.let_go(&mut flight);
            }
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
