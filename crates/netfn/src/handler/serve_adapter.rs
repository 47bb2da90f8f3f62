//! Implementation of [`crate::serve::FunctionHandler`] for a handler in C: converts between values and the handler's
//! memory, and between the program's numbers and the handler's.

use super::{CHandler, CHandlerOutcome};
use crate::mirror::layout::{ENTRY_BYTES_MAX, MirrorKey, TableLayout};
use crate::place;
use crate::serve::{self, TableChange, TouchedEntry};
use pathcall_p4::ir::{Match, RegisterId, TableEntry, TableId};

impl CHandler {
    /// Index of the program's table among the mirrored tables.
    fn index(&self, table: TableId) -> Option<usize> {
        self.interface().tables.iter().position(|layout| layout.id == table)
    }

    /// Key of an entry with these matches; for a lookup, a prefix key has all bits of the address.
    fn key(&self, index: usize, keys: &[Match]) -> Option<MirrorKey> {
        let mut bytes = [0; ENTRY_BYTES_MAX];
        let layout = &self.interface().tables[index];
        layout.key_from_ir(keys, &mut bytes).then(|| layout.key(&bytes))
    }
}

impl place::LeasableTables for CHandler {
    fn lookup(&self, table: TableId, key: &[u128]) -> Option<TableEntry> {
        let index = self.index(table)?;
        let layout = &self.interface().tables[index];
        let whole: Vec<_> =
            key.iter().zip(&layout.widths).map(|(&value, &prefix_bits)| Match { value, prefix_bits }).collect();
        let key = self.key(index, &whole)?;
        self.state().tables[index].peek(&key).map(|entry| layout.to_ir(entry))
    }

    fn has_more_specific(&self, table: TableId, keys: &[Match]) -> bool {
        let Some(index) = self.index(table) else { return false };
        self.key(index, keys).is_some_and(|key| self.state().tables[index].has_beneath(&key))
    }

    fn widths(&self, table: TableId) -> &[u16] {
        self.index(table).map_or(&[], |index| &self.interface().tables[index].widths)
    }

    fn lpm(&self, table: TableId) -> Option<usize> {
        self.interface().tables[self.index(table)?].keys.iter().position(|key| key.prefix.is_some())
    }
}

impl serve::FunctionHandler for CHandler {
    fn handle(&mut self, now_ms: u64, request: &[u128], packet: &[u8], response: &mut [u128]) -> serve::HandlerOutcome {
        let (offset, fields) = (self.interface.request_offset, &self.interface.request.fields);
        let area = &mut self.guest.area()[offset..offset + self.interface.request.bytes];
        fields.iter().zip(request).for_each(|(field, value)| field.write(area, *value));
        match self.call(now_ms, packet) {
            CHandlerOutcome::Done => {
                let (offset, fields) = (self.interface.response_offset, &self.interface.response.fields);
                let area = &self.guest.area()[offset..offset + self.interface.response.bytes];
                fields.iter().zip(response).for_each(|(field, value)| *value = field.read(area));
                serve::HandlerOutcome::Respond
            }
            CHandlerOutcome::Dropped(reason) => serve::HandlerOutcome::Drop(reason),
            CHandlerOutcome::Trapped(_) | CHandlerOutcome::Paused => serve::HandlerOutcome::Trap,
        }
    }

    fn touched(&self) -> Option<TouchedEntry> {
        let (index, key) = self.state().touched()?;
        let mirror = &self.state().tables[*index];
        let layout = mirror.layout();
        // The handler may have removed the entry after its lookup.
        let entry = layout.to_ir(mirror.peek(key)?);
        Some(TouchedEntry { table: layout.id, keys: entry.keys, key: values(layout, key) })
    }

    fn poll_change(&mut self) -> Option<(TableId, TableChange)> {
        self.state_mut().poll_change()
    }

    fn put(&mut self, table: TableId, entry: &TableEntry) -> bool {
        let Some(index) = self.index(table) else { return false };
        let mut bytes = [0; ENTRY_BYTES_MAX];
        let layout = &self.interface.tables[index];
        let bytes = &mut bytes[..layout.bytes];
        layout.from_ir(entry, bytes) && matches!(self.state.insert(index, bytes, Some(0)), Ok(true))
    }

    fn remove(&mut self, table: TableId, keys: &[Match]) -> bool {
        let Some(index) = self.index(table) else { return false };
        self.key(index, keys).is_some_and(|key| self.state_mut().remove(index, &key))
    }

    fn set_leased(&mut self, now_ms: u64, table: TableId, keys: &[Match], leased: bool) {
        if let Some(index) = self.index(table)
            && let Some(key) = self.key(index, keys)
        {
            self.state_mut().tables[index].lease(&key, leased, now_ms);
        }
    }

    fn entry(&self, table: TableId, keys: &[Match]) -> Option<TableEntry> {
        let index = self.index(table)?;
        let key = self.key(index, keys)?;
        self.state().tables[index].get(&key).map(|entry| self.interface().tables[index].to_ir(entry))
    }

    fn each_entry(&self, table: TableId, each: &mut dyn FnMut(&TableEntry)) {
        let Some(index) = self.index(table) else { return };
        let (mirror, layout) = (&self.state().tables[index], &self.interface().tables[index]);
        let mut cursor = 0;
        while let Some(entry) = mirror.next(&mut cursor) {
            each(&layout.to_ir(entry));
        }
    }

    fn register(&self, register: RegisterId, index: u32) -> u128 {
        let at = self.interface().registers.iter().position(|id| *id == register);
        at.map_or(0, |at| self.state().registers[at].0.read(index).into())
    }

    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        if let Some(at) = self.interface().registers.iter().position(|id| *id == register) {
            let (cells, mask) = &mut self.state_mut().registers[at];
            cells.write(index, value as u64 & *mask);
        }
    }

    fn set_ranges(&mut self, partition: usize, ranges: &[(u128, u128)]) {
        let now_ms = self.state().now_ms();
        let ranges: Vec<_> = ranges.iter().map(|&(first, last)| (first as u64, last as u64)).collect();
        CHandler::set_ranges(self, partition, &ranges, now_ms);
    }

    fn expire(&mut self, now_ms: u64) {
        CHandler::expire(self, now_ms);
    }

    fn expire_if_idle(&mut self, now_ms: u64, table: TableId, keys: &[Match], idle_ms: u64) -> bool {
        let Some(index) = self.index(table) else { return false };
        let Some(key) = self.key(index, keys) else { return false };
        let used = self.state().tables[index].used_ms(&key);
        used.is_some_and(|used| used.saturating_add(idle_ms) <= now_ms)
            && CHandler::expire_entry(self, index, &key, now_ms)
    }

    fn next_expiry_ms(&self) -> Option<u64> {
        self.next_ms()
    }
}

/// Values of a key, one per key field.
fn values(layout: &TableLayout, key: &MirrorKey) -> Vec<u128> {
    let mut exact = key.exact();
    let of = |part: &crate::mirror::layout::KeyField| match part.prefix {
        Some(_) => key.prefix.value,
        None => {
            let (value, rest) = exact.split_at(crate::mirror::layout::size(layout.key.fields[part.value].ty).0);
            exact = rest;
            value.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
        }
    };
    layout.keys.iter().map(of).collect()
}
