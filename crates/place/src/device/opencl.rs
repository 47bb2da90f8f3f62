//! Raw operations of the OpenCL library, with all unsafe code for it. The library is loaded on first use.
//!
//! ```text
//! a job:  up: unmap input, answer ──▶ compute: kernel ──▶ down: map answer, input ──▶ callback
//! ```
//!
//! There are three queues, each in order, joined by events. The memory belongs to the host and is registered with
//! `CL_MEM_USE_HOST_PTR`: the host uses it while it is mapped, the device while it is unmapped. A device that shares
//! the host's memory copies nothing.
#![expect(unsafe_code, reason = "OpenCL is a C interface: a comment justifies each use")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use opencl3::command_queue::{CommandQueue, enqueue_read_buffer, enqueue_write_buffer};
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, Device};
use opencl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::Kernel as ClKernel;
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY,
    CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, ClMem,
};
use opencl3::platform::get_platforms;
use opencl3::program::Program as ClProgram;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_event, cl_int};

use super::accelerator::{
    Accelerator, CopyDirection, LENGTH_UNSET, Launch, ListedDevice, LoadedKernel, NotifyResult, TablePart,
};
use super::device_thread::Flight;
use super::job::Registered;
use super::{DeviceKind, Kernel};

/// Alignment of memory: a page, which suits devices best.
const ALIGN: usize = 4096;
/// Flags for mapping memory: to read an answer, to read and overwrite the answer length, or to write only.
const MAP_ANSWER: u64 = CL_MAP_READ;
const MAP_LENGTH: u64 = CL_MAP_READ | CL_MAP_WRITE;
const MAP_WRITE: u64 = CL_MAP_WRITE_INVALIDATE_REGION;

/// Serialises the first listing: PoCL 3.1 returns devices that another thread is still initialising.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Context with one device and its queues.
pub(super) struct Queues {
    up: CommandQueue,
    compute: CommandQueue,
    down: CommandQueue,
    context: Context,
    device: Device,
}

impl Accelerator for Queues {
    const KIND: DeviceKind = DeviceKind::OpenCl;
    // The library completes jobs.
    const POLL: Duration = Duration::ZERO;
    type Id = Device;
    type Error = ClError;
    type Kernel = ClKernel;
    type Table = Buffer<u8>;
    type Memory = ClMemory;
    type Staging = StagedBytes;
    type Event = Event;

    fn list() -> Result<Vec<ListedDevice<Device>>, String> {
        let none = "install the driver of a device, or one for the CPU: pocl-opencl-icd";
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let platforms = get_platforms().map_err(|error| match error.0 {
            DLOPEN_RUNTIME_LOAD_FAILED => "no library of OpenCL: install ocl-icd-libopencl1".into(),
            _ => format!("no platform ({error}): {none}"),
        })?;
        let mut found = Vec::new();
        for platform in platforms {
            let named = format!("{}, {}", platform.name().unwrap_or_default(), platform.version().unwrap_or_default());
            for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
                let id = Device::new(id);
                let units = id.max_compute_units().unwrap_or(1);
                let shares = id.host_unified_memory().unwrap_or(false);
                let memory = if shares { "shares the host's memory" } else { "has memory of its own" };
                let name = id.name().unwrap_or_default().trim().to_owned();
                found.push(ListedDevice { id, name, about: format!("{named}; {units} compute units; {memory}") });
            }
        }
        if found.is_empty() { Err(format!("no device: {none}")) } else { Ok(found) }
    }

    fn open(device: Device) -> Result<Self, ClError> {
        let context = Context::from_device(&device)?;
        let queue = || CommandQueue::create_default_with_properties(&context, 0, 0);
        Ok(Self { up: queue()?, compute: queue()?, down: queue()?, context, device })
    }

    fn has_thread(&self) -> bool {
        // A device on the processor's cores competes with the thread: each job of PoCL on two cores took 100 us longer.
        self.device.dev_type().is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU == 0)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Result<ClKernel, String>, ClError> {
        let mut program = ClProgram::create_from_source(&self.context, &kernel.source)?;
        if program.build(&[self.device.id()], &kernel.options).is_err() {
            return Ok(Err(program.get_build_log(self.device.id())?));
        }
        Ok(ClKernel::create(&program, &kernel.entry).map_err(|error| {
            let names = program.get_kernel_names().unwrap_or_default();
            format!("the text has no kernel of this name; it has: {names} ({error})")
        }))
    }

    fn table(&self, bytes: &[u8]) -> Result<Buffer<u8>, ClError> {
        let from = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: with this flag, the call copies the bytes before it returns.
        unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes.len(), from) }
    }

    fn zeros(&self, bytes: usize) -> Result<Buffer<u8>, ClError> {
        // SAFETY: no memory of the host is given.
        let mut table = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, bytes, ptr::null_mut()) }?;
        // The queue to the device has no kernels to wait for.
        // SAFETY: the call copies the pattern.
        unsafe { self.up.enqueue_fill_buffer(&mut table, &[0_u8], 0, bytes, &[]) }?.wait()?;
        Ok(table)
    }

    fn staging(&self, bytes: usize) -> Result<StagedBytes, ClError> {
        Ok(StagedBytes { bytes: vec![0; bytes].into(), copied: None })
    }

    fn copy(
        &self,
        part: TablePart<'_, Self>,
        direction: CopyDirection,
        staging: &mut StagedBytes,
    ) -> Result<(), ClError> {
        let (queue, table, TablePart { at, len, .. }) = (self.compute.get(), part.table.get(), part);
        let here = staging.bytes[..len].as_mut_ptr().cast();
        let (now, none) = (CL_NON_BLOCKING, ptr::null());
        // SAFETY: the table has this part; the bytes live until the copy has ended, in `wait_for_copy`.
        let begun = unsafe {
            match direction {
                CopyDirection::ToDevice => enqueue_write_buffer(queue, table, now, at, len, here, 0, none),
                CopyDirection::FromDevice => enqueue_read_buffer(queue, table, now, at, len, here, 0, none),
            }
        };
        // The wait for the event flushes the queue.
        staging.copied = Some(Event::new(begun.map_err(ClError)?));
        Ok(())
    }

    fn wait_for_copy(&self, staging: StagedBytes) -> Result<StagedBytes, ClError> {
        let Some(Err(error)) = staging.copied.as_ref().map(Event::wait) else { return Ok(staging) };
        if self.compute.finish().is_err() {
            std::mem::forget(staging);
        }
        Err(error)
    }

    fn memory(&self, input_max: usize, output_max: usize) -> Result<ClMemory, ClError> {
        let area = |bytes, flags| Area::new(self, bytes, flags);
        Ok(ClMemory {
            input: area(input_max, CL_MEM_READ_ONLY)?,
            output: area(output_max, CL_MEM_READ_WRITE)?,
            length_out: area(size_of::<u32>(), CL_MEM_READ_WRITE)?,
        })
    }

    fn upload(&self, memory: &mut ClMemory, launch: &Launch<'_>) -> Result<Event, ClError> {
        let ClMemory { input, output, length_out, .. } = memory;
        input.bytes_mut()[..launch.input.len()].copy_from_slice(launch.input);
        length_out.bytes_mut()[..4].copy_from_slice(&LENGTH_UNSET.to_ne_bytes());
        input.unmap(&self.up)?;
        if launch.reports_length {
            length_out.unmap(&self.up)?;
        }
        // The queue is in order: this event also covers the commands before it.
        output.unmap(&self.up)
    }

    fn launch(
        &self,
        kernel: &LoadedKernel<Self>,
        memory: &mut ClMemory,
        launch: &Launch<'_>,
        after: Event,
    ) -> Result<Event, ClError> {
        let ClMemory { input, output, length_out, .. } = memory;
        let function = kernel.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the arguments have the types that `device::Kernel` documents; a kernel with others gets an error.
        unsafe {
            let mut arguments = Arguments { kernel: &function, next: 0 };
            arguments.add(&input.buffer.get())?;
            arguments.add(&(launch.input.len() as u32))?;
            arguments.add(&output.buffer.get())?;
            arguments.add(&(output.len as u32))?;
            if launch.reports_length {
                arguments.add(&length_out.buffer.get())?;
            }
            for table in &kernel.tables {
                arguments.add(&table.raw.get())?;
            }
        }
        let (function, items, group) = (function.get(), &raw const launch.items, &raw const launch.group);
        // SAFETY: the sizes live until the call returns, which copies them; all memory lives until the job has ended.
        unsafe { self.compute.enqueue_nd_range_kernel(function, 1, ptr::null(), items, group, &[after.get()]) }
    }

    fn download(&self, memory: &mut ClMemory, launch: &Launch<'_>, after: Event) -> Result<Event, ClError> {
        memory.output.map(&self.down, CL_NON_BLOCKING, MAP_ANSWER, &[after.get()])?;
        if launch.reports_length {
            memory.length_out.map(&self.down, CL_NON_BLOCKING, MAP_LENGTH, &[])?;
        }
        let last = memory.input.map(&self.down, CL_NON_BLOCKING, MAP_WRITE, &[after.get()])?;
        [&self.up, &self.compute, &self.down].iter().try_for_each(|queue| queue.flush())?;
        Ok(last)
    }

    fn notify(&self, last: Event, flight: Box<Flight<Self>>) -> NotifyResult<Self> {
        let data = Box::into_raw(flight).cast::<c_void>();
        // SAFETY: if the callback was not set, this is the only owner of the box.
        last.set_callback(CL_COMPLETE, on_completion, data)
            .map(|()| None)
            .map_err(|error| (error, unsafe { Box::from_raw(data.cast()) }))
    }

    fn finish(&self) -> Result<(), ClError> {
        // A queue waits for events of those before it.
        [&self.up, &self.compute, &self.down].iter().try_for_each(|queue| queue.finish())
    }

    fn length(memory: &ClMemory) -> u32 {
        u32::from_ne_bytes(memory.length_out.bytes()[..4].try_into().expect("four bytes"))
    }
}

/// Memory of the host for a copy of a table.
pub(super) struct StagedBytes {
    bytes: Box<[u8]>,
    copied: Option<Event>,
}

impl AsRef<[u8]> for StagedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for StagedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

struct Arguments<'a> {
    kernel: &'a ClKernel,
    next: u32,
}

impl Arguments<'_> {
    /// # Safety
    /// `value` has the type that the kernel's argument has.
    unsafe fn add<T>(&mut self, value: &T) -> Result<(), ClError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.kernel.set_arg(self.next, value) }?;
        self.next += 1;
        Ok(())
    }
}

/// Completion callback: the library calls it once, on a thread of its own. It must not block.
extern "C" fn on_completion(_: cl_event, status: cl_int, data: *mut c_void) {
    // SAFETY: `notify` passed the box to this one call.
    let flight = unsafe { Box::from_raw(data.cast::<Flight<Queues>>()) };
    flight.land((status < 0).then_some(ClError(status)));
}

/// Memory of one job.
pub(super) struct ClMemory {
    input: Area,
    output: Area,
    /// Length of the answer, written by the kernel.
    length_out: Area,
}

impl fmt::Debug for ClMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClMemory").field("input", &self.input.len).field("output", &self.output.len).finish()
    }
}

impl Registered for ClMemory {
    fn output(&self) -> &[u8] {
        self.output.bytes()
    }
}

/// Memory of the host that is registered with the device. A job's memory may be used by the device; otherwise it is
/// mapped.
struct Area {
    /// Dropped before the memory.
    buffer: Buffer<u8>,
    memory: Pages,
    len: usize,
}

impl Area {
    /// Allocates and maps memory.
    fn new(queues: &Queues, len: usize, flags: u64) -> Result<Self, ClError> {
        let memory = Pages::new(len);
        let host = memory.start.as_ptr().cast::<c_void>();
        // SAFETY: the memory has this length and outlives the buffer, as fields are dropped in order.
        let buffer =
            unsafe { Buffer::create(&queues.context, flags | CL_MEM_USE_HOST_PTR, memory.layout.size(), host) }?;
        let area = Self { buffer, memory, len };
        // No byte is read before it is written, here or by a kernel. The queue to the device has no kernels to wait
        // for.
        area.map(&queues.up, CL_BLOCKING, MAP_WRITE, &[])?;
        Ok(area)
    }

    /// Maps the memory for the host, after these events.
    fn map(&self, queue: &CommandQueue, wait: u32, flags: u64, after: &[cl_event]) -> Result<Event, ClError> {
        let mut at: *mut c_void = ptr::null_mut();
        // SAFETY: the memory is not accessed before the event, or the blocking call, reports that it is mapped.
        let event = unsafe {
            queue.enqueue_map_buffer(&self.buffer, wait, flags, 0, self.memory.layout.size(), &mut at, after)?
        };
        // OpenCL 3.0, clEnqueueMapBuffer: with CL_MEM_USE_HOST_PTR the mapped address is that of the host's memory.
        assert_eq!(at.cast(), self.memory.start.as_ptr(), "the library mapped other memory than was registered");
        Ok(event)
    }

    /// Unmaps the memory for the device.
    fn unmap(&self, queue: &CommandQueue) -> Result<Event, ClError> {
        // SAFETY: the memory is mapped here, and its job does not access it until it is mapped again.
        unsafe { queue.enqueue_unmap_mem_object(self.buffer.get(), self.memory.start.as_ptr().cast(), &[]) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: an area outside a running job is mapped memory of this length, which is initialised.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }
}

/// Whole pages, zeroed.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pages are owned, like those of a box.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN);
        let layout = Layout::from_size_align(len, ALIGN).expect("messages are shorter than that");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenCL 3.0, clEnqueueMapBuffer: CL_MAP_WRITE_INVALIDATE_REGION excludes the other flags.
    #[test]
    fn map_flags_exclude_read_with_invalidate() {
        for flags in [MAP_ANSWER, MAP_LENGTH, MAP_WRITE] {
            assert!(
                flags & CL_MAP_WRITE_INVALIDATE_REGION == 0 || flags & (CL_MAP_READ | CL_MAP_WRITE) == 0,
                "{flags}"
            );
        }
    }
}
