//! Errors of a context's start.

use crate::device::DeviceError;
use crate::{DeviceRole, ModelError};

/// Error of a context's start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The models do not match.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A device cannot run what is registered for it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A registered name does not exist in the application.
    #[error("`{name}` is registered, but {file} has no {what} of this name; it has: {has}")]
    Unknown {
        /// Registered name.
        name: String,
        /// File of the application.
        file: String,
        /// Kind of the name: a task, a request type.
        what: &'static str,
        /// Names that exist.
        has: String,
    },
    /// A dataflow needs a function that is not registered.
    #[error("{file}: `{task}` runs on {role}, but no function is registered for it: call {call}")]
    Lacking {
        /// File of the application.
        file: String,
        /// Name of the task.
        task: String,
        /// Role that needs it.
        role: DeviceRole,
        /// Function to call.
        call: &'static str,
    },
    /// A device's answer differs from the CPU's.
    #[error("`{task}` gives another answer on {device} than on the CPU: for a sample of {bytes} bytes, {difference}")]
    Differs {
        /// Name of the task.
        task: String,
        /// Name of the device.
        device: String,
        /// Length of the sample in bytes.
        bytes: usize,
        /// Difference between the answers.
        difference: String,
    },
    /// A sample fails.
    #[error("sample of `{task}` failed: {reason}")]
    Sample {
        /// Name of the task.
        task: String,
        /// Reason of the failure.
        reason: String,
    },
    /// A communication function does not start.
    #[error("communication function `{name}` cannot start: {reason}")]
    Comm {
        /// Name of the communication function.
        name: String,
        /// Reason of the failure.
        reason: String,
    },
    /// An invalid registration: a duplicate name, or too many entries.
    #[error("{0}")]
    Registered(String),
}
