//! Processor and accelerators in virtual time: stations of messages, whose real times may differ from the model, change,
//! or depend on each other.

use std::collections::VecDeque;

use crate::host_model::Dice;
use pathcall_place::{Application, DeviceRole, Dispatch, Hardware, Paths};

use super::{MESSAGES, US};

/// Messages at the same time, if a case has no number of its own.
const WINDOW: usize = 64;
/// Deviation of a service time, as a share.
const JITTER: f64 = 0.1;

/// Devices: a processor, and one accelerator or more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<const DEVICES: usize = 2> {
    pub(super) name: &'static str,
    /// Time of a message on each device in the model, and the real one, in nanoseconds.
    model_ns: [u64; DEVICES],
    real_ns: [u64; DEVICES],
    /// Messages that each computes at the same time.
    slots: [usize; DEVICES],
    /// Message from which the first accelerator is this many times slower.
    slower: Option<(usize, u64)>,
    /// Whether the first accelerator computes on the processor's cores.
    shares: bool,
    /// Time of a message for each device in the one thread that gives them to the devices. No model shows it.
    thread_ns: [u64; DEVICES],
    /// Time in which sleeping threads wake up for a message.
    wake_ns: u64,
    /// Time on the processor after the device.
    after_ns: u64,
    /// Messages at the same time.
    pub(super) window: usize,
}

impl<const DEVICES: usize> Case<DEVICES> {
    pub(super) const fn new(name: &'static str, real_ns: [u64; DEVICES]) -> Self {
        Self {
            name,
            model_ns: real_ns,
            real_ns,
            slots: [1; DEVICES],
            slower: None,
            shares: false,
            thread_ns: [0; DEVICES],
            wake_ns: 0,
            after_ns: 0,
            window: WINDOW,
        }
    }

    /// Messages per second of each device alone.
    pub(super) fn rates(&self) -> [f64; DEVICES] {
        std::array::from_fn(|device| self.slots[device] as f64 * 1e9 / self.real_ns[device] as f64)
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

/// Several accelerators, of which the processor's part is small.
pub(super) const SEVERAL: [Case<4>; 6] = [
    Case::new("three equal accelerators", [10_000 * US, 100 * US, 100 * US, 100 * US]),
    Case::new("accelerators 1, 2 and 4 times slower", [10_000 * US, 100 * US, 200 * US, 400 * US]),
    Case::new("accelerators 1, 4 and 16 times slower", [10_000 * US, 100 * US, 400 * US, 1_600 * US]),
    Case {
        slots: [1, 1, 2, 4],
        ..Case::new("accelerators of 1, 2 and 4 slots", [10_000 * US, 100 * US, 200 * US, 400 * US])
    },
    Case {
        model_ns: [10_000 * US, 25 * US, 100 * US, 400 * US],
        ..Case::new("equal, modelled as unlike", [10_000 * US, 100 * US, 100 * US, 100 * US])
    },
    Case::new("processor as fast as three accelerators", [100 * US, 100 * US, 100 * US, 100 * US]),
];

/// One accelerator computes on the processor's cores, and the other one is a device of its own.
pub(super) const PARTLY_SHARED: Case<3> = Case {
    slots: [2, 2, 1],
    shares: true,
    ..Case::new("shared cores beside an accelerator of its own", [100 * US, 300 * US, 100 * US])
};

/// Message on its way through the stations: thread, device, processor again, and the delay of wake-ups.
pub(super) struct Job {
    pub(super) dispatch: Dispatch,
    pub(super) sent: u64,
    device: usize,
    stage: usize,
    /// Remaining work of this stage in nanoseconds.
    left: f64,
}

/// Stations that serve in order of arrival: the devices, the thread that gives messages to them, and that of delays.
pub(super) struct Stations<'a, const DEVICES: usize = 2> {
    case: &'a Case<DEVICES>,
    dice: Dice,
    pub(super) now: f64,
    sent: usize,
    /// Messages that each device received.
    pub(super) shares: [usize; DEVICES],
    queues: Vec<VecDeque<Job>>,
}

impl<'a, const DEVICES: usize> Stations<'a, DEVICES> {
    const THREAD: usize = DEVICES;
    const DELAY: usize = DEVICES + 1;

    pub(super) fn new(case: &'a Case<DEVICES>) -> Self {
        let queues = (0..DEVICES + 2).map(|_| VecDeque::new()).collect();
        Self { case, dice: Dice::new(1), now: 1e6, sent: 0, shares: [0; DEVICES], queues }
    }

    pub(super) fn send(&mut self, paths: &Paths, dispatch: Dispatch) {
        let device = paths.path(dispatch.path).role as usize;
        self.sent += 1;
        self.shares[device] += 1;
        self.pass_on(Job { dispatch, sent: self.now as u64, device, stage: 0, left: 0.0 });
    }

    /// Moves a message to its next station; returns it if there is none.
    fn pass_on(&mut self, mut job: Job) -> Option<Job> {
        let slower =
            self.case.slower.filter(|(from, _)| job.device == 1 && self.sent >= *from).map_or(1, |(_, times)| times);
        let stages = [
            (Self::THREAD, self.case.thread_ns[job.device]),
            (job.device, self.case.real_ns[job.device] * slower),
            (0, self.case.after_ns),
            (Self::DELAY, self.case.wake_ns),
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
            let slots = self.case.slots.into_iter().chain([1, usize::MAX]);
            let active: Vec<usize> =
                self.queues.iter().zip(slots).map(|(queue, slots)| queue.len().min(slots)).collect();
            // Cores are divided equally among the messages that compute on them.
            let demand = (active[0] + active[1]) as f64;
            let shared = if self.case.shares { (self.case.slots[0] as f64 / demand).min(1.0) } else { 1.0 };
            let speed = |station: usize| if station < 2 { shared } else { 1.0 };
            let left = |(station, at): (usize, usize)| self.queues[station][at].left / speed(station);
            let jobs = active.iter().enumerate().flat_map(|(station, count)| (0..*count).map(move |at| (station, at)));
            let (station, at) =
                jobs.clone().min_by(|one, other| left(*one).total_cmp(&left(*other))).expect("a message");
            let passes = left((station, at));
            for (station, at) in jobs {
                self.queues[station][at].left -= passes * speed(station);
            }
            self.now += passes;
            let ended = self.queues[station].remove(at).expect("the message");
            if let Some(job) = self.pass_on(ended) {
                return job;
            }
        }
    }
}

pub(super) fn paths<const DEVICES: usize>(case: &Case<DEVICES>) -> Paths {
    let [cpu, accelerators @ ..] = &case.model_ns[..] else { panic!("a processor") };
    let times = accelerators.iter().enumerate().map(|(number, ns)| format!(", acc{number}: {ns} ns"));
    let times = times.collect::<String>();
    let application = format!(
        "application: two
tasks: {{ work: {{ cpu: {cpu} ns{times} }} }}
requests:
  ANY:
    dependency: NONE
    dataflows:
      - trips: [{{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }}]
      - trips: [{{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: work }}]
"
    );
    let [cpu, accelerators @ ..] = &case.slots[..] else { panic!("a processor") };
    let link = |to: &str| {
        format!("  - {{ between: [cpu, {to}], bandwidth: 12.8 GB/s, messages: 100 M/s, latency: 100 ns }}\n")
    };
    let (mut nodes, mut links) = (String::new(), link("nic"));
    for (role, slots) in DeviceRole::ALL[1..].iter().zip(accelerators) {
        nodes += &format!(", {role}: {{ role: acc, slots: {slots} }}");
        links += &link(role.name());
    }
    let host = format!(
        "hardware: host\nnodes: {{ cpu: {{ role: cpu, slots: {cpu} }}{nodes}, nic: {{ role: nic }} }}\nlinks:\n{links}"
    );
    let host = Hardware::parse("host.yaml", &host).expect("a host");
    Paths::of(&host, &host, &Application::parse("two.yaml", &application).expect("an application")).expect("paths")
}
