//! State that the host keeps for a handler: tables, registers, partitions and drop counts. It outlives the handler's
//! instances.
//!
//! ```text
//! handler ── pc_host(op, which, …) ─► HandlerState: mirrored tables, mirrored registers, ranges, reasons
//!                                       │
//!                                       └─► changes of tables, and the entry that the packet is about
//! ```

use pathcall_sandbox::Host;

use std::collections::VecDeque;

use crate::mirror::layout::{ENTRY_BYTES_MAX, MirrorKey};
use crate::mirror::{Inserted, MirroredTable, TableFull};
use crate::serve::TableChange;
use pathcall_p4::ir::TableId;

/// Most drop reasons of one handler.
pub const REASONS_MAX: usize = 64;
/// Most bytes of a reason's name.
pub const REASON_BYTES_MAX: usize = 64;
/// Most ranges of one partition that a handler sees.
pub const RANGES_MAX: usize = 64;
/// Cells of a mirrored register at a server, including those that the element does not have.
pub const CELLS_MAX: u32 = 1 << 24;
/// Most changes that are queued; insertions by the handler fail while the queue is full.
pub const CHANGES_MAX: usize = 1 << 20;
/// Cells allocated at a time.
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

/// Cells of a mirrored register at a server; the element has the first of them.
#[derive(Debug, Clone, Default)]
pub struct RegisterCells {
    pages: Vec<Option<Box<[u64; PAGE]>>>,
}

impl RegisterCells {
    /// Value of a cell; 0 if the cell was never written.
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

/// State of a handler on the host's side.
#[derive(Debug)]
pub struct HandlerState {
    /// Mirrored tables, numbered as in the C interface.
    pub tables: Vec<MirroredTable>,
    /// Mirrored registers, numbered as in the C interface, each with the bit mask of its cells.
    pub registers: Vec<(RegisterCells, u64)>,
    /// Ranges of each partition that belong to this server, first and last value.
    pub ranges: Vec<Vec<(u64, u64)>>,
    /// Drop reasons of the handler, with their counts.
    pub reasons: Vec<(String, u64)>,
    changes: VecDeque<(TableId, TableChange)>,
    /// Table and key of the entry that the packet is about: the first entry that was found or inserted for the packet.
    touched: Option<(usize, MirrorKey)>,
    now_ms: u64,
}

impl HandlerState {
    pub(super) fn new(tables: Vec<MirroredTable>, register_bits: Vec<u16>, partitions: usize) -> Self {
        let mask = |bits: u16| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        Self {
            tables,
            registers: register_bits.into_iter().map(|bits| (RegisterCells::default(), mask(bits))).collect(),
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

    pub(super) fn touched(&self) -> Option<&(usize, MirrorKey)> {
        self.touched.as_ref()
    }

    /// Next change of a table that was not returned yet.
    pub fn poll_change(&mut self) -> Option<(TableId, TableChange)> {
        self.changes.pop_front()
    }

    /// Number of a reason, from 1.
    pub(super) fn reason_number(&mut self, name: &str) -> u64 {
        if let Some(index) = self.reasons.iter().position(|(known, _)| known == name) {
            return index as u64 + 1;
        }
        if self.reasons.len() == REASONS_MAX {
            // The last number stands for all further reasons.
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

    /// Queues the removal of an entry.
    pub(super) fn queue_removal(&mut self, table: usize, entry: &[u8]) {
        let layout = self.tables[table].layout();
        self.changes.push_back((layout.id, TableChange::Removed(layout.to_ir(entry).keys)));
    }

    /// Inserts an entry written by the handler or the controller; false if the entry does not fit the table.
    pub(super) fn insert(&mut self, table: usize, written: &[u8], idle_ms: Option<u64>) -> Result<bool, TableFull> {
        let mut entry = [0; ENTRY_BYTES_MAX];
        let mirror = &mut self.tables[table];
        let entry = &mut entry[..mirror.layout().bytes];
        if written.len() != entry.len() || !mirror.layout().normalise(written, entry) {
            return Ok(false);
        }
        if self.changes.len() >= CHANGES_MAX {
            return Err(TableFull);
        }
        let inserted = mirror.insert(entry, idle_ms, self.now_ms)?;
        self.touched.get_or_insert_with(|| (table, mirror.layout().key(entry)));
        if inserted != Inserted::Same {
            self.changes.push_back((mirror.layout().id, TableChange::Put(mirror.layout().to_ir(entry))));
        }
        Ok(true)
    }

    pub(super) fn remove(&mut self, table: usize, key: &MirrorKey) -> bool {
        let mirror = &mut self.tables[table];
        let Some(removed) = mirror.remove(key) else { return false };
        self.changes.push_back((mirror.layout().id, TableChange::Removed(removed.keys)));
        true
    }
}

/// Host side of one call: the handler's state and the packet.
pub(super) struct HostCall<'a> {
    pub(super) state: &'a mut HandlerState,
    pub(super) packet: &'a [u8],
}

impl Host for HostCall<'_> {
    fn call(&mut self, op: u32, which: u32, input: &[u8], output: &mut [u8], value: u64) -> u64 {
        let state = &mut *self.state;
        let index = which as usize;
        match op {
            LOOKUP..=NEXT => {
                // The handler chose the buffer sizes, which may differ from the table's sizes.
                let Some(mirror) = state.tables.get_mut(index) else { return 0 };
                let now_ms = state.now_ms;
                let (key_bytes, bytes) = (mirror.layout().key.bytes, mirror.layout().bytes);
                match op {
                    LOOKUP if input.len() == key_bytes && output.len() == bytes => {
                        let key = mirror.layout().key(input);
                        let Some(entry) = mirror.lookup(&key, now_ms) else { return 0 };
                        output.copy_from_slice(entry);
                        state.touched.get_or_insert((index, key));
                        1
                    }
                    INSERT => {
                        let idle_ms = (value > 0).then_some(value);
                        u64::from(matches!(state.insert(index, input, idle_ms), Ok(true)))
                    }
                    REMOVE if input.len() == key_bytes => {
                        let key = mirror.layout().key(input);
                        u64::from(state.remove(index, &key))
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
            READ => match (state.registers.get(index), u32::try_from(value)) {
                (Some((cells, _)), Ok(cell)) => cells.read(cell),
                _ => 0,
            },
            WRITE => {
                if let (Some((cells, mask)), Ok(cell), Ok(value)) =
                    (state.registers.get_mut(index), u32::try_from(value), input.try_into().map(u64::from_le_bytes))
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
                state.reason_number(if name.is_empty() { "dropped by the handler" } else { &name })
            }
            COUNT => {
                state.count(which.into(), value);
                0
            }
            RANGES => {
                let Some(ranges) = state.ranges.get(index) else { return 0 };
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
