//! What messages wait for in a host: a node with its slots, or a link; and what may befall it.

use pathcall_wire::Instant;

/// Something befalls a station for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spell {
    /// When it begins.
    pub from: Instant,
    /// When it is over.
    pub until: Instant,
    /// What it is.
    pub what: Trouble,
}

/// What may befall a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// What begins takes so many times as long.
    Slow(u32),
    /// Nothing begins.
    Stands,
    /// Whatever is there, or comes, is lost.
    Dead,
}

/// A node or a link: first come, first served, in as many slots as it has.
#[derive(Debug, Clone)]
pub(super) struct Station {
    /// When each slot is free, nanoseconds.
    free: Vec<u64>,
    spells: Vec<Spell>,
}

impl Station {
    /// With so many slots, one at least.
    pub(super) fn new(slots: usize) -> Self {
        Self { free: vec![0; slots.max(1)], spells: Vec::new() }
    }

    /// Something will befall it.
    pub(super) fn befall(&mut self, spell: Spell) {
        self.spells.push(spell);
        self.spells.sort_by_key(|spell| spell.from);
    }

    /// A message comes at `now`, after all that came before, and takes a slot for `busy`, nanoseconds: when it is done;
    /// nothing if it is lost.
    pub(super) fn take(&mut self, now: u64, busy: u64) -> Option<u64> {
        let slot = self.earliest();
        let mut begins = self.free[slot].max(now);
        let mut takes = busy;
        for spell in self.spells.iter().filter(|spell| spell.until.0 > now) {
            let within = spell.from.0 <= begins && begins < spell.until.0;
            match spell.what {
                Trouble::Slow(times) if within => takes = busy.saturating_mul(u64::from(times)),
                Trouble::Stands if within => begins = spell.until.0,
                // Also what was at work when it died.
                Trouble::Dead if spell.from.0 < begins + takes => {
                    // Who comes when it is back finds it empty.
                    self.free.iter_mut().for_each(|free| *free = (*free).min(spell.until.0));
                    return None;
                }
                _ => {}
            }
        }
        self.free[slot] = begins + takes;
        Some(begins + takes)
    }

    fn earliest(&self) -> usize {
        let mut best = 0;
        for (slot, free) in self.free.iter().enumerate() {
            if *free < self.free[best] {
                best = slot;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(from: u64, until: u64, what: Trouble) -> Spell {
        Spell { from: Instant(from), until: Instant(until), what }
    }

    #[test]
    fn who_comes_first_is_served_first_in_as_many_slots_as_there_are() {
        let mut station = Station::new(2);
        let done: Vec<_> = [0, 0, 1, 50].into_iter().map(|at| station.take(at, 10)).collect();
        assert_eq!(done, [Some(10), Some(10), Some(20), Some(60)]);
    }

    #[test]
    fn what_befalls_it_slows_holds_or_loses_messages() {
        let mut station = Station::new(1);
        station.befall(spell(100, 200, Trouble::Slow(10)));
        station.befall(spell(300, 400, Trouble::Stands));
        station.befall(spell(500, 600, Trouble::Dead));
        assert_eq!(station.take(90, 5), Some(95));
        assert_eq!(station.take(100, 5), Some(150), "ten times as slow");
        assert_eq!(station.take(200, 5), Some(205));
        assert_eq!(station.take(310, 5), Some(405), "it stands still");
        assert_eq!(station.take(496, 5), None, "it dies meanwhile");
        assert_eq!(station.take(550, 5), None, "it is dead");
        assert_eq!(station.take(600, 5), Some(605), "it is back");
    }
}
