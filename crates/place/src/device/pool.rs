//! The CPU as a device: threads with one queue, first come, first served.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::functions::Functions;
use super::{
    Code, Completion, Device, DeviceError, FunctionId, HostFn, Info, Job, JobError, Kind, Length, Refused,
    RefusedReason, Region, register_heap,
};

/// Jobs that wait or run, unless it is said otherwise.
pub const JOBS_MAX: usize = 1 << 14;

/// How a pool is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Threads, at least one.
    pub threads: usize,
    /// Jobs that wait at most.
    pub jobs_max: usize,
    /// Processors that its threads run on, one after the other; none: any.
    pub processors: Vec<usize>,
}

impl PoolConfig {
    /// So many threads.
    #[must_use]
    pub const fn new(threads: usize) -> Self {
        Self { threads, jobs_max: JOBS_MAX, processors: Vec::new() }
    }
}

/// A function of the host, as it is loaded.
pub(super) type Loaded = (HostFn, Length);

/// Threads that work on jobs. They end when it is dropped and their queue is empty.
pub struct Pool {
    info: Info,
    functions: Arc<Functions<Loaded>>,
    jobs: Sender<Job>,
}

impl Pool {
    /// Starts its threads.
    ///
    /// # Errors
    /// What the system says when a thread does not start, or can't run on the processor named.
    pub fn start(config: &PoolConfig) -> io::Result<Self> {
        let slots = config.threads.max(1);
        let info = Info { kind: Kind::Cpu, name: "cpu".into(), slots, jobs_max: config.jobs_max, in_order: slots == 1 };
        let functions = Arc::new(Functions::new());
        let (jobs, queue) = bounded(config.jobs_max.max(1));
        let (told, pinned) = bounded(slots);
        for thread in 0..slots {
            let (functions, queue, told) = (Arc::clone(&functions), queue.clone(), told.clone());
            let processor = config.processors.get(thread % config.processors.len().max(1)).copied();
            thread::Builder::new().name(format!("place-cpu-{thread}")).spawn(move || {
                // Who starts it waits for this, so there is room.
                let _ = told.send(processor.map_or(Ok(()), pin));
                drop(told);
                work(&functions, &queue);
            })?;
        }
        drop(told);
        pinned.iter().collect::<io::Result<()>>()?;
        Ok(Self { info, functions, jobs })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("info", &self.info).field("waiting", &self.jobs.len()).finish()
    }
}

impl Device for Pool {
    fn info(&self) -> &Info {
        &self.info
    }

    fn load(&self, name: &str, code: &Code) -> Result<FunctionId, DeviceError> {
        self.functions.add(&self.info, host(&self.info, name, code)?)
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

/// A function of the host: what `code` must be.
pub(super) fn host(info: &Info, name: &str, code: &Code) -> Result<Loaded, DeviceError> {
    match code {
        Code::Host(function, length) => Ok((Arc::clone(function), *length)),
        other => Err(DeviceError::Code {
            device: info.name.clone(),
            name: name.into(),
            got: other.language(),
            expected: "a function of the host",
        }),
    }
}

pub(super) fn refused(error: TrySendError<Job>, jobs_max: usize) -> Refused {
    let (job, reason) = match error {
        TrySendError::Full(job) => (job, RefusedReason::Full(jobs_max)),
        TrySendError::Disconnected(job) => (job, RefusedReason::Gone),
    };
    Refused { job: Some(Box::new(job)), reason }
}

fn work(functions: &Functions<Loaded>, queue: &Receiver<Job>) {
    for mut job in queue {
        let result = match functions.get(job.function) {
            Some(loaded) => run(loaded, &job.input, &mut job.region),
            None => Err(JobError::Device(format!("no function {}", job.function.0))),
        };
        Completion::now(job.tag, Some(job.region), result).send(&job.done);
    }
}

/// Runs a function of the host, and looks at the length that it says.
pub(super) fn run((function, length): &Loaded, input: &[u8], region: &mut Region) -> Result<usize, JobError> {
    let Some(room) = region.room() else {
        return Err(JobError::Device("the job's memory is another device's".into()));
    };
    let max = room.len();
    let bytes = catch_unwind(AssertUnwindSafe(|| function(input, room))).map_err(|_| JobError::Panicked)??;
    if bytes > max || !length.allows(input.len(), bytes) {
        return Err(JobError::length(*length, input.len(), max, bytes));
    }
    Ok(bytes)
}

/// Has this thread run on that processor alone.
#[cfg(target_os = "linux")]
fn pin(processor: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if processor >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("no processor {processor}: at most {}", CpuSet::MAX_CPU - 1)));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::other(format!("no thread can run on processor {processor}: {error}")))
}

/// Threads run anywhere here.
#[cfg(not(target_os = "linux"))]
fn pin(processor: usize) -> io::Result<()> {
    Err(io::Error::other(format!("no thread can be bound to processor {processor} on this system")))
}
