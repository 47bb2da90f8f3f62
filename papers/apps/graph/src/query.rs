//! Short queries, and the order of their answers.

use std::cmp::Reverse;

use clap::ValueEnum;

use crate::pb::row::Row;
use crate::pb::step::At;

/// Maximum number of messages in IS2.
pub const RECENT: usize = 10;

/// Interactive short query of LDBC SNB (specification 0.3.2, §4.2). IS1 to IS3 concern a person, the others a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Query {
    /// The profile of a person
    Is1,
    /// The ten latest messages of a person, each with the first post of its thread and the post's author
    Is2,
    /// The friends of a person, with the dates of the friendships
    Is3,
    /// The content of a message
    Is4,
    /// The author of a message
    Is5,
    /// The forum of a message and its moderator
    Is6,
    /// The replies to a message, and whether their authors know the author of the message
    Is7,
}

impl Query {
    /// All queries.
    pub const ALL: [Self; 7] = [Self::Is1, Self::Is2, Self::Is3, Self::Is4, Self::Is5, Self::Is6, Self::Is7];

    /// True if the query concerns a person; otherwise it concerns a message.
    #[must_use]
    pub fn is_of_person(self) -> bool {
        matches!(self, Self::Is1 | Self::Is2 | Self::Is3)
    }

    /// First step of the query.
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

/// Sorts rows, which arrive in any order, as the query demands. Ids break ties.
pub fn sort(rows: &mut [Row]) {
    rows.sort_by_key(|row| match row {
        Row::Recent(it) => (Reverse(it.created), Reverse(it.message), 0),
        Row::Friend(it) => (Reverse(it.since), Reverse(0), it.person.as_ref().map_or(0, |person| person.person)),
        // Author id ascending, then comment id descending.
        Row::Reply(it) => {
            let author = it.author.as_ref().map_or(0, |author| author.person);
            (Reverse(it.created), Reverse(u64::MAX - author), u64::MAX - it.comment)
        }
        // Single row.
        Row::Profile(_) | Row::Content(_) | Row::Creator(_) | Row::Forum(_) => (Reverse(0), Reverse(0), 0),
    });
}
