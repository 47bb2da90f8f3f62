//! Processor and accelerator in virtual time: stations of messages, whose real times may differ from the model, change,
//! or depend on each other.

use std::collections::VecDeque;

use crate::host_model::Dice;
use pathcall_place::{Application, DeviceRole, Dispatch, Hardware, Paths};

use super::{MESSAGES, US};

/// Messages at the same time, if a case has no number of its own.
const WINDOW: usize = 64;
/// Deviation of a service time, as a share.
const JITTER: f64 = 0.1;

/// Two devices: processor and accelerator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Time of a message on each device in the model, and the real one, in nanoseconds.
    model_ns: [u64; 2],
    real_ns: [u64; 2],
    /// Messages that each computes at the same time.
    slots: [usize; 2],
    /// Message from which the accelerator is this many times slower.
    slower: Option<(usize, u64)>,
    /// Whether the accelerator computes on the processor's cores.
    shares: bool,
    /// Time of a message for each device in the one thread that gives them to the devices. No model shows it.
    thread_ns: [u64; 2],
    /// Time in which sleeping threads wake up for a message.
    wake_ns: u64,
    /// Time on the processor after the device.
    after_ns: u64,
    /// Messages at the same time.
    pub(super) window: usize,
}

impl Case {
    pub(super) const fn new(name: &'static str, real_ns: [u64; 2]) -> Self {
        Self {
            name,
            model_ns: real_ns,
            real_ns,
            slots: [1, 1],
            slower: None,
            shares: false,
            thread_ns: [0, 0],
            wake_ns: 0,
            after_ns: 0,
            window: WINDOW,
        }
    }
}

pub(super) const CASES: [Case; 20] = [
    Case::new("accelerator 20 times slower", [100 * US, 2_000 * US]),
    Case::new("accelerator 3 times slower", [100 * US, 300 * US]),
    Case::new("equal", [100 * US, 100 * US]),
    Case::new("accelerator 3 times faster", [300 * US, 100 * US]),
    Case::new("accelerator 20 times faster", [2_000 * US, 100 * US]),
    Case { slots: [2, 16], ..Case::new("accelerator with 16 slots", [200 * US, 1_600 * US]) },
    Case { model_ns: [100 * US, 25 * US], ..Case::new("accelerator modelled 4 times too fast", [100 * US, 100 * US]) },
    Case { model_ns: [100 * US, 400 * US], ..Case::new("accelerator modelled 4 times too slow", [100 * US, 100 * US]) },
    Case { model_ns: [100 * US, 75 * US], ..Case::new("slow accelerator modelled as fast", [100 * US, 300 * US]) },
    Case { model_ns: [100 * US, 133 * US], ..Case::new("fast accelerator modelled as slow", [100 * US, 33 * US]) },
    Case { slower: Some((MESSAGES / 2, 10)), ..Case::new("accelerator slows down 10 times", [100 * US, 50 * US]) },
    Case { slots: [2, 2], shares: true, ..Case::new("shared cores, accelerator needs 3 times", [100 * US, 300 * US]) },
    Case { slots: [2, 2], shares: true, ..Case::new("shared cores, processor needs 3 times", [300 * US, 100 * US]) },
    Case {
        thread_ns: [2 * US, 16 * US],
        ..Case::new("giving takes the thread, accelerator faster", [50 * US, 10 * US])
    },
    Case { thread_ns: [2 * US, 60 * US], ..Case::new("giving takes the thread, processor faster", [50 * US, 40 * US]) },
    Case {
        thread_ns: [2 * US, 16 * US],
        wake_ns: 100 * US,
        after_ns: 4 * US,
        window: 16,
        ..Case::new("few messages that wake threads, accelerator faster", [45 * US, 10 * US])
    },
    Case {
        thread_ns: [2 * US, 45 * US],
        wake_ns: 100 * US,
        after_ns: 4 * US,
        window: 16,
        ..Case::new("few messages that wake threads, processor faster", [45 * US, 30 * US])
    },
    Case {
        slots: [2, 2],
        shares: true,
        window: 3,
        ..Case::new("few messages, shared cores, processor better", [100 * US, 250 * US])
    },
    Case {
        slots: [2, 2],
        shares: true,
        window: 3,
        ..Case::new("few messages, shared cores, accelerator better", [250 * US, 100 * US])
    },
    Case { wake_ns: 300 * US, window: 8, ..Case::new("few messages that wake threads, equal", [50 * US, 50 * US]) },
];

/// Message on its way through the stations: thread, device, processor again, and the delay of wake-ups.
pub(super) struct Job {
    pub(super) dispatch: Dispatch,
    pub(super) sent: u64,
    device: usize,
    stage: usize,
    /// Remaining work of this stage in nanoseconds.
    left: f64,
}

/// Station that messages wait at: the devices, the thread that gives messages to them, and that of delays.
const THREAD: usize = 2;
const DELAY: usize = 3;

/// Stations that serve in order of arrival.
pub(super) struct Stations<'a> {
    case: &'a Case,
    dice: Dice,
    pub(super) now: f64,
    sent: usize,
    queues: [VecDeque<Job>; 4],
}

impl<'a> Stations<'a> {
    pub(super) fn new(case: &'a Case) -> Self {
        Self { case, dice: Dice::new(1), now: 1e6, sent: 0, queues: Default::default() }
    }

    pub(super) fn send(&mut self, paths: &Paths, dispatch: Dispatch) {
        let device = usize::from(paths.path(dispatch.path).role == DeviceRole::Acc);
        self.sent += 1;
        self.pass_on(Job { dispatch, sent: self.now as u64, device, stage: 0, left: 0.0 });
    }

    /// Moves a message to its next station; returns it if there is none.
    fn pass_on(&mut self, mut job: Job) -> Option<Job> {
        let slower =
            self.case.slower.filter(|(from, _)| job.device == 1 && self.sent >= *from).map_or(1, |(_, times)| times);
        let stages = [
            (THREAD, self.case.thread_ns[job.device]),
            (job.device, self.case.real_ns[job.device] * slower),
            (0, self.case.after_ns),
            (DELAY, self.case.wake_ns),
        ];
        let (station, work) = stages[job.stage..].iter().find(|(_, work)| *work > 0).copied().unwrap_or((0, 0));
        if work == 0 {
            return Some(job);
        }
        job.stage += stages[job.stage..].iter().take_while(|(_, work)| *work == 0).count() + 1;
        let jitter = if station == job.device { 1.0 + JITTER * (2.0 * self.dice.roll() - 1.0) } else { 1.0 };
        job.left = work as f64 * jitter;
        self.queues[station].push_back(job);
        None
    }

    /// Advances to the next end of a message.
    pub(super) fn next(&mut self) -> Job {
        loop {
            let slots = [self.case.slots[0], self.case.slots[1], 1, usize::MAX];
            let active: [usize; 4] = [0, 1, 2, 3].map(|station| self.queues[station].len().min(slots[station]));
            // Cores are divided equally among the messages that compute on them.
            let demand = (active[0] + active[1]) as f64;
            let shared = if self.case.shares { (slots[0] as f64 / demand).min(1.0) } else { 1.0 };
            let speed = [shared, shared, 1.0, 1.0];
            let left = |(station, at): (usize, usize)| self.queues[station][at].left / speed[station];
            let jobs = (0..4).flat_map(|station| (0..active[station]).map(move |at| (station, at)));
            let (station, at) =
                jobs.clone().min_by(|one, other| left(*one).total_cmp(&left(*other))).expect("a message");
            let passes = left((station, at));
            for (station, at) in jobs {
                self.queues[station][at].left -= passes * speed[station];
            }
            self.now += passes;
            let ended = self.queues[station].remove(at).expect("the message");
            if let Some(job) = self.pass_on(ended) {
                return job;
            }
        }
    }
}

pub(super) fn paths(case: &Case) -> Paths {
    let [cpu, acc] = case.model_ns;
    let application = format!(
        "application: two
tasks: {{ work: {{ cpu: {cpu} ns, acc: {acc} ns }} }}
requests:
  ANY:
    dependency: NONE
    dataflows:
      - trips: [{{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }}]
      - trips: [{{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: work }}]
"
    );
    let [cpu, acc] = case.slots;
    let host = format!(
        "hardware: host
nodes: {{ cpu: {{ role: cpu, slots: {cpu} }}, acc: {{ role: acc, slots: {acc} }}, nic: {{ role: nic }} }}
links:
  - {{ between: [cpu, acc], bandwidth: 12.8 GB/s, messages: 100 M/s, latency: 100 ns }}
  - {{ between: [cpu, nic], bandwidth: 12.8 GB/s, messages: 100 M/s, latency: 100 ns }}
"
    );
    let host = Hardware::parse("host.yaml", &host).expect("a host");
    Paths::of(&host, &host, &Application::parse("two.yaml", &application).expect("an application")).expect("paths")
}
