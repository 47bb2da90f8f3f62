//! Eviction: registers of keys with little use are given to keys with more use.
//!
//! ```text
//! commit ─► end of a window: choose coldest registers, hottest keys ─► announce withdrawn registers to callers
//!        ─► close g, then version v + 1 ─► read ─► commit g with the old mapping, then change the mapping
//! ```
//!
//! NetRPC §5.2.2, "Cache replacement policies": uses are counted per window, and less used keys are evicted in the next
//! window. Callers do not report uses: the server counts a software use directly, and estimates the uses of a register
//! as its value divided by the usual value of the key's pairs.
//!
//! Three rules prevent additions to a wrong key. The element changes the version at the close of a generation, so each
//! generation has one mapping, and the element refuses later frames of the old version for ever. The server commits the
//! generation with the old mapping before it uses the new one. The server sends no answers with the new mapping before
//! the element has it.

use std::time::Duration;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Flags, FrameKind, Instant, MapFlags, MapRepr, Mutant, mutant};

use super::super::super::FrameSink;
use super::super::OwnerContext;
use super::table::{KeyState, KeyTable};

/// Maximum number of registers in one change, such that one frame announces all.
const REGISTERS_MAX: usize = 256;
/// Maximum number of hot keys recorded per window.
const HOT_MAX: usize = 4 * REGISTERS_MAX;
/// Binary logarithm of the maximum number of windows for which a returned key keeps its register regardless of use.
const KEEP_LOG2_MAX: u32 = 10;

/// Eviction policy (NetRPC §5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionPolicy {
    /// Duration of a window.
    pub window: Duration,
    /// Minimum uses in a window for a key to get a register.
    pub uses_min: u32,
    /// Factor by which the key's uses must exceed those of the register's key.
    pub margin: u32,
}

impl Default for EvictionPolicy {
    /// Equally used keys rarely replace each other. For two keys with five uses per window on average, 16 uses of one
    /// and fewer than 4 of the other occur once in 100,000 windows.
    fn default() -> Self {
        Self { window: Duration::from_secs(1), uses_min: 16, margin: 4 }
    }
}

/// Use statistics of a key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyUsage {
    /// Window of `uses`.
    window: u32,
    uses: u32,
    /// Magnitude of the last pair of the key, at least 1; 0 before the first pair.
    typical: u32,
    /// Number of times the key got the register of another key, and window of the last time.
    given: u32,
    given_in: u32,
}

impl KeyUsage {
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

    /// Whether the key may lose its register. Each time the key returns, it keeps the register twice as long, so that a
    /// wrong estimate of its use is not repeated often.
    fn may_lose(&self, window: u32) -> bool {
        self.given == 0 || window.wrapping_sub(self.given_in) > 1 << (self.given - 1).min(KEEP_LOG2_MAX)
    }
}

/// Change of the mapping, valid from `version` on.
pub(super) struct MappingChange {
    version: u32,
    /// Register numbers, and the keys that get them.
    registers: Vec<(u32, u32)>,
}

/// Use counters and decisions on mapping changes.
pub(super) struct Evictions {
    policy: Option<EvictionPolicy>,
    window: u32,
    ends: Instant,
    /// Often used keys without a register in this window.
    hot: Vec<u32>,
    /// Change for the next close of a generation.
    change: Option<MappingChange>,
    /// Number of evictions so far.
    done: u64,
}

impl Evictions {
    pub(super) fn new(policy: Option<EvictionPolicy>) -> Self {
        Self { policy, window: 1, ends: Instant(0), hot: Vec::new(), change: None, done: 0 }
    }

    /// Number of evictions so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Records a software addition of this value to a key.
    pub(super) fn note_use(&mut self, key: &mut KeyState, value: i64) {
        let Some(policy) = self.policy else { return };
        key.usage.typical = u32::try_from(value.unsigned_abs()).unwrap_or(u32::MAX).max(1);
        let uses = key.usage.count(self.window, 1);
        if uses == policy.uses_min.max(1) && key.may_be_mapped() && self.hot.len() < HOT_MAX {
            self.hot.push(key.id);
        }
    }

    /// Records the value of a key's register in a harvested generation.
    pub(super) fn note_register_use(&self, key: &mut KeyState, register: i32) {
        if self.policy.is_some() && register != 0 {
            let uses = register.unsigned_abs() / key.usage.typical.max(1);
            key.usage.count(self.window, uses.max(1));
        }
    }

    /// Time of the next harvest for a change, or for a decision on a change.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.change {
            Some(_) => Some(Instant(0)),
            None => (!self.hot.is_empty()).then_some(self.ends),
        }
    }

    /// Starts the next window if this window has ended without hot keys.
    pub(super) fn end_idle_window(&mut self, now: Instant) {
        if self.policy.is_some() && self.hot.is_empty() && now >= self.ends {
            self.begin_window(now);
        }
    }

    fn begin_window(&mut self, now: Instant) {
        self.window = self.window.wrapping_add(1).max(1);
        self.ends = now + self.policy.map_or(Duration::ZERO, |policy| policy.window);
    }

    /// Decides on the next change after a commit, if the window has ended. `version` is the current mapping version.
    pub(super) fn choose_change(&mut self, now: Instant, version: u32, table: &KeyTable) {
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
        // Versions only rise; with one change per second they last for 136 years.
        if let (false, Some(next)) = (registers.is_empty(), version.checked_add(1)) {
            let version = if mutant::on(Mutant::EvictUnversioned) { version } else { next };
            self.change = Some(MappingChange { version, registers });
        }
        self.begin_window(now);
    }

    /// Mapping version after the next close, and the registers that it withdraws.
    pub(super) fn next(&self, version: u32) -> (u32, Vec<u32>) {
        let Some(change) = &self.change else { return (version, Vec::new()) };
        (change.version, change.registers.iter().map(|(register, _)| *register).collect())
    }

    /// Applies the change of `version`, if any, after the commit of the generation that was closed with it.
    pub(super) fn apply(&mut self, version: u32, table: &mut KeyTable) {
        let Some(change) = self.change.take_if(|change| change.version == version) else { return };
        for (register, id) in change.registers {
            if !table.state(id).may_be_mapped() {
                // The key has got a free register since.
                continue;
            }
            self.done += 1;
            let usage = &mut table.reassign(register, id).usage;
            (usage.given, usage.given_in) = (usage.given.saturating_add(1), self.window);
        }
    }

    /// Resets after a change of epoch: no key has a register.
    pub(super) fn reset(&mut self) {
        self.hot.clear();
        self.change = None;
    }
}

/// Announces the registers that `version` withdraws. Only a hint: the element refuses frames of a caller that missed
/// it, and the caller then clears its cache.
pub(super) fn announce(version: u32, registers: &[u32], shared: &mut OwnerContext, out: &mut impl FrameSink) {
    let mut base = shared.base(FrameKind::MapWithdraw, Flags::MCAST);
    base.round = version;
    let payload = registers.len() * 4;
    let map = MapRepr { flags: MapFlags::BARE, payload_len: payload as u16, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, payload);
    let mut frame = emit(&base, &map, &mut shared.scratch[..len]);
    let entries = frame.payload_mut().chunks_exact_mut(4);
    entries.zip(registers).for_each(|(entry, register)| entry.copy_from_slice(&register.to_be_bytes()));
    shared.send_by_element(None, len, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_key_keeps_register_twice_as_long_each_time() {
        assert!(KeyUsage::default().may_lose(1), "its register was free before");
        for (given, windows) in [(1, 1), (2, 2), (3, 4), (7, 64), (11, 1 << 10), (40, 1 << 10)] {
            // Window numbers wrap.
            for given_in in [5, u32::MAX - 1] {
                let usage = KeyUsage { given, given_in, ..KeyUsage::default() };
                assert!(!usage.may_lose(given_in.wrapping_add(windows)), "{given} times, in window {given_in}");
                assert!(usage.may_lose(given_in.wrapping_add(windows + 1)), "{given} times, in window {given_in}");
            }
        }
    }
}
