//! CUDA's own calls: all that is unsafe about it is here. Compiled without CUDA; its libraries are looked for when they
//! are asked for.
//!
//! ```text
//! a job:  up: pinned memory to device ──▶ compute: kernel ──▶ down: answer to pinned memory ──▶ callback
//! ```
#![expect(unsafe_code, reason = "CUDA is an interface of C: each use says why it is right")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg,
};

use crate::device::Registered;

/// What a kernel's answer has as long as it did not say its length.
const UNSAID: u32 = u32::MAX;

/// Whether the driver's library is there; calls of one that is not panic.
pub(super) fn has_driver() -> bool {
    // SAFETY: it opens a library, whose own initialisation is the driver's.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

/// Whether the compiler's library is there.
pub(super) fn has_compiler() -> bool {
    // SAFETY: as above.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}

/// A device's streams.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) context: Arc<CudaContext>,
    up: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    down: Arc<CudaStream>,
}

/// A kernel with what stays on the device for it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) function: CudaFunction,
    pub(super) tables: Mutex<Vec<CudaSlice<u8>>>,
    pub(super) group: u32,
    /// It says how long its answers are.
    pub(super) tells: bool,
}

impl Streams {
    pub(super) fn open(number: usize) -> Result<Self, DriverError> {
        let context = CudaContext::new(number)?;
        let stream = || context.new_stream();
        Ok(Self { up: stream()?, compute: stream()?, down: stream()?, context })
    }

    /// Memory that stays on the device.
    pub(super) fn table(&self, bytes: &[u8]) -> Result<CudaSlice<u8>, DriverError> {
        let table = self.compute.clone_htod(bytes)?;
        self.compute.synchronize()?;
        Ok(table)
    }

    /// Changes such memory, in the order of kernels; false: there is no such table, or it is shorter.
    pub(super) fn write_table(
        &self,
        loaded: &Loaded,
        table: usize,
        at: usize,
        bytes: &[u8],
    ) -> Result<bool, DriverError> {
        // From memory that is not pinned the driver may wait for the kernels before it copies: with the lock.
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
        // Without it: who submits a job meanwhile does not wait.
        self.compute.synchronize().map(|()| true)
    }

    fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, DriverError> {
        // SAFETY: it is written before anybody reads it, below. Not write-combined: the host reads answers.
        let mut memory = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }?;
        memory.as_mut_slice()?.fill(0);
        Ok(memory)
    }

    /// Registers memory for one job: pinned here, and its double there.
    pub(super) fn region(&self, input_max: usize, output_max: usize) -> Result<CudaRegion, DriverError> {
        let there = |bytes: usize| self.up.alloc_zeros::<u8>(bytes.max(1));
        let told = self.pinned(size_of::<u32>())?;
        Ok(CudaRegion {
            input: self.pinned(input_max)?,
            output: self.pinned(output_max)?,
            told_at: Address(told.as_ptr()?),
            told,
            input_there: there(input_max)?,
            output_there: there(output_max)?,
            told_there: there(size_of::<u32>())?,
            home: Arc::clone(&self.context),
        })
    }

    /// Whether the memory was registered here.
    pub(super) fn is_home_of(&self, region: &CudaRegion) -> bool {
        Arc::ptr_eq(&region.home, &self.context)
    }

    /// Begins a job: `done` is called by a thread of the driver when its answer is there. `answer`: bytes that come back.
    ///
    /// # Errors
    /// The driver's; then the job's memory is lost.
    pub(super) fn begin(
        &self,
        loaded: &Loaded,
        mut region: Box<CudaRegion>,
        input: &[u8],
        (items, answer): (u32, usize),
        done: impl FnOnce(Box<CudaRegion>, Option<u32>) + Send + 'static,
    ) -> Result<(), DriverError> {
        if let Err(error) = self.enqueue(loaded, &mut region, input, items, answer) {
            self.settle(region);
            return Err(error);
        }
        let done: Landed = Box::new(done);
        let flight = Box::new(Flight { region, tells: loaded.tells, done });
        let data = Box::into_raw(flight).cast::<c_void>();
        // SAFETY: the stream lives as long as `self`; `landed` gets the box that it expects, once.
        let begun = unsafe { launch_host_function(self.down.cu_stream(), landed, data) };
        if begun.is_err() {
            // SAFETY: the driver refused it, so nobody else has the box.
            self.settle(unsafe { Box::from_raw(data.cast::<Flight>()) }.region);
        }
        begun
    }

    /// Gives memory up when the device is done with it; if it can't say when, never.
    fn settle(&self, region: Box<CudaRegion>) {
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
        let CudaRegion { input: here, output, told, input_there, output_there, told_there, .. } = region;
        here.as_mut_slice()?[..input.len()].copy_from_slice(input);
        if !input.is_empty() {
            self.up.memcpy_htod(&here.as_slice()?[..input.len()], &mut input_there.slice_mut(..input.len()))?;
        }
        if loaded.tells {
            told.as_mut_slice()?.copy_from_slice(&UNSAID.to_ne_bytes());
            self.up.memcpy_htod(told.as_slice()?, told_there)?;
        }
        let (input_bytes, output_max) = (input.len() as u32, output.len() as u32);
        let mut tables = loaded.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut launch = self.compute.launch_builder(&loaded.function);
        launch.arg(&*input_there).arg(&input_bytes).arg(&mut *output_there).arg(&output_max);
        if loaded.tells {
            launch.arg(&mut *told_there);
        }
        for table in tables.iter_mut() {
            launch.arg(table);
        }
        let blocks = items.div_ceil(loaded.group).max(1);
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (loaded.group, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those that `device::Kernel` says a kernel has; its memory lives until it is done.
        unsafe { launch.launch(config) }?;
        drop(tables);
        let answer = answer.min(output.len());
        if answer > 0 {
            self.down.memcpy_dtoh(&output_there.slice(..answer), &mut output.as_mut_slice()?[..answer])?;
        }
        if loaded.tells {
            self.down.memcpy_dtoh(&*told_there, told.as_mut_slice()?)?;
        }
        Ok(())
    }
}

type Landed = Box<dyn FnOnce(Box<CudaRegion>, Option<u32>) + Send>;

/// A job that the device has.
struct Flight {
    region: Box<CudaRegion>,
    tells: bool,
    done: Landed,
}

/// A job is done: the driver calls this once, from a thread of its own. It may not call the driver: so nothing is dropped.
unsafe extern "C" fn landed(data: *mut c_void) {
    // SAFETY: `begin` gave the box for this one call.
    let Flight { region, tells, done } = *unsafe { Box::from_raw(data.cast::<Flight>()) };
    // SAFETY: the region has this memory, four bytes at the start of a page, and the copy to it is done.
    let told = tells.then(|| unsafe { region.told_at.0.cast::<u32>().read() });
    done(region, told.filter(|told| *told != UNSAID));
}

/// Memory of one job.
pub(super) struct CudaRegion {
    input: PinnedHostSlice<u8>,
    output: PinnedHostSlice<u8>,
    told: PinnedHostSlice<u8>,
    told_at: Address,
    input_there: CudaSlice<u8>,
    output_there: CudaSlice<u8>,
    told_there: CudaSlice<u8>,
    home: Arc<CudaContext>,
}

/// Where a region has what its kernel says; looked at where the driver may not be called.
struct Address(*const u8);

// SAFETY: it goes where its region goes, which owns the memory.
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
