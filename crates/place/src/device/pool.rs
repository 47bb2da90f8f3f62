//! Devices that run functions of the host, and the CPU's: a thread pool with one queue, first come, first served.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::functions::FunctionTable;
use super::{
    AnswerLength, Completion, ComputeDevice, DeviceError, DeviceInfo, DeviceKind, DeviceWindow, FunctionId, HostFn,
    Job, JobError, JobRefusal, RefusedJob, Region, TaskCode, check_lengths, wrong_code,
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

/// Function of the host, with the required length of its answers.
pub(super) type LoadedHostFunction = (HostFn, AnswerLength);
/// Job with its function, and the time of the function's jobs.
pub(super) type HostJob<T> = (LoadedHostFunction, T, Job);

/// Device of threads that run functions of the host. The threads end when it is dropped and the queue is empty.
pub struct HostDevice<T> {
    info: DeviceInfo,
    functions: FunctionTable<(LoadedHostFunction, T)>,
    /// Time of the jobs of a function, by its name.
    time: Box<dyn Fn(&str) -> T + Send + Sync>,
    jobs: Sender<HostJob<T>>,
    /// Identity of the device, for its windows.
    home: Arc<()>,
}

/// Thread pool.
pub type CpuPool = HostDevice<()>;

impl CpuPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// An error of the system if a thread does not start, or cannot be pinned to its processor.
    pub fn start(config: &PoolConfig) -> io::Result<Self> {
        let slots = config.threads.max(1);
        let (device, queue) = Self::new(DeviceKind::Cpu, "cpu".into(), slots, config.jobs_max, |_| ());
        let (told, pinned) = bounded(slots);
        for thread in 0..slots {
            let (queue, told) = (queue.clone(), told.clone());
            let processor = config.processors.get(thread % config.processors.len().max(1)).copied();
            thread::Builder::new().name(format!("place-cpu-{thread}")).spawn(move || {
                // The channel has room for one message of each thread.
                let _ = told.send(processor.map_or(Ok(()), pin));
                drop(told);
                for (function, (), mut job) in queue {
                    let result = run(&function, &job.input, &mut job.region);
                    Completion::now(job.tag, Some(job.region), result).send(&job.done);
                }
            })?;
        }
        drop(told);
        pinned.iter().collect::<io::Result<()>>()?;
        Ok(device)
    }
}

impl<T> HostDevice<T> {
    /// Creates a device, and the queue of its threads.
    pub(super) fn new(
        kind: DeviceKind,
        name: String,
        slots: usize,
        jobs_max: usize,
        time: impl Fn(&str) -> T + Send + Sync + 'static,
    ) -> (Self, Receiver<HostJob<T>>) {
        let info = DeviceInfo { kind, name, slots, jobs_max, in_order: slots == 1 };
        let (jobs, queue) = bounded(jobs_max.max(1));
        (Self { info, functions: FunctionTable::new(), time: Box::new(time), jobs, home: Arc::default() }, queue)
    }
}

impl<T> fmt::Debug for HostDevice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDevice").field("info", &self.info).field("waiting", &self.jobs.len()).finish()
    }
}

impl<T: Copy + Send + Sync> ComputeDevice for HostDevice<T> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        let TaskCode::Host(function, length) = code else { return Err(wrong_code(&self.info, name, code)) };
        self.functions.add(&self.info, ((Arc::clone(function), *length), (self.time)(name)))
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        check_lengths(&self.info, input_max, output_max).map(|()| Region::heap(input_max, output_max))
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        let refuse = |job, reason| Err(RefusedJob { job: Some(Box::new(job)), reason });
        let Some((function, time)) = self.functions.get(job.function) else {
            let reason = JobRefusal::Function(job.function);
            return refuse(job, reason);
        };
        match self.jobs.try_send((function.clone(), *time, job)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full((.., job))) => refuse(job, JobRefusal::Full(self.info.jobs_max)),
            Err(TrySendError::Disconnected((.., job))) => refuse(job, JobRefusal::Gone),
        }
    }

    fn window(&self, bytes: usize) -> Result<DeviceWindow, DeviceError> {
        DeviceWindow::of_host(&self.info, &self.home, bytes)
    }

    fn owns(&self, window: &DeviceWindow) -> bool {
        window.is_of_host(&self.home)
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
