//! What a device is given to run: functions of the host, and kernels that it compiles.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::Kind;

/// A function of the host: from a request's bytes to an answer's, of which it gives the length.
///
/// # Errors
/// [`AppError`]: what the request asks for can't be done, wherever it is worked on.
pub type HostFn = Arc<dyn Fn(&[u8], &mut [u8]) -> Result<usize, AppError> + Send + Sync>;

/// An application's own failure: the request can't be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AppError(pub String);

/// What an answer's length must be. A device whose answers have another length has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Length {
    /// That of the request.
    AsInput,
    /// This many bytes.
    Exactly(usize),
    /// Whatever the function says, up to the room that there is.
    #[default]
    Any,
}

impl Length {
    /// Whether an answer to a request of `input` bytes may have `output` bytes.
    #[must_use]
    pub const fn allows(self, input: usize, output: usize) -> bool {
        match self {
            Self::AsInput => input == output,
            Self::Exactly(bytes) => bytes == output,
            Self::Any => true,
        }
    }

    /// The length, if it is known beforehand.
    #[must_use]
    pub const fn known(self, input: usize) -> Option<usize> {
        match self {
            Self::AsInput => Some(input),
            Self::Exactly(bytes) => Some(bytes),
            Self::Any => None,
        }
    }
}

/// A kernel: text that a device compiles, in OpenCL C or in CUDA C++. Its entry has these arguments, in OpenCL C:
///
/// ```c
/// kernel void NAME(global const uchar *input, uint input_bytes,
///                  global uchar *output, uint output_bytes_max,
///                  global uint *output_bytes,                     // only with Length::Any: to be written
///                  global uchar *table0, …)                       // as many as there are tables
/// ```
///
/// In CUDA, `extern "C" __global__` with pointers of the same types. More work items may run than there are items; each
/// looks whether it has one.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The text.
    pub source: String,
    /// The entry's name.
    pub entry: String,
    /// For the compiler: `-cl-fast-relaxed-math`, say.
    pub options: String,
    /// How many work items run.
    pub items: Items,
    /// Work items of a group.
    pub group: usize,
    /// What an answer's length must be.
    pub length: Length,
    /// Memory that is on the device before the first request and stays there.
    pub tables: Vec<Bytes>,
}

/// How many work items a kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// One for each so many bytes of the request, and one for what is left over.
    PerInput(usize),
    /// Always so many.
    Exactly(usize),
}

impl Items {
    /// For a request of `input` bytes, in whole groups.
    #[must_use]
    pub fn count(self, input: usize, group: usize) -> usize {
        let items = match self {
            Self::PerInput(bytes) => input.div_ceil(bytes.max(1)),
            Self::Exactly(items) => items,
        };
        items.max(1).next_multiple_of(group.max(1))
    }
}

/// A function as one kind of device runs it.
#[derive(Clone)]
pub enum Code {
    /// Threads of the host; emulated devices, too, which give its answers later.
    Host(HostFn, Length),
    /// OpenCL C.
    OpenCl(Kernel),
    /// CUDA C++.
    Cuda(Kernel),
}

impl Code {
    /// A function of the host.
    pub fn host(function: impl Fn(&[u8], &mut [u8]) -> Result<usize, AppError> + Send + Sync + 'static) -> Self {
        Self::Host(Arc::new(function), Length::Any)
    }

    /// Whether a device of that kind runs it.
    #[must_use]
    pub const fn runs_on(&self, kind: Kind) -> bool {
        match self {
            Self::Host(..) => matches!(kind, Kind::Cpu | Kind::Emulated),
            Self::OpenCl(_) => matches!(kind, Kind::OpenCl),
            Self::Cuda(_) => matches!(kind, Kind::Cuda),
        }
    }

    /// What it is written in.
    #[must_use]
    pub const fn language(&self) -> &'static str {
        match self {
            Self::Host(..) => "a function of the host",
            Self::OpenCl(_) => "OpenCL C",
            Self::Cuda(_) => "CUDA C++",
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.language())
    }
}
