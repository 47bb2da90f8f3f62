//! What outlives a handler's instance: its host's side of tables, registers, partitions and counts.
//!
//! ```text
//! handler ── pc_host(op, which, …) ─► World: mirrored tables, mirrored registers, ranges, reasons
//!                                       │
//!                                       └─► changes of tables, and which entry the packet was about
//! ```

use pathcall_sandbox::Host;

use std::collections::VecDeque;

use crate::ir::TableId;
use crate::mirror::layout::{ENTRY_BYTES_MAX, Key};
use crate::mirror::{Full, Inserted, Mirror};
use crate::serve::Change;

/// Reasons that a handler may count.
pub const REASONS_MAX: usize = 64;
/// The longest name of one, bytes.
pub const REASON_BYTES_MAX: usize = 64;
/// Ranges of one partition that a handler sees.
pub const RANGES_MAX: usize = 64;
/// Cells of a mirrored register at a server, also beyond those that an element has.
pub const CELLS_MAX: u32 = 1 << 24;
/// Changes that are kept until they are asked for; tables take no more of a handler's until then.
pub const CHANGES_MAX: usize = 1 << 20;
/// Cells that are made at once.
const PAGE: usize = 1024;

const LOOKUP: u32 = 0;
const INSERT: u32 = 1;
const REMOVE: u32 = 2;
const TIMEOUT: u32 = 3;
const ENTRIES: u32 = 4;
const NEXT: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const PACKET: u32 = 8;
const REASON: u32 = 9;
const COUNT: u32 = 10;
const RANGES: u32 = 11;

/// A mirrored register at a server: cells from 0 on, of which an element has the first.
#[derive(Debug, Clone, Default)]
pub struct Cells {
    pages: Vec<Option<Box<[u64; PAGE]>>>,
}

impl Cells {
    /// The cell's value; 0 if it was never written.
    #[must_use]
    pub fn read(&self, index: u32) -> u64 {
        let page = self.pages.get(index as usize / PAGE).and_then(Option::as_ref);
        page.map_or(0, |page| page[index as usize % PAGE])
    }

    /// Writes a cell; beyond [`CELLS_MAX`] nothing happens.
    pub fn write(&mut self, index: u32, value: u64) {
        if index >= CELLS_MAX {
            return;
        }
        let page = index as usize / PAGE;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))[index as usize % PAGE] = value;
    }
}

/// The host's side.
#[derive(Debug)]
pub struct World {
    /// Mirrored tables, as the face numbers them.
    pub tables: Vec<Mirror>,
    /// Mirrored registers, likewise, with the bits of their cells.
    pub registers: Vec<(Cells, u64)>,
    /// For each partition the ranges that are this server's own: first and last.
    pub ranges: Vec<Vec<(u64, u64)>>,
    /// Reasons that the handler counted, and how often.
    pub reasons: Vec<(String, u64)>,
    changes: VecDeque<(TableId, Change)>,
    /// The entry that the packet is about: the first that was found or made, by table and key.
    touched: Option<(usize, Key)>,
    now_ms: u64,
}

impl World {
    pub(super) fn new(tables: Vec<Mirror>, register_bits: Vec<u16>, partitions: usize) -> Self {
        let mask = |bits: u16| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        Self {
            tables,
            registers: register_bits.into_iter().map(|bits| (Cells::default(), mask(bits))).collect(),
            ranges: vec![Vec::new(); partitions],
            reasons: Vec::new(),
            changes: VecDeque::new(),
            touched: None,
            now_ms: 0,
        }
    }

    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.touched = None;
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(super) fn touched(&self) -> Option<&(usize, Key)> {
        self.touched.as_ref()
    }

    /// The next change of a table that was not asked for yet.
    pub fn poll_change(&mut self) -> Option<(TableId, Change)> {
        self.changes.pop_front()
    }

    /// The reason's number, from 1.
    pub(super) fn reason(&mut self, name: &str) -> u64 {
        if let Some(index) = self.reasons.iter().position(|(known, _)| known == name) {
            return index as u64 + 1;
        }
        if self.reasons.len() == REASONS_MAX {
            // The last one stands for all others.
            return REASONS_MAX as u64;
        }
        let name = if self.reasons.len() + 1 == REASONS_MAX { "further reasons" } else { name };
        self.reasons.push((name.to_owned(), 0));
        self.reasons.len() as u64
    }

    pub(super) fn count(&mut self, reason: u64, times: u64) {
        if let Some((_, count)) = reason.checked_sub(1).and_then(|at| self.reasons.get_mut(at as usize)) {
            *count = count.saturating_add(times);
        }
    }

    /// An entry of a table has gone.
    pub(super) fn gone(&mut self, table: usize, entry: &[u8]) {
        let layout = self.tables[table].layout();
        self.changes.push_back((layout.id, Change::Removed(layout.to_ir(entry).keys)));
    }

    /// Puts in what a handler wrote, or a controller; false if it is none of the table's.
    pub(super) fn insert(&mut self, table: usize, written: &[u8], idle_ms: Option<u64>) -> Result<bool, Full> {
        let mut entry = [0; ENTRY_BYTES_MAX];
        let mirror = &mut self.tables[table];
        let entry = &mut entry[..mirror.layout().bytes];
        if written.len() != entry.len() || !mirror.layout().normalise(written, entry) {
            return Ok(false);
        }
        if self.changes.len() >= CHANGES_MAX {
            return Err(Full);
        }
        let inserted = mirror.insert(entry, idle_ms, self.now_ms)?;
        self.touched.get_or_insert_with(|| (table, mirror.layout().key(entry)));
        if inserted != Inserted::Same {
            self.changes.push_back((mirror.layout().id, Change::Put(mirror.layout().to_ir(entry))));
        }
        Ok(true)
    }

    pub(super) fn remove(&mut self, table: usize, key: &Key) -> bool {
        let mirror = &mut self.tables[table];
        let Some(removed) = mirror.remove(key) else { return false };
        self.changes.push_back((mirror.layout().id, Change::Removed(removed.keys)));
        true
    }
}

/// One call: the world, and the packet.
pub(super) struct Call<'a> {
    pub(super) world: &'a mut World,
    pub(super) packet: &'a [u8],
}

impl Host for Call<'_> {
    fn call(&mut self, op: u32, which: u32, input: &[u8], output: &mut [u8], value: u64) -> u64 {
        let world = &mut *self.world;
        let index = which as usize;
        match op {
            LOOKUP..=NEXT => {
                // The sizes are the handler's: they need not be the table's.
                let Some(mirror) = world.tables.get_mut(index) else { return 0 };
                let now_ms = world.now_ms;
                let (key_bytes, bytes) = (mirror.layout().key.bytes, mirror.layout().bytes);
                match op {
                    LOOKUP if input.len() == key_bytes && output.len() == bytes => {
                        let key = mirror.layout().key(input);
                        let Some(entry) = mirror.lookup(&key, now_ms) else { return 0 };
                        output.copy_from_slice(entry);
                        world.touched.get_or_insert((index, key));
                        1
                    }
                    INSERT => {
                        let idle_ms = (value > 0).then_some(value);
                        u64::from(matches!(world.insert(index, input, idle_ms), Ok(true)))
                    }
                    REMOVE if input.len() == key_bytes => {
                        let key = mirror.layout().key(input);
                        u64::from(world.remove(index, &key))
                    }
                    TIMEOUT if input.len() == key_bytes => {
                        let key = mirror.layout().key(input);
                        u64::from(mirror.set_idle(&key, (value > 0).then_some(value)))
                    }
                    ENTRIES => mirror.len().into(),
                    NEXT if output.len() == bytes => {
                        let mut cursor = value;
                        let Some(entry) = mirror.next(&mut cursor) else { return 0 };
                        output.copy_from_slice(entry);
                        cursor
                    }
                    _ => 0,
                }
            }
            READ => match (world.registers.get(index), u32::try_from(value)) {
                (Some((cells, _)), Ok(cell)) => cells.read(cell),
                _ => 0,
            },
            WRITE => {
                if let (Some((cells, mask)), Ok(cell), Ok(value)) =
                    (world.registers.get_mut(index), u32::try_from(value), input.try_into().map(u64::from_le_bytes))
                {
                    cells.write(cell, value & *mask);
                }
                0
            }
            PACKET => {
                let bytes = output.len().min(self.packet.len());
                output[..bytes].copy_from_slice(&self.packet[..bytes]);
                bytes as u64
            }
            REASON => {
                let name = String::from_utf8_lossy(&input[..input.len().min(REASON_BYTES_MAX)]);
                let name: String = name.chars().filter(|c| !c.is_control()).collect();
                world.reason(if name.is_empty() { "dropped by the handler" } else { &name })
            }
            COUNT => {
                world.count(which.into(), value);
                0
            }
            RANGES => {
                let Some(ranges) = world.ranges.get(index) else { return 0 };
                output.fill(0);
                let Some((head, at)) = output.split_at_mut_checked(8) else { return 0 };
                let count = ranges.len().min(at.len() / 16).min(RANGES_MAX);
                head[..4].copy_from_slice(&(count as u32).to_le_bytes());
                for (at, (first, last)) in at.chunks_exact_mut(16).zip(&ranges[..count]) {
                    at[..8].copy_from_slice(&first.to_le_bytes());
                    at[8..].copy_from_slice(&last.to_le_bytes());
                }
                count as u64
            }
            _ => 0,
        }
    }
}
