//! The bed in virtual time.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::clone::{
    Ask, Budget, Caller, CallerConfig, Event, Hedge, Options, Pool, To, WorkId, Worker, WorkerConfig,
};
use pathcall_program::{Action, Endpoint, Program, Size};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::{Base, CloneFrame, Flags, Instant, MAX_FRAME};

use super::workload::exponential;
use super::{Bed, Coordinator, CoordinatorConfig, Costs, Measured, Run, Scheme};

const GAID: u32 = 1;
/// Endpoints: servers from here, callers from there, and the coordinator's host.
const SERVER: u32 = 1_000;
const CALLER: u32 = 2_000;
const COORDINATOR: u32 = 3_000;
/// Nothing is lost, so nothing is ever sent again.
const NEVER: Duration = Duration::from_secs(1_000);
/// Mean times of service after which a call is hedged: about one in twenty is.
const HEDGED_AFTER: u32 = 3;
/// Frames that may wait for the coordinator, in time, and requests that may wait in it: others are lost before they
/// cost it anything. So it is at its best when there are too many.
const INBOX: Duration = Duration::from_micros(100);
const WAITING: usize = 1_000;
/// Answers of the paper's size: a frame.
const REPLY: Bytes = Bytes::from_static(&[0; 8]);

enum What {
    /// A caller makes a call, and then another one.
    Call(usize),
    /// A frame is in the switch: for its program, or passing.
    Switch { frame: u32, steered: bool },
    /// A server's dispatcher has a frame.
    Dispatch(usize, u32),
    /// A worker has done its work and sent the answer.
    Done(usize, WorkId),
    /// A caller has a frame.
    Receive(usize, u32),
    /// A caller's timer.
    Wake(usize),
    /// The coordinator has a frame.
    Coordinate(u32),
    /// The switch loses all it knows.
    Restart,
}

/// A thread that takes one frame after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Thread(Instant);

impl Thread {
    /// When it is done with what comes at `at`.
    fn takes(&mut self, at: Instant, cost: Duration) -> Instant {
        self.0 = self.0.max(at) + cost;
        self.0
    }
}

struct CallerHost {
    caller: Caller,
    sender: Thread,
    receiver: Thread,
}

struct ServerHost {
    worker: Worker,
    dispatcher: Thread,
}

pub(super) struct Model<'a> {
    bed: &'a Bed,
    run: &'a Run,
    random: Random,
    queue: EventQueue<What>,
    frames: Frames,
    callers: Vec<CallerHost>,
    servers: Vec<ServerHost>,
    program: Program,
    coordinator: Coordinator,
    coordinating: Thread,
    options: Options,
    /// Mean time between two calls of one caller, in nanoseconds.
    pause: f64,
    warm: Instant,
    end: Instant,
    measured: Measured,
}

impl<'a> Model<'a> {
    pub(super) fn new(bed: &'a Bed, run: &'a Run) -> Self {
        let mut random = Random::new(run.seed);
        let servers: Vec<u32> = (0..bed.workers.len() as u32).map(|sid| SERVER + sid).collect();
        let pool = Pool { gaid: GAID, version: 1, servers };
        let budget = Budget { share: 1.0, burst: 1e9, per_second: 0.0 };
        let callers = (0..bed.callers as u32).map(|index| {
            let config = CallerConfig::new(CALLER + index, 1, pool.clone(), random.bits());
            let config = CallerConfig {
                budgets: vec![budget],
                retry_min: NEVER,
                retry_max: NEVER,
                calls_max: usize::MAX,
                ..config
            };
            CallerHost {
                caller: Caller::new(Instant(0), config),
                sender: Thread::default(),
                receiver: Thread::default(),
            }
        });
        let callers = callers.collect();
        let server = |(sid, workers): (usize, &usize)| {
            let config = WorkerConfig::new(GAID, SERVER + sid as u32, 1, sid as u16, *workers);
            let config = WorkerConfig { queue_max: usize::MAX, ..config };
            ServerHost { worker: Worker::new(config), dispatcher: Thread::default() }
        };
        let coordinator = Coordinator::new(CoordinatorConfig {
            workers: *bed.workers.iter().min().unwrap_or(&1),
            pool,
            switch_id: 1,
            queue_max: usize::MAX,
            lost_after: NEVER,
            seed: random.bits(),
        });
        let options = run.scheme.options();
        let hedge = options.hedge.map(|hedge| Hedge { delay: run.workload.mean() * HEDGED_AFTER, ..hedge });
        let options = Options { patience: Some(Duration::ZERO), deadline: NEVER, hedge, ..options };
        let rate = run.load * bed.capacity(&run.workload) / bed.callers as f64;
        Self {
            bed,
            run,
            queue: EventQueue::default(),
            frames: Frames::default(),
            callers,
            servers: bed.workers.iter().enumerate().map(server).collect(),
            program: program(bed),
            coordinator,
            coordinating: Thread::default(),
            options,
            pause: 1e9 / rate,
            warm: Instant(0) + run.duration / 10,
            end: Instant(0) + run.duration,
            measured: Measured::default(),
            random,
        }
    }

    pub(super) fn run(mut self) -> Measured {
        for caller in 0..self.callers.len() {
            let first = exponential(&mut self.random, self.pause);
            self.queue.push(Instant(0) + first, What::Call(caller));
        }
        if let Some((_, back)) = self.bed.outage {
            self.queue.push(Instant(0) + back, What::Restart);
        }
        while let Some((now, what)) = self.queue.pop() {
            // What is not answered by then shows in the throughput; latencies are of all that are.
            if now > self.end + self.run.duration {
                break;
            }
            self.happens(now, what);
        }
        self.sum_up()
    }

    fn happens(&mut self, now: Instant, what: What) {
        let Costs { wire, coordinate, .. } = self.bed.costs;
        match what {
            What::Call(caller) => self.call(now, caller),
            What::Switch { frame, steered } => self.switch(now, frame, steered),
            What::Dispatch(server, frame) => {
                self.servers[server].worker.receive(now, self.frames.get(frame));
                self.frames.free(frame);
                self.begin(now, server);
            }
            What::Done(server, id) => {
                // Begun here, and done once.
                let finished = self.servers[server].worker.finish(id, REPLY);
                debug_assert!(finished.is_ok(), "{finished:?}");
                while let Some((to, frame)) = self.frames.take(|out| self.servers[server].worker.transmit(now, out)) {
                    self.queue.push(now + wire, What::Switch { frame, steered: to == To::Element });
                }
                self.begin(now, server);
            }
            What::Receive(caller, frame) => self.receive(now, caller, frame),
            What::Wake(caller) => {
                self.callers[caller].caller.poll(now);
                self.send(now, caller);
            }
            What::Coordinate(frame) => {
                self.coordinator.receive(now, self.frames.get(frame));
                self.frames.free(frame);
                while let Some((_, frame)) = self.frames.take(|out| self.coordinator.transmit(now, out)) {
                    let sent = self.coordinating.takes(now, coordinate);
                    self.queue.push(sent + wire, What::Switch { frame, steered: false });
                }
            }
            What::Restart => self.program = program(self.bed),
        }
    }

    fn call(&mut self, now: Instant, index: usize) {
        self.measured.calls += 1;
        let asked = self.callers[index].caller.ask(now, Ask { request: Bytes::new(), options: self.options });
        debug_assert!(asked.is_ok(), "{asked:?}");
        self.send(now, index);
        if let Some(hedge) = self.options.hedge {
            self.queue.push(now + hedge.delay, What::Wake(index));
        }
        let next = now + exponential(&mut self.random, self.pause);
        if next < self.end {
            self.queue.push(next, What::Call(index));
        }
    }

    /// A caller sends what it has to send.
    fn send(&mut self, now: Instant, index: usize) {
        let Costs { wire, send, .. } = self.bed.costs;
        let CallerHost { caller, sender, .. } = &mut self.callers[index];
        while let Some((to, frame)) = self.frames.take(|out| caller.transmit(now, out)) {
            self.queue.push(sender.takes(now, send) + wire, What::Switch { frame, steered: to == To::Element });
        }
    }

    /// A frame passes the switch, which works on it if it is steered.
    fn switch(&mut self, now: Instant, frame: u32, steered: bool) {
        let out = self.bed.outage.is_some_and(|(from, until)| (Instant(0) + from..Instant(0) + until).contains(&now));
        if out {
            return self.frames.free(frame);
        }
        let bytes = self.frames.get_mut(frame);
        if !steered {
            let to = Base::new_checked(&*bytes).map_or(0, |base| base.dst());
            return self.leave(now, frame, to);
        }
        if self.run.scheme == Scheme::Coordinator {
            return self.leave(now, frame, COORDINATOR);
        }
        if !self.bed.filter
            && let Ok(mut reply) = CloneFrame::new_checked(&mut *bytes)
            && reply.base().has(Flags::FROM_SERVER)
        {
            reply.head_mut().set_clo(0);
        }
        match self.program.process(now, bytes, false).action {
            Action::Forward(to) => self.leave(now, frame, to),
            Action::Clone(to) => {
                let copy = self.frames.copy(frame);
                self.leave(now, frame, to);
                match self.program.recirculate(self.frames.get_mut(copy)).action {
                    Action::Forward(to) => self.leave(now + self.bed.costs.recirculate, copy, to),
                    _ => self.frames.free(copy),
                }
            }
            Action::Multicast(_) | Action::Drop(_) => self.frames.free(frame),
        }
    }

    /// A frame leaves the switch for a host, whose thread takes it in its turn.
    fn leave(&mut self, now: Instant, frame: u32, to: u32) {
        let Costs { wire, switch, receive, dispatch, coordinate, .. } = self.bed.costs;
        let there = now + switch + wire;
        if to == COORDINATOR {
            let answer = Base::new_checked(self.frames.get(frame)).is_ok_and(|base| base.has(Flags::FROM_SERVER));
            let full = self.coordinating.0 > there + INBOX || self.coordinator.waiting() >= WAITING;
            if !answer && full {
                return self.frames.free(frame);
            }
            self.queue.push(self.coordinating.takes(there, coordinate), What::Coordinate(frame));
        } else if let Some(host) = self.callers.get_mut(to.wrapping_sub(CALLER) as usize) {
            let at = host.receiver.takes(there, receive);
            self.queue.push(at, What::Receive((to - CALLER) as usize, frame));
        } else if let Some(host) = self.servers.get_mut(to.wrapping_sub(SERVER) as usize) {
            let at = host.dispatcher.takes(there, dispatch);
            self.queue.push(at, What::Dispatch((to - SERVER) as usize, frame));
        } else {
            self.frames.free(frame);
        }
    }

    /// Idle workers take what waits.
    fn begin(&mut self, now: Instant, server: usize) {
        while let Some(work) = self.servers[server].worker.begin(now) {
            let takes = self.run.workload.draw(&mut self.random) + self.bed.costs.reply;
            self.queue.push(now + takes, What::Done(server, work.id));
        }
    }

    fn receive(&mut self, now: Instant, index: usize, frame: u32) {
        let caller = &mut self.callers[index].caller;
        caller.receive(now, self.frames.get(frame));
        self.frames.free(frame);
        while let Some(event) = caller.event() {
            let Event::Answered(_, answer) = event else { continue };
            let made = Instant(now.0 - answer.latency.as_nanos() as u64);
            if made >= self.warm {
                self.measured.latency.record(answer.latency);
            }
            if now >= self.warm && now < self.end {
                self.measured.throughput += 1.0;
            }
            let step = (now.0 / self.bed.step.as_nanos().max(1) as u64) as usize;
            if now < self.end {
                let len = self.measured.timeline.len().max(step + 1);
                self.measured.timeline.resize(len, 0);
                self.measured.timeline[step] += 1;
            }
        }
    }

    fn sum_up(mut self) -> Measured {
        let measured = &mut self.measured;
        let seconds = self.end.since(self.warm).as_secs_f64();
        measured.throughput /= seconds;
        measured.offered = measured.calls as f64 / self.run.duration.as_secs_f64();
        let mut requests = 0;
        for ServerHost { worker, .. } in &self.servers {
            let stats = worker.stats();
            requests += stats.queued + stats.clones_dropped;
            measured.dropped += stats.clones_dropped;
            measured.idle += stats.idle;
            measured.answers += stats.answered;
        }
        measured.extra = requests.saturating_sub(measured.calls);
        measured.redundant = self.callers.iter().map(|host| host.caller.stats().redundant).sum();
        measured.failed = measured.calls - self.callers.iter().map(|host| host.caller.stats().answered).sum::<u64>();
        measured.filtered = self.program.counters().drop_filtered + self.coordinator.stats().redundant;
        self.measured
    }
}

/// The switch's program, its tables as the controller fills them.
fn program(bed: &Bed) -> Program {
    // No application of map is there.
    let mut program = Program::new(Size { rows: 0, lanes: 0, slots: 0 });
    let servers: Vec<u32> = (0..bed.workers.len() as u32).map(|sid| SERVER + sid).collect();
    let callers = (0..bed.callers as u32).map(|index| CALLER + index);
    let tables = program.tables_mut();
    let endpoint = |endpoint| Endpoint { endpoint, incarnation: 1, gaid: GAID, slot_base: 0, slots: 0 };
    let all = servers.iter().copied().chain(callers).try_for_each(|id| tables.set_endpoint(endpoint(id)));
    let pool = tables.install_pool(pathcall_program::Pool { gaid: GAID, version: 1, servers });
    debug_assert!(all.is_ok() && pool.is_ok(), "{all:?} {pool:?}");
    program
}

/// Frames on their way, by number.
#[derive(Default)]
struct Frames {
    frames: Vec<(u8, [u8; FRAME])>,
    free: Vec<u32>,
    /// Where frames are written.
    out: Vec<u8>,
}

/// Bytes that these frames have at most: headers and a few of payload.
const FRAME: usize = 100;

impl Frames {
    fn get(&self, frame: u32) -> &[u8] {
        let (len, bytes) = &self.frames[frame as usize];
        &bytes[..usize::from(*len)]
    }

    fn get_mut(&mut self, frame: u32) -> &mut [u8] {
        let (len, bytes) = &mut self.frames[frame as usize];
        &mut bytes[..usize::from(*len)]
    }

    fn free(&mut self, frame: u32) {
        self.free.push(frame);
    }

    /// Keeps what `transmit` writes.
    fn take(&mut self, transmit: impl FnOnce(&mut [u8]) -> Option<(To, usize)>) -> Option<(To, u32)> {
        self.out.resize(MAX_FRAME, 0);
        let (to, len) = transmit(&mut self.out)?;
        let frame = self.place();
        self.frames[frame as usize].0 = len as u8;
        self.frames[frame as usize].1[..len].copy_from_slice(&self.out[..len]);
        Some((to, frame))
    }

    fn copy(&mut self, frame: u32) -> u32 {
        let copy = self.place();
        self.frames[copy as usize] = self.frames[frame as usize];
        copy
    }

    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.frames.push((0, [0; FRAME]));
            self.frames.len() as u32 - 1
        })
    }
}
