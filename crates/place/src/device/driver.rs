//! Accelerators as devices: checks, functions and windows. The thread of the device makes the library's calls.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::accelerator::{Accelerator, DeviceTable, ListedDevice, LoadedKernel};
use super::device_thread::{DeviceHandle, Flight, JobMemory};
use super::functions::FunctionTable;
use super::window::{WindowMemory, check_window, no_window};
use super::{
    ComputeDevice, DeviceError, DeviceInfo, DeviceWindow, FunctionId, Job, JobRefusal, KernelTable, RefusedJob, Region,
    TaskCode, check_lengths, wrong_code,
};
use crate::context::window::{MemoryWindow, WindowFailure};

/// Limit on the jobs of one device.
const JOBS_MAX: usize = 1 << 10;
/// Number of jobs whose stages overlap: copy to the device, kernel, copy back.
const SLOTS_PIPELINED: usize = 3;
/// Window in the memory of an accelerator.
struct AcceleratorWindow<A: Accelerator> {
    name: String,
    device: DeviceHandle<A>,
    table: Arc<DeviceTable<A>>,
}

impl<A: Accelerator> fmt::Debug for AcceleratorWindow<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceleratorWindow").field("device", &self.name).field("len", &self.table.len).finish()
    }
}

impl<A: Accelerator> AcceleratorWindow<A> {
    fn failed(&self, error: String) -> WindowFailure {
        WindowFailure(format!("{}: {error}", self.name))
    }
}

impl<A: Accelerator> WindowMemory for AcceleratorWindow<A> {
    fn device(&self) -> &str {
        &self.name
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
        self.device.read(&self.table, at, to).map_err(|error| self.failed(error))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        self.device.write(&self.table, at, bytes).map_err(|error| self.failed(error))
    }
}

/// Open accelerator.
pub(super) struct Driver<A: Accelerator> {
    info: DeviceInfo,
    device: DeviceHandle<A>,
    functions: FunctionTable<Arc<LoadedKernel<A>>>,
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
        let failed = |reason| DeviceError::Failed { device: name.clone(), reason };
        let raw = A::open(id).map_err(|error| failed(error.to_string()))?;
        let thread = DeviceHandle::start(raw).map_err(|error| failed(error.to_string()))?;
        let info = DeviceInfo { kind: A::KIND, name, slots: SLOTS_PIPELINED, jobs_max: JOBS_MAX, in_order: true };
        Ok(Arc::new(Self { info, device: thread, functions: FunctionTable::new(), jobs: Arc::default() }))
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
                let raw = self.device.raw.table(bytes).map_err(|error| self.no_memory(bytes.len(), error))?;
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
        window.memory::<AcceleratorWindow<A>>().filter(|window| window.device.is_same(&self.device))
    }

    /// Counts a job as one of the device, if it can be submitted; returns its function.
    fn admit(&self, job: &Job) -> Result<Arc<LoadedKernel<A>>, JobRefusal> {
        let function = self.functions.get(job.function).ok_or(JobRefusal::Function(job.function))?;
        let (max, got) = (job.region.input_max, job.input.len());
        if got > max {
            return Err(JobRefusal::TooLong { max, got });
        }
        if !job.region.as_registered::<JobMemory<A>>().is_some_and(|memory| memory.is_of(&self.device)) {
            return Err(JobRefusal::Memory);
        }
        if self.jobs.fetch_add(1, Ordering::AcqRel) >= JOBS_MAX {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            return Err(JobRefusal::Full(JOBS_MAX));
        }
        Ok(Arc::clone(function))
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
        let compiled = self.device.raw.compile(kernel).map_err(|error| self.failed(error))?.map_err(build)?;
        let tables = kernel.tables.iter().map(|table| self.table(name, table)).collect::<Result<_, _>>()?;
        let (items, group, length) = (kernel.items, kernel.group.max(1), kernel.length);
        let kernel = LoadedKernel { kernel: Mutex::new(compiled), tables, items, group, length };
        self.functions.add(&self.info, Arc::new(kernel))
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        check_lengths(&self.info, input_max, output_max)?;
        let memory = self.device.raw.memory(input_max, output_max);
        let memory = memory.map_err(|error| self.no_memory(input_max.saturating_add(output_max), error))?;
        let memory = JobMemory::new(memory, self.device.clone());
        Ok(Region::registered(Box::new(memory), input_max, output_max))
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        let function = match self.admit(&job) {
            Ok(function) => function,
            Err(reason) => return Err(RefusedJob { job: Some(Box::new(job)), reason }),
        };
        let Job { tag, input, region, done, .. } = job;
        let (input_max, output_max) = (region.input_max, region.output_max);
        let memory = region.into_registered::<JobMemory<A>>().expect("memory of this device");
        let (length, jobs) = (function.length, Arc::clone(&self.jobs));
        let flight = Flight { memory, tag, input: input.len(), input_max, output_max, length, done, jobs };
        if self.device.begin(function, input, Box::new(flight)) {
            return Ok(());
        }
        self.jobs.fetch_sub(1, Ordering::AcqRel);
        Err(RefusedJob { job: None, reason: JobRefusal::Gone })
    }

    fn update(&self, function: FunctionId, table: usize, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let none = |what| self.failed(format!("function {} has no table {table}{what}", function.0));
        let tables = &self.functions.get(function).ok_or_else(|| none(String::new()))?.tables;
        let room = |table: &&Arc<DeviceTable<A>>| at.checked_add(bytes.len()).is_some_and(|end| end <= table.len);
        let found =
            tables.get(table).filter(room).ok_or_else(|| none(format!(" with {} bytes at {at}", bytes.len())))?;
        self.device.write(found, at, bytes).map_err(|error| self.failed(error))
    }

    fn window(&self, bytes: usize) -> Result<DeviceWindow, DeviceError> {
        check_window(&self.info, bytes)?;
        let raw = self.device.raw.zeros(bytes).map_err(|error| self.no_memory(bytes, error))?;
        let (name, table) = (self.info.name.clone(), Arc::new(DeviceTable { raw, len: bytes }));
        Ok(DeviceWindow::new(AcceleratorWindow { name, device: self.device.clone(), table }))
    }

    fn owns(&self, window: &DeviceWindow) -> bool {
        self.window_of(window).is_some()
    }
}
