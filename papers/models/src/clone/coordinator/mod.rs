//! Coordinator of LÆDGE: a host that clones calls instead of an element (NetClone §2.2).
//!
//! ```text
//! request ─▶ two idle servers: both      one: that server      none: queue
//! answer  ─▶ first answer to the caller; the server is idle and receives the next request of the queue
//! ```
//!
//! A server is idle if it works on fewer of the coordinator's requests than it has workers, so requests do not wait at
//! servers. Every answer passes the coordinator, the second one of a clone as well, and frees its server. A lost
//! request counts as answered after a while.

mod api;
mod flight;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use pathcall_endpoint::clone::{CloneDestination, Pool};
use pathcall_sim::random::Random;
use pathcall_wire::{CloneFlags, CloneFrame, Flags, FrameKind, Instant, clone};

pub use api::{CoordinatorConfig, CoordinatorStats};
use flight::{AssignedServer, CallKey, Flight};

/// Coordinator of one pool.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    /// Requests in progress at each server, in the order of server ids (SIDs).
    load: Vec<usize>,
    flights: HashMap<CallKey, Flight>,
    /// Queue of waiting calls; some may have ended meanwhile.
    queue: VecDeque<CallKey>,
    waiting: usize,
    /// All flights in the order of their start times.
    by_start: VecDeque<(Instant, CallKey)>,
    outgoing: VecDeque<(u32, Vec<u8>)>,
    /// Free buffers for frames.
    buffers: Vec<Vec<u8>>,
    numbered: u64,
    random: Random,
    stats: CoordinatorStats,
}

/// Maximum number of free buffers.
const BUFFERS_MAX: usize = 1024;

impl Coordinator {
    /// Creates a coordinator without calls.
    #[must_use]
    pub fn new(config: CoordinatorConfig) -> Self {
        Self {
            load: vec![0; config.pool.servers.len()],
            flights: HashMap::new(),
            queue: VecDeque::new(),
            waiting: 0,
            by_start: VecDeque::new(),
            outgoing: VecDeque::new(),
            buffers: Vec::new(),
            numbered: 0,
            random: Random::new(config.seed),
            stats: CoordinatorStats::default(),
            config,
        }
    }

    /// Replaces the pool. Servers in both pools keep their load.
    pub fn pool(&mut self, pool: Pool) {
        let load = |server: &u32| self.sid(*server).map_or(0, |sid| self.load[sid]);
        self.load = pool.servers.iter().map(load).collect();
        self.config.pool = pool;
        self.dispatch();
    }

    /// Processes a received frame.
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
            FrameKind::CloneRequest if !from_server => self.request(now, &frame),
            FrameKind::CloneCancel if !from_server => self.cancel(&frame),
            FrameKind::CloneReply if from_server => self.reply(&frame),
            FrameKind::CloneWorking if from_server => self.send(base.dst(), bytes),
            _ => self.stats.ignored += 1,
        }
    }

    /// Processes the timers that are due at `now`.
    pub fn poll(&mut self, now: Instant) {
        self.expire(now);
    }

    /// Writes the next outgoing frame to `out`; `None` if there is none. Each frame goes to an endpoint.
    pub fn transmit(&mut self, _now: Instant, out: &mut [u8]) -> Option<(CloneDestination, usize)> {
        let (to, frame) = self.outgoing.pop_front()?;
        out[..frame.len()].copy_from_slice(&frame);
        let len = frame.len();
        self.recycle(frame);
        Some((CloneDestination::Endpoint(to), len))
    }

    /// Time of the next poll; may be too early.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.by_start.front().map(|(since, _)| *since + self.config.lost_after)
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> CoordinatorStats {
        self.stats
    }

    /// Number of queued requests.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// True if no request is in progress.
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
        let key = CallKey { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
        match self.flights.get(&key).map(|flight| (flight.attempt, flight.cancelled)) {
            None => {
                self.stats.requests += 1;
                if !self.start_flight(now, key, head.attempt()) {
                    return;
                }
            }
            Some((newest, cancelled)) if cancelled || newest > head.attempt() => {
                self.stats.ignored += 1;
                return;
            }
            Some((newest, _)) if newest < head.attempt() => {
                self.repeat(key, head.attempt(), head.flags() & CloneFlags::CLONE != 0);
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

    /// Starts a flight; false if the coordinator has too many.
    fn start_flight(&mut self, now: Instant, key: CallKey, attempt: u8) -> bool {
        if self.waiting >= self.config.queue_max {
            self.stats.overflowed += 1;
            return false;
        }
        self.flights.insert(key, Flight::new(now, attempt));
        self.by_start.push_back((now, key));
        self.enqueue(key);
        true
    }

    fn enqueue(&mut self, key: CallKey) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.queued = true;
            self.queue.push_back(key);
            self.waiting += 1;
            self.stats.queued += 1;
        }
    }

    /// Handles a repeated attempt of a known call. Idle servers that do not work on the call come first, because the
    /// first server may be down or its answer lost. Without an idle server, the servers of the call receive the frame
    /// again, and the attempt does not wait.
    fn repeat(&mut self, key: CallKey, attempt: u8, may_clone: bool) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        let stale = flight.start_attempt(attempt);
        let (queued, outstanding) = (flight.queued, flight.outstanding().next().is_some());
        stale.into_iter().for_each(|frame| self.recycle(frame));
        if queued {
            return;
        }
        if !outstanding {
            self.enqueue(key);
        } else if self.assign_idle(key, may_clone) == 0
            && let Some(flight) = self.flights.get_mut(&key)
        {
            flight.reassign(may_clone);
        }
    }

    /// Sends queued calls to idle servers.
    fn dispatch(&mut self) {
        while let Some(&key) = self.queue.front() {
            let waits = self.flights.get(&key).filter(|flight| flight.queued);
            let Some(may_clone) = waits.map(Flight::may_clone) else {
                self.queue.pop_front();
                continue;
            };
            if self.assign_idle(key, may_clone) == 0 {
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

    /// Assigns a call to idle servers: to two if the call may be cloned. Returns the number of servers assigned.
    fn assign_idle(&mut self, key: CallKey, may_clone: bool) -> usize {
        let mut count = 0;
        while count < 1 + usize::from(may_clone)
            && let Some(assigned) =
                self.flights.get(&key).filter(|flight| flight.has_room()).map(|flight| flight.assigned)
            && let Some(sid) = self.idle(&assigned)
        {
            self.load[sid] += 1;
            let server = self.config.pool.servers[sid];
            if let Some(flight) = self.flights.get_mut(&key) {
                flight.assign(server);
            }
            count += 1;
        }
        self.stats.cloned += u64::from(count == 2);
        count
    }

    /// Random idle server that is not in `but`.
    fn idle(&mut self, but: &[Option<AssignedServer>]) -> Option<usize> {
        let Self { load, config, random, .. } = self;
        let servers = &config.pool.servers;
        let idle = |sid: &usize| {
            load[*sid] < config.workers && !but.iter().flatten().any(|assigned| assigned.server == servers[*sid])
        };
        let count = (0..load.len()).filter(idle).count();
        let nth = random.below(count.max(1) as u64) as usize;
        (0..load.len()).filter(idle).nth(nth)
    }

    /// Sends the waiting frames of the newest attempt to the servers of the call.
    fn send_waiting(&mut self, key: CallKey) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        let (frames, assigned) = (std::mem::take(&mut flight.waiting), flight.newest_assigned());
        // No copy is marked as a droppable clone: the coordinator counts on all answers.
        let clo = if assigned.iter().flatten().count() > 1 { clone::ORIGINAL } else { 0 };
        self.numbered += 1;
        for frame in frames {
            for AssignedServer { server, .. } in assigned.into_iter().flatten() {
                self.send_stamped(server, &frame, clo, self.numbered);
            }
            self.recycle(frame);
        }
    }

    fn reply(&mut self, frame: &CloneFrame<&[u8]>) {
        let (base, head) = (frame.base(), frame.head());
        let key = CallKey { caller: base.dst(), incarnation: base.dst_incarnation(), seq: base.seq() };
        let server = base.src();
        let Some(flight) = self.flights.get_mut(&key) else {
            // The caller asked the server directly, or the request counts as lost.
            return self.send(base.dst(), frame.as_bytes());
        };
        let freed = flight.record_answer(server) && !flight.cancelled;
        // A failure does not win: the other server may succeed.
        let failed = head.flags() & CloneFlags::FAILED != 0;
        let first = failed || *flight.winner.get_or_insert(server) == server;
        let over = !flight.queued && flight.outstanding().next().is_none() && head.parts() == 1;
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

    /// Cancels a call. The outstanding servers receive the cancellation and are free again: they drop a request that
    /// they have not started, and may abort one that they have. Their answers are dropped.
    fn cancel(&mut self, frame: &CloneFrame<&[u8]>) {
        let base = frame.base();
        let key = CallKey { caller: base.src(), incarnation: base.src_incarnation(), seq: base.seq() };
        if self.flights.get(&key).is_none_or(|flight| flight.cancelled) {
            return;
        }
        let Some(mut flight) = self.flights.remove(&key) else { return };
        self.free_outstanding(&mut flight);
        flight.cancel();
        for server in flight.outstanding() {
            self.send_stamped(server, frame.as_bytes(), 0, 0);
        }
        // Also if all servers have started to answer: parts of the losing answer may still arrive.
        if flight.assigned.iter().flatten().next().is_some() {
            self.flights.insert(key, flight);
        }
        self.dispatch();
    }

    /// Frees all outstanding servers of a flight.
    fn free_outstanding(&mut self, flight: &mut Flight) {
        self.waiting -= usize::from(flight.queued);
        flight.waiting.drain(..).for_each(|frame| self.recycle(frame));
        flight.outstanding().for_each(|server| self.free(server));
    }

    /// Reduces the load of `server` by one request.
    fn free(&mut self, server: u32) {
        if let Some(sid) = self.sid(server) {
            self.load[sid] = self.load[sid].saturating_sub(1);
        }
    }

    /// Ends the flights that count as lost.
    fn expire(&mut self, now: Instant) {
        while let Some(&(since, key)) = self.by_start.front()
            && (since + self.config.lost_after <= now || !self.flights.contains_key(&key))
        {
            self.by_start.pop_front();
            if self.flights.get(&key).is_none_or(|flight| flight.since != since) {
                continue;
            }
            let Some(mut flight) = self.flights.remove(&key) else { continue };
            if !flight.cancelled {
                self.stats.lost += u64::from(flight.queued || flight.outstanding().next().is_some());
                self.free_outstanding(&mut flight);
            }
        }
        self.dispatch();
    }

    /// Sends a request as an element does: with number, destination and clone mark.
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
        let mut copy = self.buffers.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn recycle(&mut self, frame: Vec<u8>) {
        if self.buffers.len() < BUFFERS_MAX {
            self.buffers.push(frame);
        }
    }
}
