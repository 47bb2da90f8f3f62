//! Driver of accelerators: kernels, tables, windows and jobs over the raw operations of one library.
//!
//! ```text
//! submit ─▶ upload ─▶ launch ─▶ download ─▶ notify ══▶ another thread: Flight::land ─▶ Completion
//! ```
//!
//! The stages of several jobs overlap; a library has one queue for each stage.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_channel::Sender;

use super::functions::FunctionTable;
use super::job::Registered;
use super::window::{WindowMemory, check_window, no_window};
use super::{
    AnswerLength, Completion, ComputeDevice, DeviceError, DeviceInfo, DeviceKind, DeviceWindow, FunctionId, Job,
    JobError, JobRefusal, Kernel, KernelTable, RefusedJob, Region, TaskCode, WorkItemCount, check_lengths, wrong_code,
};
use crate::context::window::{MemoryWindow, WindowFailure};

/// Limit on the jobs of one device.
const JOBS_MAX: usize = 1 << 10;
/// Number of jobs whose stages overlap: copy to the device, kernel, copy back.
const SLOTS_PIPELINED: usize = 3;
/// Value of the answer length as long as the kernel has not written it.
pub(super) const LENGTH_UNSET: u32 = u32::MAX;

/// Raw operations of a library. None of them blocks, except where it says so.
pub(super) trait Accelerator: Send + Sync + Sized + 'static {
    /// Kind of the devices.
    const KIND: DeviceKind;
    /// Id of a device.
    type Id;
    /// Error of the library.
    type Error: fmt::Display + fmt::Debug;
    /// Compiled kernel.
    type Kernel: Send;
    /// Table on the device.
    type Table: Send + Sync;
    /// Memory of one job: request, answer and answer length.
    type Memory: Registered;
    /// Last command of a stage.
    type Event;

    /// Lists the devices; an error is the reason why there are none, and the remedy.
    fn list() -> Result<Vec<ListedDevice<Self::Id>>, String>;
    /// Opens a device.
    fn open(id: Self::Id) -> Result<Self, Self::Error>;
    /// Compiles a kernel, which may take seconds. The inner error is the compiler's output.
    fn compile(&self, kernel: &Kernel) -> Result<Result<Self::Kernel, String>, Self::Error>;
    /// Allocates a table with this content.
    fn table(&self, bytes: &[u8]) -> Result<Self::Table, Self::Error>;
    /// Allocates a table of zeros.
    fn zeros(&self, bytes: usize) -> Result<Self::Table, Self::Error>;
    /// Writes to a table, in the queue of the kernels, and waits. There is at least one byte, and the table has room.
    fn write_table(&self, table: &Self::Table, at: usize, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Reads a table, as [`Self::write_table`] writes to it.
    fn read_table(&self, table: &Self::Table, at: usize, to: &mut [u8]) -> Result<(), Self::Error>;
    /// Allocates memory for one job.
    fn memory(&self, input_max: usize, output_max: usize) -> Result<Self::Memory, Self::Error>;
    /// Whether the memory is this device's.
    fn owns(&self, memory: &Self::Memory) -> bool;
    /// Copies a request to the device, and [`LENGTH_UNSET`] as the answer length, if the kernel writes one.
    fn upload(&self, memory: &mut Self::Memory, launch: &Launch<'_>) -> Result<Self::Event, Self::Error>;
    /// Starts a kernel after an upload.
    fn launch(
        &self,
        kernel: &Self::Kernel,
        tables: &[Arc<DeviceTable<Self>>],
        memory: &mut Self::Memory,
        launch: &Launch<'_>,
        after: Self::Event,
    ) -> Result<Self::Event, Self::Error>;
    /// Copies the answer and its length back after a kernel.
    fn download(
        &self,
        memory: &mut Self::Memory,
        launch: &Launch<'_>,
        after: Self::Event,
    ) -> Result<Self::Event, Self::Error>;
    /// Has another thread call [`Flight::land`] after the last command.
    fn notify(&self, last: Self::Event, flight: Box<Flight<Self>>) -> Result<(), (Self::Error, Box<Flight<Self>>)>;
    /// Waits until the device has no commands.
    fn finish(&self) -> Result<(), Self::Error>;
    /// Answer length of a job that has ended.
    fn length(memory: &Self::Memory) -> u32;
}

/// Device as a library lists it.
pub(super) struct ListedDevice<I> {
    pub(super) id: I,
    /// Name that the library reports.
    pub(super) name: String,
    /// Description for people, after the name.
    pub(super) about: String,
}

/// Table on a device, with its length in bytes.
pub(super) struct DeviceTable<A: Accelerator> {
    pub(super) raw: A::Table,
    len: usize,
}

/// Window in the memory of an accelerator.
struct AcceleratorWindow<A: Accelerator> {
    device: String,
    raw: Arc<A>,
    table: Arc<DeviceTable<A>>,
}

impl<A: Accelerator> fmt::Debug for AcceleratorWindow<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceleratorWindow").field("device", &self.device).field("len", &self.table.len).finish()
    }
}

impl<A: Accelerator> AcceleratorWindow<A> {
    fn failed(&self, error: A::Error) -> WindowFailure {
        WindowFailure(format!("{}: {error}", self.device))
    }
}

impl<A: Accelerator> WindowMemory for AcceleratorWindow<A> {
    fn device(&self) -> &str {
        &self.device
    }
}

impl<A: Accelerator> MemoryWindow for AcceleratorWindow<A> {
    fn len(&self) -> usize {
        self.table.len
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure> {
        if to.is_empty() {
            return Ok(());
        }
        self.raw.read_table(&self.table.raw, at, to).map_err(|error| self.failed(error))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.raw.write_table(&self.table.raw, at, bytes).map_err(|error| self.failed(error))
    }
}

/// Run of a kernel.
pub(super) struct Launch<'a> {
    pub(super) input: &'a [u8],
    /// Number of bytes to copy back.
    pub(super) answer: usize,
    /// Number of work items, in whole groups.
    pub(super) items: usize,
    pub(super) group: usize,
    /// Whether the kernel writes the length of its answers.
    pub(super) reports_length: bool,
}

/// Loaded function.
struct LoadedKernel<A: Accelerator> {
    /// Locked while the arguments of a job are set.
    kernel: Mutex<A::Kernel>,
    tables: Vec<Arc<DeviceTable<A>>>,
    items: WorkItemCount,
    group: usize,
    length: AnswerLength,
}

/// Open accelerator.
pub(super) struct Driver<A: Accelerator> {
    info: DeviceInfo,
    raw: Arc<A>,
    functions: FunctionTable<LoadedKernel<A>>,
    /// Number of jobs in the device.
    jobs: Arc<AtomicUsize>,
}

impl<A: Accelerator> Driver<A> {
    /// Describes the devices of this machine for people.
    pub(super) fn describe() -> Result<Vec<String>, DeviceError> {
        Ok(Self::list()?.into_iter().map(|device| format!("{}; {}", device.name, device.about)).collect())
    }

    fn list() -> Result<Vec<ListedDevice<A::Id>>, DeviceError> {
        A::list().map_err(|reason| DeviceError::Absent { device: A::KIND.to_string(), reason })
    }

    /// Opens the device with this index.
    pub(super) fn open(number: usize) -> Result<Arc<dyn ComputeDevice>, DeviceError> {
        let (mut found, device) = (Self::list()?, format!("{}:{number}", A::KIND));
        if number >= found.len() {
            let reason = format!("there are {} of them, numbered from 0", found.len());
            return Err(DeviceError::Absent { device, reason });
        }
        let ListedDevice { id, name, .. } = found.swap_remove(number);
        let name = format!("{device} ({name})");
        let raw =
            A::open(id).map_err(|error| DeviceError::Failed { device: name.clone(), reason: error.to_string() })?;
        let info = DeviceInfo { kind: A::KIND, name, slots: SLOTS_PIPELINED, jobs_max: JOBS_MAX, in_order: true };
        Ok(Arc::new(Self { info, raw: Arc::new(raw), functions: FunctionTable::new(), jobs: Arc::default() }))
    }

    fn failed(&self, reason: impl fmt::Display) -> DeviceError {
        DeviceError::Failed { device: self.info.name.clone(), reason: reason.to_string() }
    }

    fn no_memory(&self, bytes: usize, error: A::Error) -> DeviceError {
        no_window(&self.info, bytes, error)
    }

    /// Table of the function `name`: a new one, or the memory of a window.
    fn table(&self, name: &str, table: &KernelTable) -> Result<Arc<DeviceTable<A>>, DeviceError> {
        match table {
            KernelTable::Bytes(bytes) => {
                let raw = self.raw.table(bytes).map_err(|error| self.no_memory(bytes.len(), error))?;
                Ok(Arc::new(DeviceTable { raw, len: bytes.len() }))
            }
            KernelTable::Window(window) => match self.window_of(window) {
                Some(own) => Ok(Arc::clone(&own.table)),
                None => {
                    let (device, name, of) = (self.info.name.clone(), name.to_owned(), window.device().to_owned());
                    Err(DeviceError::Window { device, name, of })
                }
            },
        }
    }

    /// Memory of a window, if it is this device's.
    fn window_of<'a>(&self, window: &'a DeviceWindow) -> Option<&'a AcceleratorWindow<A>> {
        window.memory::<AcceleratorWindow<A>>().filter(|window| Arc::ptr_eq(&window.raw, &self.raw))
    }

    /// Counts a job as one of the device, if it can be submitted; returns its function.
    fn admit(&self, job: &Job) -> Result<&LoadedKernel<A>, JobRefusal> {
        let function = self.functions.get(job.function).ok_or(JobRefusal::Function(job.function))?;
        let (max, got) = (job.region.input_max, job.input.len());
        if got > max {
            return Err(JobRefusal::TooLong { max, got });
        }
        if !job.region.as_registered::<A::Memory>().is_some_and(|memory| self.raw.owns(memory)) {
            return Err(JobRefusal::Memory);
        }
        if self.jobs.fetch_add(1, Ordering::AcqRel) >= JOBS_MAX {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            return Err(JobRefusal::Full(JOBS_MAX));
        }
        Ok(function)
    }

    /// Enqueues the commands of a job.
    fn enqueue(
        &self,
        function: &LoadedKernel<A>,
        memory: &mut A::Memory,
        launch: &Launch<'_>,
    ) -> Result<A::Event, A::Error> {
        let up = self.raw.upload(memory, launch)?;
        let worked = {
            let kernel = function.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.raw.launch(&kernel, &function.tables, memory, launch, up)?
        };
        self.raw.download(memory, launch, worked)
    }
}

impl<A: Accelerator> fmt::Debug for Driver<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("info", &self.info).field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl<A: Accelerator> ComputeDevice for Driver<A> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        let kernel = match code {
            TaskCode::OpenCl(kernel) | TaskCode::Cuda(kernel) if code.runs_on(A::KIND) => kernel,
            _ => return Err(wrong_code(&self.info, name, code)),
        };
        let build = |log| DeviceError::Build { device: self.info.name.clone(), entry: kernel.entry.clone(), log };
        if [&kernel.source, &kernel.entry, &kernel.options].iter().any(|text| text.contains('\0')) {
            return Err(build("its text, name or options have a zero byte".into()));
        }
        let compiled = self.raw.compile(kernel).map_err(|error| self.failed(error))?.map_err(build)?;
        let tables = kernel.tables.iter().map(|table| self.table(name, table)).collect::<Result<_, _>>()?;
        let (items, group, length) = (kernel.items, kernel.group.max(1), kernel.length);
        self.functions.add(&self.info, LoadedKernel { kernel: Mutex::new(compiled), tables, items, group, length })
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        check_lengths(&self.info, input_max, output_max)?;
        let memory = self.raw.memory(input_max, output_max);
        let memory = memory.map_err(|error| self.no_memory(input_max.saturating_add(output_max), error))?;
        Ok(Region::registered(Box::new(memory), input_max, output_max))
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        let function = match self.admit(&job) {
            Ok(function) => function,
            Err(reason) => return Err(RefusedJob { job: Some(Box::new(job)), reason }),
        };
        let &LoadedKernel { items, group, length, .. } = function;
        let Job { tag, input, region, done, .. } = job;
        let (input_max, output_max) = (region.input_max, region.output_max);
        let memory = region.into_registered::<A::Memory>().expect("memory of this device");
        let jobs = Arc::clone(&self.jobs);
        let mut flight =
            Box::new(Flight::<A> { memory, tag, input: input.len(), input_max, output_max, length, done, jobs });
        let launch = Launch {
            input: &input,
            answer: length.known(input.len()).unwrap_or(output_max),
            items: items.count(input.len(), group),
            group,
            reports_length: length == AnswerLength::Any,
        };
        let begun = match self.enqueue(function, &mut flight.memory, &launch) {
            Ok(last) => self.raw.notify(last, flight),
            Err(error) => Err((error, flight)),
        };
        begun.map_err(|(error, flight)| {
            // The device may still use the memory. If the end is unknown, the memory is leaked.
            if self.raw.finish().is_err() {
                Box::leak(flight);
            }
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            RefusedJob { job: None, reason: JobRefusal::Device(error.to_string()) }
        })
    }

    fn update(&self, function: FunctionId, table: usize, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let none = |what| self.failed(format!("function {} has no table {table}{what}", function.0));
        let tables = &self.functions.get(function).ok_or_else(|| none(String::new()))?.tables;
        let room = |table: &&Arc<DeviceTable<A>>| at.checked_add(bytes.len()).is_some_and(|end| end <= table.len);
        let found =
            tables.get(table).filter(room).ok_or_else(|| none(format!(" with {} bytes at {at}", bytes.len())))?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.raw.write_table(&found.raw, at, bytes).map_err(|error| self.failed(error))
    }

    fn window(&self, bytes: usize) -> Result<DeviceWindow, DeviceError> {
        check_window(&self.info, bytes)?;
        let raw = self.raw.zeros(bytes).map_err(|error| self.no_memory(bytes, error))?;
        let (device, table) = (self.info.name.clone(), Arc::new(DeviceTable { raw, len: bytes }));
        Ok(DeviceWindow::new(AcceleratorWindow { device, raw: Arc::clone(&self.raw), table }))
    }

    fn owns(&self, window: &DeviceWindow) -> bool {
        self.window_of(window).is_some()
    }
}

/// Job in the device.
pub(super) struct Flight<A: Accelerator> {
    memory: Box<A::Memory>,
    tag: u64,
    /// Length of the request in bytes.
    input: usize,
    input_max: usize,
    output_max: usize,
    length: AnswerLength,
    done: Sender<Completion>,
    jobs: Arc<AtomicUsize>,
}

impl<A: Accelerator> Flight<A> {
    /// Memory of the job.
    pub(super) fn memory(&self) -> &A::Memory {
        &self.memory
    }

    /// Completes the job, with the error of its last command.
    pub(super) fn land(self, failure: Option<A::Error>) {
        let Self { memory, tag, input, input_max, output_max, length, done, jobs } = self;
        jobs.fetch_sub(1, Ordering::AcqRel);
        let result = match (failure, length.known(input)) {
            (Some(error), _) => Err(JobError::Device(error.to_string())),
            (None, Some(bytes)) => Ok(bytes),
            (None, None) => match A::length(&memory) {
                LENGTH_UNSET => Err(JobError::Device("the kernel did not say how long its answer is".into())),
                bytes => Ok(bytes as usize),
            },
        };
        let result = result.and_then(|bytes| {
            if bytes > output_max { Err(JobError::length(length, input, output_max, bytes)) } else { Ok(bytes) }
        });
        let region = Region::registered(memory, input_max, output_max);
        Completion::now(tag, Some(region), result).send(&done);
    }
}
