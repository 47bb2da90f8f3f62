//! A job, its memory, and what becomes of it.

use std::any::Any;
use std::fmt;
use std::time::Instant as Clock;

use bytes::Bytes;
use crossbeam_channel::Sender;

use super::{AppError, FunctionId, Length};

/// Memory of one job: registered with its device once, and used again.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    /// Bytes of a request that it has room for.
    pub input_max: usize,
    /// Bytes of an answer that it has room for.
    pub output_max: usize,
}

#[derive(Debug)]
enum Memory {
    /// The host's own.
    Heap(Box<[u8]>),
    /// A device's.
    #[cfg_attr(
        not(any(feature = "opencl", feature = "cuda")),
        expect(dead_code, reason = "only these devices have memory")
    )]
    Registered(Box<dyn Registered>),
}

/// Memory that a device has registered.
pub(crate) trait Registered: fmt::Debug + Any + Send + Sync {
    /// The answer's bytes, when no job has them.
    fn output(&self) -> &[u8];
    /// Itself, for the device that knows what it is.
    #[cfg_attr(
        not(any(feature = "opencl", feature = "cuda")),
        expect(dead_code, reason = "only these devices have memory")
    )]
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl Region {
    /// Memory of the host.
    pub(super) fn heap(input_max: usize, output_max: usize) -> Self {
        Self { memory: Memory::Heap(vec![0; output_max].into()), input_max, output_max }
    }

    /// Memory that a device has registered.
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(super) fn registered(memory: Box<dyn Registered>, input_max: usize, output_max: usize) -> Self {
        Self { memory: Memory::Registered(memory), input_max, output_max }
    }

    /// All of the room for an answer, where the host has it.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            Memory::Heap(memory) => Some(memory),
            Memory::Registered(_) => None,
        }
    }

    /// What a device has registered, if it is a `T`; itself otherwise.
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(super) fn into_registered<T: Registered>(self) -> Result<Box<T>, Self> {
        let Self { memory, input_max, output_max } = self;
        match memory {
            Memory::Registered(memory) if (&*memory as &dyn Any).is::<T>() => {
                Ok(memory.into_any().downcast().expect("looked at"))
            }
            memory => Err(Self { memory, input_max, output_max }),
        }
    }

    /// An answer of `bytes` bytes, as its completion says.
    ///
    /// # Panics
    /// If there is no room for so many: no completion says that.
    #[must_use]
    pub fn output(&self, bytes: usize) -> &[u8] {
        match &self.memory {
            Memory::Heap(memory) => &memory[..bytes],
            Memory::Registered(memory) => &memory.output()[..bytes],
        }
    }
}

/// A request for a device.
#[derive(Debug)]
pub struct Job {
    /// Comes back with the completion.
    pub tag: u64,
    /// What is to be done.
    pub function: FunctionId,
    /// The request.
    pub input: Bytes,
    /// Where its answer is to be, from [`Device::register`](super::Device::register) of the same device.
    pub region: Region,
    /// Where its completion goes. One with no room left gets none.
    pub done: Sender<Completion>,
}

/// What became of a job.
#[derive(Debug)]
pub struct Completion {
    /// The job's.
    pub tag: u64,
    /// The job's memory; none where the device has lost it.
    pub region: Option<Region>,
    /// Bytes of the answer, or why there is none.
    pub result: Result<usize, JobError>,
    /// When the device was done: whoever looks at it later may have been busy with something else meanwhile.
    pub at: Clock,
}

impl Completion {
    /// What became of a job just now.
    #[must_use]
    pub fn now(tag: u64, region: Option<Region>, result: Result<usize, JobError>) -> Self {
        Self { tag, region, result, at: Clock::now() }
    }

    /// Sends it, with the time at which that is. Nobody may wait any more, or too many wait: then who asked learns it
    /// from the time that it took.
    pub(super) fn send(mut self, to: &Sender<Self>) {
        self.at = Clock::now();
        let _ = to.try_send(self);
    }
}

/// Why a job has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The application says so.
    #[error("{0}")]
    App(#[from] AppError),
    /// The application's function panicked.
    #[error("the function panicked")]
    Panicked,
    /// The answer has another length than it must have.
    #[error("an answer of {got} bytes, expected {expected}")]
    Length {
        /// What the length must be.
        expected: String,
        /// What the device said.
        got: usize,
    },
    /// The device says so.
    #[error("{0}")]
    Device(String),
}

impl JobError {
    pub(super) fn length(length: Length, input: usize, max: usize, got: usize) -> Self {
        let expected = length.known(input).map_or_else(|| format!("at most {max}"), |bytes| bytes.to_string());
        Self::Length { expected, got }
    }
}

/// A job that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// It; none where the device has lost its memory.
    pub job: Option<Box<Job>>,
    /// Why.
    pub reason: RefusedReason,
}

/// Why a job was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedReason {
    /// There are too many.
    #[error("the device has {0} jobs, as many as it takes")]
    Full(usize),
    /// The device is gone.
    #[error("the device is gone")]
    Gone,
    /// The request is too long for the job's memory.
    #[error("a request of {got} bytes, the job's memory has room for {max}")]
    TooLong {
        /// What there is room for, bytes.
        max: usize,
        /// The request's bytes.
        got: usize,
    },
    /// The memory was registered with another device.
    #[error("the job's memory was registered with another device")]
    Memory,
    /// No such function was loaded.
    #[error("the device has no function {}", .0.0)]
    Function(FunctionId),
    /// The device says so.
    #[error("{0}")]
    Device(String),
}
