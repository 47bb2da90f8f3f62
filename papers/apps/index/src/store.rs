//! Store: an index, its copy for accelerators, and values; with the tasks on batches. Numbers are little-endian.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apps_offload::Memo;
use bytes::Bytes;
use pathcall_place::context::DeviceTables;
use pathcall_place::device::{AnswerLength, AppError, Kernel, TaskCode, WorkItemCount};

use crate::tree::{Tree, TreeWrite};

/// Bytes of a key.
pub const KEY: usize = 8;
/// Bytes of a look-up result: the key and its slot.
pub const FOUND: usize = 16;
/// Bytes of a value.
pub const VALUE: usize = 64;
const WORDS: usize = VALUE / 8;
/// Maximum number of inserts that are sent to an accelerator as single writes; for more, all nodes are sent at once.
const SINGLY: usize = 8;
/// Slot number of a missing key.
pub const NONE: u64 = u64::MAX;

/// Value with its key.
#[derive(Debug)]
struct ValueSlot {
    key: AtomicU64,
    value: [AtomicU64; WORDS],
}

/// Store of keys and values.
#[derive(Debug)]
pub struct IndexedStore {
    index: Tree,
    /// Copy of the index for accelerators that run host functions.
    copy: Tree,
    slots: Box<[ValueSlot]>,
    /// Initial index, which `reset` restores.
    made: Tree,
    /// Lock of the inserts, one message at a time, with the accelerator's copy of the index.
    inserts: Mutex<Option<DeviceTables>>,
    /// True if copies are updated after inserts.
    updates_copies: bool,
}

impl IndexedStore {
    /// Creates a store of `keys` with room for `more` further keys. `updates_copies`: accelerators receive new keys;
    /// otherwise the processor finds new keys for them.
    ///
    /// # Panics
    /// Panics if `keys` is empty or contains `u64::MAX`.
    #[must_use]
    pub fn new(keys: &[u64], more: usize, updates_copies: bool) -> Self {
        let room = keys.len() + more;
        let made = Tree::new(room);
        for key in keys {
            made.insert(*key, |_| {}).expect("a valid key and a free slot");
        }
        let slot = |_| ValueSlot { key: AtomicU64::new(NONE), value: std::array::from_fn(|_| AtomicU64::new(0)) };
        let slots = (0..room).map(slot).collect();
        let (index, copy) = (Tree::new(room), Tree::new(room));
        let store = Self { index, copy, slots, made, inserts: Mutex::new(None), updates_copies };
        store.reset(None, |_| [0; WORDS]);
        store
    }

    /// Restores the initial keys with these values. `copy`: index tables of an accelerator with kernels.
    pub fn reset(&self, copy: Option<DeviceTables>, value: impl Fn(u64) -> [u64; WORDS]) {
        *self.inserts.lock().unwrap_or_else(PoisonError::into_inner) = copy;
        self.index.copy(&self.made);
        self.copy.copy(&self.made);
        for slot in &self.slots {
            slot.key.store(NONE, Ordering::Relaxed);
        }
        let keys = self.made.tables()[1].chunks_exact(KEY).take(self.made.len()).map(word).collect::<Vec<_>>();
        keys.iter().zip(&self.slots).for_each(|(key, slot)| slot.write(*key, value(*key)));
    }

    /// Task `look-up` on the processor.
    #[must_use]
    pub fn look_up(self: &Arc<Self>) -> TaskCode {
        let store = Arc::clone(self);
        TaskCode::host(move |input, output| look_up(&store.index, input, output))
    }

    /// Task `look-up` on accelerators of all kinds, with cached answers of an emulated accelerator if answers never
    /// change.
    #[must_use]
    pub fn look_up_on_accelerators(self: &Arc<Self>, memo: Option<&Arc<Memo>>) -> Vec<TaskCode> {
        let store = Arc::clone(self);
        let kernel = Kernel {
            source: include_str!("look-up.cl").to_owned(),
            entry: "look_up".to_owned(),
            options: String::new(),
            items: WorkItemCount::PerInput(KEY),
            group: 64,
            length: AnswerLength::Any,
            tables: self.made.tables().map(|table| Bytes::from(table).into()).into(),
        };
        let host = TaskCode::host(move |input, output| look_up(&store.copy, input, output));
        let host = memo.map_or(host.clone(), |memo| memo.wrap(&host));
        vec![host, TaskCode::OpenCl(kernel.clone()), TaskCode::Cuda(kernel)]
    }

    /// Task `read`: values of looked-up keys, followed by one bit per key for the presence of a value.
    #[must_use]
    pub fn read(self: &Arc<Self>) -> TaskCode {
        let store = Arc::clone(self);
        TaskCode::host(move |input, output| {
            let asked = records::<FOUND>(input)?;
            let count = asked.len();
            let length = values_len(count);
            let output =
                output.get_mut(..length).ok_or_else(|| AppError(format!("output too short for {length} bytes")))?;
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

    /// Task `insert`: eight ignored bytes, then keys; each key has a slot afterwards.
    #[must_use]
    pub fn insert(self: &Arc<Self>) -> TaskCode {
        let store = Arc::clone(self);
        TaskCode::host(move |input, output| {
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

    /// Task `write`: keys, slots and values; the answer is their number.
    #[must_use]
    pub fn write(self: &Arc<Self>) -> TaskCode {
        let store = Arc::clone(self);
        TaskCode::host(move |input, output| {
            let records = records::<{ FOUND + VALUE }>(input)?;
            let count = records.len() as u64;
            for record in records {
                let (key, slot) = (word(&record[..8]), word(&record[8..16]));
                let slot = usize::try_from(slot).ok().and_then(|slot| store.slots.get(slot));
                let slot = slot.ok_or_else(|| AppError("invalid slot".into()))?;
                let value: [u64; WORDS] = std::array::from_fn(|i| word(&record[FOUND + i * 8..][..8]));
                slot.write(key, value);
            }
            output[..8].copy_from_slice(&count.to_le_bytes());
            Ok(8)
        })
    }

    /// Slot of a key, from the slot number of an index if it is right.
    fn slot(&self, key: u64, slot: u64) -> Option<&ValueSlot> {
        let of = |slot: usize| self.slots.get(slot).filter(|slot| slot.key.load(Ordering::Relaxed) == key);
        usize::try_from(slot).ok().and_then(of).or_else(|| of(self.index.find(key)? as usize))
    }
}

/// New keys of one message. Dropping the value updates the accelerator's copy.
struct Inserts<'a> {
    store: &'a IndexedStore,
    copy: MutexGuard<'a, Option<DeviceTables>>,
    writes: Vec<TreeWrite>,
}

impl<'a> Inserts<'a> {
    fn begin(store: &'a IndexedStore) -> Self {
        let copy = store.inserts.lock().unwrap_or_else(PoisonError::into_inner);
        Self { store, copy, writes: Vec::new() }
    }

    fn insert(&mut self, key: u64) -> Result<u32, AppError> {
        let slot = self.store.index.insert(key, |write| self.writes.push(write));
        slot.ok_or_else(|| AppError(format!("the index is full: no slot for key {key:#x}")))
    }
}

impl Drop for Inserts<'_> {
    fn drop(&mut self) {
        if !self.store.updates_copies {
            return;
        }
        self.writes.iter().for_each(|write| self.store.copy.apply(*write));
        let Some(copy) = &*self.copy else { return };
        // A lost device has no copy.
        let send = |(table, at, bytes): (usize, usize, Vec<u8>)| drop(copy.write(table, at, &bytes));
        if self.writes.len() <= SINGLY {
            return self.writes.iter().for_each(|write| send(write.bytes()));
        }
        let [nodes, keys] = self.store.index.tables();
        // Keys first, because nodes refer to them.
        send((1, 0, keys));
        send((0, 0, nodes));
    }
}

impl ValueSlot {
    fn read(&self, to: &mut [u8]) {
        let words = to.chunks_exact_mut(8).zip(&self.value);
        words.for_each(|(to, word)| to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()));
    }

    fn write(&self, key: u64, value: [u64; WORDS]) {
        self.key.store(key, Ordering::Relaxed);
        self.value.iter().zip(value).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    }
}

/// Bytes of the answer to a GET of `count` keys.
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
    Err(AppError(format!("{} bytes are not a multiple of the {LEN} bytes of a record", input.len())))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
