//! Selection at the end of a window: estimates the sizes of flows, and decides which entries enter and leave the
//! element.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;

use super::placer::{Placer, RemovalReason, Stage};
use super::ranking::{Ranked, top};
use super::{Command, EntryMode, EntryNumber, PlacementStrategy, SketchWindow};
use pathcall_p4::ir::TableId;

/// Flow that is not in the element: its key and hash.
type Candidate = (Vec<u128>, u32);

impl Placer {
    /// Updates the sizes of all flows, removes unused entries, and asks for the entries of the largest flows.
    pub(super) fn select(&mut self, now: Instant, window: &SketchWindow, reports: BTreeMap<(TableId, Vec<u128>), u32>) {
        let mut candidates: Vec<Vec<Ranked<Candidate>>> = vec![Vec::new(); self.tables.len()];
        for ((id, key), hash) in reports {
            let size = window.estimate(hash);
            let Some(table) = self.tables.iter().position(|place| place.facts.table == id) else { continue };
            match self.covering(table, &key) {
                // The entry is being inserted, or is active: its size is that of the reported flow.
                Some(number) => self.add_size(number, size),
                None if self.is_lease_requested(&(id, key.clone())) => {}
                None => candidates[table].push(Ranked { size, item: (key, hash) }),
            }
        }
        self.remove_unused(now);
        for (table, candidates) in candidates.into_iter().enumerate() {
            self.place_candidates(now, table, candidates);
        }
        self.force_waiting(now, window);
    }

    /// Raises the size of an entry that is not used for its flow yet.
    fn add_size(&mut self, number: EntryNumber, size: u64) {
        if let Some(placed) = self.entries.get_mut(&number) {
            placed.size += size;
        }
    }

    /// Removes entries that nothing matched for the idle time.
    fn remove_unused(&mut self, now: Instant) {
        let idle = |used: Instant| now.since(used) >= self.config.idle;
        let old: Vec<EntryNumber> = (self.entries.iter())
            .filter(|(_, placed)| matches!(placed.stage, Stage::Placed(_)) && idle(placed.used))
            .map(|(number, _)| *number)
            .collect();
        old.into_iter().for_each(|number| self.start_removal(number, RemovalReason::Aged));
    }

    /// Places the largest candidates: first in free slots, then in those of much smaller entries that stayed long
    /// enough.
    fn place_candidates(&mut self, now: Instant, table: usize, mut candidates: Vec<Ranked<Candidate>>) {
        let capacity = self.tables[table].facts.capacity as usize;
        let chosen = match self.config.strategy {
            PlacementStrategy::None => return,
            PlacementStrategy::Random => {
                for at in (1..candidates.len()).rev() {
                    let other = (self.random.bits() % (at as u64 + 1)) as usize;
                    candidates.swap(at, other);
                }
                candidates.truncate(capacity);
                candidates
            }
            PlacementStrategy::Heap | PlacementStrategy::Threshold => top(candidates, capacity),
        };
        let mut smallest = self.replaceable_entries(now, table).into_iter();
        for Ranked { size, item: (key, hash) } in chosen {
            if self.tables[table].taken as usize >= capacity {
                // The random strategy does not compare sizes, so it replaces no entry.
                let weak = smallest.next().filter(|_| self.config.strategy != PlacementStrategy::Random);
                let Some(weak) = weak.filter(|weak| size as f64 > self.config.advantage * weak.size.max(1) as f64)
                else {
                    break;
                };
                self.start_removal(weak.item, RemovalReason::Replaced);
                if self.tables[table].taken as usize >= capacity {
                    // The entry's values go to its servers first; the flow will be reported again.
                    continue;
                }
            }
            self.request_leases(now, table, key, hash, size);
        }
    }

    /// Entries that may leave, smallest first.
    fn replaceable_entries(&self, now: Instant, table: usize) -> Vec<Ranked<EntryNumber>> {
        let stayed = |since: Instant, returns: u32| {
            let stay: Duration = self.config.stay * (1 << returns.min(4));
            now.since(since) >= stay
        };
        let mut may: Vec<_> = (self.entries.iter())
            .filter(|(_, placed)| placed.table == table && matches!(placed.stage, Stage::Placed(_)))
            .filter(|(_, placed)| stayed(placed.since, placed.returns))
            .map(|(number, placed)| Ranked { size: placed.size, item: *number })
            .collect();
        may.sort();
        may
    }

    /// Forces entries of flows that always have a packet at a server, which would never become active: after a while
    /// the entry is used nevertheless (§V-A accepts that such a flow may be reordered).
    fn force_waiting(&mut self, now: Instant, window: &SketchWindow) {
        let Some(after) = self.config.force_after else { return };
        let mut change = Vec::new();
        for (number, placed) in &mut self.entries {
            let used = placed.used == now;
            let long = now.since(placed.used.max(placed.since)) >= after;
            let stuck = !used && long && window.estimate(placed.hash) > 0;
            match placed.stage {
                Stage::Placed(EntryMode::Active) if stuck => {
                    placed.stage = Stage::Placed(EntryMode::Forced);
                    change.push((*number, EntryMode::Forced));
                }
                Stage::Placed(EntryMode::Forced) if used => {
                    placed.stage = Stage::Placed(EntryMode::Active);
                    change.push((*number, EntryMode::Active));
                }
                _ => {}
            }
        }
        for (number, mode) in change {
            self.stats.forced += u64::from(mode == EntryMode::Forced);
            if let Some((table, keys)) = self.matches(number) {
                self.command(Command::Mode { table, keys, number, mode });
            }
        }
    }
}
