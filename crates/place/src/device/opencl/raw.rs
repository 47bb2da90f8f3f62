//! Calls of the OpenCL library, with all unsafe code for it.
//!
//! ```text
//! a job:  up: unmap input, answer ──▶ compute: kernel ──▶ down: map answer, input ──▶ callback
//! ```
//!
//! There are three queues, each in order, joined by events: while one job's memory is transferred to the device,
//! another job runs, and a third one's memory is transferred back. The memory belongs to the host and is registered
//! with `CL_MEM_USE_HOST_PTR`: the host uses it while it is mapped, the device while it is unmapped. A device that
//! shares the host's memory copies nothing.
#![expect(unsafe_code, reason = "OpenCL is a C interface: a comment justifies each use")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::Kernel;
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY,
    CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, ClMem,
};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_device_id, cl_event, cl_int};

use crate::device::Registered;

/// Alignment of memory: a page, which suits devices best.
const ALIGN: usize = 4096;
/// Value of the answer length as long as the kernel has not written it.
const LENGTH_UNSET: u32 = u32::MAX;
/// Flags for mapping memory: to read an answer, to read and overwrite the answer length, or to write only.
const MAP_ANSWER: u64 = CL_MAP_READ;
const MAP_LENGTH: u64 = CL_MAP_READ | CL_MAP_WRITE;
const MAP_WRITE: u64 = CL_MAP_WRITE_INVALIDATE_REGION;

/// Id of a device, which is valid until the process ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceId(cl_device_id);

// SAFETY: an id is a handle of the library, which belongs to no thread.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

impl DeviceId {
    pub(super) const fn new(id: cl_device_id) -> Self {
        Self(id)
    }

    pub(super) fn device(self) -> Device {
        Device::new(self.0)
    }
}

/// Context with one device and its queues.
#[derive(Debug)]
pub(super) struct Queues {
    up: CommandQueue,
    compute: CommandQueue,
    down: CommandQueue,
    context: Context,
    device: DeviceId,
}

impl Queues {
    pub(super) fn open(device: DeviceId) -> Result<Self, ClError> {
        let context = Context::from_device(&device.device())?;
        let queue = || CommandQueue::create_default_with_properties(&context, 0, 0);
        Ok(Self { up: queue()?, compute: queue()?, down: queue()?, context, device })
    }

    /// Compiles a kernel. The outer error is the library's; the inner one is the compiler's output.
    pub(super) fn compile(&self, source: &str, entry: &str, options: &str) -> Result<Result<Kernel, String>, ClError> {
        let mut program = Program::create_from_source(&self.context, source)?;
        if program.build(&[self.device.0], options).is_err() {
            return Ok(Err(program.get_build_log(self.device.0)?));
        }
        Ok(Kernel::create(&program, entry).map_err(|error| {
            let names = program.get_kernel_names().unwrap_or_default();
            format!("the text has no kernel of this name; it has: {names} ({error})")
        }))
    }

    /// Allocates a table on the device.
    pub(super) fn table(&self, bytes: &[u8]) -> Result<Buffer<u8>, ClError> {
        let from = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: with this flag, the call copies the bytes before it returns.
        unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes.len(), from) }
    }

    /// Changes a table, ordered with the kernels; false if the table does not exist.
    pub(super) fn write_table(&self, loaded: &Loaded, table: usize, at: usize, bytes: &[u8]) -> Result<bool, ClError> {
        let bytes: Box<[u8]> = bytes.into();
        let written = {
            let mut kernel = loaded.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let Some(table) = kernel.tables.get_mut(table) else { return Ok(false) };
            // SAFETY: the bytes live until the write has ended, below.
            unsafe { self.compute.enqueue_write_buffer(table, CL_NON_BLOCKING, at, &bytes, &[]) }?
        };
        // Wait without the lock, so that a submitting thread is not blocked.
        let Err(error) = written.wait() else { return Ok(true) };
        if self.compute.finish().is_err() {
            // The end of the write is unknown, so the bytes are leaked.
            Box::leak(bytes);
        }
        Err(error)
    }

    /// Registers memory for one job.
    pub(super) fn region(&self, input_max: usize, output_max: usize) -> Result<ClRegion, ClError> {
        let area = |bytes, flags| Area::new(self, bytes, flags);
        Ok(ClRegion {
            input: area(input_max, CL_MEM_READ_ONLY)?,
            output: area(output_max, CL_MEM_READ_WRITE)?,
            length_out: area(size_of::<u32>(), CL_MEM_READ_WRITE)?,
            home: self.context.get() as usize,
        })
    }

    /// Whether the memory was registered with this device.
    pub(super) fn has_registered(&self, region: &ClRegion) -> bool {
        region.home == self.context.get() as usize
    }

    /// Starts a job. A thread of the library calls `done` when the job has completed or failed.
    ///
    /// # Errors
    /// An error of the library; the job's memory is then lost.
    pub(super) fn begin(
        &self,
        kernel: &Loaded,
        mut region: Box<ClRegion>,
        input: &[u8],
        items: usize,
        done: impl FnOnce(Box<ClRegion>, Option<u32>, cl_int) + Send + 'static,
    ) -> Result<(), ClError> {
        region.input.bytes_mut()[..input.len()].copy_from_slice(input);
        region.length_out.bytes_mut()[..4].copy_from_slice(&LENGTH_UNSET.to_ne_bytes());
        let output_max = region.output.len;
        let begun = self.enqueue(kernel, &region, input.len(), output_max, items);
        // Commands of a job that failed half-way must be flushed, too, before its memory is freed.
        let flushed = self.up.flush().and_then(|()| self.compute.flush()).and_then(|()| self.down.flush());
        let flight = Box::new(Flight { region, reports_length: kernel.reports_length, done: Box::new(done) });
        match begun.and_then(|last| flushed.map(|()| last)) {
            Ok(last) => {
                let data = Box::into_raw(flight).cast::<c_void>();
                let set = last.set_callback(CL_COMPLETE, on_completion, data);
                if set.is_err() {
                    let _ = last.wait();
                    // SAFETY: the callback was not set, so this is the only owner of the box.
                    drop(unsafe { Box::from_raw(data.cast::<Flight>()) });
                }
                set
            }
            Err(error) => {
                // The device may still use the memory, so it is kept until the queues are empty.
                for queue in [&self.up, &self.compute, &self.down] {
                    if queue.finish().is_err() {
                        // The end is unknown, so the memory is leaked.
                        Box::leak(flight);
                        return Err(error);
                    }
                }
                Err(error)
            }
        }
    }

    /// Enqueues the commands of a job; returns the event of the last one.
    fn enqueue(
        &self,
        loaded: &Loaded,
        region: &ClRegion,
        input: usize,
        output_max: usize,
        items: usize,
    ) -> Result<Event, ClError> {
        let ClRegion { input: given, output, length_out, .. } = region;
        given.unmap(&self.up)?;
        if loaded.reports_length {
            length_out.unmap(&self.up)?;
        }
        // The queue is in order: this event also covers the commands before it.
        let up = output.unmap(&self.up)?;
        let worked = {
            // Arguments are part of the kernel, so only one job at a time may set them.
            let kernel = loaded.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // SAFETY: the arguments have the types that `device::Kernel` documents; a kernel with others gets an
            // error.
            unsafe {
                let mut arguments = Arguments { kernel: &kernel.kernel, next: 0 };
                arguments.add(&given.buffer.get())?;
                arguments.add(&(input as u32))?;
                arguments.add(&output.buffer.get())?;
                arguments.add(&(output_max as u32))?;
                if loaded.reports_length {
                    arguments.add(&length_out.buffer.get())?;
                }
                for table in &kernel.tables {
                    arguments.add(&table.get())?;
                }
            }
            // SAFETY: the sizes live until the call returns, which copies them; all memory lives until the job has
            // ended.
            unsafe {
                self.compute.enqueue_nd_range_kernel(
                    kernel.kernel.get(),
                    1,
                    ptr::null(),
                    &raw const items,
                    &raw const loaded.group,
                    &[up.get()],
                )?
            }
        };
        output.map(&self.down, CL_NON_BLOCKING, MAP_ANSWER, &[worked.get()])?;
        if loaded.reports_length {
            length_out.map(&self.down, CL_NON_BLOCKING, MAP_LENGTH, &[])?;
        }
        given.map(&self.down, CL_NON_BLOCKING, MAP_WRITE, &[worked.get()])
    }
}

struct Arguments<'a> {
    kernel: &'a Kernel,
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

/// Kernel with its tables on the device.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) kernel: Mutex<WithTables>,
    pub(super) group: usize,
    /// Whether the kernel writes the length of its answers.
    pub(super) reports_length: bool,
}

#[derive(Debug)]
pub(super) struct WithTables {
    pub(super) kernel: Kernel,
    pub(super) tables: Vec<Buffer<u8>>,
}

/// Completion function: gets the job's memory, the answer length of its kernel and the status of the last command.
type Landed = Box<dyn FnOnce(Box<ClRegion>, Option<u32>, cl_int) + Send>;

/// Job in the device.
struct Flight {
    region: Box<ClRegion>,
    reports_length: bool,
    done: Landed,
}

/// Completion callback: the library calls it once, on a thread of its own. It must not block.
extern "C" fn on_completion(_: cl_event, status: cl_int, data: *mut c_void) {
    // SAFETY: `begin` passed the box to this one call.
    let flight = unsafe { Box::from_raw(data.cast::<Flight>()) };
    let Flight { region, reports_length, done } = *flight;
    let length_out =
        reports_length.then(|| u32::from_ne_bytes(region.length_out.bytes()[..4].try_into().expect("four bytes")));
    done(region, length_out.filter(|length_out| *length_out != LENGTH_UNSET), status);
}

/// Memory of one job.
pub(super) struct ClRegion {
    input: Area,
    output: Area,
    /// Length of the answer, written by the kernel.
    length_out: Area,
    /// Context that it was registered with.
    home: usize,
}

impl fmt::Debug for ClRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClRegion").field("input", &self.input.len).field("output", &self.output.len).finish()
    }
}

impl Registered for ClRegion {
    fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
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
