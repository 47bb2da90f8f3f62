//! What can go wrong in a group, said in a line.

use std::fmt;
use std::io;
use std::time::Duration;

use super::task::Task;
use crate::memory::MapError;

/// How a group lost a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum How {
    /// Its process has ended without a word.
    Died = 1,
    /// It has dropped its group.
    Left = 2,
    /// It is alive, but others have waited for it as long as they do.
    Late = 3,
    /// It has panicked in the middle of a task.
    Panicked = 4,
}

impl How {
    /// What a word stands for.
    pub(super) fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Died,
            2 => Self::Left,
            3 => Self::Late,
            _ => Self::Panicked,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => "has died",
            Self::Left => "has left",
            Self::Late => "did not come in time",
            Self::Panicked => "has panicked",
        })
    }
}

/// Why rank 0 does not take another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// The group is of another size.
    Ranks = 1,
    /// Another process is that rank.
    Twice = 2,
    /// It belongs to another user.
    User = 3,
    /// It says nothing that a rank of this version says.
    Stranger = 4,
    /// Others have not come in time.
    Missing = 5,
}

impl Refusal {
    /// What a word stands for.
    pub(super) fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Ranks,
            2 => Self::Twice,
            3 => Self::User,
            5 => Self::Missing,
            _ => Self::Stranger,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ranks => "its group has another number of ranks",
            Self::Twice => "another process is that rank",
            Self::User => "it belongs to another user",
            Self::Stranger => "it is no rank of this version",
            Self::Missing => "others did not come in time",
        })
    }
}

/// Why a group does not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no such rank.
    #[error("rank {rank} of {ranks}: expected a rank below the number of ranks, which is 1 to {most}")]
    Rank {
        /// Asked for.
        rank: usize,
        /// Of how many.
        ranks: usize,
        /// At most.
        most: usize,
    },
    /// No group can be called that.
    #[error("a group's name of {got} bytes, expected 1 to {most}")]
    Name {
        /// Its length.
        got: usize,
        /// At most.
        most: usize,
    },
    /// Another process is rank 0 of a group of that name.
    #[error("group {name}: another process is its rank 0; end it, or take another name")]
    Taken {
        /// The group's name.
        name: String,
    },
    /// Rank 0 does not take this one.
    #[error("group {name}: rank 0 refuses rank {rank}: {why}")]
    Refused {
        /// The group's name.
        name: String,
        /// This rank.
        rank: usize,
        /// Why.
        why: Refusal,
    },
    /// Whoever listens under the group's name is another user's process.
    #[error("group {name}: rank 0 belongs to another user")]
    User {
        /// The group's name.
        name: String,
    },
    /// Not all ranks have come to meet.
    #[error("group {name}: no rank {missing:?} within {waited:?}{}", said(*refused))]
    Missing {
        /// The group's name.
        name: String,
        /// Those that have not come.
        missing: Vec<usize>,
        /// How long they were waited for.
        waited: Duration,
        /// The last that was refused, if one was.
        refused: Option<(usize, Refusal)>,
    },
    /// A rank is lost, and the group with it: all further calls say so.
    #[error("rank {rank} {how}: the group has failed")]
    Lost {
        /// Which.
        rank: usize,
        /// How.
        how: How,
    },
    /// Ranks were asked for different things. Nothing was done; the group goes on.
    #[error("rank {rank} asks for {theirs}, rank {own_rank} for {ours}: all ranks of a group ask for the same")]
    Differs {
        /// Another rank.
        rank: usize,
        /// What it asks for.
        theirs: Task,
        /// This rank.
        own_rank: usize,
        /// What this one asks for.
        ours: Task,
    },
    /// The buffer is of another group.
    #[error("a buffer of another group")]
    Foreign,
    /// A rank could not get or map memory for a buffer. There is none then; the group goes on.
    #[error("rank {rank} can't have {bytes} bytes of shared memory: {source}")]
    Memory {
        /// Which rank.
        rank: usize,
        /// How much, of all ranks.
        bytes: usize,
        /// What it was told; of another rank only that it failed.
        source: MapError,
    },
    /// What the system says.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn said(refused: Option<(usize, Refusal)>) -> String {
    refused.map_or_else(String::new, |(rank, why)| format!("; one that came as rank {rank} was refused: {why}"))
}
