//! Timer wheel for the expiry of entries.
//!
//! ```text
//! schedule(id, at) ─► list of its tick ─► advance(now) ─► ids whose tick has come
//! ```
//!
//! A lookup only writes the time of use and does not touch the wheel. So an id may come out early (the entry was used
//! since, or its deadline is more than one turn ahead), and the caller schedules it again: at most once per turn.

/// Length of a tick, ms: entries expire at most this late.
pub const TICK_MS: u64 = 16;
/// Ticks of a turn (65 s), a multiple of 64.
const TICKS: usize = 4096;
/// List end.
const NONE: u32 = u32::MAX;

/// Timer wheel; ids are small numbers of entries in a slab.
#[derive(Debug)]
pub struct Wheel {
    /// First id of each tick's list.
    heads: Vec<u32>,
    /// Bitmap of the lists that are not empty.
    filled: Vec<u64>,
    /// Links of each id: its neighbours in the list, and the list.
    links: Vec<Link>,
    /// Last tick that was processed.
    done: u64,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    /// Index in `heads`; `NONE` if the id is in no list.
    tick_index: u32,
}

impl Wheel {
    /// Empty wheel that starts at `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self { heads: vec![NONE; TICKS], filled: vec![0; TICKS / 64], links: Vec::new(), done: now_ms / TICK_MS }
    }

    /// Schedules `id` for `at_ms`, or for one turn from now if that is sooner; replaces an earlier schedule.
    pub fn schedule(&mut self, id: u32, at_ms: u64) {
        self.cancel(id);
        if self.links.len() <= id as usize {
            self.links.resize(id as usize + 1, Link { previous: NONE, next: NONE, tick_index: NONE });
        }
        let tick = at_ms.div_ceil(TICK_MS).clamp(self.done + 1, self.done + TICKS as u64 - 1);
        let tick_index = (tick % TICKS as u64) as usize;
        let next = self.heads[tick_index];
        if next != NONE {
            self.links[next as usize].previous = id;
        }
        self.links[id as usize] = Link { previous: NONE, next, tick_index: tick_index as u32 };
        self.heads[tick_index] = id;
        self.filled[tick_index / 64] |= 1 << (tick_index % 64);
    }

    /// Removes `id` from the wheel.
    pub fn cancel(&mut self, id: u32) {
        let Some(&Link { previous, next, tick_index }) = self.links.get(id as usize) else { return };
        if tick_index == NONE {
            return;
        }
        let tick_index = tick_index as usize;
        match previous {
            NONE => self.heads[tick_index] = next,
            previous => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if self.heads[tick_index] == NONE {
            self.filled[tick_index / 64] &= !(1 << (tick_index % 64));
        }
        self.links[id as usize].tick_index = NONE;
    }

    /// Next id whose tick is over at `now_ms`, removed from its list; call until `None`.
    pub fn pop(&mut self, now_ms: u64) -> Option<u32> {
        let last = now_ms / TICK_MS;
        if self.done >= last {
            return None;
        }
        let Some(ahead) = self.ahead().filter(|ahead| self.done + ahead <= last) else {
            self.done = last;
            return None;
        };
        let tick_index = ((self.done + ahead) % TICKS as u64) as usize;
        let id = self.heads[tick_index];
        self.cancel(id);
        // While the list of this tick still has ids, the tick is not done, and no id may be added to it.
        self.done += if self.heads[tick_index] == NONE { ahead } else { ahead - 1 };
        Some(id)
    }

    /// Time of the next `pop` that returns an id, if nothing changes.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        Some((self.done + self.ahead()?) * TICK_MS)
    }

    /// Ticks until the next list that is not empty, at least 1.
    fn ahead(&self) -> Option<u64> {
        let from = ((self.done + 1) % TICKS as u64) as usize;
        let words = TICKS / 64;
        for step in 0..=words {
            let at = (from / 64 + step) % words;
            let mut word = self.filled[at];
            if step == 0 {
                word &= u64::MAX << (from % 64);
            } else if step == words {
                word &= !(u64::MAX << (from % 64));
            }
            if word != 0 {
                let tick_index = at * 64 + word.trailing_zeros() as usize;
                return Some(((tick_index + TICKS - from) % TICKS) as u64 + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Each id comes out at its tick, never early, except for deadlines beyond one turn.
        #[test]
        fn scheduled_ids_pop_at_their_tick(
            start in 0u64..1 << 40,
            steps in proptest::collection::vec((0u32..40, 0u64..120_000, 0u64..3_000), 1..200),
        ) {
            let mut wheel = Wheel::new(start);
            let mut model = BTreeMap::new();
            let mut now = start;
            for (id, after, pass) in steps {
                if after % 7 == 0 {
                    wheel.cancel(id);
                    model.remove(&id);
                } else {
                    wheel.schedule(id, now + after);
                    model.insert(id, now + after);
                }
                now += pass;
                prop_assert!(model.is_empty() == wheel.next_ms().is_none());
                while let Some(id) = wheel.pop(now) {
                    let at = model.remove(&id).expect("scheduled");
                    if at > now {
                        prop_assert!(at - now < 120_000);
                        wheel.schedule(id, at);
                        model.insert(id, at);
                    }
                }
                for at in model.values() {
                    prop_assert!(at + TICK_MS >= now, "{at} is over at {now}");
                }
            }
        }
    }
}
