//! Raw operations of the CUDA driver, with all unsafe code for it. Compiled without CUDA; the libraries are loaded on
//! demand.
//!
//! ```text
//! a job:  up: pinned memory to device ──▶ compute: kernel ──▶ down: answer to pinned memory ──▶ event, polled
//! ```
//!
//! There are three streams, joined by events of each job's memory, which one job uses at a time. Tables and windows
//! are used in the stream of the kernels only.
#![expect(unsafe_code, reason = "CUDA is a C interface: a comment justifies each use")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::result::{self, device, memcpy_dtoh_async, memcpy_htod_async, memset_d8_async};
use cudarc::driver::sys::{CUdeviceptr, CUevent_flags};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PinnedHostSlice,
    PushKernelArg,
};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use super::accelerator::{
    Accelerator, CopyDirection, LENGTH_UNSET, Launch, ListedDevice, LoadedKernel, NotifyResult, TablePart,
};
use super::device_thread::Flight;
use super::job::Registered;
use super::{DeviceKind, Kernel};

/// Pinned memory that copies of tables and windows pass through: least length, and limit on all that is kept, in bytes.
const STAGING_MIN: usize = 64 << 10;
const STAGING_KEPT: usize = 64 << 20;

/// Streams of a device.
pub(super) struct Streams {
    context: Arc<CudaContext>,
    up: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    down: Arc<CudaStream>,
    staging: Mutex<Vec<StagedCopy>>,
}

impl Accelerator for Streams {
    const KIND: DeviceKind = DeviceKind::Cuda;
    const POLL: Duration = Duration::from_micros(100);
    type Id = usize;
    type Error = DriverError;
    type Kernel = CudaFunction;
    type Table = CudaBuffer;
    type Memory = CudaMemory;
    type Staging = StagedCopy;
    type Event = ();

    fn list() -> Result<Vec<ListedDevice<usize>>, String> {
        // Calls of a missing library panic.
        // SAFETY: opens a library, which initialises itself.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no driver (libcuda.so): install NVIDIA's driver".into());
        }
        // SAFETY: as above.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return Err("no compiler of kernels (libnvrtc.so): install CUDA's runtime compiler".into());
        }
        let listed = |id: i32| -> Result<_, DriverError> {
            let device = device::get(id)?;
            // SAFETY: the library has just returned this device.
            let about = format!("{} MiB", unsafe { device::total_mem(device) }? >> 20);
            Ok(ListedDevice { id: id as usize, name: device::get_name(device)?, about })
        };
        // No context is created for that, which would take memory of each device.
        let count = result::init().and_then(|()| device::get_count());
        match count.and_then(|count| (0..count).map(listed).collect::<Result<Vec<_>, _>>()) {
            Ok(found) if found.is_empty() => Err("the driver knows no device".into()),
            found => found.map_err(|error| error.to_string()),
        }
    }

    fn open(number: usize) -> Result<Self, DriverError> {
        let context = CudaContext::new(number)?;
        // SAFETY: no memory is in use yet. This module orders its commands itself: with the library's events, a job
        // takes twice as many calls.
        unsafe { context.disable_event_tracking() };
        let stream = || context.new_stream();
        Ok(Self { up: stream()?, compute: stream()?, down: stream()?, context, staging: Mutex::default() })
    }

    fn has_thread(&self) -> bool {
        true
    }

    fn compile(&self, kernel: &Kernel) -> Result<Result<CudaFunction, String>, DriverError> {
        let options = kernel.options.split_whitespace().map(str::to_owned).collect();
        let options = CompileOptions { options, ..CompileOptions::default() };
        let ptx = match compile_ptx_with_opts(&kernel.source, options) {
            Ok(ptx) => ptx,
            Err(CompileError::CompileError { log, .. }) => return Ok(Err(log.to_string_lossy().into_owned())),
            Err(other) => return Ok(Err(other.to_string())),
        };
        let function = self.context.load_module(ptx)?.load_function(&kernel.entry);
        Ok(function.map_err(|error| format!("the text has no kernel of this name ({error})")))
    }

    fn table(&self, bytes: &[u8]) -> Result<CudaBuffer, DriverError> {
        let memory = self.compute.clone_htod(bytes)?;
        self.compute.synchronize()?;
        Ok(CudaBuffer::new(memory))
    }

    fn zeros(&self, bytes: usize) -> Result<CudaBuffer, DriverError> {
        self.compute.alloc_zeros(bytes).map(CudaBuffer::new)
    }

    fn staging(&self, bytes: usize) -> Result<StagedCopy, DriverError> {
        let kept = {
            let mut kept = self.kept();
            let sufficient = kept.iter().enumerate().filter(|(_, staging)| staging.memory.len() >= bytes);
            let least = sufficient.min_by_key(|(_, staging)| staging.memory.len()).map(|(at, _)| at);
            least.map(|at| kept.swap_remove(at))
        };
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let memory = Pinned::new(&self.context, bytes.max(STAGING_MIN).next_power_of_two())?;
        // The thread sleeps until this event, because kernels before the copy may run for long.
        Ok(StagedCopy { memory, copied: self.context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))? })
    }

    fn copy(
        &self,
        part: TablePart<'_, Self>,
        direction: CopyDirection,
        staging: &mut StagedCopy,
    ) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        let here = &mut staging.memory.bytes_mut()[..part.len];
        let (there, stream) = (part.table.start + part.at as CUdeviceptr, self.compute.cu_stream());
        // SAFETY: the table has this part; both memories live until the copy has ended, in `wait_for_copy`.
        unsafe {
            match direction {
                CopyDirection::ToDevice => memcpy_htod_async(there, here, stream),
                CopyDirection::FromDevice => memcpy_dtoh_async(here, there, stream),
            }
        }?;
        staging.copied.record(&self.compute)
    }

    fn wait_for_copy(&self, staging: StagedCopy) -> Result<StagedCopy, DriverError> {
        match staging.copied.synchronize() {
            Ok(()) => Ok(staging),
            Err(error) => {
                std::mem::forget(staging);
                Err(error)
            }
        }
    }

    fn keep(&self, staging: StagedCopy) {
        let mut kept = self.kept();
        if kept.iter().map(|kept| kept.memory.len()).sum::<usize>() + staging.memory.len() <= STAGING_KEPT {
            kept.push(staging);
        }
    }

    fn memory(&self, input_max: usize, output_max: usize) -> Result<CudaMemory, DriverError> {
        let there = |bytes: usize| self.up.alloc_zeros(bytes.max(1)).map(CudaBuffer::new);
        let memory = CudaMemory {
            input: Pinned::new(&self.context, input_max)?,
            output: Pinned::new(&self.context, output_max)?,
            length_out: Pinned::new(&self.context, size_of::<u32>())?,
            input_there: there(input_max)?,
            output_there: there(output_max)?,
            length_there: there(size_of::<u32>())?,
            uploaded: self.context.new_event(None)?,
            computed: self.context.new_event(None)?,
            ended: self.context.new_event(None)?,
        };
        Ok(memory)
    }

    fn upload(&self, memory: &mut CudaMemory, launch: &Launch<'_>) -> Result<(), DriverError> {
        let (bytes, stream) = (launch.input.len(), self.up.cu_stream());
        self.context.bind_to_thread()?;
        if bytes > 0 {
            let from = &mut memory.input.bytes_mut()[..bytes];
            from.copy_from_slice(launch.input);
            // SAFETY: both memories are this job's until it has ended.
            unsafe { memcpy_htod_async(memory.input_there.start, from, stream) }?;
        }
        if launch.reports_length {
            let [byte, ..] = LENGTH_UNSET.to_ne_bytes();
            // SAFETY: as above; all bytes of the value are equal.
            unsafe { memset_d8_async(memory.length_there.start, byte, size_of::<u32>(), stream) }?;
        }
        memory.uploaded.record(&self.up)
    }

    fn launch(
        &self,
        kernel: &LoadedKernel<Self>,
        memory: &mut CudaMemory,
        launch: &Launch<'_>,
        (): (),
    ) -> Result<(), DriverError> {
        self.compute.wait(&memory.uploaded)?;
        let (input_bytes, output_max) = (launch.input.len() as u32, memory.output.len() as u32);
        let function = kernel.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let mut call = self.compute.launch_builder(&function);
        call.arg(&memory.input_there.start).arg(&input_bytes).arg(&memory.output_there.start).arg(&output_max);
        if launch.reports_length {
            call.arg(&memory.length_there.start);
        }
        for table in &kernel.tables {
            call.arg(&table.raw.start);
        }
        let [items, group] = [launch.items, launch.group].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let grid_dim = (items.div_ceil(group).max(1), 1, 1);
        let config = LaunchConfig { grid_dim, block_dim: (group, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those that `device::Kernel` documents; the memory lives until the kernel has
        // ended.
        unsafe { call.launch(config) }?;
        memory.computed.record(&self.compute)
    }

    fn download(&self, memory: &mut CudaMemory, launch: &Launch<'_>, (): ()) -> Result<(), DriverError> {
        self.down.wait(&memory.computed)?;
        let (answer, stream) = (launch.answer.min(memory.output.len()), self.down.cu_stream());
        if answer > 0 {
            // SAFETY: both memories are this job's until it has ended.
            unsafe { memcpy_dtoh_async(&mut memory.output.bytes_mut()[..answer], memory.output_there.start, stream) }?;
        }
        if launch.reports_length {
            // SAFETY: as above.
            unsafe { memcpy_dtoh_async(memory.length_out.bytes_mut(), memory.length_there.start, stream) }?;
        }
        Ok(())
    }

    fn notify(&self, (): (), flight: Box<Flight<Self>>) -> NotifyResult<Self> {
        // A function of the host in the stream would delay the next job, and would not be called after an error.
        match flight.memory().ended.record(&self.down) {
            Ok(()) => Ok(Some(flight)),
            Err(error) => Err((error, flight)),
        }
    }

    fn has_ended(&self, memory: &CudaMemory) -> Result<bool, DriverError> {
        memory.ended.try_is_complete()
    }

    fn finish(&self) -> Result<(), DriverError> {
        self.context.synchronize()
    }

    fn length(memory: &CudaMemory) -> u32 {
        u32::from_ne_bytes(memory.length_out.bytes().try_into().expect("four bytes"))
    }
}

impl Streams {
    fn kept(&self) -> MutexGuard<'_, Vec<StagedCopy>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of the host for a copy of a table. Copying from memory that is not pinned may wait for the kernels.
pub(super) struct StagedCopy {
    memory: Pinned,
    copied: CudaEvent,
}

impl AsRef<[u8]> for StagedCopy {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl AsMut<[u8]> for StagedCopy {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}

/// Memory of the device, at a known address. It is freed in the stream that it was allocated in.
pub(super) struct CudaBuffer {
    start: CUdeviceptr,
    _memory: CudaSlice<u8>,
}

impl CudaBuffer {
    fn new(memory: CudaSlice<u8>) -> Self {
        let start = memory.device_ptr(memory.stream()).0;
        Self { start, _memory: memory }
    }
}

/// Pinned memory of the host, at a known address, so that its bytes can be used without a call of the driver.
struct Pinned {
    start: *mut u8,
    memory: PinnedHostSlice<u8>,
}

// SAFETY: the address is that of the memory, which is owned.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DriverError> {
        // SAFETY: every byte is written before it is read, below. Not write-combined, because the host reads answers.
        let mut memory = unsafe { context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }?;
        memory.as_mut_slice()?.fill(0);
        Ok(Self { start: memory.as_mut_ptr()?, memory })
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: owned memory of this length, which is initialised; no copy to it is in progress.
        unsafe { std::slice::from_raw_parts(self.start, self.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len()) }
    }
}

/// Memory of one job.
pub(super) struct CudaMemory {
    input: Pinned,
    output: Pinned,
    length_out: Pinned,
    input_there: CudaBuffer,
    output_there: CudaBuffer,
    length_there: CudaBuffer,
    /// Ends of the job's commands in the three streams: the next stream waits for them, and the thread polls the last one.
    uploaded: CudaEvent,
    computed: CudaEvent,
    ended: CudaEvent,
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory").field("input", &self.input.len()).field("output", &self.output.len()).finish()
    }
}

impl Registered for CudaMemory {
    fn output(&self) -> &[u8] {
        self.output.bytes()
    }
}
