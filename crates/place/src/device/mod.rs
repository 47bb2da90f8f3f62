//! What requests are worked on with: one trait, several back ends.
//!
//! ```text
//!  Context ── Job: function, bytes, registered memory ──▶ Device: cpu │ opencl │ cuda │ emulated
//!     ▲ ◀───────────── Completion, by a channel: polled, or waited for ──────┘
//! ```
//!
//! [`Device::submit`] never waits: what there is no room for comes back in [`Refused`]. A [`Completion`] comes by the
//! channel that its [`Job`] names; a device that disappears may never send it, so whoever waits has a deadline. Memory
//! is registered once, as a [`Region`], and goes with each job and back.
//!
//! In the order of use: [`discover`] says what is there, and what is not and why; [`pool`], [`emulated`], [`opencl`] and
//! [`cuda`] are the back ends; [`profile`] measures them.

mod code;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod discover;
pub mod emulated;
mod functions;
mod job;
#[cfg(feature = "opencl")]
pub mod opencl;
pub mod pool;
pub mod profile;

use std::fmt;

pub use code::{AppError, Code, HostFn, Items, Kernel, Length};
#[cfg(any(feature = "opencl", feature = "cuda"))]
pub(crate) use job::Registered;
pub use job::{Completion, Job, JobError, Refused, RefusedReason, Region};

/// Functions that one device has at most.
pub const FUNCTIONS_MAX: usize = 256;
/// Bytes of one request, and of one answer, at most.
pub const MESSAGE_MAX: usize = 256 << 20;

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Threads of this process.
    Cpu,
    /// OpenCL.
    OpenCl,
    /// CUDA.
    Cuda,
    /// One that waits for as long as a given model says.
    Emulated,
}

impl Kind {
    /// As it is written: `cpu`, `opencl`, `cuda`, `emulated`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OpenCl => "opencl",
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its kind.
    pub kind: Kind,
    /// Its name, for people: `cpu`, `opencl:0 (pthread-…)`.
    pub name: String,
    /// Jobs that it works on at the same time.
    pub slots: usize,
    /// Jobs that it takes before it refuses more.
    pub jobs_max: usize,
    /// Whether it ends jobs in the order in which it was given them.
    pub in_order: bool,
}

/// A function that a device has loaded: its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub usize);

/// Why a device, or something of it, can't be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It is not there.
    #[error("{device} is not there: {reason}")]
    Absent {
        /// Which.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A kernel does not compile.
    #[error("{device}: kernel `{entry}` does not compile:\n{log}")]
    Build {
        /// Where.
        device: String,
        /// Its name.
        entry: String,
        /// What the compiler says.
        log: String,
    },
    /// It does not run what it was given.
    #[error("{device} can't run `{name}`: it was given {got}, expected {expected}")]
    Code {
        /// Which device.
        device: String,
        /// The function.
        name: String,
        /// What it is written in.
        got: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// There are too many functions.
    #[error("{device} has {FUNCTIONS_MAX} functions, as many as it may")]
    Functions {
        /// Which device.
        device: String,
    },
    /// Memory can't be registered.
    #[error("{device} can't register {bytes} bytes: {reason}")]
    Memory {
        /// Which device.
        device: String,
        /// How many.
        bytes: usize,
        /// Why.
        reason: String,
    },
    /// The device says so.
    #[error("{device}: {reason}")]
    Failed {
        /// Which device.
        device: String,
        /// What it says.
        reason: String,
    },
}

/// A device. Its methods may be called by several threads.
pub trait Device: fmt::Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &Info;

    /// Loads a function; kernels are compiled here, which may take seconds.
    ///
    /// # Errors
    /// [`DeviceError::Build`] with the compiler's words; [`DeviceError::Code`] for another language;
    /// [`DeviceError::Functions`].
    fn load(&self, name: &str, code: &Code) -> Result<FunctionId, DeviceError>;

    /// Registers memory for one job at a time: a request and an answer of so many bytes at most.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError>;

    /// Takes a job. Never waits.
    ///
    /// # Errors
    /// [`Refused`], with the job.
    fn submit(&self, job: Job) -> Result<(), Refused>;

    /// Changes a table of a function that was loaded, for jobs that are submitted from now on.
    ///
    /// # Errors
    /// [`DeviceError::Failed`]: there is no such table, it is shorter, or this device has none.
    fn update(&self, function: FunctionId, table: usize, at: usize, _bytes: &[u8]) -> Result<(), DeviceError> {
        let reason = format!("function {} has no table {table} to change at {at}", function.0);
        Err(DeviceError::Failed { device: self.info().name.clone(), reason })
    }
}

/// Registers memory of the host, as devices without memory of their own do.
fn register_heap(info: &Info, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
    bounded(info, input_max, output_max).map(|()| Region::heap(input_max, output_max))
}

/// Refuses what is longer than messages are.
fn bounded(info: &Info, input_max: usize, output_max: usize) -> Result<(), DeviceError> {
    let bytes = input_max.max(output_max);
    if bytes > MESSAGE_MAX {
        let reason = format!("at most {MESSAGE_MAX} for one message");
        return Err(DeviceError::Memory { device: info.name.clone(), bytes, reason });
    }
    Ok(())
}
