//! YCSB's messages: keys by scrambled Zipf, so many of one part of the keys and one kind in each message; and what each
//! must answer, as if they were done one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use apps_load::{Random, Zipf};
use apps_offload::{Ask, Memo, Task, Workload};
use bytes::Bytes;
use pathcall_place::context::{Context, NextFn};
use pathcall_place::device::Kind;
use pathcall_place::{Application, Role};

use crate::Store;
use crate::store::{FOUND, KEY, VALUE, values_len};

/// YCSB's; lower is more even.
const THETA: f64 = 0.99;
/// Share of the GETs that ask for a key that was new once, where there are any.
const NEW: f64 = 0.2;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Keys at the start.
    pub keys: u64,
    /// Share of the requests that are PUTs: 0 in YCSB C, 0.05 in B.
    pub puts: f64,
    /// Share of the PUTs whose key is a new one: 0 in both.
    pub inserts: f64,
    /// Parts of the keys: a message is about one of them, and messages of one keep their order.
    pub parts: u64,
    /// Messages, each full.
    pub messages: usize,
    /// Times that they are sent; more than once only without PUTs.
    pub rounds: usize,
    /// All that is drawn is drawn from this.
    pub seed: u64,
    /// Whether accelerators are told of new keys.
    pub follows: bool,
}

/// A message.
#[derive(Debug)]
struct Made {
    put: bool,
    part: u64,
    payload: Bytes,
    /// Each key, with the version of its value that it is to have: PUTs write that, GETs must see it. 0: there is none.
    versions: Vec<(u64, u32)>,
}

/// A store and its messages.
#[derive(Debug)]
pub struct Load {
    store: Arc<Store>,
    made: Arc<Vec<Made>>,
    /// Keys in a message.
    batch: usize,
    keys: u64,
    rounds: usize,
    /// What an emulated accelerator has answered, where that never changes.
    memo: Option<Arc<Memo>>,
}

impl Load {
    /// As many requests in a message as the first trip of a GET has bytes for.
    ///
    /// # Errors
    /// The application's file has no GET, or it has no room for a key.
    pub fn new(application: &Application, mix: Mix) -> Result<Self> {
        let Mix { puts, rounds, .. } = mix;
        ensure!(rounds == 1 || puts == 0.0, "messages with PUTs are sent once, not {rounds} times");
        ensure!(mix.keys >= 2, "{} keys: expected 2 or more", mix.keys);
        let file = &application.file;
        let get = application.requests.iter().find(|request| request.name == "GET");
        let get = get.with_context(|| format!("{file} has no request `GET`"))?;
        let bytes = get.dataflows[0].trips[0].there.iter().map(|link| link.bytes).max().unwrap_or(0);
        let batch = bytes as usize / KEY;
        ensure!(batch > 0, "{file}: a GET has no room for a key of {KEY} bytes on its first trip");
        let made = Maker::new(mix, batch).all(mix.messages);
        let new: usize = made.iter().filter(|made| made.put).map(|made| made.versions.len()).sum();
        let keys: Vec<u64> = (0..mix.keys).map(key).collect();
        let store = Arc::new(Store::new(&keys, new, mix.follows));
        let memo = (puts == 0.0).then(Arc::default);
        Ok(Self { store, made: Arc::new(made), batch, keys: mix.keys, rounds, memo })
    }

    fn sample(&self) -> impl Iterator<Item = u64> {
        let keys = self.keys;
        (0..self.batch as u64).map(move |i| i * 7919 % keys)
    }
}

impl Workload for Load {
    fn name(&self) -> &'static str {
        "index"
    }

    fn tasks(&self) -> Vec<Task> {
        let keys: Vec<u64> = self.sample().map(key).collect();
        // The slots of keys at the start are their numbers.
        let slots: Vec<u64> = self.sample().collect();
        let found = || keys.iter().zip(&slots).flat_map(|(key, slot)| [*key, *slot]);
        let values = keys.iter().zip(&slots).flat_map(|(key, slot)| [*key, *slot].into_iter().chain(value(*key, 1)));
        let room = self.batch * FOUND;
        let task = |name, cpu, acc, answer_max, sample| Task { name, cpu, acc, answer_max, sample };
        let Self { store, batch, .. } = self;
        let asked = bytes(keys.iter().copied());
        let headed = bytes([u64::MAX].into_iter().chain(keys.iter().copied()));
        vec![
            task("look-up", store.look_up(), store.look_up_elsewhere(self.memo.as_ref()), room, asked),
            task("read", store.read(), Vec::new(), values_len(*batch), bytes(found())),
            task("insert", store.insert(), Vec::new(), room, headed),
            task("write", store.write(), Vec::new(), 8, bytes(values)),
        ]
    }

    fn next(&self) -> Vec<(&'static str, NextFn)> {
        let made = Arc::clone(&self.made);
        let put: NextFn = Arc::new(move |_, request, found| {
            let number = request.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number));
            let Some(made) = usize::try_from(number).ok().and_then(|at| made.get(at)) else { return Bytes::new() };
            let mut message = Vec::with_capacity(made.versions.len() * (FOUND + VALUE));
            for (found, (key, version)) in found.chunks_exact(FOUND).zip(&made.versions) {
                message.extend_from_slice(found);
                message.extend(value(*key, *version).iter().flat_map(|word| word.to_le_bytes()));
            }
            message.into()
        });
        vec![("PUT", put)]
    }

    fn ready(&mut self, responder: &Context) -> Result<()> {
        let copy = responder.tables("look-up", Role::Acc);
        let kernels = copy.filter(|copy| matches!(copy.kind(), Kind::OpenCl | Kind::Cuda));
        self.store.reset(kernels, |key| value(key, 1));
        Ok(())
    }

    fn messages(&self) -> usize {
        self.made.len() * self.rounds
    }

    fn ask(&self, at: usize) -> Ask {
        let Made { put, part, payload, versions } = &self.made[at % self.made.len()];
        let (kind, payload) = (if *put { "PUT" } else { "GET" }, payload.clone());
        Ask { kind, address: *part, message: 0, payload, operations: versions.len() as u64 }
    }

    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String> {
        let Made { put, versions, .. } = &self.made[at % self.made.len()];
        let expected = if *put { 8 } else { values_len(versions.len()) };
        if answer.len() != expected {
            return Err(format!("an answer of {} bytes, expected {expected}", answer.len()));
        }
        if *put {
            let count = u64::from_le_bytes(answer.try_into().expect("eight bytes"));
            let right = count == versions.len() as u64;
            return right.then_some(()).ok_or_else(|| format!("{count} values were written, not {}", versions.len()));
        }
        let (values, there) = answer.split_at(versions.len() * VALUE);
        for (i, (got, (key, version))) in values.chunks_exact(VALUE).zip(versions).enumerate() {
            let is_there = there[i / 8] >> (i % 8) & 1 == 1;
            let right = if *version == 0 { [0; VALUE / 8] } else { value(*key, *version) };
            let words = got.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
            if is_there != (*version > 0) || !words.eq(right) {
                let seen = u64::from_le_bytes(got[8..16].try_into().expect("eight bytes"));
                return Err(format!("key {key:#x} has version {seen} (there: {is_there}), expected {version}"));
            }
        }
        Ok(())
    }
}

/// Draws requests, and gathers them into messages.
struct Maker {
    mix: Mix,
    batch: usize,
    zipf: Zipf,
    random: Random,
    /// Of each part: GETs, and PUTs.
    gathered: Vec<[Vec<u64>; 2]>,
    versions: HashMap<u64, u32>,
    /// Keys that were new.
    new: u64,
}

impl Maker {
    fn new(mix: Mix, batch: usize) -> Self {
        let (zipf, random) = (Zipf::new(mix.keys, THETA), Random::new(mix.seed));
        let gathered = (0..mix.parts.max(1)).map(|_| [Vec::new(), Vec::new()]).collect();
        Self { mix, batch, zipf, random, gathered, versions: HashMap::new(), new: 0 }
    }

    fn all(&mut self, messages: usize) -> Vec<Made> {
        let mut made = Vec::with_capacity(messages);
        while made.len() < messages {
            let put = self.random.happens(self.mix.puts);
            let key = key(self.draw(put));
            let part = scrambled(key ^ self.mix.seed) % self.gathered.len() as u64;
            let gathered = &mut self.gathered[part as usize][usize::from(put)];
            gathered.push(key);
            if gathered.len() == self.batch {
                let keys = std::mem::take(gathered);
                made.push(self.message(made.len(), put, part, keys));
            }
        }
        made
    }

    fn draw(&mut self, put: bool) -> u64 {
        if put && self.random.happens(self.mix.inserts) {
            self.new += 1;
            return self.mix.keys + self.new - 1;
        }
        if !put && self.new > 0 && self.random.happens(NEW) {
            return self.mix.keys + self.random.below(self.new);
        }
        self.zipf.draw(&mut self.random)
    }

    /// Messages are done in this order, those of a part at least.
    fn message(&mut self, number: usize, put: bool, part: u64, keys: Vec<u64>) -> Made {
        let loaded = self.mix.keys;
        let mut version = |key: u64| {
            let version = self.versions.entry(key).or_insert_with(|| u32::from(number_of(key) < loaded));
            *version += u32::from(put);
            (key, *version)
        };
        let versions = keys.iter().map(|key| version(*key)).collect();
        let head = put.then_some(number as u64);
        Made { put, part, payload: bytes(head.into_iter().chain(keys)), versions }
    }
}

fn bytes(words: impl IntoIterator<Item = u64>) -> Bytes {
    words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// `SPREAD` times this is 1, modulo 2^64.
const GATHER: u64 = 0xf1de_83e1_9937_733d;

/// The key of a number: one to one, and neighbours are far from each other.
fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

fn number_of(key: u64) -> u64 {
    key.wrapping_mul(GATHER)
}

/// A version of a key's value: the key, the version, and words that belong to both.
fn value(key: u64, version: u32) -> [u64; VALUE / 8] {
    let mark = scrambled(key ^ u64::from(version));
    let words: [u64; VALUE / 8] = std::array::from_fn(|i| mark.wrapping_mul(2 * i as u64 + 1));
    [key, u64::from(version), words[2], words[3], words[4], words[5], words[6], words[7]]
}

/// Bits that look like chance (the finish of SplitMix64).
fn scrambled(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_keys_are_one_to_one() {
        (0..1000).chain([u64::MAX, 1 << 40]).for_each(|number| assert_eq!(number_of(key(number)), number));
    }
}
