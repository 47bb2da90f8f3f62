//! Errors of a group.

use std::fmt;
use std::io;
use std::time::Duration;

use super::task::GroupTask;
use crate::memory::MapError;

/// Reason for the loss of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RankLossReason {
    /// Its process has ended.
    Died = 1,
    /// It has dropped its group.
    Left = 2,
    /// It is alive, but did not finish a step before the timeout.
    Late = 3,
    /// It has panicked during a task.
    Panicked = 4,
}

impl RankLossReason {
    /// Decodes a word.
    pub(super) fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Died,
            2 => Self::Left,
            3 => Self::Late,
            _ => Self::Panicked,
        }
    }
}

impl fmt::Display for RankLossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => "has died",
            Self::Left => "has left",
            Self::Late => "did not finish a step in time",
            Self::Panicked => "has panicked",
        })
    }
}

/// Reason of rank 0 for refusing a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum JoinRefusal {
    /// Its group has another number of ranks.
    RankCount = 1,
    /// Another process has the same rank.
    DuplicateRank = 2,
    /// It belongs to another user.
    OtherUser = 3,
    /// Its first message is invalid.
    InvalidMessage = 4,
    /// Other ranks have not joined in time.
    IncompleteGroup = 5,
}

impl JoinRefusal {
    /// Decodes a word.
    pub(super) fn from_word(word: u32) -> Self {
        match word {
            1 => Self::RankCount,
            2 => Self::DuplicateRank,
            3 => Self::OtherUser,
            5 => Self::IncompleteGroup,
            _ => Self::InvalidMessage,
        }
    }
}

impl fmt::Display for JoinRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RankCount => "its group has another number of ranks",
            Self::DuplicateRank => "another process has that rank",
            Self::OtherUser => "it belongs to another user",
            Self::InvalidMessage => "its first message is invalid: it may be of another version",
            Self::IncompleteGroup => "other ranks did not join in time",
        })
    }
}

/// Error of a group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The rank or the number of ranks is invalid.
    #[error("rank {rank} of {ranks}: expected a rank below the number of ranks, which is 1 to {most}")]
    Rank {
        /// Requested rank.
        rank: usize,
        /// Requested number of ranks.
        ranks: usize,
        /// Largest number of ranks.
        most: usize,
    },
    /// The name has an invalid length.
    #[error("a group's name of {got} bytes, expected 1 to {most}")]
    Name {
        /// Length of the name.
        got: usize,
        /// Largest length.
        most: usize,
    },
    /// Another process is rank 0 of a group of this name.
    #[error("group {name}: another process is its rank 0; end it, or take another name")]
    Taken {
        /// Name of the group.
        name: String,
    },
    /// Rank 0 refused this process.
    #[error("group {name}: rank 0 refuses rank {rank}: {reason}")]
    Refused {
        /// Name of the group.
        name: String,
        /// Rank of this process.
        rank: usize,
        /// Reason.
        reason: JoinRefusal,
    },
    /// The listener under the group's name is a process of another user.
    #[error("group {name}: rank 0 belongs to another user")]
    User {
        /// Name of the group.
        name: String,
    },
    /// Some ranks did not join in time.
    #[error("group {name}: no rank {missing:?} within {waited:?}{}", refusal_suffix(*refused))]
    Missing {
        /// Name of the group.
        name: String,
        /// Missing ranks.
        missing: Vec<usize>,
        /// Time waited.
        waited: Duration,
        /// Last refused rank, if any, and the reason.
        refused: Option<(usize, JoinRefusal)>,
    },
    /// A rank is lost, and the group has failed: all further calls return this error.
    #[error("rank {rank} {how}: the group has failed")]
    Lost {
        /// Lost rank.
        rank: usize,
        /// Reason.
        how: RankLossReason,
    },
    /// The ranks requested different tasks. Nothing was done; the group can go on.
    #[error("rank {rank} asks for {other_task}, rank {own_rank} for {own_task}: all ranks of a group ask for the same")]
    Differs {
        /// Another rank.
        rank: usize,
        /// Task of the other rank.
        other_task: GroupTask,
        /// This rank.
        own_rank: usize,
        /// Task of this rank.
        own_task: GroupTask,
    },
    /// The buffer belongs to another group.
    #[error("a buffer of another group")]
    Foreign,
    /// A rank could not create or map memory for a buffer. The buffer does not exist; the group can go on.
    #[error("rank {rank} can't have {bytes} bytes of shared memory: {source}")]
    Memory {
        /// Rank without the memory.
        rank: usize,
        /// Size for all ranks, bytes.
        bytes: usize,
        /// Error; for another rank only that it failed.
        source: MapError,
    },
    /// Error of the system.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn refusal_suffix(refused: Option<(usize, JoinRefusal)>) -> String {
    refused.map_or_else(String::new, |(rank, reason)| {
        format!("; a process that joined as rank {rank} was refused: {reason}")
    })
}
