//! Devices that execute requests: one trait, several back ends.
//!
//! ```text
//!  Context ── Job: function, bytes, registered memory ──▶ Device: cpu │ opencl │ cuda │ emulated
//!     ▲ ◀───────────── Completion, by a channel: polled, or waited for ──────┘
//! ```
//!
//! [`ComputeDevice::submit`] never blocks: without room it returns the job in [`RefusedJob`]. A [`Completion`] arrives
//! on the channel of its [`Job`]. A device that disappears may never send it, so the caller needs a timeout. Memory is
//! registered once, as a [`Region`], and moves with each job and back.
//!
//! [`discover`] lists the devices that are present, and why others are not; [`profile`] measures them. [`pool`] and
//! [`emulated`] run functions of the host. `driver` runs kernels: a thread of the
//! device makes the raw operations of `opencl` and `cuda`.
//! `window` is memory of a device that other hosts read and write.

#[cfg(any(feature = "opencl", feature = "cuda"))]
mod accelerator;
mod code;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod device_thread;
pub mod discover;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod driver;
pub mod emulated;
mod functions;
mod job;
#[cfg(feature = "opencl")]
mod opencl;
pub mod pool;
pub mod profile;
mod window;

use std::fmt;

use window::no_window;

pub use code::{AnswerLength, AppError, HostFn, Kernel, KernelTable, TaskCode, WorkItemCount};
pub use job::{Completion, Job, JobError, JobRefusal, RefusedJob, Region};
pub use window::DeviceWindow;

/// Limit on the functions of one device.
pub const FUNCTIONS_MAX: usize = 256;
/// Limit on the length of a request or an answer in bytes.
pub const MESSAGE_MAX: usize = 256 << 20;

/// Kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKind {
    /// Threads of this process.
    Cpu,
    /// OpenCL.
    OpenCl,
    /// CUDA.
    Cuda,
    /// Emulated device, which delays answers according to a model.
    Emulated,
}

impl DeviceKind {
    /// Name in files and messages: `cpu`, `opencl`, `cuda`, `emulated`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OpenCl => "opencl",
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }

    /// Language of the code that it runs.
    const fn language(self) -> &'static str {
        match self {
            Self::Cpu | Self::Emulated => "a function of the host",
            Self::OpenCl => "OpenCL C",
            Self::Cuda => "CUDA C++",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Name for people: `cpu`, `opencl:0 (pthread-…)`.
    pub name: String,
    /// Number of jobs that it executes in parallel.
    pub slots: usize,
    /// Number of jobs that it accepts before it refuses more.
    pub jobs_max: usize,
    /// Whether jobs are completed in the order of submission.
    pub in_order: bool,
}

/// Index of a loaded function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub usize);

/// Error of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device is not present.
    #[error("{device} not found: {reason}")]
    Absent {
        /// Name of the device.
        device: String,
        /// Reason, and remedy.
        reason: String,
    },
    /// A kernel does not compile.
    #[error("{device}: kernel `{entry}` does not compile:\n{log}")]
    Build {
        /// Name of the device.
        device: String,
        /// Entry of the kernel.
        entry: String,
        /// Output of the compiler.
        log: String,
    },
    /// The device cannot run this kind of code.
    #[error("{device} cannot run `{name}`: got {got}, expected {expected}")]
    Code {
        /// Name of the device.
        device: String,
        /// Name of the function.
        name: String,
        /// Language of the code.
        got: &'static str,
        /// Language that the device needs.
        expected: &'static str,
    },
    /// The device has too many functions.
    #[error("{device} has {FUNCTIONS_MAX} functions, the maximum")]
    Functions {
        /// Name of the device.
        device: String,
    },
    /// Memory cannot be registered.
    #[error("{device} cannot register {bytes} bytes: {reason}")]
    Memory {
        /// Name of the device.
        device: String,
        /// Size in bytes.
        bytes: usize,
        /// Reason of the failure.
        reason: String,
    },
    /// A table of a kernel is a window of another device.
    #[error("{device} cannot run `{name}` with a window of {of}: create the window with the `window` of this device")]
    Window {
        /// Name of the device.
        device: String,
        /// Name of the function.
        name: String,
        /// Name of the window's device.
        of: String,
    },
    /// The device reported an error.
    #[error("{device}: {reason}")]
    Failed {
        /// Name of the device.
        device: String,
        /// Error of the device.
        reason: String,
    },
}

/// Device. Several threads may call its methods.
pub trait ComputeDevice: fmt::Debug + Send + Sync {
    /// Properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Loads a function. Kernels are compiled here, which may take seconds.
    ///
    /// # Errors
    /// [`DeviceError::Build`] with the compiler's output; [`DeviceError::Code`] for another language;
    /// [`DeviceError::Window`] for a window of another device; [`DeviceError::Functions`].
    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError>;

    /// Registers memory for one job at a time, with these maximum lengths of request and answer.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError>;

    /// Submits a job. Never blocks.
    ///
    /// # Errors
    /// [`RefusedJob`], with the job.
    fn submit(&self, job: Job) -> Result<(), RefusedJob>;

    /// Changes a table of a loaded function, for jobs that are submitted from now on.
    ///
    /// # Errors
    /// [`DeviceError::Failed`]: the table does not exist or is shorter, or this device has no tables.
    fn update(&self, function: FunctionId, table: usize, at: usize, _bytes: &[u8]) -> Result<(), DeviceError> {
        let reason = format!("function {} has no table {table} to change at {at}", function.0);
        Err(DeviceError::Failed { device: self.info().name.clone(), reason })
    }

    /// Creates a window in the memory of this device, for kernels of this device and for other hosts.
    ///
    /// # Errors
    /// [`DeviceError::Memory`]: the device has no such memory, or no windows.
    fn window(&self, bytes: usize) -> Result<DeviceWindow, DeviceError> {
        Err(no_window(self.info(), bytes, "this device has no windows"))
    }

    /// Whether a window is memory of this device.
    fn owns(&self, _window: &DeviceWindow) -> bool {
        false
    }
}

/// Checks the lengths against the limit.
fn check_lengths(info: &DeviceInfo, input_max: usize, output_max: usize) -> Result<(), DeviceError> {
    let bytes = input_max.max(output_max);
    if bytes > MESSAGE_MAX {
        let reason = format!("at most {MESSAGE_MAX} for one message");
        return Err(DeviceError::Memory { device: info.name.clone(), bytes, reason });
    }
    Ok(())
}

/// Error for code in another language than the device's.
fn wrong_code(info: &DeviceInfo, name: &str, code: &TaskCode) -> DeviceError {
    let (device, expected) = (info.name.clone(), info.kind.language());
    DeviceError::Code { device, name: name.into(), got: code.language(), expected }
}
