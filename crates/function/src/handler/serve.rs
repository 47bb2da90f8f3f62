//! A handler in C as servers want it ([`crate::serve::Handler`]): values instead of memory, the program's numbers instead of
//! its own.

use super::{Handler, Outcome};
use crate::ir::{Entry, Match, RegisterId, TableId};
use crate::mirror::layout::{ENTRY_BYTES_MAX, Key, TableLayout};
use crate::place;
use crate::serve::{self, Change, Touched};

impl Handler {
    /// Where the program's table stands among the mirrored ones.
    fn index(&self, table: TableId) -> Option<usize> {
        self.face().tables.iter().position(|layout| layout.id == table)
    }

    /// The key of an entry that matches this, or of one that is looked up with an address where `key` has all bits.
    fn key(&self, index: usize, keys: &[Match]) -> Option<Key> {
        let mut bytes = [0; ENTRY_BYTES_MAX];
        let layout = &self.face().tables[index];
        layout.key_from_ir(keys, &mut bytes).then(|| layout.key(&bytes))
    }
}

impl place::Mirror for Handler {
    fn lookup(&self, table: TableId, key: &[u128]) -> Option<Entry> {
        let index = self.index(table)?;
        let layout = &self.face().tables[index];
        let whole: Vec<_> =
            key.iter().zip(&layout.widths).map(|(&value, &prefix_bits)| Match { value, prefix_bits }).collect();
        let key = self.key(index, &whole)?;
        self.world().tables[index].peek(&key).map(|entry| layout.to_ir(entry))
    }

    fn beneath(&self, table: TableId, keys: &[Match]) -> bool {
        let Some(index) = self.index(table) else { return false };
        self.key(index, keys).is_some_and(|key| self.world().tables[index].has_beneath(&key))
    }

    fn widths(&self, table: TableId) -> &[u16] {
        self.index(table).map_or(&[], |index| &self.face().tables[index].widths)
    }

    fn lpm(&self, table: TableId) -> Option<usize> {
        self.face().tables[self.index(table)?].keys.iter().position(|key| key.prefix.is_some())
    }
}

impl serve::Handler for Handler {
    fn handle(&mut self, now_ms: u64, request: &[u128], packet: &[u8], response: &mut [u128]) -> serve::Outcome {
        let (offset, fields) = (self.face.request_offset, &self.face.request.fields);
        let area = &mut self.guest.area()[offset..offset + self.face.request.bytes];
        fields.iter().zip(request).for_each(|(field, value)| field.write(area, *value));
        match self.call(now_ms, packet) {
            Outcome::Done => {
                let (offset, fields) = (self.face.response_offset, &self.face.response.fields);
                let area = &self.guest.area()[offset..offset + self.face.response.bytes];
                fields.iter().zip(response).for_each(|(field, value)| *value = field.read(area));
                serve::Outcome::Respond
            }
            Outcome::Dropped(reason) => serve::Outcome::Drop(reason),
            Outcome::Trapped(_) | Outcome::Resting => serve::Outcome::Trap,
        }
    }

    fn touched(&self) -> Option<Touched> {
        let (index, key) = self.world().touched()?;
        let mirror = &self.world().tables[*index];
        let layout = mirror.layout();
        // It may have been removed again.
        let entry = layout.to_ir(mirror.peek(key)?);
        Some(Touched { table: layout.id, keys: entry.keys, key: values(layout, key) })
    }

    fn poll_change(&mut self) -> Option<(TableId, Change)> {
        self.world_mut().poll_change()
    }

    fn put(&mut self, table: TableId, entry: &Entry) -> bool {
        let Some(index) = self.index(table) else { return false };
        let mut bytes = [0; ENTRY_BYTES_MAX];
        let layout = &self.face.tables[index];
        let bytes = &mut bytes[..layout.bytes];
        layout.from_ir(entry, bytes) && matches!(self.world.insert(index, bytes, Some(0)), Ok(true))
    }

    fn remove(&mut self, table: TableId, keys: &[Match]) -> bool {
        let Some(index) = self.index(table) else { return false };
        self.key(index, keys).is_some_and(|key| self.world_mut().remove(index, &key))
    }

    fn set_leased(&mut self, now_ms: u64, table: TableId, keys: &[Match], leased: bool) {
        if let Some(index) = self.index(table)
            && let Some(key) = self.key(index, keys)
        {
            self.world_mut().tables[index].lease(&key, leased, now_ms);
        }
    }

    fn entry(&self, table: TableId, keys: &[Match]) -> Option<Entry> {
        let index = self.index(table)?;
        let key = self.key(index, keys)?;
        self.world().tables[index].get(&key).map(|entry| self.face().tables[index].to_ir(entry))
    }

    fn each_entry(&self, table: TableId, each: &mut dyn FnMut(&Entry)) {
        let Some(index) = self.index(table) else { return };
        let (mirror, layout) = (&self.world().tables[index], &self.face().tables[index]);
        let mut cursor = 0;
        while let Some(entry) = mirror.next(&mut cursor) {
            each(&layout.to_ir(entry));
        }
    }

    fn register(&self, register: RegisterId, index: u32) -> u128 {
        let at = self.face().registers.iter().position(|id| *id == register);
        at.map_or(0, |at| self.world().registers[at].0.read(index).into())
    }

    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        if let Some(at) = self.face().registers.iter().position(|id| *id == register) {
            let (cells, mask) = &mut self.world_mut().registers[at];
            cells.write(index, value as u64 & *mask);
        }
    }

    fn set_ranges(&mut self, partition: usize, ranges: &[(u128, u128)]) {
        let now_ms = self.world().now_ms();
        let ranges: Vec<_> = ranges.iter().map(|&(first, last)| (first as u64, last as u64)).collect();
        Handler::set_ranges(self, partition, &ranges, now_ms);
    }

    fn expire(&mut self, now_ms: u64) {
        Handler::expire(self, now_ms);
    }

    fn let_go(&mut self, now_ms: u64, table: TableId, keys: &[Match], idle_ms: u64) -> bool {
        let Some(index) = self.index(table) else { return false };
        let Some(key) = self.key(index, keys) else { return false };
        let used = self.world().tables[index].used_ms(&key);
        used.is_some_and(|used| used.saturating_add(idle_ms) <= now_ms) && Handler::let_go(self, index, &key, now_ms)
    }

    fn next_expiry_ms(&self) -> Option<u64> {
        self.next_ms()
    }
}

/// What was looked up, value by value.
fn values(layout: &TableLayout, key: &Key) -> Vec<u128> {
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
