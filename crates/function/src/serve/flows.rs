//! Which entries of a server's tables are of one flow, and the newest group that a packet of it has come with.
//!
//! ```text
//! packet, its version and bucket ─► the entry that it was about, those that it made ─► one flow ─► new, old, or astray
//! ```
//!
//! The element remembers a flow by its last packet that went to a server, so that is what says whether it is old. A flow
//! is *astray* whose packets go elsewhere: its element began anew, or its server was thought to be dead. What is left of it
//! is nobody's: it does not go into the element, and nobody waits for it.

use std::collections::{BTreeSet, HashMap};

use pathcall_wire::{Mutant, mutant};

use crate::ir::{Match, TableId};
use crate::scale::Version;

/// The version and the bucket that a packet came with. Version 0: it was steered here, whichever its group is.
pub type Came = (Version, u16);

/// An entry.
pub type Entry = (TableId, Vec<Match>);

/// What a server knows of groups: its own buckets in the newest, and in the one before while flows need that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// The newest version.
    pub newest: Version,
    mine: BTreeSet<u16>,
    old: Option<(Version, BTreeSet<u16>)>,
}

impl Groups {
    /// These are the groups ([`crate::scale::Output::Group`]).
    #[must_use]
    pub fn new(newest: Version, buckets: &[u16], old: Option<(Version, &[u16])>) -> Self {
        let set = |buckets: &[u16]| buckets.iter().copied().collect();
        Self { newest, mine: set(buckets), old: old.map(|(version, buckets)| (version, set(buckets))) }
    }

    /// Whether the newest group has this bucket here.
    #[must_use]
    pub fn has(&self, bucket: u16) -> bool {
        self.mine.contains(&bucket)
    }

    /// Whether a flow is known only by the group before.
    #[must_use]
    pub fn is_old(&self, (version, bucket): Came) -> bool {
        self.old.as_ref().is_some_and(|(old, buckets)| *old == version && buckets.contains(&bucket))
    }

    /// Whether a flow's packets go elsewhere.
    #[must_use]
    pub fn is_astray(&self, came: Came) -> bool {
        let newest = came.0 == self.newest && self.has(came.1);
        came.0 != 0 && !newest && !self.is_old(came) && !mutant::on(Mutant::FunctionAstrayKept)
    }
}

/// Flows that have entries here.
#[derive(Debug, Clone, Default)]
pub struct Flows {
    of: HashMap<Entry, u64>,
    flows: HashMap<u64, Flow>,
    /// How many flows came last with this.
    counts: HashMap<Came, u64>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    came: Came,
    entries: u32,
}

impl Flows {
    /// A packet that was about this entry, or about none, has come: its flow, for what else it makes.
    pub fn came(&mut self, about: Option<&Entry>, came: Came) -> Option<u64> {
        let id = *self.of.get(about?)?;
        let flow = self.flows.get_mut(&id)?;
        if came.0 != 0 && flow.came != came {
            let before = std::mem::replace(&mut flow.came, came);
            self.less(before);
            *self.counts.entry(came).or_default() += 1;
        }
        Some(id)
    }

    /// A packet has made an entry: it is of this flow, or of a new one.
    pub fn made(&mut self, entry: Entry, flow: Option<u64>, came: Came) -> u64 {
        if let Some(id) = self.of.get(&entry) {
            return *id;
        }
        let id = flow.unwrap_or_else(|| {
            self.next += 1;
            *self.counts.entry(came).or_default() += 1;
            self.next
        });
        self.flows.entry(id).or_insert(Flow { came, entries: 0 }).entries += 1;
        self.of.insert(entry, id);
        id
    }

    /// An entry has gone, and with the last its flow.
    pub fn gone(&mut self, entry: &Entry) {
        let Some(id) = self.of.remove(entry) else { return };
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.entries -= 1;
        if flow.entries == 0 {
            let came = flow.came;
            self.flows.remove(&id);
            self.less(came);
        }
    }

    /// What the last packet of this entry's flow came with; none if no packet made it.
    #[must_use]
    pub fn last(&self, entry: &Entry) -> Option<Came> {
        Some(self.flows.get(self.of.get(entry)?)?.came)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Of them, those that are old.
    #[must_use]
    pub fn old(&self, groups: &Groups) -> u64 {
        self.counts.iter().filter(|(came, _)| groups.is_old(**came)).map(|(_, count)| count).sum()
    }

    /// Entries of old flows, with their buckets.
    pub fn entries_of_old(&self, groups: &Groups) -> impl Iterator<Item = (&Entry, u16)> {
        let came = |id: &u64| self.flows.get(id).map(|flow| flow.came);
        let entries = self.of.iter().filter_map(move |(entry, id)| Some((entry, came(id)?)));
        entries.filter(|(_, came)| groups.is_old(*came)).map(|(entry, (_, bucket))| (entry, bucket))
    }

    fn less(&mut self, came: Came) {
        if let Some(count) = self.counts.get_mut(&came) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&came);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(table: u32, value: u128) -> Entry {
        (TableId(table), vec![Match { value, prefix_bits: 8 }])
    }

    #[test]
    fn a_flow_is_as_old_as_its_last_packet() {
        let (first, second) = (Groups::new(1, &[5, 6], None), Groups::new(2, &[5], Some((1, &[5, 6]))));
        let mut flows = Flows::default();
        let flow = flows.made(entry(0, 1), None, (1, 5));
        assert_eq!(flows.made(entry(1, 9), Some(flow), (1, 5)), flow, "what one packet makes is of one flow");
        flows.made(entry(0, 2), None, (1, 6));
        assert_eq!((flows.len(), flows.old(&first), flows.old(&second)), (2, 0, 2));
        assert_eq!(flows.came(Some(&entry(0, 1)), (2, 5)), Some(flow));
        assert_eq!((flows.len(), flows.old(&second)), (2, 1));
        assert_eq!(flows.entries_of_old(&second).collect::<Vec<_>>(), [(&entry(0, 2), 6)]);
        flows.came(Some(&entry(0, 2)), (0, 0));
        assert_eq!(flows.old(&second), 1, "who was steered here is not remembered by that");
        flows.gone(&entry(0, 2));
        assert_eq!((flows.len(), flows.old(&second)), (1, 0));
        flows.gone(&entry(0, 1));
        assert_eq!((flows.len(), flows.last(&entry(1, 9))), (1, Some((2, 5))), "an entry of it is still there");
        flows.gone(&entry(1, 9));
        assert_eq!(flows.len(), 0);
        assert_eq!(flows.came(Some(&entry(0, 1)), (3, 5)), None);
    }

    #[test]
    fn a_flow_is_astray_when_its_packets_go_elsewhere() {
        let groups = Groups::new(3, &[5], Some((2, &[6])));
        for (came, old, astray) in [
            ((3, 5), false, false),
            ((2, 6), true, false),
            // Known by the group before, which has its bucket elsewhere; or by the newest, likewise; or by none.
            ((2, 5), false, true),
            ((3, 6), false, true),
            ((1, 5), false, true),
            ((0, 0), false, false),
        ] {
            assert_eq!((groups.is_old(came), groups.is_astray(came)), (old, astray), "{came:?}");
        }
    }
}
