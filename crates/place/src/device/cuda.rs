//! Raw operations of the CUDA driver, with all unsafe code for it. Compiled without CUDA; the libraries are loaded on
//! demand.
//!
//! ```text
//! a job:  up: pinned memory to device ──▶ compute: kernel ──▶ down: answer to pinned memory ──▶ callback
//! ```
//!
//! There are three streams; the library orders commands of several streams by the memory that they use.
#![expect(unsafe_code, reason = "CUDA is a C interface: a comment justifies each use")]

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg,
};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use super::driver::{Accelerator, Flight, LENGTH_UNSET, Launch, ListedDevice, Program};
use super::job::Registered;
use super::{DeviceKind, Kernel};

/// Streams of a device.
pub(super) struct Streams {
    context: Arc<CudaContext>,
    up: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    down: Arc<CudaStream>,
}

impl Streams {
    fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DriverError> {
        // SAFETY: every byte is written before it is read, below. Not write-combined, because the host reads answers.
        let mut memory = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }?;
        memory.as_mut_slice()?.fill(0);
        Ok(memory)
    }
}

impl Accelerator for Streams {
    const KIND: DeviceKind = DeviceKind::Cuda;
    // A callback must not call the driver.
    const FREES_IN_CALLBACK: bool = false;
    type Id = usize;
    type Error = DriverError;
    type Kernel = CudaFunction;
    type Table = CudaSlice<u8>;
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
        let device = |id| -> Result<_, DriverError> {
            let context = CudaContext::new(id)?;
            let about = format!("{} MiB", context.total_mem()? >> 20);
            Ok(ListedDevice { id, name: context.name()?, about })
        };
        let count = CudaContext::device_count().map(|count| usize::try_from(count).unwrap_or(0));
        match count.and_then(|count| (0..count).map(device).collect::<Result<Vec<_>, _>>()) {
            Ok(found) if found.is_empty() => Err("the driver knows no device".into()),
            found => found.map_err(|error| error.to_string()),
        }
    }

    fn open(number: usize) -> Result<Self, DriverError> {
        let context = CudaContext::new(number)?;
        let stream = || context.new_stream();
        Ok(Self { up: stream()?, compute: stream()?, down: stream()?, context })
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

    fn table(&self, bytes: &[u8]) -> Result<CudaSlice<u8>, DriverError> {
        let table = self.compute.clone_htod(bytes)?;
        self.compute.synchronize()?;
        Ok(table)
    }

    fn write_table(
        &self,
        program: &Mutex<Program<Self>>,
        table: usize,
        at: usize,
        bytes: &[u8],
    ) -> Result<bool, DriverError> {
        // Copying from memory that is not pinned may wait for the kernels while the lock is held.
        let mut here = self.pinned(bytes.len())?;
        here.as_mut_slice()?[..bytes.len()].copy_from_slice(bytes);
        {
            let mut program = program.lock().unwrap_or_else(PoisonError::into_inner);
            let end = at.checked_add(bytes.len());
            let part = program.tables.get_mut(table).zip(end).and_then(|(table, end)| table.try_slice_mut(at..end));
            let Some(mut part) = part else { return Ok(false) };
            if !bytes.is_empty() {
                self.compute.memcpy_htod(&here, &mut part)?;
            }
        }
        // Wait without the lock, so that a submitting thread is not blocked.
        self.compute.synchronize().map(|()| true)
    }

    fn memory(&self, input_max: usize, output_max: usize) -> Result<CudaMemory, DriverError> {
        let there = |bytes: usize| self.up.alloc_zeros::<u8>(bytes.max(1));
        let length_out = self.pinned(size_of::<u32>())?;
        Ok(CudaMemory {
            input: self.pinned(input_max)?,
            output: self.pinned(output_max)?,
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
        program: &mut Program<Self>,
        memory: &mut CudaMemory,
        launch: &Launch<'_>,
        (): (),
    ) -> Result<(), DriverError> {
        let (input_bytes, output_max) = (launch.input.len() as u32, memory.output.len() as u32);
        let mut call = self.compute.launch_builder(&program.kernel);
        call.arg(&memory.input_there).arg(&input_bytes).arg(&mut memory.output_there).arg(&output_max);
        if launch.reports_length {
            call.arg(&mut memory.length_there);
        }
        for table in &mut program.tables {
            call.arg(table);
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

/// Memory of one job.
pub(super) struct CudaMemory {
    input: PinnedHostSlice<u8>,
    output: PinnedHostSlice<u8>,
    length_out: PinnedHostSlice<u8>,
    length_at: Address,
    input_there: CudaSlice<u8>,
    output_there: CudaSlice<u8>,
    length_there: CudaSlice<u8>,
    home: Arc<CudaContext>,
}

/// Address of the answer length in a region, for use where the driver must not be called.
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
        self.output.as_slice().unwrap_or_default()
    }
}
