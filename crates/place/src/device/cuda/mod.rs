//! CUDA devices. Compiled on every machine; without the CUDA libraries [`list`] returns an error.

mod raw;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, DriverError};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use super::functions::FunctionTable;
use super::{
    AnswerLength, Completion, ComputeDevice, DeviceError, DeviceInfo, DeviceKind, FunctionId, Job, JobError,
    JobRefusal, Kernel, RefusedJob, Region, TaskCode, WorkItemCount, bounded,
};
use raw::{CudaRegion, Loaded, Streams};

/// Limit on the jobs of one device.
const JOBS_MAX: usize = 1 << 10;
/// Number of jobs whose stages overlap: copy to the device, kernel, copy back.
const SLOTS_PIPELINED: usize = 3;

/// CUDA device that was found.
#[derive(Debug, Clone)]
pub struct CudaDeviceInfo {
    /// Index, from 0.
    pub number: usize,
    /// Name that the driver reports.
    pub name: String,
    /// Memory in bytes.
    pub memory: usize,
}

/// Lists all CUDA devices.
///
/// # Errors
/// [`DeviceError::Absent`], with the reason and the remedy.
pub fn list() -> Result<Vec<CudaDeviceInfo>, DeviceError> {
    let absent = |reason: String| DeviceError::Absent { device: "cuda".into(), reason };
    if !raw::has_driver() {
        return Err(absent("no driver (libcuda.so): install NVIDIA's driver".into()));
    }
    if !raw::has_compiler() {
        return Err(absent("no compiler of kernels (libnvrtc.so): install CUDA's runtime compiler".into()));
    }
    let devices = || -> Result<Vec<CudaDeviceInfo>, DriverError> {
        let count = usize::try_from(CudaContext::device_count()?).unwrap_or(0);
        let found = |number| {
            let context = CudaContext::new(number)?;
            Ok(CudaDeviceInfo { number, name: context.name()?, memory: context.total_mem()? })
        };
        (0..count).map(found).collect()
    };
    match devices() {
        Ok(found) if found.is_empty() => Err(absent("the driver knows no device".into())),
        found => found.map_err(|error| absent(error.to_string())),
    }
}

/// Open CUDA device.
pub struct Cuda {
    info: DeviceInfo,
    streams: Streams,
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

impl Cuda {
    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::Failed`]: the device has no memory for streams.
    pub fn open(found: &CudaDeviceInfo) -> Result<Self, DeviceError> {
        let name = format!("cuda:{} ({})", found.number, found.name);
        let streams = Streams::open(found.number)
            .map_err(|error| DeviceError::Failed { device: name.clone(), reason: error.to_string() })?;
        let info =
            DeviceInfo { kind: DeviceKind::Cuda, name, slots: SLOTS_PIPELINED, jobs_max: JOBS_MAX, in_order: true };
        Ok(Self { info, streams, functions: FunctionTable::new(), jobs: Arc::default() })
    }

    fn failed(&self, error: DriverError) -> DeviceError {
        DeviceError::Failed { device: self.info.name.clone(), reason: error.to_string() }
    }

    fn compile(&self, kernel: &Kernel) -> Result<Loaded, DeviceError> {
        let build = |log| DeviceError::Build { device: self.info.name.clone(), entry: kernel.entry.clone(), log };
        if [&kernel.source, &kernel.entry, &kernel.options].iter().any(|text| text.contains('\0')) {
            return Err(build("its text, name or options have a zero byte".into()));
        }
        let options = kernel.options.split_whitespace().map(str::to_owned).collect();
        let options = CompileOptions { options, ..CompileOptions::default() };
        let ptx = compile_ptx_with_opts(&kernel.source, options).map_err(|error| {
            build(match error {
                CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
                other => other.to_string(),
            })
        })?;
        let module = self.streams.context.load_module(ptx).map_err(|error| self.failed(error))?;
        let function = module
            .load_function(&kernel.entry)
            .map_err(|error| build(format!("the text has no kernel of this name ({error})")))?;
        let tables = kernel.tables.iter().map(|table| {
            self.streams.table(table).map_err(|error| {
                let device = self.info.name.clone();
                DeviceError::Memory { device, bytes: table.len(), reason: error.to_string() }
            })
        });
        let tables = Mutex::new(tables.collect::<Result<_, _>>()?);
        let group = u32::try_from(kernel.group.max(1)).unwrap_or(u32::MAX);
        Ok(Loaded { function, tables, group, reports_length: kernel.length == AnswerLength::Any })
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("info", &self.info).field("jobs", &self.jobs).finish()
    }
}

impl ComputeDevice for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        let TaskCode::Cuda(kernel) = code else {
            let (device, got) = (self.info.name.clone(), code.language());
            return Err(DeviceError::Code { device, name: name.into(), got, expected: "CUDA C++" });
        };
        let loaded = self.compile(kernel)?;
        self.functions.add(&self.info, Function { loaded, items: kernel.items, length: kernel.length })
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        bounded(&self.info, input_max, output_max)?;
        let region = self.streams.region(input_max, output_max).map_err(|error| DeviceError::Memory {
            device: self.info.name.clone(),
            bytes: input_max.saturating_add(output_max),
            reason: error.to_string(),
        })?;
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
        let region = match region.into_registered::<CudaRegion>() {
            Ok(region) if self.streams.has_registered(&region) => region,
            Ok(other) => return refuse(back(Region::registered(other, input_max, output_max)), JobRefusal::Memory),
            Err(other) => return refuse(back(other), JobRefusal::Memory),
        };
        if self.jobs.fetch_add(1, Ordering::AcqRel) >= JOBS_MAX {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            return refuse(back(Region::registered(region, input_max, output_max)), JobRefusal::Full(JOBS_MAX));
        }
        let (count, length) = (Arc::clone(&self.jobs), function.length);
        let group = function.loaded.group as usize;
        let items = u32::try_from(function.items.count(got, group)).unwrap_or(u32::MAX);
        let answer = length.known(got).unwrap_or(output_max);
        let on_completion = move |region: Box<CudaRegion>, length_out: Option<u32>| {
            count.fetch_sub(1, Ordering::AcqRel);
            let result = match (length.known(got), length_out) {
                (Some(bytes), _) => Ok(bytes),
                (None, Some(length_out)) => Ok(length_out as usize),
                (None, None) => Err(JobError::Device("the kernel did not say how long its answer is".into())),
            };
            let result = result.and_then(|bytes| {
                if bytes > output_max { Err(JobError::length(length, got, output_max, bytes)) } else { Ok(bytes) }
            });
            let region = Region::registered(region, input_max, output_max);
            if let Err(unsent) = done.try_send(Completion::now(tag, Some(region), result)) {
                // This is a callback of the driver, where freeing the device's memory is not allowed.
                std::mem::forget(unsent);
            }
        };
        self.streams.begin(&function.loaded, region, &input, (items, answer), on_completion).map_err(|error| {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            RefusedJob { job: None, reason: JobRefusal::Device(error.to_string()) }
        })
    }

    fn update(&self, function: FunctionId, table: usize, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let none = |what: &str| {
            let reason = format!("function {} has no table {table}{what}", function.0);
            DeviceError::Failed { device: self.info.name.clone(), reason }
        };
        let loaded = &self.functions.get(function).ok_or_else(|| none(""))?.loaded;
        match self.streams.write_table(loaded, table, at, bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(none(&format!(" with {} bytes at {at}", bytes.len()))),
            Err(error) => Err(self.failed(error)),
        }
    }
}
