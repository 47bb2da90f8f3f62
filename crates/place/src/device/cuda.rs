//! Raw operations of the CUDA driver, with all unsafe code for it. Compiled without CUDA; the libraries are loaded on
//! demand.
//!
//! ```text
//! a job:  up: pinned memory to device ──▶ compute: kernel ──▶ down: answer to pinned memory ──▶ callback
//! ```
//!
//! There are three streams; `cudarc` orders commands of several streams by the job's memory that they use. Tables and
//! windows are used in the stream of the kernels only.
#![expect(unsafe_code, reason = "CUDA is a C interface: a comment justifies each use")]

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, device, memcpy_dtoh_async, memcpy_htod_async, stream::launch_host_function};
use cudarc::driver::sys::{CUdeviceptr, CUevent_flags};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PinnedHostSlice,
    PushKernelArg,
};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use super::driver::{Accelerator, DeviceTable, Flight, LENGTH_UNSET, Launch, ListedDevice};
use super::job::Registered;
use super::{DeviceKind, Kernel};

/// Pinned memory that a copy of a table or window passes through, in bytes; more is allocated for longer copies. So
/// much memory is kept for so many copies at the same time.
const STAGING: usize = 256 << 10;
const STAGINGS_KEPT: usize = 8;

/// Streams of a device.
pub(super) struct Streams {
    context: Arc<CudaContext>,
    up: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    down: Arc<CudaStream>,
    staging: Mutex<Vec<PinnedHostSlice<u8>>>,
}

impl Streams {
    fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DriverError> {
        // SAFETY: every byte is written before it is read, below. Not write-combined, because the host reads answers.
        let mut memory = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }?;
        memory.as_mut_slice()?.fill(0);
        Ok(memory)
    }

    /// Pinned memory for a copy of a table. Copying from memory that is not pinned may wait for the kernels.
    fn staging(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DriverError> {
        let kept = if bytes > STAGING { None } else { self.kept().pop() };
        kept.map_or_else(|| self.pinned(bytes.max(STAGING)), Ok)
    }

    /// Waits until the copy in the stream of the kernels has ended, without a lock, and passes the memory to `then`.
    fn wait_for_copy<T>(&self, memory: PinnedHostSlice<u8>, then: impl FnOnce(&[u8]) -> T) -> Result<T, DriverError> {
        // The thread sleeps until the event, because kernels before the copy may run for long.
        let ended = self.compute.record_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        if let Err(error) = ended.and_then(|event| event.synchronize()) {
            // The end of the copy is unknown, so the memory is leaked.
            std::mem::forget(memory);
            return Err(error);
        }
        let result = then(memory.as_slice()?);
        let mut kept = self.kept();
        if memory.len() == STAGING && kept.len() < STAGINGS_KEPT {
            kept.push(memory);
        }
        Ok(result)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<PinnedHostSlice<u8>>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accelerator for Streams {
    const KIND: DeviceKind = DeviceKind::Cuda;
    // A callback must not call the driver.
    const FREES_IN_CALLBACK: bool = false;
    type Id = usize;
    type Error = DriverError;
    type Kernel = CudaFunction;
    type Table = CudaTable;
    type Memory = CudaMemory;
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
        let stream = || context.new_stream();
        Ok(Self { up: stream()?, compute: stream()?, down: stream()?, context, staging: Mutex::default() })
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

    fn table(&self, bytes: &[u8]) -> Result<CudaTable, DriverError> {
        let memory = self.compute.clone_htod(bytes)?;
        self.compute.synchronize()?;
        Ok(CudaTable::new(memory))
    }

    fn zeros(&self, bytes: usize) -> Result<CudaTable, DriverError> {
        self.compute.alloc_zeros(bytes).map(CudaTable::new)
    }

    fn write_table(&self, table: &CudaTable, at: usize, bytes: &[u8]) -> Result<(), DriverError> {
        let mut here = self.staging(bytes.len())?;
        let from = &mut here.as_mut_slice()?[..bytes.len()];
        from.copy_from_slice(bytes);
        // SAFETY: the table has these bytes; both memories live until the copy has ended, in `wait_for_copy`.
        unsafe { memcpy_htod_async(table.start + at as CUdeviceptr, from, self.compute.cu_stream()) }?;
        self.wait_for_copy(here, |_| ())
    }

    fn read_table(&self, table: &CudaTable, at: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let mut here = self.staging(to.len())?;
        let room = &mut here.as_mut_slice()?[..to.len()];
        // SAFETY: as in `write_table`.
        unsafe { memcpy_dtoh_async(room, table.start + at as CUdeviceptr, self.compute.cu_stream()) }?;
        self.wait_for_copy(here, |bytes| to.copy_from_slice(&bytes[..to.len()]))
    }

    fn memory(&self, input_max: usize, output_max: usize) -> Result<CudaMemory, DriverError> {
        let there = |bytes: usize| self.up.alloc_zeros::<u8>(bytes.max(1));
        let (output, length_out) = (self.pinned(output_max)?, self.pinned(size_of::<u32>())?);
        Ok(CudaMemory {
            input: self.pinned(input_max)?,
            output_at: Address(output.as_ptr()?),
            output,
            length_at: Address(length_out.as_ptr()?),
            length_out,
            input_there: there(input_max)?,
            output_there: there(output_max)?,
            length_there: there(size_of::<u32>())?,
            home: Arc::clone(&self.context),
        })
    }

    fn owns(&self, memory: &CudaMemory) -> bool {
        Arc::ptr_eq(&memory.home, &self.context)
    }

    fn upload(&self, memory: &mut CudaMemory, launch: &Launch<'_>) -> Result<(), DriverError> {
        let CudaMemory { input: here, length_out, input_there, length_there, .. } = memory;
        let bytes = launch.input.len();
        here.as_mut_slice()?[..bytes].copy_from_slice(launch.input);
        if bytes > 0 {
            self.up.memcpy_htod(&here.as_slice()?[..bytes], &mut input_there.slice_mut(..bytes))?;
        }
        if launch.reports_length {
            length_out.as_mut_slice()?.copy_from_slice(&LENGTH_UNSET.to_ne_bytes());
            self.up.memcpy_htod(length_out.as_slice()?, length_there)?;
        }
        Ok(())
    }

    fn launch(
        &self,
        kernel: &CudaFunction,
        tables: &[Arc<DeviceTable<Self>>],
        memory: &mut CudaMemory,
        launch: &Launch<'_>,
        (): (),
    ) -> Result<(), DriverError> {
        let (input_bytes, output_max) = (launch.input.len() as u32, memory.output.len() as u32);
        let mut call = self.compute.launch_builder(kernel);
        call.arg(&memory.input_there).arg(&input_bytes).arg(&mut memory.output_there).arg(&output_max);
        if launch.reports_length {
            call.arg(&mut memory.length_there);
        }
        for table in tables {
            call.arg(&table.raw.start);
        }
        let [items, group] = [launch.items, launch.group].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let grid_dim = (items.div_ceil(group).max(1), 1, 1);
        let config = LaunchConfig { grid_dim, block_dim: (group, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those that `device::Kernel` documents; the memory lives until the kernel has
        // ended.
        unsafe { call.launch(config) }.map(drop)
    }

    fn download(&self, memory: &mut CudaMemory, launch: &Launch<'_>, (): ()) -> Result<(), DriverError> {
        let CudaMemory { output, length_out, output_there, length_there, .. } = memory;
        let answer = launch.answer.min(output.len());
        if answer > 0 {
            self.down.memcpy_dtoh(&output_there.slice(..answer), &mut output.as_mut_slice()?[..answer])?;
        }
        if launch.reports_length {
            self.down.memcpy_dtoh(&*length_there, length_out.as_mut_slice()?)?;
        } else if answer == 0 {
            // Without a copy, nothing else would wait for the kernel.
            self.down.join(&self.compute)?;
        }
        Ok(())
    }

    fn notify(&self, (): (), flight: Box<Flight<Self>>) -> Result<(), (DriverError, Box<Flight<Self>>)> {
        let data = Box::into_raw(flight).cast::<c_void>();
        // SAFETY: the stream lives as long as `self`; `on_completion` receives the box that it expects, once. If the
        // driver refused the callback, this is the only owner of the box.
        unsafe {
            launch_host_function(self.down.cu_stream(), on_completion, data)
                .map_err(|error| (error, Box::from_raw(data.cast())))
        }
    }

    fn finish(&self) -> Result<(), DriverError> {
        self.context.synchronize()
    }

    fn length(memory: &CudaMemory) -> u32 {
        // SAFETY: the region owns this memory, four bytes at the start of a page, and the copy to it has ended.
        unsafe { memory.length_at.0.cast::<u32>().read() }
    }
}

/// Completion callback: the driver calls it once, on a thread of its own.
unsafe extern "C" fn on_completion(data: *mut c_void) {
    // SAFETY: `notify` passed the box to this one call.
    let flight = unsafe { Box::from_raw(data.cast::<Flight<Streams>>()) };
    flight.land(None);
}

/// Table or window. Its address is passed to the library, so it is used and freed in the stream of the kernels only.
pub(super) struct CudaTable {
    start: CUdeviceptr,
    _memory: CudaSlice<u8>,
}

impl CudaTable {
    fn new(memory: CudaSlice<u8>) -> Self {
        let start = memory.device_ptr(memory.stream()).0;
        Self { start, _memory: memory }
    }
}

/// Memory of one job.
pub(super) struct CudaMemory {
    input: PinnedHostSlice<u8>,
    output: PinnedHostSlice<u8>,
    output_at: Address,
    length_out: PinnedHostSlice<u8>,
    length_at: Address,
    input_there: CudaSlice<u8>,
    output_there: CudaSlice<u8>,
    length_there: CudaSlice<u8>,
    home: Arc<CudaContext>,
}

/// Address of memory of a region, for use where the driver must not be called, or may fail.
struct Address(*const u8);

// SAFETY: the address moves with its region, which owns the memory.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory").field("input", &self.input.len()).field("output", &self.output.len()).finish()
    }
}

impl Registered for CudaMemory {
    fn output(&self) -> &[u8] {
        // SAFETY: the region owns this memory, and no job uses it.
        unsafe { std::slice::from_raw_parts(self.output_at.0, self.output.len()) }
    }
}
