//! A social network from a seed: persons, who knows whom, forums, posts, comments.
//!
//! The kinds and their fields are those that the short queries of LDBC SNB ask for. Sizes are options; like in
//! a real network, some persons have many friends and write much, and most do not.

use std::collections::BTreeMap;

use clap::Args;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Comments below a post, one replying to the other, at most: a query goes up such a line from server to
/// server, and a call may go through 64 (`NodeConfig::depth_max`).
const DEPTH_MAX: u32 = 40;
/// Persons that anybody knows at most, but for those who are known by more than they know.
const FRIENDS_MAX: u64 = 100;
/// 2010-01-01 and a day, in milliseconds.
const BEGIN: i64 = 1_262_304_000_000;
const DAY: i64 = 86_400_000;

const FIRST: [&str; 12] =
    ["Ada", "Alan", "Barbara", "Carlos", "Deepa", "Edsger", "Fei", "Grace", "Hans", "Ines", "Jun", "Olga"];
const LAST: [&str; 10] =
    ["Abe", "Bauer", "Chen", "Dijkstra", "Eriksson", "Fernandez", "Gupta", "Hopper", "Ivanova", "Liskov"];
const BROWSERS: [&str; 4] = ["Chrome", "Firefox", "Opera", "Safari"];
const WORDS: [&str; 12] =
    ["about", "maybe", "right", "great", "photo", "thanks", "good", "yes", "no", "duh", "LOL", "fine"];

/// How large a network is.
#[derive(Debug, Clone, Copy, Args)]
pub struct Size {
    /// The network is made from this
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Persons
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub persons: u64,
    /// Forums, each with a moderator
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub forums: u64,
    /// Posts, each in a forum
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub posts: u64,
    /// Comments, each on a post or on a comment
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    pub comments: u64,
}

/// A network, or a server's part of one. Numbers of persons, forums and messages begin at 0 each; posts have the
/// lower ones of messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    pub persons: BTreeMap<u64, Person>,
    pub forums: BTreeMap<u64, Forum>,
    pub messages: BTreeMap<u64, Message>,
}

/// A person.
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
    /// Whom they know, and since when; these know them.
    pub friends: BTreeMap<u64, i64>,
    /// Messages that they wrote: when, and which. Sorted.
    pub wrote: Vec<(i64, u64)>,
}

/// A forum.
#[derive(Debug, Clone, PartialEq)]
pub struct Forum {
    pub title: String,
    pub moderator: u64,
}

/// A post or a comment.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub author: u64,
    pub created: i64,
    /// The text; the name of the image, where it is that.
    pub content: String,
    pub place: Place,
    /// Comments on it. Sorted.
    pub replies: Vec<u64>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A post, in this forum.
    Forum(u64),
    /// A comment on this message.
    ReplyTo(u64),
}

impl World {
    /// The network of a seed.
    #[must_use]
    pub fn new(size: &Size) -> Self {
        let mut world = Self::default();
        let mut chance = Chance(Xoshiro256PlusPlus::seed_from_u64(size.seed));
        world.populate(size, &mut chance);
        world.befriend(size, &mut chance);
        for id in 0..size.forums {
            let title = format!("Wall {id} of {}", chance.pick(&FIRST));
            world.forums.insert(id, Forum { title, moderator: chance.few(size.persons) });
        }
        world.write(size, &mut chance);
        world
    }

    /// The part of it that server `server` of so many has: what has a number that leaves this remainder.
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

    fn populate(&mut self, size: &Size, chance: &mut Chance) {
        for id in 0..size.persons {
            let [b, c, d] = [chance.below(256), chance.below(256), chance.below(256)];
            let person = Person {
                first_name: chance.pick(&FIRST),
                last_name: chance.pick(&LAST),
                gender: chance.pick(&["female", "male"]),
                birthday: BEGIN - DAY * (6_000 + chance.below(15_000) as i64),
                created: BEGIN + chance.below(365 * DAY as u64) as i64,
                ip: format!("10.{b}.{c}.{d}"),
                browser: chance.pick(&BROWSERS),
                city: chance.below(1_000),
                friends: BTreeMap::new(),
                wrote: Vec::new(),
            };
            self.persons.insert(id, person);
        }
    }

    fn befriend(&mut self, size: &Size, chance: &mut Chance) {
        for one in 0..size.persons {
            for _ in 0..chance.few(FRIENDS_MAX) {
                let other = chance.few(size.persons);
                // Days, so that some friendships are equally old.
                let since = BEGIN + DAY * (365 + chance.below(200) as i64);
                let fresh = one != other && !self.persons[&one].friends.contains_key(&other);
                for (of, whom) in [(one, other), (other, one)].into_iter().filter(|_| fresh) {
                    self.persons.entry(of).and_modify(|person| {
                        person.friends.insert(whom, since);
                    });
                }
            }
        }
    }

    fn write(&mut self, size: &Size, chance: &mut Chance) {
        let mut depths = Vec::new();
        for id in 0..size.posts + size.comments {
            let (place, depth, after) = if id < size.posts {
                (Place::Forum(chance.few(size.forums)), 0, BEGIN + 600 * DAY)
            } else {
                // One of all before; a deep one gives way to a post.
                let any = chance.below(id);
                let on = if depths[any as usize] < DEPTH_MAX { any } else { chance.below(size.posts) };
                self.messages.entry(on).and_modify(|message| message.replies.push(id));
                (Place::ReplyTo(on), depths[on as usize] + 1, self.messages[&on].created)
            };
            depths.push(depth);
            let author = chance.few(size.persons);
            // Seconds, so that some messages are equally old.
            let created = after + 1000 * chance.below(100_000) as i64;
            let content = match id < size.posts && chance.below(8) == 0 {
                true => format!("photo{id}.jpg"),
                false => chance.text(),
            };
            self.persons.entry(author).and_modify(|person| person.wrote.push((created, id)));
            self.messages.insert(id, Message { author, created, content, place, replies: Vec::new() });
        }
        self.persons.values_mut().for_each(|person| person.wrote.sort_unstable());
    }
}

struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// A number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// The same, low ones more often.
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
    fn a_seed_gives_one_network_and_parts_make_it_up() {
        let world = World::new(&SIZE);
        assert_eq!(world, World::new(&SIZE));
        assert_ne!(world, World::new(&Size { seed: 4, ..SIZE }));
        let mut whole = World::default();
        for part in (0..7).map(|server| world.part(server, 7)) {
            whole.persons.extend(part.persons);
            whole.forums.extend(part.forums);
            whole.messages.extend(part.messages);
        }
        assert_eq!(whole, world);
    }

    #[test]
    fn it_holds_together() {
        let world = World::new(&SIZE);
        assert_eq!((world.persons.len(), world.forums.len(), world.messages.len()), (100, 10, 1200));
        for (id, person) in &world.persons {
            assert!(!person.friends.contains_key(id));
            assert!(person.friends.iter().all(|(other, since)| world.persons[other].friends[id] == *since));
        }
        for (id, message) in &world.messages {
            assert!(world.persons[&message.author].wrote.contains(&(message.created, *id)));
            if let Place::ReplyTo(on) = message.place {
                assert!(on < *id && world.messages[&on].replies.contains(id));
                assert!(world.messages[&on].created <= message.created);
            }
        }
        assert_eq!(world.persons.values().map(|person| person.wrote.len()).sum::<usize>(), 1200);
    }
}
