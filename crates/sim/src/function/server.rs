//! Server of the function: mirrored tables, handler, and leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pathcall_netfn::place::{EntryNumber, EntryValues, LeasableTables, LeaseHolder};
use pathcall_netfn::scale::{Load, ValueBlock, Version};
use pathcall_netfn::serve::{Groups, RequestRepeatFilter};
use pathcall_p4::ir::{ActionId, Match, TableEntry, TableId};
use pathcall_wire::Instant;

use super::plan::ENTRY_IDLE;
use super::program::{Packet, PacketKind, ServerHeader};

/// Process of a server.
#[derive(Debug, Clone)]
pub(super) struct SimulatedServer {
    pub(super) incarnation: u32,
    pub(super) tables: MirroredTables,
    pub(super) holder: LeaseHolder,
    /// Register cells, by the index that this server assigned.
    before: BTreeMap<u32, u32>,
    next_index: u32,
    blocks: BTreeMap<ValueBlock, (u32, u32)>,
    taken: BTreeSet<ValueBlock>,
    next_value: u32,
    groups: Groups,
    repeats: RequestRepeatFilter,
    pub(super) busy_until: Instant,
}

/// Mirrored tables of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct MirroredTables {
    counts: BTreeMap<u32, FlowEntry>,
    outs: BTreeMap<u32, FlowEntry>,
    backs: BTreeMap<u32, u32>,
    pub(super) routes: BTreeMap<(u16, u32), u32>,
}

/// Exact entry of a flow.
#[derive(Debug, Clone, Copy)]
struct FlowEntry {
    /// Index or value of the flow.
    value: u32,
    /// Time of the last packet, or of the end of the lease.
    used: Instant,
    /// Version and bucket of the last packet.
    came: (Version, u16),
}

impl FlowEntry {
    fn new(value: u32) -> Self {
        Self { value, used: Instant(0), came: (0, 0) }
    }

    /// Records a packet of the flow.
    fn record_packet(&mut self, now: Instant, front: &ServerHeader) {
        (self.used, self.came) = (now, (front.version, front.bucket));
    }
}

const WIDTHS: [u16; 1] = [32];
pub(super) fn exact(key: u32) -> Vec<Match> {
    vec![Match { value: key.into(), prefix_bits: 32 }]
}

fn covers(bits: u16, value: u32, key: u32) -> bool {
    bits == 0 || (value ^ key) >> (32 - bits) == 0
}

impl LeasableTables for MirroredTables {
    fn lookup(&self, table: TableId, key: &[u128]) -> Option<TableEntry> {
        let key = key[0] as u32;
        let entry =
            |value: u32| TableEntry { keys: exact(key), action: ActionId(table.0 + 1), args: vec![value.into()] };
        match table.0 {
            0 => self.counts.get(&key).map(|held| entry(held.value)),
            1 => self.outs.get(&key).map(|held| entry(held.value)),
            2 => self.backs.get(&key).copied().map(entry),
            _ => self.route(key).map(|(bits, value, hop)| TableEntry {
                keys: vec![Match { value: value.into(), prefix_bits: bits }],
                ..entry(hop)
            }),
        }
    }

    fn has_more_specific(&self, table: TableId, keys: &[Match]) -> bool {
        let Match { value, prefix_bits } = keys[0];
        let within = |(bits, other): &(u16, u32)| *bits > prefix_bits && covers(prefix_bits, value as u32, *other);
        table == PacketKind::Route.table() && self.routes.keys().any(within)
    }

    fn widths(&self, _: TableId) -> &[u16] {
        &WIDTHS
    }

    fn lpm(&self, table: TableId) -> Option<usize> {
        (table == PacketKind::Route.table()).then_some(0)
    }
}

impl MirroredTables {
    /// Creates tables with these routes and no flows.
    pub(super) fn of_routes(routes: &BTreeMap<(u16, u32), u32>) -> Self {
        Self { routes: routes.clone(), ..Self::default() }
    }

    /// Flow entry that an exact entry belongs to.
    fn held(&mut self, table: TableId, key: u32) -> Option<&mut FlowEntry> {
        match table.0 {
            0 => self.counts.get_mut(&key),
            1 => self.outs.get_mut(&key),
            2 => self.outs.get_mut(self.backs.get(&key)?),
            _ => None,
        }
    }

    /// Longest matching prefix of a key: length, value, next hop.
    pub(super) fn route(&self, key: u32) -> Option<(u16, u32, u32)> {
        let longest = self.routes.iter().rev().find(|((bits, value), _)| covers(*bits, *value, key));
        longest.map(|((bits, value), hop)| (*bits, *value, *hop))
    }
}

impl SimulatedServer {
    pub(super) fn new(id: u16, incarnation: u32, routes: &BTreeMap<(u16, u32), u32>) -> Self {
        Self {
            incarnation,
            tables: MirroredTables::of_routes(routes),
            holder: LeaseHolder::new(id),
            before: BTreeMap::new(),
            next_index: 0,
            blocks: BTreeMap::new(),
            taken: BTreeSet::new(),
            next_value: u32::MAX,
            groups: Groups::default(),
            repeats: RequestRepeatFilter::default(),
            busy_until: Instant(0),
        }
    }

    /// Drops a request because the queue is full. A repeat of it is dropped, too: it would be out of order.
    pub(super) fn misses(&mut self, front: &ServerHeader) {
        let _ = self.repeats.is_repeat(front.number, front.period);
    }

    /// Runs the handler on a request; `None` if the request is a repeat.
    pub(super) fn work(
        &mut self,
        now: Instant,
        front: ServerHeader,
        mut packet: Packet,
    ) -> Option<(ServerHeader, Packet)> {
        if self.repeats.is_repeat(front.number, front.period) {
            return None;
        }
        let (table, keys) = (packet.kind.table(), self.keys(&packet));
        let number = |server: &Self| server.holder.number(&server.tables, table, &keys, &[packet.key.into()]);
        let mut leased = number(self);
        if packet.kind == PacketKind::Count
            && let (Some(number), Some(held)) = (leased, self.tables.counts.get(&packet.key))
            && front.entry == number + 1
            && self.holder.requested(number, front.turn)
        {
            self.before.insert(held.value, front.value);
        }
        match packet.kind {
            PacketKind::Count => packet.a = self.count(now, &packet, &front),
            PacketKind::Out => packet.a = self.out(now, &packet, &front),
            PacketKind::Back => packet.b = self.back(now, packet.key),
            PacketKind::Route => packet.a = self.tables.route(packet.key).map_or(0, |(_, _, hop)| hop),
        }
        leased = leased.or_else(|| number(self));
        let turn = leased.and_then(|number| Some((number, self.holder.responded(number)?)));
        let value = self.tables.counts.get(&packet.key).and_then(|held| self.before.get(&held.value)).copied();
        let stranger = packet.kind != PacketKind::Route && front.entry != 0;
        let (entry, turn) = match turn {
            Some((number, turn)) => (number + 1, turn),
            None if stranger => (front.entry, LeaseHolder::FOREIGN_ENTRY),
            None => (0, 0),
        };
        Some((ServerHeader { response: true, entry, turn, value: value.unwrap_or(0), ..front }, packet))
    }

    /// Match of the server's own entry for a packet.
    fn keys(&self, packet: &Packet) -> Vec<Match> {
        let entry = self.tables.lookup(packet.kind.table(), &[packet.key.into()]);
        entry.map_or_else(|| exact(packet.key), |entry| entry.keys)
    }

    fn count(&mut self, now: Instant, packet: &Packet, front: &ServerHeader) -> u32 {
        let next = self.next_index;
        let held = self.tables.counts.entry(packet.key).or_insert_with(|| FlowEntry::new(next));
        held.record_packet(now, front);
        let index = held.value;
        if index == next {
            self.next_index += 1;
            self.before.insert(index, 0);
        }
        let before = self.before.insert(index, packet.sequence).unwrap_or(0);
        if packet.last {
            self.tables.counts.remove(&packet.key);
            self.before.remove(&index);
            self.holder.changed(&self.tables, PacketKind::Count.table(), &exact(packet.key));
        }
        before
    }

    fn out(&mut self, now: Instant, packet: &Packet, front: &ServerHeader) -> u32 {
        if !self.tables.outs.contains_key(&packet.key) {
            let Some(value) = self.free_value() else { return 0 };
            self.tables.outs.insert(packet.key, FlowEntry::new(value));
            self.tables.backs.insert(value, packet.key);
        }
        let Some(held) = self.tables.outs.get_mut(&packet.key) else { return 0 };
        held.record_packet(now, front);
        let value = held.value;
        if packet.last {
            self.unmap(packet.key);
        }
        value
    }

    /// Next free value of the server's blocks; recently used values come last.
    fn free_value(&mut self) -> Option<u32> {
        let own = |value: &u32| {
            let block = self.blocks.iter().find(|(_, (first, last))| (*first..=*last).contains(value));
            block.is_some_and(|(block, _)| !self.taken.contains(block)) && !self.tables.backs.contains_key(value)
        };
        // Highest block first, because the scaler takes back blocks in that order.
        let all = || self.blocks.values().rev().flat_map(|(first, last)| (*first..=*last).rev());
        let value = all().find(|value| *value < self.next_value && own(value)).or_else(|| all().find(own))?;
        self.next_value = value;
        Some(value)
    }

    fn back(&mut self, now: Instant, value: u32) -> u32 {
        let Some(key) = self.tables.backs.get(&value).copied() else { return 0 };
        if let Some(held) = self.tables.outs.get_mut(&key) {
            held.used = now;
        }
        key
    }

    fn unmap(&mut self, key: u32) {
        let Some(held) = self.tables.outs.remove(&key) else { return };
        self.tables.backs.remove(&held.value);
        self.holder.changed(&self.tables, PacketKind::Out.table(), &exact(key));
        self.holder.changed(&self.tables, PacketKind::Back.table(), &exact(held.value));
    }

    /// Removes unused flows that the element has no entry of.
    pub(super) fn expire(&mut self, now: Instant) {
        let leased = |kind: PacketKind, key: u32| self.holder.is_leased(kind.table(), &exact(key));
        let old = |held: &FlowEntry| now.since(held.used) >= ENTRY_IDLE;
        let counts: Vec<u32> = (self.tables.counts.iter())
            .filter(|(key, held)| old(held) && !leased(PacketKind::Count, **key))
            .map(|(key, _)| *key)
            .collect();
        let outs: Vec<u32> = (self.tables.outs.iter())
            .filter(|(key, held)| old(held) && !leased(PacketKind::Out, **key) && !leased(PacketKind::Back, held.value))
            .map(|(key, _)| *key)
            .collect();
        counts.into_iter().for_each(|key| self.forget(PacketKind::Count, key));
        outs.into_iter().for_each(|key| self.forget(PacketKind::Out, key));
    }

    /// Takes the register value of an entry that left the element.
    pub(super) fn given(&mut self, given: &EntryValues) {
        let Some((_, keys)) = self.holder.held(given.number) else { return };
        let newer = self.holder.given(given.number, given.turn);
        if let (true, Some(held)) = (newer, self.tables.counts.get(&(keys[0].value as u32))) {
            self.before.insert(held.value, given.values[0] as u32);
        }
    }

    /// Ends the lease of an entry.
    pub(super) fn released(&mut self, now: Instant, number: EntryNumber) {
        let held = self.holder.held(number).map(|(table, keys)| (table, keys[0].value as u32));
        self.holder.released(&self.tables, number);
        let Some((table, key)) = held else { return };
        if let Some(held) = self.tables.held(table, key) {
            held.used = now;
        }
    }

    pub(super) fn group(&mut self, groups: Groups) {
        self.groups = groups;
    }

    /// Handles the controller's request for a lease.
    pub(super) fn lease(&mut self, table: TableId, key: &[u128], number: EntryNumber) {
        let held = self.tables.held(table, key[0] as u32);
        if held.is_some_and(|held| self.groups.is_diverted(held.came)) {
            return self.holder.refuse(number);
        }
        self.holder.lease(&self.tables, table, key, number);
    }

    /// Drains flows of old groups: recalls entries of those that stay, removes idle ones.
    pub(super) fn drain(&mut self, now: Instant, idle: Option<Duration>) {
        let old = |(kind, table): (PacketKind, &BTreeMap<u32, FlowEntry>)| -> Vec<(PacketKind, u32, FlowEntry)> {
            let old = table.iter().filter(|(_, held)| self.groups.is_old(held.came));
            old.map(|(key, held)| (kind, *key, *held)).collect()
        };
        let tables = [(PacketKind::Count, &self.tables.counts), (PacketKind::Out, &self.tables.outs)];
        let old: Vec<_> = tables.into_iter().flat_map(old).collect();
        for (kind, key, held) in old {
            let mut entries = vec![(kind.table(), exact(key))];
            if kind == PacketKind::Out {
                entries.push((PacketKind::Back.table(), exact(held.value)));
            }
            if entries.iter().any(|(table, keys)| self.holder.is_leased(*table, keys)) {
                if self.groups.has(held.came.1) {
                    entries.iter().for_each(|(table, keys)| self.holder.recall_entry(*table, keys));
                }
            } else if idle.is_some_and(|idle| now.since(held.used) >= idle) {
                self.forget(kind, key);
            }
        }
    }

    fn forget(&mut self, kind: PacketKind, key: u32) {
        match kind {
            PacketKind::Count => {
                if let Some(held) = self.tables.counts.remove(&key) {
                    self.before.remove(&held.value);
                }
            }
            _ => self.unmap(key),
        }
    }

    pub(super) fn give(&mut self, block: ValueBlock, (first, last): (u128, u128)) {
        self.taken.remove(&block);
        self.blocks.insert(block, (first as u32, last as u32));
    }

    pub(super) fn take(&mut self, block: ValueBlock) {
        self.taken.insert(block);
    }

    /// Returns blocks that were taken back and have no used value any more.
    pub(super) fn returned(&mut self) -> Vec<ValueBlock> {
        let empty = |block: &ValueBlock| match self.blocks.get(block) {
            Some((first, last)) => self.tables.backs.range(*first..=*last).next().is_none(),
            None => true,
        };
        let done: Vec<ValueBlock> = self.taken.iter().copied().filter(empty).collect();
        for block in &done {
            self.taken.remove(block);
            self.blocks.remove(block);
        }
        done
    }

    pub(super) fn load(&self) -> Load {
        let held = || self.tables.counts.values().chain(self.tables.outs.values());
        Load {
            server: self.holder.server(),
            incarnation: self.incarnation,
            load: 0.5,
            flows: held().count() as u64,
            old_flows: held().filter(|held| self.groups.is_old(held.came)).count() as u64,
            version: self.groups.newest,
        }
    }

    /// Whether it has no state but routes.
    pub(super) fn is_idle(&self) -> bool {
        self.tables.counts.is_empty() && self.tables.outs.is_empty() && self.holder.leases() == 0
    }
}
