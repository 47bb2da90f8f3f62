//! Why a context can't begin: one line each.

use crate::device::DeviceError;
use crate::{Mistake, Role};

/// Why a context can't begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The models do not fit together.
    #[error(transparent)]
    Model(#[from] Mistake),
    /// A device can't do what is registered for it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Something was registered that the application does not have.
    #[error("`{name}` is registered, and {file} has no {what} of that name; it has: {has}")]
    Unknown {
        /// What was registered.
        name: String,
        /// The application's file.
        file: String,
        /// A task, a type of request.
        what: &'static str,
        /// What there is.
        has: String,
    },
    /// A dataflow needs what was not registered.
    #[error("{file}: `{task}` runs on {role}, and nothing is registered for it: call {call}")]
    Lacking {
        /// The application's file.
        file: String,
        /// The task.
        task: String,
        /// Where.
        role: Role,
        /// What to call.
        call: &'static str,
    },
    /// A device's answer is not the CPU's.
    #[error("`{task}` gives another answer on {device} than on the CPU: for a sample of {bytes} bytes, {difference}")]
    Differs {
        /// The task.
        task: String,
        /// Where.
        device: String,
        /// Bytes of the sample.
        bytes: usize,
        /// How they differ.
        difference: String,
    },
    /// A sample can't be worked on.
    #[error("the sample of `{task}` fails: {reason}")]
    Sample {
        /// The task.
        task: String,
        /// Why.
        reason: String,
    },
    /// The communication function does not begin.
    #[error("the communication function `{name}` does not begin: {reason}")]
    Comm {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Two things of one name, or too many.
    #[error("{0}")]
    Registered(String),
}
