//! When entries grow old: a wheel of lists, one for each tick.
//!
//! ```text
//! schedule(id, at) ─► list of its tick ─► advance(now) ─► ids whose tick has come
//! ```
//!
//! A look-up only writes down when it was; it moves nothing here. So an id may come out early (it was used since, or its
//! time lies beyond one turn of the wheel), and the caller schedules it again: once in a turn at most.

/// Milliseconds of a tick: entries go at most so much late.
pub const TICK_MS: u64 = 16;
/// Ticks of a turn, 65 s; a multiple of 64.
const TICKS: usize = 4096;
/// No id.
const NONE: u32 = u32::MAX;

/// The wheel. Ids are small numbers, of entries in a slab.
#[derive(Debug)]
pub struct Wheel {
    /// The first id of each tick's list.
    heads: Vec<u32>,
    /// Which of them are not empty, a bit each.
    filled: Vec<u64>,
    /// By id: its neighbours in the list, and the tick.
    links: Vec<Link>,
    /// All ticks up to here are through.
    done: u64,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
    /// Its place in `heads`; `NONE` if it is in no list.
    place: u32,
}

impl Wheel {
    /// An empty wheel that starts at `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self { heads: vec![NONE; TICKS], filled: vec![0; TICKS / 64], links: Vec::new(), done: now_ms / TICK_MS }
    }

    /// Lets `id` come out at `at_ms`, or a turn from now if that is sooner; what was scheduled for it before is void.
    pub fn schedule(&mut self, id: u32, at_ms: u64) {
        self.cancel(id);
        if self.links.len() <= id as usize {
            self.links.resize(id as usize + 1, Link { before: NONE, behind: NONE, place: NONE });
        }
        let tick = at_ms.div_ceil(TICK_MS).clamp(self.done + 1, self.done + TICKS as u64 - 1);
        let place = (tick % TICKS as u64) as usize;
        let behind = self.heads[place];
        if behind != NONE {
            self.links[behind as usize].before = id;
        }
        self.links[id as usize] = Link { before: NONE, behind, place: place as u32 };
        self.heads[place] = id;
        self.filled[place / 64] |= 1 << (place % 64);
    }

    /// Takes `id` out.
    pub fn cancel(&mut self, id: u32) {
        let Some(&Link { before, behind, place }) = self.links.get(id as usize) else { return };
        if place == NONE {
            return;
        }
        let place = place as usize;
        match before {
            NONE => self.heads[place] = behind,
            before => self.links[before as usize].behind = behind,
        }
        if behind != NONE {
            self.links[behind as usize].before = before;
        }
        if self.heads[place] == NONE {
            self.filled[place / 64] &= !(1 << (place % 64));
        }
        self.links[id as usize].place = NONE;
    }

    /// The next id whose tick has come by `now_ms`; to be called until there is none. The id is in no list then.
    pub fn pop(&mut self, now_ms: u64) -> Option<u32> {
        let last = now_ms / TICK_MS;
        if self.done >= last {
            return None;
        }
        let Some(ahead) = self.ahead().filter(|ahead| self.done + ahead <= last) else {
            self.done = last;
            return None;
        };
        let place = ((self.done + ahead) % TICKS as u64) as usize;
        let id = self.heads[place];
        self.cancel(id);
        // If others of this tick come next, nothing may be put into it any more, but it is not through.
        self.done += if self.heads[place] == NONE { ahead } else { ahead - 1 };
        Some(id)
    }

    /// When `pop` has something next, if nothing changes.
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
                let place = at * 64 + word.trailing_zeros() as usize;
                return Some(((place + TICKS - from) % TICKS) as u64 + 1);
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
        // What was asked for comes out at its tick: never early, but for what lies beyond a turn.
        #[test]
        fn ids_come_out_when_their_time_has_come(
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
