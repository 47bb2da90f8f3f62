//! Jobs, their memory and their completions.

use std::any::Any;
use std::fmt;
use std::time::Instant as Clock;

use bytes::Bytes;
use crossbeam_channel::Sender;

use super::{AnswerLength, AppError, FunctionId};

/// Memory of one job, registered with a device once and reused.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    /// Maximum length of a request in bytes.
    pub input_max: usize,
    /// Maximum length of an answer in bytes.
    pub output_max: usize,
}

#[derive(Debug)]
enum Memory {
    /// Memory of the host.
    Heap(Box<[u8]>),
    /// Memory of a device.
    #[cfg_attr(
        not(any(feature = "opencl", feature = "cuda")),
        expect(dead_code, reason = "only these devices have memory")
    )]
    Registered(Box<dyn Registered>),
}

/// Memory that a device has registered.
pub(super) trait Registered: fmt::Debug + Any + Send + Sync {
    /// Bytes of the answer, when no job uses the memory.
    fn output(&self) -> &[u8];
}

impl Region {
    /// Allocates memory of the host.
    pub(super) fn heap(input_max: usize, output_max: usize) -> Self {
        Self { memory: Memory::Heap(vec![0; output_max].into()), input_max, output_max }
    }

    /// Wraps memory that a device has registered.
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(super) fn registered(memory: Box<dyn Registered>, input_max: usize, output_max: usize) -> Self {
        Self { memory: Memory::Registered(memory), input_max, output_max }
    }

    /// Buffer for an answer, if it is memory of the host.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            Memory::Heap(memory) => Some(memory),
            Memory::Registered(_) => None,
        }
    }

    /// Memory of type `T`, if a device has registered it.
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(super) fn as_registered<T: Registered>(&self) -> Option<&T> {
        match &self.memory {
            Memory::Registered(memory) => (&**memory as &dyn Any).downcast_ref(),
            Memory::Heap(_) => None,
        }
    }

    /// As [`Self::as_registered`].
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(super) fn into_registered<T: Registered>(self) -> Option<Box<T>> {
        match self.memory {
            Memory::Registered(memory) => (memory as Box<dyn Any>).downcast().ok(),
            Memory::Heap(_) => None,
        }
    }

    /// Answer of `bytes` bytes, the length in its completion.
    ///
    /// # Panics
    /// If the region is shorter, which no completion reports.
    #[must_use]
    pub fn output(&self, bytes: usize) -> &[u8] {
        match &self.memory {
            Memory::Heap(memory) => &memory[..bytes],
            Memory::Registered(memory) => &memory.output()[..bytes],
        }
    }
}

/// Job for a device.
#[derive(Debug)]
pub struct Job {
    /// Tag of the caller, returned with the completion.
    pub tag: u64,
    /// Function to run.
    pub function: FunctionId,
    /// Request.
    pub input: Bytes,
    /// Memory for the answer, from [`ComputeDevice::register`](super::ComputeDevice::register) of the same device.
    pub region: Region,
    /// Channel for the completion; if the channel is full, the completion is dropped.
    pub done: Sender<Completion>,
}

/// Completion of a job.
#[derive(Debug)]
pub struct Completion {
    /// Tag of the job.
    pub tag: u64,
    /// Memory of the job; `None` if the device has lost it.
    pub region: Option<Region>,
    /// Length of the answer in bytes, or the error.
    pub result: Result<usize, JobError>,
    /// Time of the completion, which may be long before it is received.
    pub at: Clock,
}

impl Completion {
    /// Creates a completion with the current time.
    #[must_use]
    pub fn now(tag: u64, region: Option<Region>, result: Result<usize, JobError>) -> Self {
        Self { tag, region, result, at: Clock::now() }
    }

    /// Sends the completion, with the current time. If the receiver is gone or its channel is full, the caller finds
    /// out by its timeout.
    pub(super) fn send(mut self, to: &Sender<Self>) {
        self.at = Clock::now();
        let _ = to.try_send(self);
    }
}

/// Error of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The application refused the request.
    #[error("{0}")]
    App(#[from] AppError),
    /// The function of the application panicked.
    #[error("the function panicked")]
    Panicked,
    /// The answer has a wrong length.
    #[error("answer of {got} bytes, expected {expected}")]
    Length {
        /// Required length.
        expected: String,
        /// Length that the device returned.
        got: usize,
    },
    /// The device reported an error.
    #[error("{0}")]
    Device(String),
}

impl JobError {
    pub(super) fn length(length: AnswerLength, input: usize, max: usize, got: usize) -> Self {
        let expected = length.known(input).map_or_else(|| format!("at most {max}"), |bytes| bytes.to_string());
        Self::Length { expected, got }
    }
}

/// Job that a device refused.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RefusedJob {
    /// The job; `None` if the device has lost its memory.
    pub job: Option<Box<Job>>,
    /// Reason of the refusal.
    pub reason: JobRefusal,
}

/// Reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobRefusal {
    /// The device has too many jobs.
    #[error("the device has {0} jobs, the maximum")]
    Full(usize),
    /// The device is gone.
    #[error("the device is gone")]
    Gone,
    /// The request is longer than the job's memory.
    #[error("request of {got} bytes exceeds the job's memory of {max} bytes")]
    TooLong {
        /// Maximum length in bytes.
        max: usize,
        /// Length of the request in bytes.
        got: usize,
    },
    /// The memory was registered with another device.
    #[error("the job's memory was registered with another device")]
    Memory,
    /// The function was not loaded.
    #[error("the device has no function {}", .0.0)]
    Function(FunctionId),
}
