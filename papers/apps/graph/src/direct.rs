//! Reference answers of the queries, computed from the whole network in one place, and from its facts alone: authors,
//! posts, forums and friendships, without the lists that servers derive from them.

use std::cmp::Reverse;

use crate::network::{MessageParent, SocialNetwork};
use crate::part::{profile, with_name};
use crate::pb::row::Row;
use crate::pb::{Content, Forum, Friend, Named, Recent, Reply};
use crate::query::{Query, RECENT};

/// Answer in order; `None` if the person or message does not exist.
#[must_use]
pub fn answer(network: &SocialNetwork, query: Query, id: u64) -> Option<Vec<Row>> {
    let (persons, messages) = (&network.persons, &network.messages);
    let name = |id: u64| -> Option<Named> { Some(with_name(id, &persons[&id])) };
    let rows = match query {
        Query::Is1 => vec![Row::Profile(profile(persons.get(&id)?))],
        Query::Is2 => {
            persons.get(&id)?;
            let mut written: Vec<_> = messages.iter().filter(|(_, message)| message.author == id).collect();
            written.sort_by_key(|(id, message)| Reverse((message.created, **id)));
            let row = |(id, message): (&u64, &crate::network::Message)| {
                let (post, _) = thread(network, *id);
                let (content, created) = (message.content.clone(), message.created);
                Row::Recent(Recent { message: *id, content, created, post, author: name(messages[&post].author) })
            };
            written.into_iter().take(RECENT).map(row).collect()
        }
        Query::Is3 => {
            let mut friends: Vec<_> = persons.get(&id)?.friends.iter().collect();
            friends.sort_by_key(|(id, since)| (Reverse(**since), **id));
            friends.into_iter().map(|(id, since)| Row::Friend(Friend { person: name(*id), since: *since })).collect()
        }
        Query::Is4 => {
            let message = messages.get(&id)?;
            vec![Row::Content(Content { created: message.created, content: message.content.clone() })]
        }
        Query::Is5 => name(messages.get(&id)?.author).map(Row::Creator).into_iter().collect(),
        Query::Is6 => {
            messages.get(&id)?;
            let (_, id) = thread(network, id);
            let forum = &network.forums[&id];
            vec![Row::Forum(Forum { forum: id, title: forum.title.clone(), moderator: name(forum.moderator) })]
        }
        Query::Is7 => {
            let author = messages.get(&id)?.author;
            let mut replies: Vec<_> =
                messages.iter().filter(|(_, it)| it.parent == MessageParent::ReplyTo(id)).collect();
            replies.sort_by_key(|(id, it)| (Reverse(it.created), it.author, Reverse(**id)));
            let row = |(id, it): (&u64, &crate::network::Message)| {
                let knows = persons[&it.author].friends.contains_key(&author);
                let (content, created) = (it.content.clone(), it.created);
                Row::Reply(Reply { comment: *id, content, created, author: name(it.author), knows })
            };
            replies.into_iter().map(row).collect()
        }
    };
    Some(rows)
}

/// First post of a message's thread, and its forum.
fn thread(network: &SocialNetwork, mut id: u64) -> (u64, u64) {
    loop {
        match network.messages[&id].parent {
            MessageParent::ReplyTo(on) => id = on,
            MessageParent::Forum(forum) => return (id, forum),
        }
    }
}
