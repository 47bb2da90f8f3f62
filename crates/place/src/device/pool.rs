//! CPU device: a thread pool with one queue, first come, first served.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::functions::FunctionTable;
use super::{
    AnswerLength, Completion, ComputeDevice, DeviceError, DeviceInfo, DeviceKind, FunctionId, HostFn, Job, JobError,
    JobRefusal, RefusedJob, Region, TaskCode, register_heap,
};

/// Default limit on the jobs that wait or run.
pub const JOBS_MAX: usize = 1 << 14;

/// Configuration of a thread pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of threads, at least one.
    pub threads: usize,
    /// Limit on the waiting jobs.
    pub jobs_max: usize,
    /// Processors that the threads are pinned to in turn; empty: not pinned.
    pub processors: Vec<usize>,
}

impl PoolConfig {
    /// Configuration with this number of threads.
    #[must_use]
    pub const fn new(threads: usize) -> Self {
        Self { threads, jobs_max: JOBS_MAX, processors: Vec::new() }
    }
}

/// Loaded function of the host.
pub(super) type LoadedHostFunction = (HostFn, AnswerLength);

/// Thread pool. The threads end when it is dropped and the queue is empty.
pub struct CpuPool {
    info: DeviceInfo,
    functions: Arc<FunctionTable<LoadedHostFunction>>,
    jobs: Sender<Job>,
}

impl CpuPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// An error of the system if a thread does not start, or cannot be pinned to its processor.
    pub fn start(config: &PoolConfig) -> io::Result<Self> {
        let slots = config.threads.max(1);
        let info = DeviceInfo {
            kind: DeviceKind::Cpu,
            name: "cpu".into(),
            slots,
            jobs_max: config.jobs_max,
            in_order: slots == 1,
        };
        let functions = Arc::new(FunctionTable::new());
        let (jobs, queue) = bounded(config.jobs_max.max(1));
        let (told, pinned) = bounded(slots);
        for thread in 0..slots {
            let (functions, queue, told) = (Arc::clone(&functions), queue.clone(), told.clone());
            let processor = config.processors.get(thread % config.processors.len().max(1)).copied();
            thread::Builder::new().name(format!("place-cpu-{thread}")).spawn(move || {
                // The channel has room for one message of each thread.
                let _ = told.send(processor.map_or(Ok(()), pin));
                drop(told);
                run_jobs(&functions, &queue);
            })?;
        }
        drop(told);
        pinned.iter().collect::<io::Result<()>>()?;
        Ok(Self { info, functions, jobs })
    }
}

impl fmt::Debug for CpuPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("info", &self.info).field("waiting", &self.jobs.len()).finish()
    }
}

impl ComputeDevice for CpuPool {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        self.functions.add(&self.info, host(&self.info, name, code)?)
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

/// Loads a function of the host; other code is an error.
pub(super) fn host(info: &DeviceInfo, name: &str, code: &TaskCode) -> Result<LoadedHostFunction, DeviceError> {
    match code {
        TaskCode::Host(function, length) => Ok((Arc::clone(function), *length)),
        other => Err(DeviceError::Code {
            device: info.name.clone(),
            name: name.into(),
            got: other.language(),
            expected: "a function of the host",
        }),
    }
}

pub(super) fn refused(error: TrySendError<Job>, jobs_max: usize) -> RefusedJob {
    let (job, reason) = match error {
        TrySendError::Full(job) => (job, JobRefusal::Full(jobs_max)),
        TrySendError::Disconnected(job) => (job, JobRefusal::Gone),
    };
    RefusedJob { job: Some(Box::new(job)), reason }
}

fn run_jobs(functions: &FunctionTable<LoadedHostFunction>, queue: &Receiver<Job>) {
    for mut job in queue {
        let result = match functions.get(job.function) {
            Some(loaded) => run(loaded, &job.input, &mut job.region),
            None => Err(JobError::Device(format!("no function {}", job.function.0))),
        };
        Completion::now(job.tag, Some(job.region), result).send(&job.done);
    }
}

/// Runs a function of the host, and checks the length of its answer.
pub(super) fn run(
    (function, length): &LoadedHostFunction,
    input: &[u8],
    region: &mut Region,
) -> Result<usize, JobError> {
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

/// Pins this thread to a processor.
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

/// Pinning is not supported on this system.
#[cfg(not(target_os = "linux"))]
fn pin(processor: usize) -> io::Result<()> {
    Err(io::Error::other(format!("no thread can be bound to processor {processor} on this system")))
}
