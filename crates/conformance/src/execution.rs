//! What an execution of the switch program has to offer to be compared with another one.
//!
//! ```text
//! tables ─► install, install_pool, remove, reset, set_endpoint, remove_endpoint, set_group
//! frame, congested ─► process ─► Outcome: forwarded │ copies │ dropped
//!                     state ─► State: registers and counters
//! ```

use pathcall_program::{Application, Endpoint, Pool, Reason, TableError};
use pathcall_wire::{Instant, TokenKey};

use crate::State;

/// An execution of the switch program: the reference, or one that is held to it.
///
/// Memory that no installed application and no endpoint has is of no concern: what is in it is never
/// compared, and is zero again for its next holder.
pub trait Execution {
    /// Installs an application, as [`pathcall_program::Tables::install`] does.
    ///
    /// # Errors
    /// [`Failure::Refused`] when its memory does not fit or is another's.
    fn install(&mut self, application: Application) -> Result<(), Failure>;

    /// Takes an application or a pool out, with its endpoints; with the last pool goes what calls have left in
    /// registers, but for the last number.
    ///
    /// # Errors
    /// [`Failure::Refused`] when there is none.
    fn remove(&mut self, gaid: u32) -> Result<(), Failure>;

    /// Zeroes an application's registers but for its generation.
    ///
    /// # Errors
    /// [`Failure::Refused`] when there is none.
    fn reset(&mut self, gaid: u32) -> Result<(), Failure>;

    /// Says what signs an application's frames. Who never has frames with tokens may leave it as it is.
    ///
    /// # Errors
    /// [`Failure::Refused`] when there is none; [`Failure::Broken`] where tokens are not looked at.
    fn authenticate(&mut self, gaid: u32, key: Option<TokenKey>) -> Result<(), Failure> {
        match key {
            None => Ok(()),
            Some(_) => Err(Failure::Broken(format!("application {gaid}: frames with tokens are not worked on").into())),
        }
    }

    /// Admits an endpoint; its slots start anew when it, or anything of its entry, is new.
    ///
    /// # Errors
    /// [`Failure::Refused`] when its slots do not fit or are another's.
    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), Failure>;

    /// Takes an endpoint out, and out of its group; unknown ones are fine.
    ///
    /// # Errors
    /// None of its own.
    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Failure>;

    /// Says who hears a multicast of the application.
    ///
    /// # Errors
    /// [`Failure::Refused`] when it or an endpoint is not one of its own.
    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Failure>;

    /// Installs a pool of servers, or changes who is in it, as [`pathcall_program::Tables::install_pool`] does.
    ///
    /// # Errors
    /// [`Failure::Refused`] when it can't be, or its id is an application's.
    fn install_pool(&mut self, pool: &Pool) -> Result<(), Failure>;

    /// Says after which number requests of calls are numbered on; 0 at first.
    ///
    /// # Errors
    /// None of its own.
    fn number_after(&mut self, last: u64) -> Result<(), Failure>;

    /// Takes a frame, from its base header on, through the program. `congested`: where the frame travels
    /// in an IP packet, that packet says that congestion was met (CE).
    ///
    /// # Errors
    /// When the execution itself fails; whatever the frame holds is no reason to.
    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<Outcome, Failure>;

    /// All registers that anybody has, and the counters.
    ///
    /// # Errors
    /// When they can't be read.
    fn state(&mut self) -> Result<State, Failure>;
}

/// What became of a frame. Frames are from their base header on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It left, for this endpoint.
    Forward(u32, Vec<u8>),
    /// It left for each of a group's members, addressed to it, in any order; or as original and clone.
    Copies(Vec<(u32, Vec<u8>)>),
    /// It went no further; `None` where an execution can't say why by the frame, only by its counters.
    Drop(Option<Reason>),
}

impl Outcome {
    /// Whether an execution did with a frame what the reference did.
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

/// Why an execution did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It must not: a change of the tables that contradicts them. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] TableError),
    /// It could not: the kernel, a switch or the way there.
    #[error("the execution failed: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}
