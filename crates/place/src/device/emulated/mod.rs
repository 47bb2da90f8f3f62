//! A device that gives right answers as late as a given model says: for experiments, and for faults.
//!
//! ```text
//! submit ─▶ queue ─▶ a thread: answer by the host's function, due time by Timeline ─▶ heap ─▶ Completion when due
//! ```
//!
//! It waits for its times by sleeping, so that all that it costs is what the functions cost that give the answers. A real
//! device does not wait for a processor of the host: `punctual` has the kernel run its thread when that is due.

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

use super::functions::Functions;
use super::pool::{JOBS_MAX, Loaded, host, refused, run};
use super::{
    Code, Completion, Device, DeviceError, FunctionId, Info, Job, JobError, Kind, Refused, RefusedReason, Region,
    register_heap,
};
pub use timeline::{Rate, Timeline};

/// What a device may do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It takes jobs, and nothing comes back.
    Disappears,
    /// It says that it is gone.
    Gone,
    /// It says that it failed.
    Fails,
    /// It says a wrong length of its answer: by so many bytes too long, or too short.
    Length(isize),
    /// It takes so many times as long.
    Slow(u32),
}

/// A fault for jobs `from..from + count`, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planted {
    /// The first such job.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// What happens to them.
    pub fault: Fault,
}

impl Planted {
    /// From that job on, for ever.
    #[must_use]
    pub const fn forever(from: u64, fault: Fault) -> Self {
        Self { from, count: u64::MAX, fault }
    }
}

/// A function, and what each of its jobs takes.
type Timed = (Loaded, Duration);

/// The device.
pub struct Emulated {
    info: Info,
    rate: Rate,
    functions: Arc<Functions<Timed>>,
    jobs: Sender<Job>,
}

impl Emulated {
    /// Starts its thread.
    ///
    /// # Errors
    /// What the system says when it does not start.
    pub fn start(name: &str, rate: Rate, faults: Vec<Planted>) -> io::Result<Self> {
        let info = Info {
            kind: Kind::Emulated,
            name: format!("emulated ({name})"),
            slots: rate.slots.max(1),
            jobs_max: JOBS_MAX,
            in_order: rate.slots <= 1,
        };
        let functions = Arc::new(Functions::new());
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

impl Device for Emulated {
    fn info(&self) -> &Info {
        &self.info
    }

    fn load(&self, name: &str, code: &Code) -> Result<FunctionId, DeviceError> {
        self.functions.add(&self.info, (host(&self.info, name, code)?, self.rate.job(name)))
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        register_heap(&self.info, input_max, output_max)
    }

    fn submit(&self, job: Job) -> Result<(), Refused> {
        if self.functions.get(job.function).is_none() {
            let reason = RefusedReason::Function(job.function);
            return Err(Refused { job: Some(Box::new(job)), reason });
        }
        self.jobs.try_send(job).map_err(|error| refused(error, self.info.jobs_max))
    }
}

/// A completion that is due.
struct Due {
    at: Instant,
    /// Of jobs that are due at the same time the earlier one is first.
    number: u64,
    completion: Completion,
    done: Sender<Completion>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Its thread.
struct Timer {
    functions: Arc<Functions<Timed>>,
    timeline: Timeline,
    faults: Vec<Planted>,
    origin: Clock,
    /// Jobs taken so far.
    taken: u64,
    due: BinaryHeap<Reverse<Due>>,
}

impl Timer {
    /// Until nobody can submit any more and all is done.
    fn run(mut self, queue: &Receiver<Job>) {
        punctual::be_punctual();
        loop {
            let now = self.now();
            while self.due.peek().is_some_and(|Reverse(due)| due.at <= now) {
                let Reverse(due) = self.due.pop().expect("there is one");
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
        if fault == Some(Fault::Disappears) {
            return;
        }
        let loaded = self.functions.get(job.function);
        let mut result = match loaded {
            Some((function, _)) => run(function, &job.input, &mut job.region),
            None => Err(JobError::Device(format!("no function {}", job.function.0))),
        };
        match (fault, &mut result, loaded) {
            (Some(Fault::Gone), ..) => result = Err(JobError::Device("the device is gone".into())),
            (Some(Fault::Fails), ..) => result = Err(JobError::Device("planted: it failed".into())),
            (Some(Fault::Length(by)), Ok(bytes), Some(((_, length), _))) => {
                let got = bytes.saturating_add_signed(by);
                if got > job.region.output_max || !length.allows(job.input.len(), got) {
                    result = Err(JobError::length(*length, job.input.len(), job.region.output_max, got));
                } else {
                    *bytes = got;
                }
            }
            _ => {}
        }
        let times = if let Some(Fault::Slow(times)) = fault { times } else { 1 };
        let takes = loaded.map_or(Duration::ZERO, |(_, takes)| *takes);
        let at = self.timeline.admit(now, takes, job.input.len(), times);
        let completion = Completion::now(job.tag, Some(job.region), result);
        self.due.push(Reverse(Due { at, number, completion, done: job.done }));
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
