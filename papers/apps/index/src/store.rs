//! The store: an index, its copy for accelerators, and values; what each task does with them, batch by batch. Numbers are
//! little-endian.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apps_offload::Memo;
use bytes::Bytes;
use pathcall_place::context::Tables;
use pathcall_place::device::{AppError, Code, Items, Kernel, Length};

use crate::tree::{Tree, Write};

/// Bytes of a key.
pub const KEY: usize = 8;
/// Bytes of what a look-up answers: the key, and its slot.
pub const FOUND: usize = 16;
/// Bytes of a value.
pub const VALUE: usize = 64;
const WORDS: usize = VALUE / 8;
/// Writes of an insert that are sent to an accelerator one by one; of more than that all nodes are sent at once.
const SINGLY: usize = 8;
/// In place of a slot: the key is not there.
pub const NONE: u64 = u64::MAX;

/// A value, and whose it is.
#[derive(Debug)]
struct Slot {
    key: AtomicU64,
    value: [AtomicU64; WORDS],
}

/// The store.
#[derive(Debug)]
pub struct Store {
    index: Tree,
    /// What accelerators that run functions of the host look at.
    copy: Tree,
    slots: Box<[Slot]>,
    /// As it was made: what all of it goes back to.
    made: Tree,
    /// One message's inserts at a time; and where the accelerator has its copy.
    inserts: Mutex<Option<Tables>>,
    /// Whether copies follow inserts.
    follows: bool,
}

impl Store {
    /// With these keys, and room for so many more. `follows`: whether accelerators are told of new keys; if not, the
    /// processor finds them for them.
    ///
    /// # Panics
    /// Without keys, or if one of them is `u64::MAX`.
    #[must_use]
    pub fn new(keys: &[u64], more: usize, follows: bool) -> Self {
        let room = keys.len() + more;
        let made = Tree::new(room);
        for key in keys {
            made.insert(*key, |_| {}).expect("a key, and room for it");
        }
        let slot = |_| Slot { key: AtomicU64::new(NONE), value: std::array::from_fn(|_| AtomicU64::new(0)) };
        let slots = (0..room).map(slot).collect();
        let (index, copy) = (Tree::new(room), Tree::new(room));
        let store = Self { index, copy, slots, made, inserts: Mutex::new(None), follows };
        store.reset(None, |_| [0; WORDS]);
        store
    }

    /// As it was made, with these values; and where the accelerator has its copy of the index, if it is a kernel's.
    pub fn reset(&self, copy: Option<Tables>, value: impl Fn(u64) -> [u64; WORDS]) {
        *self.inserts.lock().unwrap_or_else(PoisonError::into_inner) = copy;
        self.index.copy(&self.made);
        self.copy.copy(&self.made);
        for slot in &self.slots {
            slot.key.store(NONE, Ordering::Relaxed);
        }
        let keys = self.made.tables()[1].chunks_exact(KEY).take(self.made.len()).map(word).collect::<Vec<_>>();
        keys.iter().zip(&self.slots).for_each(|(key, slot)| slot.write(*key, value(*key)));
    }

    /// `look-up`, on the processor.
    #[must_use]
    pub fn look_up(self: &Arc<Self>) -> Code {
        let store = Arc::clone(self);
        Code::host(move |input, output| look_up(&store.index, input, output))
    }

    /// `look-up`, on accelerators of any kind; with the answers that an emulated one has given before, if they never
    /// change.
    #[must_use]
    pub fn look_up_elsewhere(self: &Arc<Self>, memo: Option<&Arc<Memo>>) -> Vec<Code> {
        let store = Arc::clone(self);
        let kernel = Kernel {
            source: include_str!("look-up.cl").to_owned(),
            entry: "look_up".to_owned(),
            options: String::new(),
            items: Items::PerInput(KEY),
            group: 64,
            length: Length::Any,
            tables: self.made.tables().map(Bytes::from).into(),
        };
        let host = Code::host(move |input, output| look_up(&store.copy, input, output));
        let host = memo.map_or(host.clone(), |memo| memo.of(&host));
        vec![host, Code::OpenCl(kernel.clone()), Code::Cuda(kernel)]
    }

    /// `read`: values of keys that were looked up, and then a bit for each, whether there is one.
    #[must_use]
    pub fn read(self: &Arc<Self>) -> Code {
        let store = Arc::clone(self);
        Code::host(move |input, output| {
            let asked = records::<FOUND>(input)?;
            let count = asked.len();
            let length = values_len(count);
            let output = output.get_mut(..length).ok_or_else(|| AppError(format!("no room for {length} bytes")))?;
            let (values, there) = output.split_at_mut(count * VALUE);
            there.fill(0);
            for (i, (found, value)) in asked.zip(values.chunks_exact_mut(VALUE)).enumerate() {
                match store.slot(word(&found[..8]), word(&found[8..])) {
                    Some(slot) => {
                        slot.read(value);
                        there[i / 8] |= 1 << (i % 8);
                    }
                    None => value.fill(0),
                }
            }
            Ok(length)
        })
    }

    /// `insert`: keys after eight bytes that are not looked at; each has a slot then.
    #[must_use]
    pub fn insert(self: &Arc<Self>) -> Code {
        let store = Arc::clone(self);
        Code::host(move |input, output| {
            let keys = records::<KEY>(input.get(8..).unwrap_or_default())?;
            let length = keys.len() * FOUND;
            let mut new = None;
            for (key, found) in keys.zip(output.chunks_exact_mut(FOUND)) {
                let slot = match store.index.find(word(key)) {
                    Some(slot) => Ok(slot),
                    None => new.get_or_insert_with(|| Inserts::begin(&store)).insert(word(key)),
                };
                found[..8].copy_from_slice(key);
                found[8..].copy_from_slice(&u64::from(slot?).to_le_bytes());
            }
            Ok(length)
        })
    }

    /// `write`: keys, slots and values; answers how many there were.
    #[must_use]
    pub fn write(self: &Arc<Self>) -> Code {
        let store = Arc::clone(self);
        Code::host(move |input, output| {
            let records = records::<{ FOUND + VALUE }>(input)?;
            let count = records.len() as u64;
            for record in records {
                let (key, slot) = (word(&record[..8]), word(&record[8..16]));
                let slot = usize::try_from(slot).ok().and_then(|slot| store.slots.get(slot));
                let slot = slot.ok_or_else(|| AppError("there is no such slot".into()))?;
                let value: [u64; WORDS] = std::array::from_fn(|i| word(&record[FOUND + i * 8..][..8]));
                slot.write(key, value);
            }
            output[..8].copy_from_slice(&count.to_le_bytes());
            Ok(8)
        })
    }

    /// The value of a key, which may be where an index says.
    fn slot(&self, key: u64, slot: u64) -> Option<&Slot> {
        let of = |slot: usize| self.slots.get(slot).filter(|slot| slot.key.load(Ordering::Relaxed) == key);
        usize::try_from(slot).ok().and_then(of).or_else(|| of(self.index.find(key)? as usize))
    }
}

/// New keys of one message. At its end, the accelerator's copy follows.
struct Inserts<'a> {
    store: &'a Store,
    copy: MutexGuard<'a, Option<Tables>>,
    writes: Vec<Write>,
}

impl<'a> Inserts<'a> {
    fn begin(store: &'a Store) -> Self {
        let copy = store.inserts.lock().unwrap_or_else(PoisonError::into_inner);
        Self { store, copy, writes: Vec::new() }
    }

    fn insert(&mut self, key: u64) -> Result<u32, AppError> {
        let slot = self.store.index.insert(key, |write| self.writes.push(write));
        slot.ok_or_else(|| AppError(format!("there is no room for key {key:#x}")))
    }
}

impl Drop for Inserts<'_> {
    fn drop(&mut self) {
        if !self.store.follows {
            return;
        }
        self.writes.iter().for_each(|write| self.store.copy.apply(*write));
        let Some(copy) = &*self.copy else { return };
        // A device that is gone has no copy that could be asked.
        let send = |(table, at, bytes): (usize, usize, Vec<u8>)| drop(copy.write(table, at, &bytes));
        if self.writes.len() <= SINGLY {
            return self.writes.iter().for_each(|write| send(write.bytes()));
        }
        let [nodes, keys] = self.store.index.tables();
        // Keys first: nodes lead to them.
        send((1, 0, keys));
        send((0, 0, nodes));
    }
}

impl Slot {
    fn read(&self, to: &mut [u8]) {
        let words = to.chunks_exact_mut(8).zip(&self.value);
        words.for_each(|(to, word)| to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()));
    }

    fn write(&self, key: u64, value: [u64; WORDS]) {
        self.key.store(key, Ordering::Relaxed);
        self.value.iter().zip(value).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    }
}

/// Bytes of the answer to a GET of so many keys.
#[must_use]
pub const fn values_len(count: usize) -> usize {
    count * VALUE + count.div_ceil(8)
}

fn look_up(index: &Tree, input: &[u8], output: &mut [u8]) -> Result<usize, AppError> {
    let keys = records::<KEY>(input)?;
    let length = keys.len() * FOUND;
    for (key, found) in keys.zip(output.chunks_exact_mut(FOUND)) {
        let slot = index.find(word(key)).map_or(NONE, u64::from);
        found[..8].copy_from_slice(key);
        found[8..].copy_from_slice(&slot.to_le_bytes());
    }
    Ok(length)
}

fn records<const LEN: usize>(input: &[u8]) -> Result<std::slice::ChunksExact<'_, u8>, AppError> {
    let records = input.chunks_exact(LEN);
    if records.remainder().is_empty() {
        return Ok(records);
    }
    Err(AppError(format!("{} bytes are no number of records of {LEN}", input.len())))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
