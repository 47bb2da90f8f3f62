//! Workload of YCSB messages: keys by a scrambled Zipf distribution, grouped into messages of one partition and one
//! kind, with the expected answers of a sequential execution.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use apps_load::{Random, Zipf};
use apps_offload::{AppWorkload, Memo, MessageSpec, Task};
use bytes::Bytes;
use pathcall_place::context::{NextFn, PlaceContext};
use pathcall_place::device::DeviceKind;
use pathcall_place::{Application, DeviceRole};

use crate::IndexedStore;
use crate::store::{FOUND, KEY, VALUE, values_len};

/// Exponent of YCSB; lower values are more uniform.
const THETA: f64 = 0.99;
/// Share of the GETs that read an inserted key, if there are any.
const NEW: f64 = 0.2;

/// Parameters of the workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YcsbMix {
    /// Initial number of keys.
    pub keys: u64,
    /// Share of PUTs among the requests: 0 in YCSB C, 0.05 in B.
    pub puts: f64,
    /// Share of new keys among the PUTs: 0 in both.
    pub inserts: f64,
    /// Partitions of the keys. A message concerns one partition, and messages of one partition keep their order.
    pub parts: u64,
    /// Number of messages, each full.
    pub messages: usize,
    /// Number of times that the messages are sent; more than once only without PUTs.
    pub rounds: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// True if new keys are copied to accelerators.
    pub updates_copies: bool,
}

/// Prepared message.
#[derive(Debug)]
struct PreparedMessage {
    put: bool,
    part: u64,
    payload: Bytes,
    /// Keys with the version of their value: PUTs write it, GETs must read it. 0: no value.
    versions: Vec<(u64, u32)>,
}

/// Store with prepared messages.
#[derive(Debug)]
pub struct IndexLoad {
    store: Arc<IndexedStore>,
    prepared: Arc<Vec<PreparedMessage>>,
    /// Keys per message.
    batch: usize,
    keys: u64,
    rounds: usize,
    /// Cached answers of an emulated accelerator, if answers never change.
    memo: Option<Arc<Memo>>,
}

impl IndexLoad {
    /// Creates messages with as many requests as fit into the first trip of a GET.
    ///
    /// # Errors
    /// Returns an error if the application file has no GET, or no room for a key.
    pub fn new(application: &Application, mix: YcsbMix) -> Result<Self> {
        let YcsbMix { puts, rounds, .. } = mix;
        ensure!(rounds == 1 || puts == 0.0, "--rounds {rounds}: messages with PUTs can be sent only once");
        ensure!(mix.keys >= 2, "--keys {}: expected 2 or more", mix.keys);
        let file = &application.file;
        let get = application.requests.iter().find(|request| request.name == "GET");
        let get = get.with_context(|| format!("{file} has no request `GET`"))?;
        let bytes = get.dataflows[0].trips[0].there.iter().map(|link| link.bytes).max().unwrap_or(0);
        let batch = bytes as usize / KEY;
        ensure!(batch > 0, "{file}: first trip of GET has no room for a key of {KEY} bytes");
        let prepared = MessageGenerator::new(mix, batch).all(mix.messages);
        let new: usize = prepared.iter().filter(|prepared| prepared.put).map(|prepared| prepared.versions.len()).sum();
        let keys: Vec<u64> = (0..mix.keys).map(key).collect();
        let store = Arc::new(IndexedStore::new(&keys, new, mix.updates_copies));
        let memo = (puts == 0.0).then(Arc::default);
        Ok(Self { store, prepared: Arc::new(prepared), batch, keys: mix.keys, rounds, memo })
    }

    fn sample(&self) -> impl Iterator<Item = u64> {
        let keys = self.keys;
        (0..self.batch as u64).map(move |i| i * 7919 % keys)
    }
}

impl AppWorkload for IndexLoad {
    fn name(&self) -> &'static str {
        "index"
    }

    fn tasks(&self) -> Vec<Task> {
        let keys: Vec<u64> = self.sample().map(key).collect();
        // Initial keys have slots equal to their numbers.
        let slots: Vec<u64> = self.sample().collect();
        let found = || keys.iter().zip(&slots).flat_map(|(key, slot)| [*key, *slot]);
        let values = keys.iter().zip(&slots).flat_map(|(key, slot)| [*key, *slot].into_iter().chain(value(*key, 1)));
        let room = self.batch * FOUND;
        let task = |name, cpu, acc, answer_max, sample| Task { name, cpu, acc, answer_max, sample };
        let Self { store, batch, .. } = self;
        let asked = bytes(keys.iter().copied());
        let headed = bytes([u64::MAX].into_iter().chain(keys.iter().copied()));
        vec![
            task("look-up", store.look_up(), store.look_up_on_accelerators(self.memo.as_ref()), room, asked),
            task("read", store.read(), Vec::new(), values_len(*batch), bytes(found())),
            task("insert", store.insert(), Vec::new(), room, headed),
            task("write", store.write(), Vec::new(), 8, bytes(values)),
        ]
    }

    fn next(&self) -> Vec<(&'static str, NextFn)> {
        let prepared = Arc::clone(&self.prepared);
        let put: NextFn = Arc::new(move |_, request, found| {
            let number = request.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number));
            let Some(prepared) = usize::try_from(number).ok().and_then(|at| prepared.get(at)) else {
                return Bytes::new();
            };
            let mut message = Vec::with_capacity(prepared.versions.len() * (FOUND + VALUE));
            for (found, (key, version)) in found.chunks_exact(FOUND).zip(&prepared.versions) {
                message.extend_from_slice(found);
                message.extend(value(*key, *version).iter().flat_map(|word| word.to_le_bytes()));
            }
            message.into()
        });
        vec![("PUT", put)]
    }

    fn reset(&mut self, responder: &PlaceContext) -> Result<()> {
        let copy = responder.tables("look-up", DeviceRole::Acc);
        let kernels = copy.filter(|copy| matches!(copy.kind(), DeviceKind::OpenCl | DeviceKind::Cuda));
        self.store.reset(kernels, |key| value(key, 1));
        Ok(())
    }

    fn messages(&self) -> usize {
        self.prepared.len() * self.rounds
    }

    fn ask(&self, at: usize) -> MessageSpec {
        let PreparedMessage { put, part, payload, versions } = &self.prepared[at % self.prepared.len()];
        let (kind, payload) = (if *put { "PUT" } else { "GET" }, payload.clone());
        MessageSpec { kind, address: *part, message: 0, payload, operations: versions.len() as u64 }
    }

    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String> {
        let PreparedMessage { put, versions, .. } = &self.prepared[at % self.prepared.len()];
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

/// Generator of requests, which are grouped into messages.
struct MessageGenerator {
    mix: YcsbMix,
    batch: usize,
    zipf: Zipf,
    random: Random,
    /// GETs and PUTs of each partition.
    gathered: Vec<[Vec<u64>; 2]>,
    versions: HashMap<u64, u32>,
    /// Number of inserted keys.
    new: u64,
}

impl MessageGenerator {
    fn new(mix: YcsbMix, batch: usize) -> Self {
        let (zipf, random) = (Zipf::new(mix.keys, THETA), Random::new(mix.seed));
        let gathered = (0..mix.parts.max(1)).map(|_| [Vec::new(), Vec::new()]).collect();
        Self { mix, batch, zipf, random, gathered, versions: HashMap::new(), new: 0 }
    }

    fn all(&mut self, messages: usize) -> Vec<PreparedMessage> {
        let mut prepared = Vec::with_capacity(messages);
        while prepared.len() < messages {
            let put = self.random.happens(self.mix.puts);
            let key = key(self.draw(put));
            let part = scrambled(key ^ self.mix.seed) % self.gathered.len() as u64;
            let gathered = &mut self.gathered[part as usize][usize::from(put)];
            gathered.push(key);
            if gathered.len() == self.batch {
                let keys = std::mem::take(gathered);
                prepared.push(self.message(prepared.len(), put, part, keys));
            }
        }
        prepared
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

    /// Prepares a message. Messages of a partition are executed in the order of preparation.
    fn message(&mut self, number: usize, put: bool, part: u64, keys: Vec<u64>) -> PreparedMessage {
        let loaded = self.mix.keys;
        let mut version = |key: u64| {
            let version = self.versions.entry(key).or_insert_with(|| u32::from(number_of(key) < loaded));
            *version += u32::from(put);
            (key, *version)
        };
        let versions = keys.iter().map(|key| version(*key)).collect();
        let head = put.then_some(number as u64);
        PreparedMessage { put, part, payload: bytes(head.into_iter().chain(keys)), versions }
    }
}

fn bytes(words: impl IntoIterator<Item = u64>) -> Bytes {
    words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Inverse of `SPREAD` modulo 2^64.
const GATHER: u64 = 0xf1de_83e1_9937_733d;

/// Key of a number: bijective, and neighbours are far apart.
fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

fn number_of(key: u64) -> u64 {
    key.wrapping_mul(GATHER)
}

/// Value of a key in a version: the key, the version, and words derived from both.
fn value(key: u64, version: u32) -> [u64; VALUE / 8] {
    let mark = scrambled(key ^ u64::from(version));
    let words: [u64; VALUE / 8] = std::array::from_fn(|i| mark.wrapping_mul(2 * i as u64 + 1));
    [key, u64::from(version), words[2], words[3], words[4], words[5], words[6], words[7]]
}

/// Pseudo-random bits (the last step of SplitMix64).
fn scrambled(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_mapping_is_bijective() {
        (0..1000).chain([u64::MAX, 1 << 40]).for_each(|number| assert_eq!(number_of(key(number)), number));
    }
}
