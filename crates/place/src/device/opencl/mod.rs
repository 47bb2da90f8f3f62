//! OpenCL devices. The library is loaded on first use.

mod raw;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opencl3::device::CL_DEVICE_TYPE_ALL;
use opencl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::get_platforms;

use super::functions::FunctionTable;
use super::{
    AnswerLength, Completion, ComputeDevice, DeviceError, DeviceInfo, DeviceKind, FunctionId, Job, JobError,
    JobRefusal, Kernel, RefusedJob, Region, TaskCode, WorkItemCount, bounded,
};
use raw::{ClRegion, DeviceId, Loaded, Queues, WithTables};

/// Limit on the jobs of one device.
const JOBS_MAX: usize = 1 << 10;
/// Number of jobs whose stages overlap: transfer to the device, kernel, transfer back.
const SLOTS_PIPELINED: usize = 3;

/// Serialises the first listing: PoCL 3.1 returns devices that another thread is still initialising.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// OpenCL device that was found.
#[derive(Debug, Clone)]
pub struct OpenClDeviceInfo {
    /// Index, from 0, over all platforms.
    pub number: usize,
    /// Name that the driver reports.
    pub name: String,
    /// Platform, and version of its driver.
    pub platform: String,
    /// Number of compute units.
    pub compute_units: u32,
    /// Whether it shares the host's memory.
    pub shares_memory: bool,
    id: DeviceId,
}

/// Lists all OpenCL devices of this machine.
///
/// # Errors
/// [`DeviceError::Absent`], with the reason and the remedy.
pub fn list() -> Result<Vec<OpenClDeviceInfo>, DeviceError> {
    let absent = |reason: String| DeviceError::Absent { device: "opencl".into(), reason };
    let none = "install the driver of a device, or one for the CPU: pocl-opencl-icd";
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = get_platforms().map_err(|error| match error.0 {
        DLOPEN_RUNTIME_LOAD_FAILED => absent("no library of OpenCL: install ocl-icd-libopencl1".into()),
        _ => absent(format!("no platform ({error}): {none}")),
    })?;
    let mut found = Vec::new();
    for platform in platforms {
        let named = format!("{}, {}", platform.name().unwrap_or_default(), platform.version().unwrap_or_default());
        for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let id = DeviceId::new(id);
            let device = id.device();
            found.push(OpenClDeviceInfo {
                number: found.len(),
                name: device.name().unwrap_or_default().trim().to_owned(),
                platform: named.clone(),
                compute_units: device.max_compute_units().unwrap_or(1),
                shares_memory: device.host_unified_memory().unwrap_or(false),
                id,
            });
        }
    }
    if found.is_empty() { Err(absent(format!("no device: {none}"))) } else { Ok(found) }
}

/// Open OpenCL device.
pub struct OpenCl {
    info: DeviceInfo,
    queues: Queues,
    functions: FunctionTable<Function>,
    /// Number of jobs in the device.
    jobs: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Function {
    loaded: Loaded,
    items: WorkItemCount,
    length: AnswerLength,
}

impl OpenCl {
    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::Failed`]: the device has no memory for a context and its queues.
    pub fn open(found: &OpenClDeviceInfo) -> Result<Self, DeviceError> {
        let name = format!("opencl:{} ({})", found.number, found.name);
        let queues = Queues::open(found.id)
            .map_err(|error| DeviceError::Failed { device: name.clone(), reason: error.to_string() })?;
        let info =
            DeviceInfo { kind: DeviceKind::OpenCl, name, slots: SLOTS_PIPELINED, jobs_max: JOBS_MAX, in_order: true };
        Ok(Self { info, queues, functions: FunctionTable::new(), jobs: Arc::default() })
    }

    fn failed(&self, error: ClError) -> DeviceError {
        DeviceError::Failed { device: self.info.name.clone(), reason: error.to_string() }
    }

    fn no_memory(&self, bytes: usize, error: ClError) -> DeviceError {
        DeviceError::Memory { device: self.info.name.clone(), bytes, reason: error.to_string() }
    }
}

impl fmt::Debug for OpenCl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCl").field("info", &self.info).field("jobs", &self.jobs).finish()
    }
}

impl ComputeDevice for OpenCl {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        let device = || self.info.name.clone();
        let TaskCode::OpenCl(kernel) = code else {
            let (got, expected) = (code.language(), "OpenCL C");
            return Err(DeviceError::Code { device: device(), name: name.into(), got, expected });
        };
        let Kernel { source, entry, options, .. } = kernel;
        let build = |log| DeviceError::Build { device: device(), entry: entry.clone(), log };
        if [source, entry, options].iter().any(|text| text.contains('\0')) {
            return Err(build("its text, name or options have a zero byte".into()));
        }
        let compiled =
            self.queues.compile(source, entry, options).map_err(|error| self.failed(error))?.map_err(build)?;
        let tables = kernel
            .tables
            .iter()
            .map(|table| self.queues.table(table).map_err(|error| self.no_memory(table.len(), error)));
        let tables = tables.collect::<Result<_, _>>()?;
        let loaded = Loaded {
            kernel: Mutex::new(WithTables { kernel: compiled, tables }),
            group: kernel.group.max(1),
            reports_length: kernel.length == AnswerLength::Any,
        };
        self.functions.add(&self.info, Function { loaded, items: kernel.items, length: kernel.length })
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        bounded(&self.info, input_max, output_max)?;
        let region = self.queues.region(input_max, output_max);
        let region = region.map_err(|error| self.no_memory(input_max.saturating_add(output_max), error))?;
        Ok(Region::registered(Box::new(region), input_max, output_max))
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        let refuse = |job, reason| Err(RefusedJob { job: Some(Box::new(job)), reason });
        let Some(function) = self.functions.get(job.function) else {
            let reason = JobRefusal::Function(job.function);
            return refuse(job, reason);
        };
        let (max, got) = (job.region.input_max, job.input.len());
        if got > max {
            return refuse(job, JobRefusal::TooLong { max, got });
        }
        let Job { tag, function: id, input, region, done } = job;
        let (input_max, output_max) = (region.input_max, region.output_max);
        let back = |region| Job { tag, function: id, input: input.clone(), region, done: done.clone() };
        let region = match region.into_registered::<ClRegion>() {
            Ok(region) if self.queues.has_registered(&region) => region,
            Ok(other) => return refuse(back(Region::registered(other, input_max, output_max)), JobRefusal::Memory),
            Err(other) => return refuse(back(other), JobRefusal::Memory),
        };
        let jobs = self.jobs.fetch_add(1, Ordering::AcqRel);
        if jobs >= JOBS_MAX {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            return refuse(back(Region::registered(region, input_max, output_max)), JobRefusal::Full(JOBS_MAX));
        }
        let (count, length) = (Arc::clone(&self.jobs), function.length);
        let items = function.items.count(got, function.loaded.group);
        let on_completion = move |region: Box<ClRegion>, length_out: Option<u32>, status: i32| {
            count.fetch_sub(1, Ordering::AcqRel);
            let result = answer(length, got, output_max, length_out, status);
            let region = Region::registered(region, input_max, output_max);
            Completion::now(tag, Some(region), result).send(&done);
        };
        self.queues.begin(&function.loaded, region, &input, items, on_completion).map_err(|error| {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            RefusedJob { job: None, reason: JobRefusal::Device(error.to_string()) }
        })
    }

    fn update(&self, function: FunctionId, table: usize, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let none = || DeviceError::Failed {
            device: self.info.name.clone(),
            reason: format!("function {} has no table {table}", function.0),
        };
        let loaded = &self.functions.get(function).ok_or_else(none)?.loaded;
        match self.queues.write_table(loaded, table, at, bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(none()),
            Err(error) => Err(self.failed(error)),
        }
    }
}

/// Result of a job.
fn answer(
    length: AnswerLength,
    input: usize,
    max: usize,
    length_out: Option<u32>,
    status: i32,
) -> Result<usize, JobError> {
    if status < 0 {
        return Err(JobError::Device(ClError(status).to_string()));
    }
    let got = match (length.known(input), length_out) {
        (Some(bytes), _) => bytes,
        (None, Some(length_out)) => length_out as usize,
        (None, None) => return Err(JobError::Device("the kernel did not say how long its answer is".into())),
    };
    if got > max { Err(JobError::length(length, input, max, got)) } else { Ok(got) }
}
