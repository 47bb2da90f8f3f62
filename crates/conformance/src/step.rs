//! Step of a conformance test: a change of the tables, or a frame.

use std::fmt;

use pathcall_program::{Endpoint, InstalledApplication, InstalledPool, TableChangeError};
use pathcall_wire::{Instant, TokenKey};

use crate::decode::Decoded;
use crate::{ExecutionFailure, ProgramExecution, ProgramOutcome};

/// Change of the tables, or a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramStep {
    /// [`ProgramExecution::install`].
    Install(InstalledApplication),
    /// [`ProgramExecution::authenticate`].
    Authenticate(u32, Option<TokenKey>),
    /// [`ProgramExecution::remove`].
    Remove(u32),
    /// [`ProgramExecution::reset`].
    Reset(u32),
    /// [`ProgramExecution::set_endpoint`].
    SetEndpoint(Endpoint),
    /// [`ProgramExecution::remove_endpoint`].
    RemoveEndpoint(u32),
    /// [`ProgramExecution::set_group`].
    SetGroup(u32, Vec<u32>),
    /// [`ProgramExecution::install_pool`].
    InstallPool(InstalledPool),
    /// [`ProgramExecution::set_last_number`].
    NumberAfter(u64),
    /// [`ProgramExecution::process`].
    Frame {
        /// Frame from the base header on.
        bytes: Vec<u8>,
        /// True for the ECN codepoint CE.
        congested: bool,
    },
}

/// Effect of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepEffect {
    /// Tables changed.
    Changed,
    /// Change refused, with its reason if known.
    Refused(Option<TableChangeError>),
    /// Outcome of a frame.
    Frame(ProgramOutcome),
}

impl StepEffect {
    /// True if the effect matches the reference's. The reason of a refusal is not compared.
    #[must_use]
    pub fn agrees(&self, reference: &Self) -> bool {
        match (self, reference) {
            (Self::Frame(ours), Self::Frame(theirs)) => ours.agrees(theirs),
            (Self::Refused(_), Self::Refused(_)) => true,
            _ => self == reference,
        }
    }
}

impl ProgramStep {
    /// Applies the step.
    ///
    /// # Errors
    /// [`ExecutionFailure::Broken`] only: a refusal is an [`StepEffect`].
    pub fn apply(&self, now: Instant, execution: &mut impl ProgramExecution) -> Result<StepEffect, ExecutionFailure> {
        let changed = match self {
            Self::Install(application) => execution.install(*application),
            Self::Authenticate(gaid, key) => execution.authenticate(*gaid, *key),
            Self::Remove(gaid) => execution.remove(*gaid),
            Self::Reset(gaid) => execution.reset(*gaid),
            Self::SetEndpoint(endpoint) => execution.set_endpoint(*endpoint),
            Self::RemoveEndpoint(endpoint) => execution.remove_endpoint(*endpoint),
            Self::SetGroup(gaid, endpoints) => execution.set_group(*gaid, endpoints),
            Self::InstallPool(pool) => execution.install_pool(pool),
            Self::NumberAfter(last) => execution.set_last_number(*last),
            Self::Frame { bytes, congested } => {
                return execution.process(now, bytes, *congested).map(StepEffect::Frame);
            }
        };
        match changed {
            Ok(()) => Ok(StepEffect::Changed),
            Err(ExecutionFailure::Refused(error)) => Ok(StepEffect::Refused(Some(error))),
            Err(broken) => Err(broken),
        }
    }
}

impl fmt::Display for ProgramStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { bytes, congested } => {
                write!(f, "{}{}", Decoded(bytes), if *congested { " (congestion met)" } else { "" })
            }
            change => write!(f, "{change:?}"),
        }
    }
}

impl fmt::Display for StepEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("changed"),
            Self::Refused(None) => f.write_str("refused"),
            Self::Refused(Some(error)) => write!(f, "refused: {error}"),
            Self::Frame(ProgramOutcome::Drop(None)) => f.write_str("dropped"),
            Self::Frame(ProgramOutcome::Drop(Some(reason))) => write!(f, "dropped: {reason:?}"),
            Self::Frame(ProgramOutcome::Forward(endpoint, frame)) => write!(f, "to {endpoint}: {}", Decoded(frame)),
            Self::Frame(ProgramOutcome::Copies(copies)) => {
                write!(f, "{} copies", copies.len())?;
                let mut copies: Vec<_> = copies.iter().collect();
                copies.sort_unstable();
                copies.iter().try_for_each(|(endpoint, copy)| write!(f, "\n  to {endpoint}: {}", Decoded(copy)))
            }
        }
    }
}
