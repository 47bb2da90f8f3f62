//! Interface of an execution of the switch program, for comparisons.
//!
//! ```text
//! tables ─► install, install_pool, remove, reset, set_endpoint, remove_endpoint, set_group
//! frame, congested ─► process ─► ProgramOutcome: forwarded │ copies │ dropped
//!                     state ─► ExecutionState: registers and counters
//! ```

use pathcall_program::{Endpoint, FrameDropReason, InstalledApplication, InstalledPool, TableChangeError};
use pathcall_wire::{Instant, TokenKey};

use crate::ExecutionState;

/// Execution of the switch program: the reference, or one that is compared with it.
///
/// Memory outside of installed applications and endpoints is never compared, and must be zero for its next owner.
/// compared, and is zero again for its next holder.
pub trait ProgramExecution {
    /// Installs an application, as [`pathcall_program::AdmissionTables::install`].
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if its memory does not fit or is in use.
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure>;

    /// Removes an application or a pool with its endpoints. With the last pool, the registers of calls are cleared,
    /// except for the last number.
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if there is none.
    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure>;

    /// Zeroes an application's registers, except for its generation.
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if there is none.
    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure>;

    /// Sets the key that authenticates an application's frames. The default suits executions without tokens.
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if the application does not exist; [`ExecutionFailure::Broken`] if tokens are not
    /// supported.
    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), ExecutionFailure> {
        match key {
            None => Ok(()),
            Some(_) => Err(ExecutionFailure::Broken(
                format!("application {gaid}: frames with tokens are not worked on").into(),
            )),
        }
    }

    /// Admits an endpoint. Its slots are reset if any field of its entry is new.
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if its slots do not fit or are in use.
    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure>;

    /// Removes an endpoint, also from its group; unknown endpoints are ignored.
    ///
    /// # Errors
    /// Transport failures only.
    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure>;

    /// Sets the members of the application's multicast group.
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if the application or an endpoint of it does not exist.
    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure>;

    /// Installs a pool of servers, or changes its members, as [`pathcall_program::AdmissionTables::install_pool`].
    ///
    /// # Errors
    /// [`ExecutionFailure::Refused`] if the pool is invalid, or its id is an application's.
    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure>;

    /// Sets the last request number of calls; initially 0.
    ///
    /// # Errors
    /// Transport failures only.
    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure>;

    /// Processes a frame, from its base header on. `congested` says that the frame's IP packet has the ECN codepoint
    /// CE.
    ///
    /// # Errors
    /// If the execution itself fails; never because of the frame's content.
    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure>;

    /// Registers of all applications and endpoints, and the counters.
    ///
    /// # Errors
    /// If they cannot be read.
    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure>;
}

/// Outcome of a frame. Frames begin with their base header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramOutcome {
    /// Forwarded to this endpoint.
    Forward(u32, Vec<u8>),
    /// Sent to each member of a group, or as original and clone, in any order.
    Copies(Vec<(u32, Vec<u8>)>),
    /// Dropped; `None` if the execution reports no reason per frame, only counters.
    Drop(Option<FrameDropReason>),
}

impl ProgramOutcome {
    /// True if the execution's outcome matches the reference's.
    #[must_use]
    pub fn agrees(&self, reference: &Self) -> bool {
        match (self, reference) {
            (Self::Drop(None), Self::Drop(_)) => true,
            (Self::Copies(ours), Self::Copies(theirs)) => {
                let (mut ours, mut theirs) = (ours.iter().collect::<Vec<_>>(), theirs.iter().collect::<Vec<_>>());
                ours.sort_unstable();
                theirs.sort_unstable();
                ours == theirs
            }
            _ => self == reference,
        }
    }
}

/// Failure of an operation.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionFailure {
    /// Change refused because it contradicts the tables; nothing was changed.
    #[error(transparent)]
    Refused(#[from] TableChangeError),
    /// Failure of the kernel, the switch or the connection to it.
    #[error("the execution failed: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}
