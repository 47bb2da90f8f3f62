//! Part of the network at one server, and execution of a query's steps there.
//!
//! A step forwards the rows that it cannot complete to the servers that can. The last server replies to the caller (DPC
//! §3.3: calls in tail position). Steps for the same server are combined.

use std::collections::BTreeMap;

use crate::network::{Message, MessageParent, Person, SocialNetwork};
use crate::pb::row::Row;
use crate::pb::step::At;
use crate::pb::{Comments, Content, Forum, Friend, Friends, Named, Profile, Recent, Repliers, Reply, Thread};
use crate::query::RECENT;

/// Part of a server.
#[derive(Debug)]
pub struct NetworkPart {
    network: SocialNetwork,
    servers: u64,
}

/// Result of a step.
#[derive(Debug, Default, PartialEq)]
pub struct StepResult {
    /// Rows for the caller, in any order.
    pub rows: Vec<Row>,
    /// Next steps, at other servers or at this one.
    pub next: Vec<At>,
}

/// Error of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The item does not exist at this server.
    #[error("there is no {what} {id} here")]
    Missing {
        /// Kind of the item.
        what: &'static str,
        /// Id of the item.
        id: u64,
    },
    /// The step names no item.
    #[error("step of {0} names no item")]
    Empty(&'static str),
}

/// Id of the item that decides which server executes a step.
///
/// # Errors
/// Returns [`StepError::Empty`] if the step names no item.
pub fn about(at: &At) -> Result<u64, StepError> {
    let id = match at {
        At::Profile(id) | At::Recent(id) | At::Friends(id) | At::Content(id) | At::Creator(id) => Some(*id),
        At::Named(id) | At::ForumOf(id) | At::Forum(id) | At::Replies(id) => Some(*id),
        At::Thread(thread) => Some(thread.at),
        At::Author(row) => row.author.as_ref().map(|author| author.person),
        At::Befriended(Friends { friends }) => {
            friends.first().and_then(|friend| friend.person.as_ref()).map(|person| person.person)
        }
        At::Moderator(forum) => forum.moderator.as_ref().map(|moderator| moderator.person),
        At::Comments(comments) => comments.comments.first().copied(),
        At::Repliers(Repliers { replies, .. }) => {
            replies.first().and_then(|reply| reply.author.as_ref()).map(|author| author.person)
        }
    };
    id.ok_or(StepError::Empty("an unknown query"))
}

impl NetworkPart {
    /// Creates part `server` of `servers`.
    #[must_use]
    pub fn new(network: &SocialNetwork, server: u64, servers: u64) -> Self {
        Self { network: network.part(server, servers), servers }
    }

    /// Number of servers that share the network.
    #[must_use]
    pub fn servers(&self) -> u64 {
        self.servers
    }

    /// Executes a step.
    ///
    /// # Errors
    /// Returns a [`StepError`] if an item is missing.
    pub fn step(&self, at: At) -> Result<StepResult, StepError> {
        match at {
            At::Profile(id) => Ok(row_result(Row::Profile(profile(self.person(id)?)))),
            At::Recent(id) => {
                let last = self.person(id)?.wrote.iter().rev().take(RECENT);
                let begin = |id| Thread { at: id, row: Some(Recent { message: id, ..Recent::default() }) };
                Ok(StepResult { next: last.map(|(_, id)| At::Thread(begin(*id))).collect(), ..StepResult::default() })
            }
            At::Thread(Thread { at, row }) => self.thread(at, row.ok_or(StepError::Empty("IS2"))?),
            At::Author(mut it) => {
                self.fill_name(it.author.as_mut())?;
                Ok(row_result(Row::Recent(it)))
            }
            At::Friends(id) => {
                let friends = self.person(id)?.friends.iter();
                let friends = friends.map(|(id, since)| Friend { person: Some(without_name(*id)), since: *since });
                let friends = self.group_by_server(friends.map(|friend| (person_id(friend.person.as_ref()), friend)));
                Ok(next_steps(friends.map(|friends| At::Befriended(Friends { friends }))))
            }
            At::Befriended(Friends { mut friends }) => {
                friends.iter_mut().try_for_each(|friend| self.fill_name(friend.person.as_mut()))?;
                Ok(StepResult { rows: friends.into_iter().map(Row::Friend).collect(), ..StepResult::default() })
            }
            At::Content(id) => {
                let Message { created, content, .. } = self.message(id)?;
                Ok(row_result(Row::Content(Content { created: *created, content: content.clone() })))
            }
            At::Creator(id) => Ok(next_steps([At::Named(self.message(id)?.author)])),
            At::Named(id) => Ok(row_result(Row::Creator(with_name(id, self.person(id)?)))),
            At::ForumOf(id) => Ok(next_steps([match self.message(id)?.parent {
                MessageParent::ReplyTo(on) => At::ForumOf(on),
                MessageParent::Forum(forum) => At::Forum(forum),
            }])),
            At::Forum(id) => {
                let forum = self.network.forums.get(&id).ok_or(StepError::Missing { what: "forum", id })?;
                let moderator = Some(without_name(forum.moderator));
                Ok(next_steps([At::Moderator(Forum { forum: id, title: forum.title.clone(), moderator })]))
            }
            At::Moderator(mut forum) => {
                self.fill_name(forum.moderator.as_mut())?;
                Ok(row_result(Row::Forum(forum)))
            }
            At::Replies(id) => {
                let Message { author, replies, .. } = self.message(id)?;
                let comments = self.group_by_server(replies.iter().map(|id| (*id, *id)));
                Ok(next_steps(comments.map(|comments| At::Comments(Comments { comments, author: *author }))))
            }
            At::Comments(Comments { comments, author }) => {
                let replies = comments.into_iter().map(|id| Ok(reply(id, self.message(id)?)));
                let replies = replies.collect::<Result<Vec<_>, StepError>>()?;
                let replies =
                    self.group_by_server(replies.into_iter().map(|reply| (person_id(reply.author.as_ref()), reply)));
                Ok(next_steps(replies.map(|replies| At::Repliers(Repliers { replies, author }))))
            }
            At::Repliers(Repliers { mut replies, author }) => {
                for reply in &mut replies {
                    self.fill_name(reply.author.as_mut())?;
                    reply.knows = self.person(person_id(reply.author.as_ref()))?.friends.contains_key(&author);
                }
                Ok(StepResult { rows: replies.into_iter().map(Row::Reply).collect(), ..StepResult::default() })
            }
        }
    }

    /// IS2 at a message of a thread: the requested message, or an ancestor.
    fn thread(&self, at: u64, mut row: Recent) -> Result<StepResult, StepError> {
        let message = self.message(at)?;
        if at == row.message {
            row.created = message.created;
            row.content.clone_from(&message.content);
        }
        Ok(next_steps([match message.parent {
            MessageParent::ReplyTo(on) => At::Thread(Thread { at: on, row: Some(row) }),
            MessageParent::Forum(_) => {
                At::Author(Recent { post: at, author: Some(without_name(message.author)), ..row })
            }
        }]))
    }

    /// Groups items by the server that has them.
    fn group_by_server<T>(&self, items: impl Iterator<Item = (u64, T)>) -> impl Iterator<Item = Vec<T>> {
        let mut groups = BTreeMap::<u64, Vec<T>>::new();
        items.for_each(|(id, thing)| groups.entry(id % self.servers).or_default().push(thing));
        groups.into_values()
    }

    /// Fills in the name of a person.
    fn fill_name(&self, person: Option<&mut Named>) -> Result<(), StepError> {
        let person = person.ok_or(StepError::Empty("a person query"))?;
        *person = with_name(person.person, self.person(person.person)?);
        Ok(())
    }

    fn person(&self, id: u64) -> Result<&Person, StepError> {
        self.network.persons.get(&id).ok_or(StepError::Missing { what: "person", id })
    }

    fn message(&self, id: u64) -> Result<&Message, StepError> {
        self.network.messages.get(&id).ok_or(StepError::Missing { what: "message", id })
    }
}

/// Profile of a person.
pub(crate) fn profile(person: &Person) -> Profile {
    Profile {
        first_name: person.first_name.to_owned(),
        last_name: person.last_name.to_owned(),
        birthday: person.birthday,
        ip: person.ip.clone(),
        browser: person.browser.to_owned(),
        city: person.city,
        gender: person.gender.to_owned(),
        created: person.created,
    }
}

/// Person with the name.
pub(crate) fn with_name(id: u64, person: &Person) -> Named {
    Named { person: id, first_name: person.first_name.to_owned(), last_name: person.last_name.to_owned() }
}

fn without_name(id: u64) -> Named {
    Named { person: id, ..Named::default() }
}

fn person_id(person: Option<&Named>) -> u64 {
    person.map_or(0, |person| person.person)
}

fn reply(id: u64, message: &Message) -> Reply {
    let author = Some(without_name(message.author));
    Reply { comment: id, content: message.content.clone(), created: message.created, author, knows: false }
}

fn row_result(row: Row) -> StepResult {
    StepResult { rows: vec![row], ..StepResult::default() }
}

fn next_steps(next: impl IntoIterator<Item = At>) -> StepResult {
    StepResult { next: next.into_iter().collect(), ..StepResult::default() }
}
