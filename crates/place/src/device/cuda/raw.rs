//! Calls of the CUDA driver, with all unsafe code for it. Compiled without CUDA; the libraries are loaded on demand.
//!
//! ```text
//! a job:  up: pinned memory to device ──▶ compute: kernel ──▶ down: answer to pinned memory ──▶ callback
//! ```
#![expect(unsafe_code, reason = "CUDA is a C interface: a comment justifies each use")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg,
};

use crate::device::Registered;

/// Value of the answer length as long as the kernel has not written it.
const LENGTH_UNSET: u32 = u32::MAX;

/// Whether the driver's library is present; calls of a missing library panic.
pub(super) fn has_driver() -> bool {
    // SAFETY: opens a library, which initialises itself.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

/// Whether the compiler's library is present.
pub(super) fn has_compiler() -> bool {
    // SAFETY: as above.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}

/// Streams of a device.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) context: Arc<CudaContext>,
    up: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    down: Arc<CudaStream>,
}

/// Kernel with its tables on the device.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) function: CudaFunction,
    pub(super) tables: Mutex<Vec<CudaSlice<u8>>>,
    pub(super) group: u32,
    /// Whether the kernel writes the length of its answers.
    pub(super) reports_length: bool,
}

impl Streams {
    pub(super) fn open(number: usize) -> Result<Self, DriverError> {
        let context = CudaContext::new(number)?;
        let stream = || context.new_stream();
        Ok(Self { up: stream()?, compute: stream()?, down: stream()?, context })
    }

    /// Allocates a table on the device.
    pub(super) fn table(&self, bytes: &[u8]) -> Result<CudaSlice<u8>, DriverError> {
        let table = self.compute.clone_htod(bytes)?;
        self.compute.synchronize()?;
        Ok(table)
    }

    /// Changes a table, ordered with the kernels; false if the table does not exist or is shorter.
    pub(super) fn write_table(
        &self,
        loaded: &Loaded,
        table: usize,
        at: usize,
        bytes: &[u8],
    ) -> Result<bool, DriverError> {
        // Copying from memory that is not pinned may wait for the kernels while the lock is held.
        let mut here = self.pinned(bytes.len())?;
        here.as_mut_slice()?[..bytes.len()].copy_from_slice(bytes);
        {
            let mut tables = loaded.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let end = at.checked_add(bytes.len());
            let part = tables.get_mut(table).zip(end).and_then(|(table, end)| table.try_slice_mut(at..end));
            let Some(mut part) = part else { return Ok(false) };
            if !bytes.is_empty() {
                self.compute.memcpy_htod(&here, &mut part)?;
            }
        }
        // Wait without the lock, so that a submitting thread is not blocked.
        self.compute.synchronize().map(|()| true)
    }

    fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DriverError> {
        // SAFETY: every byte is written before it is read, below. Not write-combined, because the host reads answers.
        let mut memory = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }?;
        memory.as_mut_slice()?.fill(0);
        Ok(memory)
    }

    /// Registers memory for one job: pinned on the host, and its counterpart on the device.
    pub(super) fn region(&self, input_max: usize, output_max: usize) -> Result<CudaRegion, DriverError> {
        let there = |bytes: usize| self.up.alloc_zeros::<u8>(bytes.max(1));
        let length_out = self.pinned(size_of::<u32>())?;
        Ok(CudaRegion {
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

    /// Whether the memory was registered with this device.
    pub(super) fn has_registered(&self, region: &CudaRegion) -> bool {
        Arc::ptr_eq(&region.home, &self.context)
    }

    /// Starts a job. A thread of the driver calls `done` when the answer is there. `answer`: number of bytes copied
    /// back.
    ///
    /// # Errors
    /// An error of the driver; the job's memory is then lost.
    pub(super) fn begin(
        &self,
        loaded: &Loaded,
        mut region: Box<CudaRegion>,
        input: &[u8],
        (items, answer): (u32, usize),
        done: impl FnOnce(Box<CudaRegion>, Option<u32>) + Send + 'static,
    ) -> Result<(), DriverError> {
        if let Err(error) = self.enqueue(loaded, &mut region, input, items, answer) {
            self.free_or_leak(region);
            return Err(error);
        }
        let done: Landed = Box::new(done);
        let flight = Box::new(Flight { region, reports_length: loaded.reports_length, done });
        let data = Box::into_raw(flight).cast::<c_void>();
        // SAFETY: the stream lives as long as `self`; `on_completion` receives the box that it expects, once.
        let begun = unsafe { launch_host_function(self.down.cu_stream(), on_completion, data) };
        if begun.is_err() {
            // SAFETY: the driver refused the callback, so this is the only owner of the box.
            self.free_or_leak(unsafe { Box::from_raw(data.cast::<Flight>()) }.region);
        }
        begun
    }

    /// Frees memory once the device no longer uses it; leaks it if the state of the device is unknown.
    fn free_or_leak(&self, region: Box<CudaRegion>) {
        if self.context.synchronize().is_err() {
            Box::leak(region);
        }
    }

    fn enqueue(
        &self,
        loaded: &Loaded,
        region: &mut CudaRegion,
        input: &[u8],
        items: u32,
        answer: usize,
    ) -> Result<(), DriverError> {
        let CudaRegion { input: here, output, length_out, input_there, output_there, length_there, .. } = region;
        here.as_mut_slice()?[..input.len()].copy_from_slice(input);
        if !input.is_empty() {
            self.up.memcpy_htod(&here.as_slice()?[..input.len()], &mut input_there.slice_mut(..input.len()))?;
        }
        if loaded.reports_length {
            length_out.as_mut_slice()?.copy_from_slice(&LENGTH_UNSET.to_ne_bytes());
            self.up.memcpy_htod(length_out.as_slice()?, length_there)?;
        }
        let (input_bytes, output_max) = (input.len() as u32, output.len() as u32);
        let mut tables = loaded.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut launch = self.compute.launch_builder(&loaded.function);
        launch.arg(&*input_there).arg(&input_bytes).arg(&mut *output_there).arg(&output_max);
        if loaded.reports_length {
            launch.arg(&mut *length_there);
        }
        for table in tables.iter_mut() {
            launch.arg(table);
        }
        let blocks = items.div_ceil(loaded.group).max(1);
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (loaded.group, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those that `device::Kernel` documents; the memory lives until the kernel has
        // ended.
        unsafe { launch.launch(config) }?;
        drop(tables);
        let answer = answer.min(output.len());
        if answer > 0 {
            self.down.memcpy_dtoh(&output_there.slice(..answer), &mut output.as_mut_slice()?[..answer])?;
        }
        if loaded.reports_length {
            self.down.memcpy_dtoh(&*length_there, length_out.as_mut_slice()?)?;
        }
        Ok(())
    }
}

type Landed = Box<dyn FnOnce(Box<CudaRegion>, Option<u32>) + Send>;

/// Job in the device.
struct Flight {
    region: Box<CudaRegion>,
    reports_length: bool,
    done: Landed,
}

/// Completion callback: the driver calls it once, on a thread of its own. It must not call the driver, so nothing is
/// dropped.
unsafe extern "C" fn on_completion(data: *mut c_void) {
    // SAFETY: `begin` passed the box to this one call.
    let Flight { region, reports_length, done } = *unsafe { Box::from_raw(data.cast::<Flight>()) };
    // SAFETY: the region owns this memory, four bytes at the start of a page, and the copy to it has ended.
    let length_out = reports_length.then(|| unsafe { region.length_at.0.cast::<u32>().read() });
    done(region, length_out.filter(|length_out| *length_out != LENGTH_UNSET));
}

/// Memory of one job.
pub(super) struct CudaRegion {
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

impl fmt::Debug for CudaRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaRegion").field("input", &self.input.len()).field("output", &self.output.len()).finish()
    }
}

impl Registered for CudaRegion {
    fn output(&self) -> &[u8] {
        self.output.as_slice().unwrap_or_default()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
