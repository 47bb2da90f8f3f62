//! Devices that OpenCL knows. The library is looked for when it is asked for the first time, not before.

mod raw;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opencl3::device::CL_DEVICE_TYPE_ALL;
use opencl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::get_platforms;

use super::functions::Functions;
use super::{
    Code, Completion, Device, DeviceError, FunctionId, Info, Items, Job, JobError, Kernel, Kind, Length, Refused,
    RefusedReason, Region, bounded,
};
use raw::{ClRegion, DeviceId, Loaded, Queues, WithTables};

/// Jobs that one device has at the same time at most.
const JOBS_MAX: usize = 1 << 10;
/// Jobs whose stages overlap: one's memory goes up, one is worked on, one's comes down.
const SLOTS_PIPELINED: usize = 3;

/// PoCL 3.1 gives devices that it is still setting up to whoever asks at the same time for the first time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A device that is there, not opened yet.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its number, from 0, over all platforms.
    pub number: usize,
    /// What it calls itself.
    pub name: String,
    /// Its platform and the driver's version.
    pub platform: String,
    /// What works at the same time in it.
    pub compute_units: u32,
    /// Whether it has the host's memory.
    pub shares_memory: bool,
    id: DeviceId,
}

/// All devices that OpenCL knows here.
///
/// # Errors
/// [`DeviceError::Absent`], with the reason and what to do.
pub fn list() -> Result<Vec<Found>, DeviceError> {
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
            found.push(Found {
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

/// A device in use.
pub struct OpenCl {
    info: Info,
    queues: Queues,
    functions: Functions<Function>,
    /// Jobs that it has now.
    jobs: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Function {
    loaded: Loaded,
    items: Items,
    length: Length,
}

impl OpenCl {
    /// Opens a device that was found.
    ///
    /// # Errors
    /// [`DeviceError::Failed`]: it has no room for a context and its queues.
    pub fn open(found: &Found) -> Result<Self, DeviceError> {
        let name = format!("opencl:{} ({})", found.number, found.name);
        let queues = Queues::open(found.id)
            .map_err(|error| DeviceError::Failed { device: name.clone(), reason: error.to_string() })?;
        let info = Info { kind: Kind::OpenCl, name, slots: SLOTS_PIPELINED, jobs_max: JOBS_MAX, in_order: true };
        Ok(Self { info, queues, functions: Functions::new(), jobs: Arc::default() })
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

impl Device for OpenCl {
    fn info(&self) -> &Info {
        &self.info
    }

    fn load(&self, name: &str, code: &Code) -> Result<FunctionId, DeviceError> {
        let device = || self.info.name.clone();
        let Code::OpenCl(kernel) = code else {
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
            tells: kernel.length == Length::Any,
        };
        self.functions.add(&self.info, Function { loaded, items: kernel.items, length: kernel.length })
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        bounded(&self.info, input_max, output_max)?;
        let region = self.queues.region(input_max, output_max);
        let region = region.map_err(|error| self.no_memory(input_max.saturating_add(output_max), error))?;
        Ok(Region::registered(Box::new(region), input_max, output_max))
    }

    fn submit(&self, job: Job) -> Result<(), Refused> {
        let refuse = |job, reason| Err(Refused { job: Some(Box::new(job)), reason });
        let Some(function) = self.functions.get(job.function) else {
            let reason = RefusedReason::Function(job.function);
            return refuse(job, reason);
        };
        let (max, got) = (job.region.input_max, job.input.len());
        if got > max {
            return refuse(job, RefusedReason::TooLong { max, got });
        }
        let Job { tag, function: id, input, region, done } = job;
        let (input_max, output_max) = (region.input_max, region.output_max);
        let back = |region| Job { tag, function: id, input: input.clone(), region, done: done.clone() };
        let region = match region.into_registered::<ClRegion>() {
            Ok(region) if self.queues.is_home_of(&region) => region,
            Ok(other) => return refuse(back(Region::registered(other, input_max, output_max)), RefusedReason::Memory),
            Err(other) => return refuse(back(other), RefusedReason::Memory),
        };
        let jobs = self.jobs.fetch_add(1, Ordering::AcqRel);
        if jobs >= JOBS_MAX {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            return refuse(back(Region::registered(region, input_max, output_max)), RefusedReason::Full(JOBS_MAX));
        }
        let (count, length) = (Arc::clone(&self.jobs), function.length);
        let items = function.items.count(got, function.loaded.group);
        let landed = move |region: Box<ClRegion>, told: Option<u32>, status: i32| {
            count.fetch_sub(1, Ordering::AcqRel);
            let result = answer(length, got, output_max, told, status);
            let region = Region::registered(region, input_max, output_max);
            Completion::now(tag, Some(region), result).send(&done);
        };
        self.queues.begin(&function.loaded, region, &input, items, landed).map_err(|error| {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            Refused { job: None, reason: RefusedReason::Device(error.to_string()) }
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

/// What a job came to.
fn answer(length: Length, input: usize, max: usize, told: Option<u32>, status: i32) -> Result<usize, JobError> {
    if status < 0 {
        return Err(JobError::Device(ClError(status).to_string()));
    }
    let got = match (length.known(input), told) {
        (Some(bytes), _) => bytes,
        (None, Some(told)) => told as usize,
        (None, None) => return Err(JobError::Device("the kernel did not say how long its answer is".into())),
    };
    if got > max { Err(JobError::length(length, input, max, got)) } else { Ok(got) }
}
