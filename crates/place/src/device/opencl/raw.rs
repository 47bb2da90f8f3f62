//! OpenCL's own calls: all that is unsafe about it is here.
//!
//! ```text
//! a job:  up: unmap input, answer ──▶ compute: kernel ──▶ down: map answer, input ──▶ callback
//! ```
//!
//! Three queues, each in order, joined by events: a job's memory goes up while the one before is worked on and the
//! one before that comes down. Memory is the host's, registered with `CL_MEM_USE_HOST_PTR`: mapped, it is the host's;
//! unmapped, the device's. So no byte is copied by a device that shares the host's memory.
#![expect(unsafe_code, reason = "OpenCL is an interface of C: each use says why it is right")]

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

/// Where memory begins: a page, which devices like best.
const ALIGN: usize = 4096;
/// What a kernel's answer has as long as it did not say its length.
const UNSAID: u32 = u32::MAX;
/// How the host gets memory: to read an answer, to read what a kernel said and write anew, or to write only.
const ANSWER: u64 = CL_MAP_READ;
const SAID: u64 = CL_MAP_READ | CL_MAP_WRITE;
const ANEW: u64 = CL_MAP_WRITE_INVALIDATE_REGION;

/// A device's id, which is valid as long as the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceId(cl_device_id);

// SAFETY: an id is a name that the library gave and that no thread owns.
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

/// A context with one device and its queues.
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

    /// Compiles a kernel. The outer error is the library's; the inner one is what the compiler says.
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

    /// Memory that stays on the device.
    pub(super) fn table(&self, bytes: &[u8]) -> Result<Buffer<u8>, ClError> {
        let from = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the memory is read, and before this returns, for the flag says to copy it.
        unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes.len(), from) }
    }

    /// Changes such memory, in the order of kernels; false: there is no such table.
    pub(super) fn write_table(&self, loaded: &Loaded, table: usize, at: usize, bytes: &[u8]) -> Result<bool, ClError> {
        let bytes: Box<[u8]> = bytes.into();
        let written = {
            let mut kernel = loaded.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let Some(table) = kernel.tables.get_mut(table) else { return Ok(false) };
            // SAFETY: the bytes stay until they were read, below.
            unsafe { self.compute.enqueue_write_buffer(table, CL_NON_BLOCKING, at, &bytes, &[]) }?
        };
        // Without the lock: who submits a job meanwhile does not wait.
        let Err(error) = written.wait() else { return Ok(true) };
        if self.compute.finish().is_err() {
            // It can't say when the bytes were read: so they stay for ever.
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
            told: area(size_of::<u32>(), CL_MEM_READ_WRITE)?,
            home: self.context.get() as usize,
        })
    }

    /// Whether the memory was registered here.
    pub(super) fn is_home_of(&self, region: &ClRegion) -> bool {
        region.home == self.context.get() as usize
    }

    /// Begins a job: `done` is called by a thread of the library when its answer is there, or it failed.
    ///
    /// # Errors
    /// The library's; then the job's memory is lost.
    pub(super) fn begin(
        &self,
        kernel: &Loaded,
        mut region: Box<ClRegion>,
        input: &[u8],
        items: usize,
        done: impl FnOnce(Box<ClRegion>, Option<u32>, cl_int) + Send + 'static,
    ) -> Result<(), ClError> {
        region.input.bytes_mut()[..input.len()].copy_from_slice(input);
        region.told.bytes_mut()[..4].copy_from_slice(&UNSAID.to_ne_bytes());
        let output_max = region.output.len;
        let begun = self.enqueue(kernel, &region, input.len(), output_max, items);
        // Also what failed half-way may have to get on, before its memory is given up.
        let flushed = self.up.flush().and_then(|()| self.compute.flush()).and_then(|()| self.down.flush());
        let flight = Box::new(Flight { region, tells: kernel.tells, done: Box::new(done) });
        match begun.and_then(|last| flushed.map(|()| last)) {
            Ok(last) => {
                let data = Box::into_raw(flight).cast::<c_void>();
                let set = last.set_callback(CL_COMPLETE, landed, data);
                if set.is_err() {
                    let _ = last.wait();
                    // SAFETY: the callback was not set, so nobody else has the box.
                    drop(unsafe { Box::from_raw(data.cast::<Flight>()) });
                }
                set
            }
            Err(error) => {
                // The device may still use the memory: until its queues are empty it stays.
                for queue in [&self.up, &self.compute, &self.down] {
                    if queue.finish().is_err() {
                        // It can't say when: so for ever.
                        Box::leak(flight);
                        return Err(error);
                    }
                }
                Err(error)
            }
        }
    }

    /// Puts a job's commands into the queues: the event of the last one.
    fn enqueue(
        &self,
        loaded: &Loaded,
        region: &ClRegion,
        input: usize,
        output_max: usize,
        items: usize,
    ) -> Result<Event, ClError> {
        let ClRegion { input: given, output, told, .. } = region;
        given.unmap(&self.up)?;
        if loaded.tells {
            told.unmap(&self.up)?;
        }
        // In order: when this is done, so are those before it.
        let up = output.unmap(&self.up)?;
        let worked = {
            // A kernel's arguments are the kernel's: one job at a time sets them.
            let kernel = loaded.kernel.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // SAFETY: arguments have the types that `device::Kernel` says; a kernel that has others gets an error.
            unsafe {
                let mut arguments = Arguments { kernel: &kernel.kernel, next: 0 };
                arguments.add(&given.buffer.get())?;
                arguments.add(&(input as u32))?;
                arguments.add(&output.buffer.get())?;
                arguments.add(&(output_max as u32))?;
                if loaded.tells {
                    arguments.add(&told.buffer.get())?;
                }
                for table in &kernel.tables {
                    arguments.add(&table.get())?;
                }
            }
            // SAFETY: the sizes live until the call returns, which copies them; all memory lives until the job is done.
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
        output.map(&self.down, CL_NON_BLOCKING, ANSWER, &[worked.get()])?;
        if loaded.tells {
            told.map(&self.down, CL_NON_BLOCKING, SAID, &[])?;
        }
        given.map(&self.down, CL_NON_BLOCKING, ANEW, &[worked.get()])
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
        // SAFETY: the caller's word.
        unsafe { self.kernel.set_arg(self.next, value) }?;
        self.next += 1;
        Ok(())
    }
}

/// A kernel with what stays on the device for it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) kernel: Mutex<WithTables>,
    pub(super) group: usize,
    /// It says how long its answers are.
    pub(super) tells: bool,
}

#[derive(Debug)]
pub(super) struct WithTables {
    pub(super) kernel: Kernel,
    pub(super) tables: Vec<Buffer<u8>>,
}

/// What is called when a job is done: its memory, the length that its kernel said, how the last command ended.
type Landed = Box<dyn FnOnce(Box<ClRegion>, Option<u32>, cl_int) + Send>;

/// A job that the device has.
struct Flight {
    region: Box<ClRegion>,
    tells: bool,
    done: Landed,
}

/// A job is done: the library calls this once, from a thread of its own. It calls nothing that waits.
extern "C" fn landed(_: cl_event, status: cl_int, data: *mut c_void) {
    // SAFETY: `begin` gave the box for this one call.
    let flight = unsafe { Box::from_raw(data.cast::<Flight>()) };
    let Flight { region, tells, done } = *flight;
    let told = tells.then(|| u32::from_ne_bytes(region.told.bytes()[..4].try_into().expect("four bytes")));
    done(region, told.filter(|told| *told != UNSAID), status);
}

/// Memory of one job.
pub(super) struct ClRegion {
    input: Area,
    output: Area,
    /// Where a kernel says how long its answer is.
    told: Area,
    /// Where it was registered.
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

/// Memory of the host that the device knows. While a [`Flight`] has it, the device may use it; otherwise it is mapped.
struct Area {
    /// Goes before the memory does.
    buffer: Buffer<u8>,
    memory: Pages,
    len: usize,
}

impl Area {
    /// New memory, mapped.
    fn new(queues: &Queues, len: usize, flags: u64) -> Result<Self, ClError> {
        let memory = Pages::new(len);
        let host = memory.start.as_ptr().cast::<c_void>();
        // SAFETY: the memory has the length said and outlives the buffer, as fields are dropped in order.
        let buffer =
            unsafe { Buffer::create(&queues.context, flags | CL_MEM_USE_HOST_PTR, memory.layout.size(), host) }?;
        let area = Self { buffer, memory, len };
        // Nobody reads it before it is written: here, or by a kernel.
        // Nothing waits for kernels on the way up.
        area.map(&queues.up, CL_BLOCKING, ANEW, &[])?;
        Ok(area)
    }

    /// Gives it to the host, after those events.
    fn map(&self, queue: &CommandQueue, wait: u32, flags: u64, after: &[cl_event]) -> Result<Event, ClError> {
        let mut at: *mut c_void = ptr::null_mut();
        // SAFETY: nobody looks at the memory before the event, or the call when it waits, says that it is mapped.
        let event = unsafe {
            queue.enqueue_map_buffer(&self.buffer, wait, flags, 0, self.memory.layout.size(), &mut at, after)?
        };
        // OpenCL 3.0, clEnqueueMapBuffer: with CL_MEM_USE_HOST_PTR it is where the host's memory is.
        assert_eq!(at.cast(), self.memory.start.as_ptr(), "the library mapped other memory than was registered");
        Ok(event)
    }

    /// Gives it to the device.
    fn unmap(&self, queue: &CommandQueue) -> Result<Event, ClError> {
        // SAFETY: it is mapped here, and the job that has it does not look at it until it is mapped again.
        unsafe { queue.enqueue_unmap_mem_object(self.buffer.get(), self.memory.start.as_ptr().cast(), &[]) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: whoever has the area and no flight's, has mapped memory of this length, which is initialised.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; and nobody else has the area.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }
}

/// Whole pages, zeroed.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: they are owned, as a box owns.
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

    /// OpenCL 3.0, clEnqueueMapBuffer: it excludes reading and writing.
    #[test]
    fn memory_is_mapped_to_be_read_or_written_anew_and_never_both() {
        for flags in [ANSWER, SAID, ANEW] {
            assert!(
                flags & CL_MAP_WRITE_INVALIDATE_REGION == 0 || flags & (CL_MAP_READ | CL_MAP_WRITE) == 0,
                "{flags}"
            );
        }
    }
}
