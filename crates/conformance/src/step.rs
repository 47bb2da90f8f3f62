//! One thing that happens to an execution: a change of its tables, or a frame.

use std::fmt;

use pathcall_program::{Application, Endpoint, Pool, TableError};
use pathcall_wire::{Instant, TokenKey};

use crate::decode::Decoded;
use crate::{Execution, Failure, Outcome};

/// A change of the tables, or a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// [`Execution::install`].
    Install(Application),
    /// [`Execution::authenticate`].
    Authenticate(u32, Option<TokenKey>),
    /// [`Execution::remove`].
    Remove(u32),
    /// [`Execution::reset`].
    Reset(u32),
    /// [`Execution::set_endpoint`].
    SetEndpoint(Endpoint),
    /// [`Execution::remove_endpoint`].
    RemoveEndpoint(u32),
    /// [`Execution::set_group`].
    SetGroup(u32, Vec<u32>),
    /// [`Execution::install_pool`].
    InstallPool(Pool),
    /// [`Execution::number_after`].
    NumberAfter(u64),
    /// [`Execution::process`].
    Frame {
        /// From the base header on.
        bytes: Vec<u8>,
        /// Whether it comes with the mark of congestion.
        congested: bool,
    },
}

/// What a step has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The tables are changed.
    Changed,
    /// They are not, as the change contradicts them; how, if that is told.
    Refused(Option<TableError>),
    /// What became of the frame.
    Frame(Outcome),
}

impl Effect {
    /// Whether an execution did what the reference did. Why a change is refused is its own business.
    #[must_use]
    pub fn agrees(&self, reference: &Self) -> bool {
        match (self, reference) {
            (Self::Frame(ours), Self::Frame(theirs)) => ours.agrees(theirs),
            (Self::Refused(_), Self::Refused(_)) => true,
            _ => self == reference,
        }
    }
}

impl Step {
    /// Has it happen.
    ///
    /// # Errors
    /// [`Failure::Broken`] alone: what is refused is an [`Effect`].
    pub fn apply(&self, now: Instant, execution: &mut impl Execution) -> Result<Effect, Failure> {
        let changed = match self {
            Self::Install(application) => execution.install(*application),
            Self::Authenticate(gaid, key) => execution.authenticate(*gaid, *key),
            Self::Remove(gaid) => execution.remove(*gaid),
            Self::Reset(gaid) => execution.reset(*gaid),
            Self::SetEndpoint(endpoint) => execution.set_endpoint(*endpoint),
            Self::RemoveEndpoint(endpoint) => execution.remove_endpoint(*endpoint),
            Self::SetGroup(gaid, endpoints) => execution.set_group(*gaid, endpoints),
            Self::InstallPool(pool) => execution.install_pool(pool),
            Self::NumberAfter(last) => execution.number_after(*last),
            Self::Frame { bytes, congested } => return execution.process(now, bytes, *congested).map(Effect::Frame),
        };
        match changed {
            Ok(()) => Ok(Effect::Changed),
            Err(Failure::Refused(error)) => Ok(Effect::Refused(Some(error))),
            Err(broken) => Err(broken),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { bytes, congested } => {
                write!(f, "{}{}", Decoded(bytes), if *congested { " (congestion met)" } else { "" })
            }
            change => write!(f, "{change:?}"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("changed"),
            Self::Refused(None) => f.write_str("refused"),
            Self::Refused(Some(error)) => write!(f, "refused: {error}"),
            Self::Frame(Outcome::Drop(None)) => f.write_str("dropped"),
            Self::Frame(Outcome::Drop(Some(reason))) => write!(f, "dropped: {reason:?}"),
            Self::Frame(Outcome::Forward(endpoint, frame)) => write!(f, "to {endpoint}: {}", Decoded(frame)),
            Self::Frame(Outcome::Copies(copies)) => {
                write!(f, "{} copies", copies.len())?;
                let mut copies: Vec<_> = copies.iter().collect();
                copies.sort_unstable();
                copies.iter().try_for_each(|(endpoint, copy)| write!(f, "\n  to {endpoint}: {}", Decoded(copy)))
            }
        }
    }
}
