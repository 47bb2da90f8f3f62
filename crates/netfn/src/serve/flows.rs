//! Flows of a server: which entries belong to one flow, and the group of the flow's last packet.
//!
//! ```text
//! packet, its version and bucket ─► entry that it was about, entries that it made ─► flow ─► new, old, or diverted
//! ```
//!
//! The element remembers a flow by its last packet to a server, so that packet decides whether the flow is old. A flow
//! is *diverted* if its packets go to another server, because the element restarted or its server was taken for dead.
//! What remains of a diverted flow is not placed in the element, and no drain waits for it.

use std::collections::{BTreeSet, HashMap};

use pathcall_wire::{Mutant, mutant};

use crate::scale::Version;
use pathcall_p4::ir::{Match, TableId};

/// Version and bucket of a packet; version 0 means that the packet was steered by a value, regardless of its group.
pub type GroupTag = (Version, u16);

/// Table and keys of an entry.
pub type EntryKey = (TableId, Vec<Match>);

/// Groups as a server knows them: its buckets in the newest, and in the previous one while flows need it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// Newest version.
    pub newest: Version,
    current: BTreeSet<u16>,
    old: Option<(Version, BTreeSet<u16>)>,
}

impl Groups {
    /// Groups of a command ([`crate::scale::Output::Group`]).
    #[must_use]
    pub fn new(newest: Version, buckets: &[u16], old: Option<(Version, &[u16])>) -> Self {
        let set = |buckets: &[u16]| buckets.iter().copied().collect();
        Self { newest, current: set(buckets), old: old.map(|(version, buckets)| (version, set(buckets))) }
    }

    /// Whether the bucket is this server's in the newest group.
    #[must_use]
    pub fn has(&self, bucket: u16) -> bool {
        self.current.contains(&bucket)
    }

    /// Whether a flow is known only by the previous group.
    #[must_use]
    pub fn is_old(&self, (version, bucket): GroupTag) -> bool {
        self.old.as_ref().is_some_and(|(old, buckets)| *old == version && buckets.contains(&bucket))
    }

    /// Whether the packets of a flow go to another server.
    #[must_use]
    pub fn is_diverted(&self, tag: GroupTag) -> bool {
        let newest = tag.0 == self.newest && self.has(tag.1);
        tag.0 != 0 && !newest && !self.is_old(tag) && !mutant::on(Mutant::FunctionAstrayKept)
    }
}

/// Flows that have entries at this server.
#[derive(Debug, Clone, Default)]
pub struct Flows {
    of: HashMap<EntryKey, u64>,
    flows: HashMap<u64, Flow>,
    /// Number of flows by the group tag of their last packet.
    counts: HashMap<GroupTag, u64>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    tag: GroupTag,
    entries: u32,
}

impl Flows {
    /// Records a packet about this entry, or about none; returns its flow.
    pub fn record_packet(&mut self, about: Option<&EntryKey>, tag: GroupTag) -> Option<u64> {
        let id = *self.of.get(about?)?;
        let flow = self.flows.get_mut(&id)?;
        if tag.0 != 0 && flow.tag != tag {
            let before = std::mem::replace(&mut flow.tag, tag);
            self.decrement(before);
            *self.counts.entry(tag).or_default() += 1;
        }
        Some(id)
    }

    /// Records an entry made by a packet: it belongs to the packet's flow, or to a new one.
    pub fn record_entry(&mut self, entry: EntryKey, flow: Option<u64>, tag: GroupTag) -> u64 {
        if let Some(id) = self.of.get(&entry) {
            return *id;
        }
        let id = flow.unwrap_or_else(|| {
            self.next += 1;
            *self.counts.entry(tag).or_default() += 1;
            self.next
        });
        self.flows.entry(id).or_insert(Flow { tag, entries: 0 }).entries += 1;
        self.of.insert(entry, id);
        id
    }

    /// Removes an entry, and its flow with the last entry.
    pub fn remove_entry(&mut self, entry: &EntryKey) {
        let Some(id) = self.of.remove(entry) else { return };
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.entries -= 1;
        if flow.entries == 0 {
            let tag = flow.tag;
            self.flows.remove(&id);
            self.decrement(tag);
        }
    }

    /// Group tag of the last packet of the entry's flow; `None` if no packet made the entry.
    #[must_use]
    pub fn last(&self, entry: &EntryKey) -> Option<GroupTag> {
        Some(self.flows.get(self.of.get(entry)?)?.tag)
    }

    /// Number of flows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Number of old flows.
    #[must_use]
    pub fn old(&self, groups: &Groups) -> u64 {
        self.counts.iter().filter(|(tag, _)| groups.is_old(**tag)).map(|(_, count)| count).sum()
    }

    /// Entries of old flows, with their buckets.
    pub fn entries_of_old(&self, groups: &Groups) -> impl Iterator<Item = (&EntryKey, u16)> {
        let tag = |id: &u64| self.flows.get(id).map(|flow| flow.tag);
        let entries = self.of.iter().filter_map(move |(entry, id)| Some((entry, tag(id)?)));
        entries.filter(|(_, tag)| groups.is_old(*tag)).map(|(entry, (_, bucket))| (entry, bucket))
    }

    fn decrement(&mut self, tag: GroupTag) {
        if let Some(count) = self.counts.get_mut(&tag) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(table: u32, value: u128) -> EntryKey {
        (TableId(table), vec![Match { value, prefix_bits: 8 }])
    }

    #[test]
    fn last_packet_decides_group_of_flow() {
        let (first, second) = (Groups::new(1, &[5, 6], None), Groups::new(2, &[5], Some((1, &[5, 6]))));
        let mut flows = Flows::default();
        let flow = flows.record_entry(entry(0, 1), None, (1, 5));
        assert_eq!(flows.record_entry(entry(1, 9), Some(flow), (1, 5)), flow, "entries of one packet are of one flow");
        flows.record_entry(entry(0, 2), None, (1, 6));
        assert_eq!((flows.len(), flows.old(&first), flows.old(&second)), (2, 0, 2));
        assert_eq!(flows.record_packet(Some(&entry(0, 1)), (2, 5)), Some(flow));
        assert_eq!((flows.len(), flows.old(&second)), (2, 1));
        assert_eq!(flows.entries_of_old(&second).collect::<Vec<_>>(), [(&entry(0, 2), 6)]);
        flows.record_packet(Some(&entry(0, 2)), (0, 0));
        assert_eq!(flows.old(&second), 1, "a steered packet leaves the group unchanged");
        flows.remove_entry(&entry(0, 2));
        assert_eq!((flows.len(), flows.old(&second)), (1, 0));
        flows.remove_entry(&entry(0, 1));
        assert_eq!((flows.len(), flows.last(&entry(1, 9))), (1, Some((2, 5))), "the flow still has an entry");
        flows.remove_entry(&entry(1, 9));
        assert_eq!(flows.len(), 0);
        assert_eq!(flows.record_packet(Some(&entry(0, 1)), (3, 5)), None);
    }

    #[test]
    fn flow_with_packets_at_other_server_is_diverted() {
        let groups = Groups::new(3, &[5], Some((2, &[6])));
        for (tag, old, diverted) in [
            ((3, 5), false, false),
            ((2, 6), true, false),
            // Flows known by the previous group, by the newest group, or by no group, whose bucket is at another
            // server.
            ((2, 5), false, true),
            ((3, 6), false, true),
            ((1, 5), false, true),
            ((0, 0), false, false),
        ] {
            assert_eq!((groups.is_old(tag), groups.is_diverted(tag)), (old, diverted), "{tag:?}");
        }
    }
}
