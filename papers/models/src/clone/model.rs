//! Virtual-time model of the hosts, the switch and the coordinator.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::clone::{
    CloneCall, CloneCaller, CloneCallerConfig, CloneCallerStats, CloneDestination, CloneOptions, CloneWorker,
    CloneWorkerConfig, Event, Hedge, HedgeAfter, HedgeBudgetConfig, Pool, PoolRequestId,
};
use pathcall_program::{FrameAction, SwitchProgram};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::{Base, CloneFrame, Flags, Instant};

use super::frame_pool::FramePool;
use super::serial_thread::SerialThread;
use super::tables::{first_server, program};
use super::workload::exponential;
use super::{CloneResults, CloneRun, CloneTestbed, Coordinator, CoordinatorConfig, FrameCosts, Scheme};

pub(super) const GAID: u32 = 1;
/// First endpoint ids of the servers and of the callers, and id of the coordinator.
pub(super) const SERVER: u32 = 1_000;
pub(super) const CALLER: u32 = 2_000;
const COORDINATOR: u32 = 3_000;
/// Retransmission timeout that never expires: the model loses no frames.
const NEVER: Duration = Duration::from_secs(1_000);
/// Factor on the service times in a slow-down of all servers.
const SLOW_FACTOR: u32 = 10;
/// Limits of the coordinator: waiting time of received frames, and number of waiting requests. The model drops what
/// exceeds them at no cost, so the coordinator performs at its best under overload.
const INBOX: Duration = Duration::from_micros(100);
const WAITING: usize = 1_000;
/// Answer of the paper's size: one frame.
const REPLY: Bytes = Bytes::from_static(&[0; 8]);

enum RackEvent {
    /// A caller makes a call and schedules the next one.
    Call(usize),
    /// A frame is in the switch, either for the switch program or in transit.
    Switch { frame: u32, steered: bool },
    /// A server's dispatcher has a frame.
    Dispatch(usize, u32),
    /// A worker has finished its request and sent the answer.
    Done(usize, PoolRequestId),
    /// A caller has a frame.
    Receive(usize, u32),
    /// A caller's timer expires.
    Wake(usize),
    /// A server's timer expires.
    Report(usize),
    /// The coordinator has a frame.
    Coordinate(u32),
    /// The switch loses its state.
    Restart,
}

struct CallerHost {
    caller: CloneCaller,
    /// Time at which it is woken next.
    wake_at: Instant,
    sender: SerialThread,
    receiver: SerialThread,
    /// Extra requests sent so far.
    sent: u64,
}

struct ServerHost {
    worker: CloneWorker,
    /// Time at which it is woken next.
    wake_at: Instant,
    dispatcher: SerialThread,
}

pub(super) struct RackModel<'a> {
    testbed: &'a CloneTestbed,
    run: &'a CloneRun,
    random: Random,
    queue: EventQueue<RackEvent>,
    frames: FramePool,
    callers: Vec<CallerHost>,
    servers: Vec<ServerHost>,
    program: SwitchProgram,
    coordinator: Coordinator,
    coordinator_thread: SerialThread,
    options: CloneOptions,
    /// Times at which the slots that all servers share become free.
    shared: Vec<Instant>,
    /// Mean time between two calls of one caller, in nanoseconds.
    pause: f64,
    warm: Instant,
    end: Instant,
    measured: CloneResults,
}

impl<'a> RackModel<'a> {
    pub(super) fn new(testbed: &'a CloneTestbed, run: &'a CloneRun) -> Self {
        let mut random = Random::new(run.seed);
        let servers: Vec<u32> = (0..testbed.workers.len() as u32).map(|sid| SERVER + sid).collect();
        let pool = Pool { gaid: GAID, version: 1, servers };
        let unlimited = HedgeBudgetConfig { share: 1.0, burst: 1e9, per_second: 0.0 };
        let budget = if run.scheme == Scheme::Automatic { testbed.budget } else { unlimited };
        let callers = (0..testbed.callers as u32).map(|index| {
            let config = CloneCallerConfig::new(CALLER + index, 1, pool.clone(), random.bits());
            let config = CloneCallerConfig {
                budgets: vec![budget],
                known_loads: testbed.known_loads,
                extra_while_slow: run.scheme.sends_extra_while_slow() && !testbed.product,
                calls_max: usize::MAX,
                ..config
            };
            let never = CloneCallerConfig { retry_min: NEVER, retry_max: NEVER, ..config.clone() };
            let config = if testbed.product { config } else { never };
            CallerHost {
                caller: CloneCaller::new(Instant(0), config),
                wake_at: Instant(u64::MAX),
                sender: SerialThread::default(),
                receiver: SerialThread::default(),
                sent: 0,
            }
        });
        let callers = callers.collect();
        let server = |(sid, workers): (usize, &usize)| {
            let config = CloneWorkerConfig::new(GAID, SERVER + sid as u32, 1, sid as u16, *workers);
            let config = CloneWorkerConfig { queue_max: usize::MAX, ..config };
            ServerHost {
                worker: CloneWorker::new(config),
                wake_at: Instant(u64::MAX),
                dispatcher: SerialThread::default(),
            }
        };
        let coordinator = Coordinator::new(CoordinatorConfig {
            workers: *testbed.workers.iter().min().unwrap_or(&1),
            pool,
            switch_id: 1,
            queue_max: usize::MAX,
            lost_after: NEVER,
            seed: random.bits(),
        });
        let options = run.scheme.options();
        let delay = HedgeAfter::Delay(run.workload.mean().mul_f64(run.hedged_after));
        let is_fixed = |hedge: &Hedge| matches!(hedge.after, HedgeAfter::Delay(_));
        let hedge = options.hedge.map(|hedge| if is_fixed(&hedge) { Hedge { after: delay, ..hedge } } else { hedge });
        let patience = Some(Duration::ZERO).filter(|_| !testbed.product);
        let options = CloneOptions { patience, deadline: NEVER, hedge, ..options };
        let rate = run.load * testbed.capacity(&run.workload) / testbed.callers as f64;
        Self {
            testbed,
            run,
            queue: EventQueue::default(),
            frames: FramePool::default(),
            callers,
            servers: testbed.workers.iter().enumerate().map(server).collect(),
            program: program(testbed),
            coordinator,
            coordinator_thread: SerialThread::default(),
            options,
            shared: vec![Instant(0); testbed.shared_slots],
            pause: 1e9 / rate,
            warm: Instant(0) + run.duration / 10,
            end: Instant(0) + run.duration,
            measured: CloneResults::default(),
            random,
        }
    }

    pub(super) fn run(mut self) -> CloneResults {
        for caller in 0..self.callers.len() {
            let first = exponential(&mut self.random, self.pause);
            self.queue.push(Instant(0) + first, RackEvent::Call(caller));
        }
        if let Some((_, back)) = self.testbed.outage {
            self.queue.push(Instant(0) + back, RackEvent::Restart);
        }
        while let Some((now, what)) = self.queue.pop() {
            // Later answers do not count in the throughput, but their latencies are recorded.
            if now > self.end + self.run.duration {
                break;
            }
            self.handle_event(now, what);
        }
        self.results()
    }

    fn handle_event(&mut self, now: Instant, what: RackEvent) {
        let FrameCosts { wire, coordinate, .. } = self.testbed.costs;
        match what {
            RackEvent::Call(caller) => self.call(now, caller),
            RackEvent::Switch { frame, steered } => self.switch(now, frame, steered),
            RackEvent::Dispatch(server, frame) => {
                self.servers[server].worker.receive(now, self.frames.get(frame));
                self.frames.free(frame);
                self.begin(now, server);
                self.send_answers(now, server);
            }
            RackEvent::Report(server) => {
                self.servers[server].wake_at = Instant(u64::MAX);
                self.servers[server].worker.poll(now);
                self.send_answers(now, server);
            }
            RackEvent::Done(server, id) => {
                // Each request starts and finishes here, once.
                let finished = self.servers[server].worker.finish(id, REPLY);
                debug_assert!(finished.is_ok(), "{finished:?}");
                self.send_answers(now, server);
                self.begin(now, server);
            }
            RackEvent::Receive(caller, frame) => self.receive(now, caller, frame),
            RackEvent::Wake(caller) => {
                self.callers[caller].wake_at = Instant(u64::MAX);
                self.callers[caller].caller.poll(now);
                self.send(now, caller);
                self.arm(caller);
            }
            RackEvent::Coordinate(frame) => {
                self.coordinator.receive(now, self.frames.get(frame));
                self.frames.free(frame);
                while let Some((_, frame)) = self.frames.take(|out| self.coordinator.transmit(now, out)) {
                    let sent = self.coordinator_thread.schedule(now, coordinate);
                    self.queue.push(sent + wire, RackEvent::Switch { frame, steered: false });
                }
            }
            RackEvent::Restart => self.program = program(self.testbed),
        }
    }

    /// Sends the outgoing frames of a server.
    fn send_answers(&mut self, now: Instant, index: usize) {
        let host = &mut self.servers[index];
        while let Some((to, frame)) = self.frames.take(|out| host.worker.transmit(now, out)) {
            let steered = to == CloneDestination::Element;
            self.queue.push(now + self.testbed.costs.wire, RackEvent::Switch { frame, steered });
        }
        if let Some(at) = host.worker.deadline().filter(|at| *at < host.wake_at) {
            host.wake_at = at;
            self.queue.push(at, RackEvent::Report(index));
        }
    }

    fn call(&mut self, now: Instant, index: usize) {
        self.measured.calls += 1;
        let asked =
            self.callers[index].caller.start_call(now, CloneCall { request: Bytes::new(), options: self.options });
        debug_assert!(asked.is_ok(), "{asked:?}");
        self.send(now, index);
        self.arm(index);
        let next = now + exponential(&mut self.random, self.pause);
        if next < self.end {
            self.queue.push(next, RackEvent::Call(index));
        }
    }

    /// Wakes a caller for its next hedge.
    fn arm(&mut self, index: usize) {
        let host = &mut self.callers[index];
        if let Some(at) = host.caller.deadline().filter(|at| *at < host.wake_at) {
            host.wake_at = at;
            self.queue.push(at, RackEvent::Wake(index));
        }
    }

    /// Sends the outgoing frames of a caller.
    fn send(&mut self, now: Instant, index: usize) {
        let FrameCosts { wire, send, .. } = self.testbed.costs;
        let CallerHost { caller, sender, sent, .. } = &mut self.callers[index];
        // Without reminders, which are not executed.
        let CloneCallerStats { repeated, hedged, second_requests, .. } = caller.stats();
        let now_sent = repeated + hedged + second_requests;
        let extra = now_sent - std::mem::replace(sent, now_sent);
        while let Some((to, frame)) = self.frames.take(|out| caller.transmit(now, out)) {
            self.queue.push(
                sender.schedule(now, send) + wire,
                RackEvent::Switch { frame, steered: to == CloneDestination::Element },
            );
        }
        self.count_extra(now, extra);
    }

    /// Passes a frame through the switch. The switch program processes a frame that is addressed to the switch.
    fn switch(&mut self, now: Instant, frame: u32, steered: bool) {
        let out =
            self.testbed.outage.is_some_and(|(from, until)| (Instant(0) + from..Instant(0) + until).contains(&now));
        if out {
            return self.frames.free(frame);
        }
        let bytes = self.frames.get_mut(frame);
        if !steered {
            let to = Base::new_checked(&*bytes).map_or(0, |base| base.dst());
            return self.deliver(now, frame, to);
        }
        if !self.testbed.element
            && let Some(to) = first_server(bytes, self.testbed.workers.len())
        {
            return self.deliver(now, frame, to);
        }
        if self.run.scheme == Scheme::Coordinator {
            return self.deliver(now, frame, COORDINATOR);
        }
        if !self.testbed.filter
            && let Ok(mut reply) = CloneFrame::new_checked(&mut *bytes)
            && reply.base().has(Flags::FROM_SERVER)
        {
            reply.head_mut().set_clo(0);
        }
        match self.program.process(now, bytes, false).action {
            FrameAction::Forward(to) => self.deliver(now, frame, to),
            FrameAction::Clone(to) => {
                self.count_extra(now, 1);
                let copy = self.frames.copy(frame);
                self.deliver(now, frame, to);
                match self.program.recirculate(self.frames.get_mut(copy)).action {
                    FrameAction::Forward(to) => self.deliver(now + self.testbed.costs.recirculate, copy, to),
                    _ => self.frames.free(copy),
                }
            }
            FrameAction::Multicast(_) | FrameAction::Drop(_) => self.frames.free(frame),
        }
    }

    /// Moves a frame from the switch to a host, whose thread processes frames in order.
    fn deliver(&mut self, now: Instant, frame: u32, to: u32) {
        let FrameCosts { wire, switch, receive, dispatch, coordinate, .. } = self.testbed.costs;
        let there = now + switch + wire;
        if to == COORDINATOR {
            let answer = Base::new_checked(self.frames.get(frame)).is_ok_and(|base| base.has(Flags::FROM_SERVER));
            let full = self.coordinator_thread.0 > there + INBOX || self.coordinator.waiting() >= WAITING;
            if !answer && full {
                return self.frames.free(frame);
            }
            self.queue.push(self.coordinator_thread.schedule(there, coordinate), RackEvent::Coordinate(frame));
        } else if let Some(host) = self.callers.get_mut(to.wrapping_sub(CALLER) as usize) {
            let at = host.receiver.schedule(there, receive);
            self.queue.push(at, RackEvent::Receive((to - CALLER) as usize, frame));
        } else if let Some(host) = self.servers.get_mut(to.wrapping_sub(SERVER) as usize) {
            let at = host.dispatcher.schedule(there, dispatch);
            self.queue.push(at, RackEvent::Dispatch((to - SERVER) as usize, frame));
        } else {
            self.frames.free(frame);
        }
    }

    /// Assigns waiting requests to idle workers.
    fn begin(&mut self, now: Instant, server: usize) {
        let is_in = |(from, until)| (Instant(0) + from..Instant(0) + until).contains(&now);
        let factor = if self.testbed.slow.is_some_and(is_in) { SLOW_FACTOR } else { 1 };
        while let Some(work) = self.servers[server].worker.begin_next(now) {
            let is_last = server + 1 == self.testbed.workers.len();
            let factor = if is_last { factor * self.testbed.slow_server } else { factor };
            let time = self.run.workload.draw(&mut self.random) * factor;
            let served = match self.shared.iter_mut().min() {
                None => now + time,
                Some(free_at) => {
                    *free_at = now.max(*free_at) + time;
                    *free_at
                }
            };
            self.queue.push(served + self.testbed.costs.reply, RackEvent::Done(server, work.id));
        }
    }

    fn receive(&mut self, now: Instant, index: usize, frame: u32) {
        let caller = &mut self.callers[index].caller;
        caller.receive(now, self.frames.get(frame));
        self.frames.free(frame);
        while let Some(event) = caller.next_event() {
            let Event::Answered(_, answer) = event else { continue };
            let made = Instant(now.0 - answer.latency.as_nanos() as u64);
            if made >= self.warm {
                self.measured.latency.record(answer.latency);
            }
            if now >= self.warm && now < self.end {
                self.measured.throughput += 1.0;
            }
            if now < self.end {
                add(&mut self.measured.timeline, self.testbed, now, 1);
            }
        }
    }

    fn count_extra(&mut self, now: Instant, requests: u64) {
        if requests > 0 && now < self.end {
            add(&mut self.measured.extra_timeline, self.testbed, now, requests);
        }
    }

    fn results(mut self) -> CloneResults {
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
        measured.policies = self.callers.iter().filter_map(|host| host.caller.policy(0)).collect();
        measured.redundant = self.callers.iter().map(|host| host.caller.stats().redundant).sum();
        measured.failed = measured.calls - self.callers.iter().map(|host| host.caller.stats().answered).sum::<u64>();
        measured.filtered = self.program.counters().drop_filtered + self.coordinator.stats().redundant;
        self.measured
    }
}

/// Adds to the step of a timeline.
fn add(timeline: &mut Vec<u64>, testbed: &CloneTestbed, now: Instant, count: u64) {
    let step = (now.0 / testbed.step.as_nanos().max(1) as u64) as usize;
    timeline.resize(timeline.len().max(step + 1), 0);
    timeline[step] += count;
}
