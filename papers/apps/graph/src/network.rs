//! Generator of a social network from a seed: persons, friendships, forums, posts, comments.
//!
//! Item kinds and their fields are those that the short queries of LDBC SNB read. Sizes are options. As in a real
//! network, few persons have many friends and many messages.

use std::collections::BTreeMap;

use clap::Args;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Maximum depth of comments below a post. A query follows such a chain from server to server, and a call may pass 64
/// nodes (`NodeConfig::depth_max`).
const DEPTH_MAX: u32 = 40;
/// Maximum number of friendships that a person starts.
const FRIENDS_MAX: u64 = 100;
/// 2010-01-01, and the length of a day, in milliseconds.
const BEGIN: i64 = 1_262_304_000_000;
const DAY: i64 = 86_400_000;

const FIRST: [&str; 12] =
    ["Ada", "Alan", "Barbara", "Carlos", "Deepa", "Edsger", "Fei", "Grace", "Hans", "Ines", "Jun", "Olga"];
const LAST: [&str; 10] =
    ["Abe", "Bauer", "Chen", "Dijkstra", "Eriksson", "Fernandez", "Gupta", "Hopper", "Ivanova", "Liskov"];
const BROWSERS: [&str; 4] = ["Chrome", "Firefox", "Opera", "Safari"];
const WORDS: [&str; 12] =
    ["about", "maybe", "right", "great", "photo", "thanks", "good", "yes", "no", "duh", "LOL", "fine"];

/// Size of a network.
#[derive(Debug, Clone, Copy, Args)]
pub struct Size {
    /// Seed of the network
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of persons
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub persons: u64,
    /// Number of forums, each with a moderator
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub forums: u64,
    /// Number of posts, each in a forum
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub posts: u64,
    /// Number of comments, each on a post or on a comment
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pub comments: u64,
}

/// Network, or a server's part of it. Ids of persons, forums and messages start at 0 each; posts have the lower message
/// ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SocialNetwork {
    pub persons: BTreeMap<u64, Person>,
    pub forums: BTreeMap<u64, Forum>,
    pub messages: BTreeMap<u64, Message>,
}

/// Person of the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Person {
    pub first_name: &'static str,
    pub last_name: &'static str,
    pub gender: &'static str,
    pub birthday: i64,
    pub created: i64,
    pub ip: String,
    pub browser: &'static str,
    pub city: u64,
    /// Friends, with the dates of the friendships. Friendship is symmetric.
    pub friends: BTreeMap<u64, i64>,
    /// Messages of the person: date and id, sorted.
    pub wrote: Vec<(i64, u64)>,
}

/// Forum of the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Forum {
    pub title: String,
    pub moderator: u64,
}

/// Post or comment.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub author: u64,
    pub created: i64,
    /// Text, or name of an image.
    pub content: String,
    pub parent: MessageParent,
    /// Comments on the message, sorted.
    pub replies: Vec<u64>,
}

/// Parent of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageParent {
    /// Forum of a post.
    Forum(u64),
    /// Message that a comment replies to.
    ReplyTo(u64),
}

impl SocialNetwork {
    /// Generates the network of a seed.
    #[must_use]
    pub fn new(size: &Size) -> Self {
        let mut network = Self::default();
        let mut random = NetworkRandom(Xoshiro256PlusPlus::seed_from_u64(size.seed));
        network.populate(size, &mut random);
        network.generate_friendships(size, &mut random);
        for id in 0..size.forums {
            let title = format!("Wall {id} of {}", random.pick(&FIRST));
            network.forums.insert(id, Forum { title, moderator: random.few(size.persons) });
        }
        network.write(size, &mut random);
        network
    }

    /// Part of server `server` of `servers`: items with this remainder of their id.
    #[must_use]
    pub fn part(&self, server: u64, servers: u64) -> Self {
        fn of<T: Clone>(all: &BTreeMap<u64, T>, server: u64, servers: u64) -> BTreeMap<u64, T> {
            all.iter().filter(|(id, _)| *id % servers == server).map(|(id, it)| (*id, it.clone())).collect()
        }
        Self {
            persons: of(&self.persons, server, servers),
            forums: of(&self.forums, server, servers),
            messages: of(&self.messages, server, servers),
        }
    }

    fn populate(&mut self, size: &Size, random: &mut NetworkRandom) {
        for id in 0..size.persons {
            let [b, c, d] = [random.below(256), random.below(256), random.below(256)];
            let person = Person {
                first_name: random.pick(&FIRST),
                last_name: random.pick(&LAST),
                gender: random.pick(&["female", "male"]),
                birthday: BEGIN - DAY * (6_000 + random.below(15_000) as i64),
                created: BEGIN + random.below(365 * DAY as u64) as i64,
                ip: format!("10.{b}.{c}.{d}"),
                browser: random.pick(&BROWSERS),
                city: random.below(1_000),
                friends: BTreeMap::new(),
                wrote: Vec::new(),
            };
            self.persons.insert(id, person);
        }
    }

    fn generate_friendships(&mut self, size: &Size, random: &mut NetworkRandom) {
        for one in 0..size.persons {
            for _ in 0..random.few(FRIENDS_MAX) {
                let other = random.few(size.persons);
                // Whole days, so that some friendships have equal dates.
                let since = BEGIN + DAY * (365 + random.below(200) as i64);
                let fresh = one != other && !self.persons[&one].friends.contains_key(&other);
                for (of, friend) in [(one, other), (other, one)].into_iter().filter(|_| fresh) {
                    self.persons.entry(of).and_modify(|person| {
                        person.friends.insert(friend, since);
                    });
                }
            }
        }
    }

    fn write(&mut self, size: &Size, random: &mut NetworkRandom) {
        let mut depths = Vec::new();
        for id in 0..size.posts + size.comments {
            let (parent, depth, after) = if id < size.posts {
                (MessageParent::Forum(random.few(size.forums)), 0, BEGIN + 600 * DAY)
            } else {
                // Reply to a random earlier message; if that is too deep, to a post.
                let any = random.below(id);
                let on = if depths[any as usize] < DEPTH_MAX { any } else { random.below(size.posts) };
                self.messages.entry(on).and_modify(|message| message.replies.push(id));
                (MessageParent::ReplyTo(on), depths[on as usize] + 1, self.messages[&on].created)
            };
            depths.push(depth);
            let author = random.few(size.persons);
            // Whole seconds, so that some messages have equal dates.
            let created = after + 1000 * random.below(100_000) as i64;
            let content = match id < size.posts && random.below(8) == 0 {
                true => format!("photo{id}.jpg"),
                false => random.text(),
            };
            self.persons.entry(author).and_modify(|person| person.wrote.push((created, id)));
            self.messages.insert(id, Message { author, created, content, parent, replies: Vec::new() });
        }
        self.persons.values_mut().for_each(|person| person.wrote.sort_unstable());
    }
}

struct NetworkRandom(Xoshiro256PlusPlus);

impl NetworkRandom {
    /// Random number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Random number below `n`, with a preference for low ones.
    fn few(&mut self, n: u64) -> u64 {
        let most = self.below(n) + 1;
        self.below(most)
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len() as u64) as usize]
    }

    fn text(&mut self) -> String {
        let words: Vec<_> = (0..=self.below(20)).map(|_| self.pick(&WORDS)).collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { seed: 3, persons: 100, forums: 10, posts: 300, comments: 900 };

    #[test]
    fn seed_determines_network_and_parts_cover_it() {
        let network = SocialNetwork::new(&SIZE);
        assert_eq!(network, SocialNetwork::new(&SIZE));
        assert_ne!(network, SocialNetwork::new(&Size { seed: 4, ..SIZE }));
        let mut whole = SocialNetwork::default();
        for part in (0..7).map(|server| network.part(server, 7)) {
            whole.persons.extend(part.persons);
            whole.forums.extend(part.forums);
            whole.messages.extend(part.messages);
        }
        assert_eq!(whole, network);
    }

    #[test]
    fn network_references_are_consistent() {
        let network = SocialNetwork::new(&SIZE);
        assert_eq!((network.persons.len(), network.forums.len(), network.messages.len()), (100, 10, 1200));
        for (id, person) in &network.persons {
            assert!(!person.friends.contains_key(id));
            assert!(person.friends.iter().all(|(other, since)| network.persons[other].friends[id] == *since));
        }
        for (id, message) in &network.messages {
            assert!(network.persons[&message.author].wrote.contains(&(message.created, *id)));
            if let MessageParent::ReplyTo(on) = message.parent {
                assert!(on < *id && network.messages[&on].replies.contains(id));
                assert!(network.messages[&on].created <= message.created);
            }
        }
        assert_eq!(network.persons.values().map(|person| person.wrote.len()).sum::<usize>(), 1200);
    }
}
