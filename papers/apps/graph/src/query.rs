//! The short queries, and the order of their answers.

use std::cmp::Reverse;

use clap::ValueEnum;

use crate::pb::row::Row;
use crate::pb::step::At;

/// Messages that IS2 gives.
pub const RECENT: usize = 10;

/// An interactive short query of LDBC SNB (specification 0.3.2, §4.2); about a person in IS1 to IS3, about a
/// message in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Query {
    /// The profile of a person
    Is1,
    /// The ten last messages of a person, each with the post that its thread began with and who wrote that
    Is2,
    /// The friends of a person, and since when
    Is3,
    /// The content of a message
    Is4,
    /// Who wrote a message
    Is5,
    /// The forum of a message and its moderator
    Is6,
    /// The replies to a message, and whether who wrote them knows who wrote the message
    Is7,
}

impl Query {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Is1, Self::Is2, Self::Is3, Self::Is4, Self::Is5, Self::Is6, Self::Is7];

    /// Whether it is about a person; about a message, if not.
    #[must_use]
    pub fn is_of_person(self) -> bool {
        matches!(self, Self::Is1 | Self::Is2 | Self::Is3)
    }

    /// Its first step.
    #[must_use]
    pub fn begin(self, id: u64) -> At {
        match self {
            Self::Is1 => At::Profile(id),
            Self::Is2 => At::Recent(id),
            Self::Is3 => At::Friends(id),
            Self::Is4 => At::Content(id),
            Self::Is5 => At::Creator(id),
            Self::Is6 => At::ForumOf(id),
            Self::Is7 => At::Replies(id),
        }
    }
}

/// Puts rows, which come in any order, in the one that their query asks for. What it leaves open, numbers
/// decide.
pub fn sort(rows: &mut [Row]) {
    rows.sort_by_key(|row| match row {
        Row::Recent(it) => (Reverse(it.created), Reverse(it.message), 0),
        Row::Friend(it) => (Reverse(it.since), Reverse(0), it.person.as_ref().map_or(0, |person| person.person)),
        // The author's number ascends, then the comment's descends.
        Row::Reply(it) => {
            let author = it.author.as_ref().map_or(0, |author| author.person);
            (Reverse(it.created), Reverse(u64::MAX - author), u64::MAX - it.comment)
        }
        // One row.
        Row::Profile(_) | Row::Content(_) | Row::Creator(_) | Row::Forum(_) => (Reverse(0), Reverse(0), 0),
    });
}
