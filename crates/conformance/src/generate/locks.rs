//! Frames of locks: taking, giving back, and the server's freeing.

use pathcall_wire::map::{LOCK_TAG, LOCK_WANTED};
use pathcall_wire::{BaseRepr, Kind, MapFlags, MapRepr, Target};

use super::Generator;
use crate::frame;

impl Generator {
    /// Takes a lock, or gives one back: often by the acquiring that has it.
    pub(super) fn lock(&mut self, a: usize) -> Vec<u8> {
        let index = self.row(a);
        let lock = self.register(a, index).map(|at| self.program.tables().registers().locks.peek(at, 1)[0]);
        let lock = lock.unwrap_or_default();
        let takes = self.random.percent(55);
        let mut base = self.caller_head(a, Kind::MapData);
        let holder = self.plans[a].endpoints.iter().position(|endpoint| endpoint.endpoint == lock.owner);
        if let Some(holder) = holder.filter(|holder| *holder > 0 && self.random.percent(if takes { 15 } else { 80 })) {
            // Its own frame: what it does with its lock.
            for _ in 0..8 {
                if base.src != self.plans[a].endpoints[holder].endpoint {
                    base = self.caller_head(a, Kind::MapData);
                }
            }
        }
        let own = base.src == lock.owner && self.random.percent(85);
        let tag = if own { lock.tag & LOCK_TAG } else { 1 + self.random.below(3) };
        let flags = if takes { MapFlags::COUNT } else { MapFlags::CLEAR };
        let wide = self.random.pick(&[LOCK_WANTED, 1 << 30]);
        let map = MapRepr {
            flags: flags ^ if self.random.once_in(25) { 1 << self.random.below(16) } else { 0 },
            to: Target::Src as u8,
            index,
            threshold: u32::from(takes) + u32::from(self.random.once_in(40)),
            tag: if self.random.once_in(40) { tag | wide } else { tag },
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }

    /// The server frees a lock, and says how often it was granted meanwhile.
    pub(super) fn free(&mut self, a: usize) -> Vec<u8> {
        let index = self.row(a);
        let registers = self.program.tables().registers();
        let found = self.register(a, index).map(|at| (registers.locks.peek(at, 1)[0], registers.grants.peek(at, 1)[0]));
        let (lock, grants) = found.unwrap_or_default();
        let round = match self.random.below(100) {
            0 => u32::MAX,
            1..30 => grants.saturating_add(self.random.below(5)),
            _ => self.random.below(10),
        };
        let base = BaseRepr { round, ..self.server_head(a, Kind::MapFree, false) };
        let tag = lock.tag & !LOCK_WANTED;
        let map = MapRepr {
            flags: self.bareness(),
            index,
            threshold: lock.owner + u32::from(self.random.once_in(10)),
            tag: if self.random.once_in(10) { tag ^ self.random.pick(&[1, 1 << 30]) } else { tag },
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }
}
