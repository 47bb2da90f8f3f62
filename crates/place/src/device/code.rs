//! Code that a device runs: functions of the host, and kernels that the device compiles.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::{DeviceKind, DeviceWindow};

/// Function of the host: reads a request, writes an answer and returns its length.
///
/// # Errors
/// [`AppError`]: the request cannot be executed on any device.
pub type HostFn = Arc<dyn Fn(&[u8], &mut [u8]) -> Result<usize, AppError> + Send + Sync>;

/// Error of the application: the request cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AppError(pub String);

/// Required length of an answer. A device whose answer has another length has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerLength {
    /// Length of the request.
    AsInput,
    /// This many bytes.
    Exactly(usize),
    /// Length that the function returns, up to the size of the buffer.
    #[default]
    Any,
}

impl AnswerLength {
    /// Whether an answer to a request of `input` bytes may have `output` bytes.
    #[must_use]
    pub const fn allows(self, input: usize, output: usize) -> bool {
        match self {
            Self::AsInput => input == output,
            Self::Exactly(bytes) => bytes == output,
            Self::Any => true,
        }
    }

    /// Length of the answer, if it is known in advance.
    #[must_use]
    pub const fn known(self, input: usize) -> Option<usize> {
        match self {
            Self::AsInput => Some(input),
            Self::Exactly(bytes) => Some(bytes),
            Self::Any => None,
        }
    }
}

/// Kernel: source text that a device compiles, in OpenCL C or in CUDA C++. In OpenCL C, its entry has these
/// arguments:
///
/// ```c
/// kernel void NAME(global const uchar *input, uint input_bytes,
///                  global uchar *output, uint output_bytes_max,
///                  global uint *output_bytes,                     // only with AnswerLength::Any: to be written
///                  global uchar *table0, …)                       // as many as there are tables
/// ```
///
/// In CUDA, `extern "C" __global__` with pointers of the same types. More work items may run than there are items, so
/// each must check its index.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Source text.
    pub source: String,
    /// Name of the entry.
    pub entry: String,
    /// Compiler options, for example `-cl-fast-relaxed-math`.
    pub options: String,
    /// Number of work items.
    pub items: WorkItemCount,
    /// Number of work items in a group.
    pub group: usize,
    /// Required length of an answer.
    pub length: AnswerLength,
    /// Tables, which are on the device from the first request on.
    pub tables: Vec<KernelTable>,
}

/// Table of a kernel.
#[derive(Debug, Clone)]
pub enum KernelTable {
    /// Bytes, of which the device gets a copy.
    Bytes(Bytes),
    /// Window of the same device. The kernel uses its memory.
    Window(DeviceWindow),
}

impl From<Bytes> for KernelTable {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<DeviceWindow> for KernelTable {
    fn from(window: DeviceWindow) -> Self {
        Self::Window(window)
    }
}

/// Number of work items of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkItemCount {
    /// One for this many bytes of the request each, and one for the rest.
    PerInput(usize),
    /// A fixed number.
    Exactly(usize),
}

impl WorkItemCount {
    /// Number for a request of `input` bytes, in whole groups.
    #[must_use]
    pub fn count(self, input: usize, group: usize) -> usize {
        let items = match self {
            Self::PerInput(bytes) => input.div_ceil(bytes.max(1)),
            Self::Exactly(items) => items,
        };
        items.max(1).next_multiple_of(group.max(1))
    }
}

/// Function in the form that one kind of device runs.
#[derive(Clone)]
pub enum TaskCode {
    /// Function of the host; an emulated device runs it, too, and delays its answers.
    Host(HostFn, AnswerLength),
    /// OpenCL C.
    OpenCl(Kernel),
    /// CUDA C++.
    Cuda(Kernel),
}

impl TaskCode {
    /// Creates code from a function of the host.
    pub fn host(function: impl Fn(&[u8], &mut [u8]) -> Result<usize, AppError> + Send + Sync + 'static) -> Self {
        Self::Host(Arc::new(function), AnswerLength::Any)
    }

    /// Whether a device of this kind can run it.
    #[must_use]
    pub const fn runs_on(&self, kind: DeviceKind) -> bool {
        match self {
            Self::Host(..) => matches!(kind, DeviceKind::Cpu | DeviceKind::Emulated),
            Self::OpenCl(_) => matches!(kind, DeviceKind::OpenCl),
            Self::Cuda(_) => matches!(kind, DeviceKind::Cuda),
        }
    }

    /// Language of the code.
    #[must_use]
    pub const fn language(&self) -> &'static str {
        match self {
            Self::Host(..) => DeviceKind::Cpu.language(),
            Self::OpenCl(_) => DeviceKind::OpenCl.language(),
            Self::Cuda(_) => DeviceKind::Cuda.language(),
        }
    }
}

impl fmt::Debug for TaskCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.language())
    }
}
