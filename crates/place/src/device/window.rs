//! Windows in the memory of devices, which kernels and other hosts share.
//!
//! ```text
//! other host ── write, read ──▶ DeviceWindow ◀── table of a kernel of the same device
//! ```
//!
//! A context registers a window for the role of its device ([`Builder::reg_mem_func`]). A kernel takes it as a
//! [`KernelTable`](super::KernelTable), so the kernel reads what another host has written, without a copy by the
//! application. A function of the host calls [`MemoryWindow::read`].
//!
//! **Order.** The queue of an accelerator executes kernels and accesses of windows one after the other, in the order
//! of their submission. So an access waits for the kernels before it, and is a whole for each kernel and each other
//! access. A job that is submitted after the end of a write uses the written bytes.
//!
//! [`Builder::reg_mem_func`]: crate::context::Builder::reg_mem_func

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{DeviceError, DeviceInfo};
use crate::context::window::{HostWindow, MemoryWindow, WindowFailure};

/// Window in the memory of a device, made by [`ComputeDevice::window`](super::ComputeDevice::window). Its bytes are zero
/// at first. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct DeviceWindow(Arc<dyn WindowMemory>);

/// Memory of a window.
pub(super) trait WindowMemory: MemoryWindow + Any {
    /// Name of the device.
    fn device(&self) -> &str;
}

impl DeviceWindow {
    pub(super) fn new(memory: impl WindowMemory) -> Self {
        Self(Arc::new(memory))
    }

    /// Creates a window of a device whose memory is that of the host. `home` identifies the device.
    pub(super) fn of_host(info: &DeviceInfo, home: &Arc<()>, bytes: usize) -> Result<Self, DeviceError> {
        check_window(info, bytes)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(bytes).map_err(|error| no_window(info, bytes, error))?;
        memory.resize(bytes, 0);
        Ok(Self::new(HostMemory { device: info.name.clone(), home: Arc::clone(home), bytes: HostWindow::new(memory) }))
    }

    /// Whether it is memory of the host that belongs to the device of `home`.
    pub(super) fn is_of_host(&self, home: &Arc<()>) -> bool {
        self.memory::<HostMemory>().is_some_and(|memory| Arc::ptr_eq(&memory.home, home))
    }

    /// Memory of this type, if it is.
    pub(super) fn memory<M: WindowMemory>(&self) -> Option<&M> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Name of the device that has the memory.
    #[must_use]
    pub fn device(&self) -> &str {
        self.0.device()
    }

    fn check(&self, at: usize, len: usize) -> Result<(), WindowFailure> {
        let has = self.len();
        match at.checked_add(len) {
            Some(end) if end <= has => Ok(()),
            _ => Err(WindowFailure(format!("access to {len} bytes at {at} exceeds a window of {has} bytes"))),
        }
    }
}

impl MemoryWindow for DeviceWindow {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn may_wait(&self) -> bool {
        self.0.may_wait()
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure> {
        self.check(at, to.len())?;
        self.0.read(at, to)
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        self.check(at, bytes.len())?;
        self.0.write(at, bytes)
    }

    fn as_device_window(&self) -> Option<&DeviceWindow> {
        Some(self)
    }
}

/// Checks the length of a window.
pub(super) fn check_window(info: &DeviceInfo, bytes: usize) -> Result<(), DeviceError> {
    if bytes == 0 { Err(no_window(info, bytes, "a window has at least one byte")) } else { Ok(()) }
}

/// Error for memory that a device does not have.
pub(super) fn no_window(info: &DeviceInfo, bytes: usize, reason: impl fmt::Display) -> DeviceError {
    DeviceError::Memory { device: info.name.clone(), bytes, reason: reason.to_string() }
}

/// Memory of the host.
#[derive(Debug)]
struct HostMemory {
    device: String,
    home: Arc<()>,
    bytes: HostWindow,
}

impl WindowMemory for HostMemory {
    fn device(&self) -> &str {
        &self.device
    }
}

impl MemoryWindow for HostMemory {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure> {
        self.bytes.read(at, to)
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        self.bytes.write(at, bytes)
    }
}
