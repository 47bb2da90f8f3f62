//! Which keys live in the element: registers of keys that are used little go to keys that are used more.
//!
//! ```text
//! commit ─► a window is over? choose: coldest registers, hottest keys ─► callers are told what is withdrawn
//!        ─► close g, from now on version v + 1 ─► read ─► commit g by the old mapping, then change it
//! ```
//!
//! NetRPC §5.2.2, "Cache replacement policies": uses are counted in windows, and in the next one the
//! less used keys are evicted. Here nobody reports them: a use in software is counted as it comes, the
//! uses of a register are what it held divided by what its key's pairs usually hold.
//!
//! It takes three things to change the mapping without counting anything for the wrong key. The element
//! takes another version at the close of a generation, so each generation is added by one mapping only;
//! what it then meets of the old version, it refuses for ever. What the generation held is counted by the
//! old mapping before the new one holds. And nobody is answered by the new one before the element has it.

use std::time::Duration;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, Instant, Kind, MapFlags, MapRepr, Mutant, mutant};

use super::super::super::Outbox;
use super::super::Shared;
use super::table::{KeyState, KeyTable};

/// Registers of one change at most: so many that a frame tells of them all.
const REGISTERS_MAX: usize = 256;
/// Keys that are noted as hot in one window; those that come later wait for the next.
const HOT_MAX: usize = 4 * REGISTERS_MAX;
/// The longest that a key which came back keeps its register whatever it is used, as a power of windows.
const PATIENCE_MAX: u32 = 10;

/// When keys give their registers to others (NetRPC §5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// Time in which uses are counted.
    pub window: Duration,
    /// Uses in a window from which on a key may be given a register.
    pub uses_min: u32,
    /// By how much it must be used more often than the register's key.
    pub margin: u32,
}

impl Default for Eviction {
    /// Keys that are used alike stay where they are. Of two keys that are each used five times a
    /// window, the one is counted sixteen times and the other not even four once in 100,000 windows.
    fn default() -> Self {
        Self { window: Duration::from_secs(1), uses_min: 16, margin: 4 }
    }
}

/// How a key is used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// The window in which `uses` were counted.
    window: u32,
    uses: u32,
    /// What a pair of it held last; not 0 once there was one.
    typical: u32,
    /// How often it was given a register in place of another key, and in which window last.
    given: u32,
    given_in: u32,
}

impl Usage {
    fn count(&mut self, window: u32, uses: u32) -> u32 {
        if self.window != window {
            (self.window, self.uses) = (window, 0);
        }
        self.uses = self.uses.saturating_add(uses);
        self.uses
    }

    fn in_window(&self, window: u32) -> u32 {
        if self.window == window { self.uses } else { 0 }
    }

    /// Whether it may lose its register. Each time that it came back, it keeps it twice as long: so a
    /// wrong guess about its use is not made again and again.
    fn may_lose(&self, window: u32) -> bool {
        self.given == 0 || window.wrapping_sub(self.given_in) > 1 << (self.given - 1).min(PATIENCE_MAX)
    }
}

/// Another mapping, as of `version`.
pub(super) struct Change {
    version: u32,
    /// Registers, as numbers, and the keys that get them.
    registers: Vec<(u32, u32)>,
}

/// Counts uses, and decides on changes.
pub(super) struct Evictions {
    policy: Option<Eviction>,
    window: u32,
    ends: Instant,
    /// Keys without a register that are used often in this window.
    hot: Vec<u32>,
    /// To be had at the next close of a generation.
    change: Option<Change>,
    /// Keys that have lost their registers so far.
    done: u64,
}

impl Evictions {
    pub(super) fn new(policy: Option<Eviction>) -> Self {
        Self { policy, window: 1, ends: Instant(0), hot: Vec::new(), change: None, done: 0 }
    }

    /// Keys that have lost their registers so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Notes that a pair with this value was added in software.
    pub(super) fn used(&mut self, key: &mut KeyState, value: i64) {
        let Some(policy) = self.policy else { return };
        key.usage.typical = u32::try_from(value.unsigned_abs()).unwrap_or(u32::MAX).max(1);
        let uses = key.usage.count(self.window, 1);
        if uses == policy.uses_min.max(1) && key.may_be_mapped() && self.hot.len() < HOT_MAX {
            self.hot.push(key.id);
        }
    }

    /// Notes what a key's register held of a generation.
    pub(super) fn held(&self, key: &mut KeyState, register: i32) {
        if self.policy.is_some() && register != 0 {
            let uses = register.unsigned_abs() / key.usage.typical.max(1);
            key.usage.count(self.window, uses.max(1));
        }
    }

    /// When a harvest is wanted, for a change or to know what may be changed.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.change {
            Some(_) => Some(Instant(0)),
            None => (!self.hot.is_empty()).then_some(self.ends),
        }
    }

    /// Begins the next window if this one is over and had no hot keys.
    pub(super) fn pass(&mut self, now: Instant) {
        if self.policy.is_some() && self.hot.is_empty() && now >= self.ends {
            self.begin_window(now);
        }
    }

    fn begin_window(&mut self, now: Instant) {
        self.window = self.window.wrapping_add(1).max(1);
        self.ends = now + self.policy.map_or(Duration::ZERO, |policy| policy.window);
    }

    /// A generation is committed: decides on the next change, if the window is over. `version`: of the
    /// mapping that holds now.
    pub(super) fn choose(&mut self, now: Instant, version: u32, table: &KeyTable) {
        let over = self.change.is_none() && self.due().is_some_and(|due| due <= now);
        let Some(policy) = self.policy.filter(|_| over) else { return };
        let window = self.window;
        let uses = |id: u32| table.state(id).usage.in_window(window);
        let mut hot: Vec<u32> = std::mem::take(&mut self.hot);
        hot.retain(|id| table.state(*id).may_be_mapped());
        hot.sort_unstable_by_key(|id| (std::cmp::Reverse(uses(*id)), *id));
        hot.truncate(REGISTERS_MAX);
        let owners = table.owners().iter().zip(0u32..);
        let losable = owners.filter(|(owner, _)| table.state(**owner).usage.may_lose(window));
        let mut cold: Vec<(u32, u32)> = losable.map(|(owner, register)| (uses(*owner), register)).collect();
        if cold.len() > hot.len() {
            cold.select_nth_unstable(hot.len());
            cold.truncate(hot.len());
        }
        cold.sort_unstable();
        let better = |(id, (cold, _)): &(u32, (u32, u32))| uses(*id) > cold.saturating_mul(policy.margin);
        let registers: Vec<_> =
            hot.into_iter().zip(cold).take_while(better).map(|(id, (_, register))| (register, id)).collect();
        // Versions only grow; one change a second could go on for 136 years.
        if let (false, Some(next)) = (registers.is_empty(), version.checked_add(1)) {
            let version = if mutant::on(Mutant::EvictUnversioned) { version } else { next };
            self.change = Some(Change { version, registers });
        }
        self.begin_window(now);
    }

    /// Version of the mapping from the next close on, and the registers that it withdraws.
    pub(super) fn next(&self, version: u32) -> (u32, Vec<u32>) {
        let Some(change) = &self.change else { return (version, Vec::new()) };
        (change.version, change.registers.iter().map(|(register, _)| *register).collect())
    }

    /// A generation that was closed with `version` is the server's: the change holds, if there is one.
    pub(super) fn apply(&mut self, version: u32, table: &mut KeyTable) {
        let Some(change) = self.change.take_if(|change| change.version == version) else { return };
        for (register, id) in change.registers {
            if !table.state(id).may_be_mapped() {
                // It has been given a free one since.
                continue;
            }
            self.done += 1;
            let usage = &mut table.give(register, id).usage;
            (usage.given, usage.given_in) = (usage.given.saturating_add(1), self.window);
        }
    }

    /// No key has a register any more.
    pub(super) fn start_anew(&mut self) {
        self.hot.clear();
        self.change = None;
    }
}

/// Tells callers which registers are withdrawn as of `version`. A hint: a caller that misses it is
/// refused by the element, and forgets where all keys are.
pub(super) fn announce(version: u32, registers: &[u32], shared: &mut Shared, out: &mut impl Outbox) {
    let mut base = shared.base(Kind::MapWithdraw, Flags::MCAST);
    base.round = version;
    let payload = registers.len() * 4;
    let map = MapRepr { flags: MapFlags::BARE, payload_len: payload as u16, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, payload);
    let mut frame = emit(&base, &map, &mut shared.scratch[..len]);
    let places = frame.payload_mut().chunks_exact_mut(4);
    places.zip(registers).for_each(|(place, register)| place.copy_from_slice(&register.to_be_bytes()));
    shared.send_by_element(None, len, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_that_came_back_keeps_its_register_twice_as_long_each_time() {
        assert!(Usage::default().may_lose(1), "it was given its register in place of nobody");
        for (given, windows) in [(1, 1), (2, 2), (3, 4), (7, 64), (11, 1 << 10), (40, 1 << 10)] {
            // Windows are counted around.
            for given_in in [5, u32::MAX - 1] {
                let usage = Usage { given, given_in, ..Usage::default() };
                assert!(!usage.may_lose(given_in.wrapping_add(windows)), "{given} times, in window {given_in}");
                assert!(usage.may_lose(given_in.wrapping_add(windows + 1)), "{given} times, in window {given_in}");
            }
        }
    }
}
