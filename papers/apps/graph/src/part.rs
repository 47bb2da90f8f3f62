//! A server's part of the network, and what a step does there.
//!
//! A step carries the rows that it can not complete to the servers that can; the last one gives them to the
//! caller (DPC §3.3: calls in tail position). Steps that go to one server go together.

use std::collections::BTreeMap;

use crate::pb::row::Row;
use crate::pb::step::At;
use crate::pb::{Comments, Content, Forum, Friend, Friends, Named, Profile, Recent, Repliers, Reply, Thread};
use crate::query::RECENT;
use crate::world::{Message, Person, Place, World};

/// A server's part.
#[derive(Debug)]
pub struct Part {
    world: World,
    servers: u64,
}

/// What a step leads to.
#[derive(Debug, Default, PartialEq)]
pub struct Led {
    /// Rows for the caller, in any order.
    pub rows: Vec<Row>,
    /// Steps at other servers, or at this one.
    pub next: Vec<At>,
}

/// Why a step can not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It is about something that is not here.
    #[error("there is no {what} {id} here")]
    Missing {
        /// What was looked for.
        what: &'static str,
        /// Its number.
        id: u64,
    },
    /// It is about nothing.
    #[error("a step of {0} that names none")]
    Empty(&'static str),
}

/// The number that decides which server takes a step.
///
/// # Errors
/// [`StepError::Empty`].
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
    id.ok_or(StepError::Empty("a query"))
}

impl Part {
    /// Part `server` of so many.
    #[must_use]
    pub fn new(world: &World, server: u64, servers: u64) -> Self {
        Self { world: world.part(server, servers), servers }
    }

    /// How many servers share the network.
    #[must_use]
    pub fn servers(&self) -> u64 {
        self.servers
    }

    /// Takes a step.
    ///
    /// # Errors
    /// [`StepError`].
    pub fn step(&self, at: At) -> Result<Led, StepError> {
        match at {
            At::Profile(id) => Ok(row(Row::Profile(profile(self.person(id)?)))),
            At::Recent(id) => {
                let last = self.person(id)?.wrote.iter().rev().take(RECENT);
                let begin = |id| Thread { at: id, row: Some(Recent { message: id, ..Recent::default() }) };
                Ok(Led { next: last.map(|(_, id)| At::Thread(begin(*id))).collect(), ..Led::default() })
            }
            At::Thread(Thread { at, row }) => self.thread(at, row.ok_or(StepError::Empty("IS2"))?),
            At::Author(mut it) => {
                self.name(it.author.as_mut())?;
                Ok(row(Row::Recent(it)))
            }
            At::Friends(id) => {
                let friends = self.person(id)?.friends.iter();
                let friends = friends.map(|(id, since)| Friend { person: Some(unnamed(*id)), since: *since });
                let friends = self.by_server(friends.map(|friend| (who(friend.person.as_ref()), friend)));
                Ok(next(friends.map(|friends| At::Befriended(Friends { friends }))))
            }
            At::Befriended(Friends { mut friends }) => {
                friends.iter_mut().try_for_each(|friend| self.name(friend.person.as_mut()))?;
                Ok(Led { rows: friends.into_iter().map(Row::Friend).collect(), ..Led::default() })
            }
            At::Content(id) => {
                let Message { created, content, .. } = self.message(id)?;
                Ok(row(Row::Content(Content { created: *created, content: content.clone() })))
            }
            At::Creator(id) => Ok(next([At::Named(self.message(id)?.author)])),
            At::Named(id) => Ok(row(Row::Creator(named(id, self.person(id)?)))),
            At::ForumOf(id) => Ok(next([match self.message(id)?.place {
                Place::ReplyTo(on) => At::ForumOf(on),
                Place::Forum(forum) => At::Forum(forum),
            }])),
            At::Forum(id) => {
                let forum = self.world.forums.get(&id).ok_or(StepError::Missing { what: "forum", id })?;
                let moderator = Some(unnamed(forum.moderator));
                Ok(next([At::Moderator(Forum { forum: id, title: forum.title.clone(), moderator })]))
            }
            At::Moderator(mut forum) => {
                self.name(forum.moderator.as_mut())?;
                Ok(row(Row::Forum(forum)))
            }
            At::Replies(id) => {
                let Message { author, replies, .. } = self.message(id)?;
                let comments = self.by_server(replies.iter().map(|id| (*id, *id)));
                Ok(next(comments.map(|comments| At::Comments(Comments { comments, author: *author }))))
            }
            At::Comments(Comments { comments, author }) => {
                let replies = comments.into_iter().map(|id| Ok(reply(id, self.message(id)?)));
                let replies = replies.collect::<Result<Vec<_>, StepError>>()?;
                let replies = self.by_server(replies.into_iter().map(|reply| (who(reply.author.as_ref()), reply)));
                Ok(next(replies.map(|replies| At::Repliers(Repliers { replies, author }))))
            }
            At::Repliers(Repliers { mut replies, author }) => {
                for reply in &mut replies {
                    self.name(reply.author.as_mut())?;
                    reply.knows = self.person(who(reply.author.as_ref()))?.friends.contains_key(&author);
                }
                Ok(Led { rows: replies.into_iter().map(Row::Reply).collect(), ..Led::default() })
            }
        }
    }

    /// IS2, at a message of a thread: the one asked for, or one above it.
    fn thread(&self, at: u64, mut row: Recent) -> Result<Led, StepError> {
        let message = self.message(at)?;
        if at == row.message {
            row.created = message.created;
            row.content.clone_from(&message.content);
        }
        Ok(next([match message.place {
            Place::ReplyTo(on) => At::Thread(Thread { at: on, row: Some(row) }),
            Place::Forum(_) => At::Author(Recent { post: at, author: Some(unnamed(message.author)), ..row }),
        }]))
    }

    /// Things, together where one server has what they are about.
    fn by_server<T>(&self, things: impl Iterator<Item = (u64, T)>) -> impl Iterator<Item = Vec<T>> {
        let mut groups = BTreeMap::<u64, Vec<T>>::new();
        things.for_each(|(id, thing)| groups.entry(id % self.servers).or_default().push(thing));
        groups.into_values()
    }

    /// Gives a person the name.
    fn name(&self, person: Option<&mut Named>) -> Result<(), StepError> {
        let person = person.ok_or(StepError::Empty("a person"))?;
        *person = named(person.person, self.person(person.person)?);
        Ok(())
    }

    fn person(&self, id: u64) -> Result<&Person, StepError> {
        self.world.persons.get(&id).ok_or(StepError::Missing { what: "person", id })
    }

    fn message(&self, id: u64) -> Result<&Message, StepError> {
        self.world.messages.get(&id).ok_or(StepError::Missing { what: "message", id })
    }
}

/// A person's profile.
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

/// A person with the name.
pub(crate) fn named(id: u64, person: &Person) -> Named {
    Named { person: id, first_name: person.first_name.to_owned(), last_name: person.last_name.to_owned() }
}

fn unnamed(id: u64) -> Named {
    Named { person: id, ..Named::default() }
}

fn who(person: Option<&Named>) -> u64 {
    person.map_or(0, |person| person.person)
}

fn reply(id: u64, message: &Message) -> Reply {
    let author = Some(unnamed(message.author));
    Reply { comment: id, content: message.content.clone(), created: message.created, author, knows: false }
}

fn row(row: Row) -> Led {
    Led { rows: vec![row], ..Led::default() }
}

fn next(next: impl IntoIterator<Item = At>) -> Led {
    Led { next: next.into_iter().collect(), ..Led::default() }
}
