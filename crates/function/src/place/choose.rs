//! At the end of a window: what the largest flows are, which of them come into the element, and which leave for them.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Instant;

use super::placer::{Placer, Stage, Why};
use super::rank::{Ranked, top};
use super::{Command, EntryNumber, Mode, Strategy, Window};
use crate::ir::TableId;

/// A flow that is not in the element.
type Candidate = (Vec<u128>, u32);

impl Placer {
    /// Sizes what is there and what was reported, lets go what is unused, and asks for what is large.
    pub(super) fn choose(&mut self, now: Instant, window: &Window, reports: BTreeMap<(TableId, Vec<u128>), u32>) {
        let mut candidates: Vec<Vec<Ranked<Candidate>>> = vec![Vec::new(); self.tables.len()];
        for ((id, key), hash) in reports {
            let size = window.estimate(hash);
            let Some(table) = self.tables.iter().position(|place| place.facts.table == id) else { continue };
            match self.covering(table, &key) {
                // On its way there, or used when none of its packets is away: as large as that.
                Some(number) => self.grown(number, size),
                None if self.is_asked(&(id, key.clone())) => {}
                None => candidates[table].push(Ranked { size, what: (key, hash) }),
            }
        }
        self.unused(now);
        for (table, candidates) in candidates.into_iter().enumerate() {
            self.fill(now, table, candidates);
        }
        self.force(now, window);
    }

    /// An entry has flows that it is not used for yet.
    fn grown(&mut self, number: EntryNumber, size: u64) {
        if let Some(placed) = self.entries.get_mut(&number) {
            placed.size += size;
        }
    }

    /// What nothing matched for long goes.
    fn unused(&mut self, now: Instant) {
        let idle = |used: Instant| now.since(used) >= self.config.idle;
        let old: Vec<EntryNumber> = (self.entries.iter())
            .filter(|(_, placed)| matches!(placed.stage, Stage::In(_)) && idle(placed.used))
            .map(|(number, _)| *number)
            .collect();
        old.into_iter().for_each(|number| self.leave(number, Why::Aged));
    }

    /// The largest candidates take free room, then that of entries that are much smaller and were there for a while.
    fn fill(&mut self, now: Instant, table: usize, mut candidates: Vec<Ranked<Candidate>>) {
        let capacity = self.tables[table].facts.capacity as usize;
        let chosen = match self.config.strategy {
            Strategy::None => return,
            Strategy::Random => {
                for at in (1..candidates.len()).rev() {
                    let other = (self.dice.roll() % (at as u64 + 1)) as usize;
                    candidates.swap(at, other);
                }
                candidates.truncate(capacity);
                candidates
            }
            Strategy::Heap | Strategy::Threshold => top(candidates, capacity),
        };
        let mut smallest = self.smallest(now, table).into_iter();
        for Ranked { size, what: (key, hash) } in chosen {
            if self.tables[table].taken as usize >= capacity {
                // A random choice is none between large and small.
                let weak = smallest.next().filter(|_| self.config.strategy != Strategy::Random);
                let Some(weak) = weak.filter(|weak| size as f64 > self.config.advantage * weak.size.max(1) as f64)
                else {
                    break;
                };
                self.leave(weak.what, Why::Replaced);
                if self.tables[table].taken as usize >= capacity {
                    // Its values go to its servers first; the flow will be reported again.
                    continue;
                }
            }
            self.ask(now, table, key, hash, size);
        }
    }

    /// Entries that may leave, the smallest first.
    fn smallest(&self, now: Instant, table: usize) -> Vec<Ranked<EntryNumber>> {
        let stayed = |since: Instant, returns: u32| {
            let stay: Duration = self.config.stay * (1 << returns.min(4));
            now.since(since) >= stay
        };
        let mut may: Vec<_> = (self.entries.iter())
            .filter(|(_, placed)| placed.table == table && matches!(placed.stage, Stage::In(_)))
            .filter(|(_, placed)| stayed(placed.since, placed.returns))
            .map(|(number, placed)| Ranked { size: placed.size, what: *number })
            .collect();
        may.sort();
        may
    }

    /// A flow of which some packet is always at a server would never come into the element: after a while its entry is
    /// used all the same, until it was (§V-A allows for a flow's order to suffer then).
    fn force(&mut self, now: Instant, window: &Window) {
        let Some(after) = self.config.force_after else { return };
        let mut change = Vec::new();
        for (number, placed) in &mut self.entries {
            let used = placed.used == now;
            let long = now.since(placed.used.max(placed.since)) >= after;
            let waits = !used && long && window.estimate(placed.hash) > 0;
            match placed.stage {
                Stage::In(Mode::Active) if waits => {
                    placed.stage = Stage::In(Mode::Forced);
                    change.push((*number, Mode::Forced));
                }
                Stage::In(Mode::Forced) if used => {
                    placed.stage = Stage::In(Mode::Active);
                    change.push((*number, Mode::Active));
                }
                _ => {}
            }
        }
        for (number, mode) in change {
            self.stats.forced += u64::from(mode == Mode::Forced);
            if let Some((table, keys)) = self.matches(number) {
                self.command(Command::Mode { table, keys, number, mode });
            }
        }
    }
}
