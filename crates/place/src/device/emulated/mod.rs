//! Emulated device: right answers, delayed according to a model; for experiments and fault injection.
//!
//! ```text
//! submit ─▶ queue ─▶ a thread: answer by the host's function, due time by Timeline ─▶ heap ─▶ Completion when due
//! ```
//!
//! The device sleeps until an answer is due, so its only cost is that of the host's functions. A real device does not
//! wait for a processor of the host; `punctual` therefore asks the kernel to run the thread as soon as it is due.

mod punctual;
pub mod timeline;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant as Clock};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use pathcall_wire::Instant;

use super::functions::FunctionTable;
use super::pool::{JOBS_MAX, LoadedHostFunction, host, refused, run};
use super::{
    Completion, ComputeDevice, DeviceError, DeviceInfo, DeviceKind, FunctionId, Job, JobError, JobRefusal, RefusedJob,
    Region, TaskCode, register_heap,
};
pub use timeline::{Rate, Timeline};

/// Fault of an emulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmulatedFault {
    /// Jobs are accepted, but never completed.
    Disappears,
    /// Jobs fail because the device is gone.
    Gone,
    /// Jobs fail.
    Fails,
    /// Answers have a wrong length: too long by this many bytes, or too short.
    Length(isize),
    /// Jobs take this many times longer.
    Slow(u32),
}

/// Fault for the jobs `from..from + count`, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedFault {
    /// First affected job.
    pub from: u64,
    /// Number of affected jobs.
    pub count: u64,
    /// Kind of the fault.
    pub fault: EmulatedFault,
}

impl PlantedFault {
    /// Fault of all jobs from this one on.
    #[must_use]
    pub const fn forever(from: u64, fault: EmulatedFault) -> Self {
        Self { from, count: u64::MAX, fault }
    }
}

/// Function, and the time of each of its jobs.
type Timed = (LoadedHostFunction, Duration);

/// Emulated device.
pub struct Emulated {
    info: DeviceInfo,
    rate: Rate,
    functions: Arc<FunctionTable<Timed>>,
    jobs: Sender<Job>,
}

impl Emulated {
    /// Starts the device's thread.
    ///
    /// # Errors
    /// An error of the system if the thread does not start.
    pub fn start(name: &str, rate: Rate, faults: Vec<PlantedFault>) -> io::Result<Self> {
        let info = DeviceInfo {
            kind: DeviceKind::Emulated,
            name: format!("emulated ({name})"),
            slots: rate.slots.max(1),
            jobs_max: JOBS_MAX,
            in_order: rate.slots <= 1,
        };
        let functions = Arc::new(FunctionTable::new());
        let (jobs, queue) = bounded(JOBS_MAX);
        let timer = Timer {
            functions: Arc::clone(&functions),
            timeline: Timeline::new(rate.clone()),
            faults,
            origin: Clock::now(),
            taken: 0,
            due: BinaryHeap::new(),
        };
        thread::Builder::new().name(format!("place-{name}")).spawn(move || timer.run(&queue))?;
        Ok(Self { info, rate, functions, jobs })
    }
}

impl fmt::Debug for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulated").field("info", &self.info).field("waiting", &self.jobs.len()).finish()
    }
}

impl ComputeDevice for Emulated {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        self.functions.add(&self.info, (host(&self.info, name, code)?, self.rate.job(name)))
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        register_heap(&self.info, input_max, output_max)
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        if self.functions.get(job.function).is_none() {
            let reason = JobRefusal::Function(job.function);
            return Err(RefusedJob { job: Some(Box::new(job)), reason });
        }
        self.jobs.try_send(job).map_err(|error| refused(error, self.info.jobs_max))
    }
}

/// Completion with its due time.
struct DueCompletion {
    at: Instant,
    /// Sequence number; orders jobs that are due at the same time.
    number: u64,
    completion: Completion,
    done: Sender<Completion>,
}

impl PartialEq for DueCompletion {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for DueCompletion {}

impl PartialOrd for DueCompletion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueCompletion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Thread of the device.
struct Timer {
    functions: Arc<FunctionTable<Timed>>,
    timeline: Timeline,
    faults: Vec<PlantedFault>,
    origin: Clock,
    /// Number of jobs taken so far.
    taken: u64,
    due: BinaryHeap<Reverse<DueCompletion>>,
}

impl Timer {
    /// Runs until all senders are gone and all jobs are completed.
    fn run(mut self, queue: &Receiver<Job>) {
        punctual::request_punctual_scheduling();
        loop {
            let now = self.now();
            while self.due.peek().is_some_and(|Reverse(due)| due.at <= now) {
                let Reverse(due) = self.due.pop().expect("a device exists");
                due.completion.send(&due.done);
            }
            let next = self.due.peek().map(|Reverse(due)| due.at);
            let job = match next {
                Some(at) => queue.recv_deadline(self.origin + Duration::from_nanos(at.0)),
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match next {
                    Some(at) => thread::sleep(at.since(self.now())),
                    None => return,
                },
            }
        }
    }

    fn take(&mut self, mut job: Job) {
        let (now, number) = (self.now(), self.taken);
        self.taken += 1;
        let planted = self.faults.iter().find(|p| number.checked_sub(p.from).is_some_and(|n| n < p.count));
        let fault = planted.map(|planted| planted.fault);
        if fault == Some(EmulatedFault::Disappears) {
            return;
        }
        let loaded = self.functions.get(job.function);
        let mut result = match loaded {
            Some((function, _)) => run(function, &job.input, &mut job.region),
            None => Err(JobError::Device(format!("no function {}", job.function.0))),
        };
        match (fault, &mut result, loaded) {
            (Some(EmulatedFault::Gone), ..) => result = Err(JobError::Device("the device is gone".into())),
            (Some(EmulatedFault::Fails), ..) => result = Err(JobError::Device("planted: it failed".into())),
            (Some(EmulatedFault::Length(by)), Ok(bytes), Some(((_, length), _))) => {
                let got = bytes.saturating_add_signed(by);
                if got > job.region.output_max || !length.allows(job.input.len(), got) {
                    result = Err(JobError::length(*length, job.input.len(), job.region.output_max, got));
                } else {
                    *bytes = got;
                }
            }
            _ => {}
        }
        let times = if let Some(EmulatedFault::Slow(times)) = fault { times } else { 1 };
        let takes = loaded.map_or(Duration::ZERO, |(_, takes)| *takes);
        let at = self.timeline.admit(now, takes, job.input.len(), times);
        let completion = Completion::now(job.tag, Some(job.region), result);
        self.due.push(Reverse(DueCompletion { at, number, completion, done: job.done }));
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
