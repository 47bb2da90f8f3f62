//! Frames of locks: acquisition, release, and the server's release.

use pathcall_wire::map::{LOCK_TAG, LOCK_WANTED};
use pathcall_wire::{BaseRepr, ForwardTarget, FrameKind, MapFlags, MapRepr};

use super::Generator;
use crate::RandomChoice;
use crate::frame;

impl Generator {
    /// Acquisition or release of a lock, often by its current owner.
    pub(super) fn lock_frame(&mut self, a: usize) -> Vec<u8> {
        let index = self.pick_row(a);
        let lock = self.register_index(a, index).map(|at| self.program.tables().registers().locks.peek(at, 1)[0]);
        let lock = lock.unwrap_or_default();
        let takes = self.random.percent(55);
        let mut base = self.caller_head(a, FrameKind::MapData);
        let holder = self.plans[a].endpoints.iter().position(|endpoint| endpoint.endpoint == lock.owner);
        if let Some(holder) = holder.filter(|holder| *holder > 0 && self.random.percent(if takes { 15 } else { 80 })) {
            // A frame of the lock's owner.
            for _ in 0..8 {
                if base.src != self.plans[a].endpoints[holder].endpoint {
                    base = self.caller_head(a, FrameKind::MapData);
                }
            }
        }
        let own = base.src == lock.owner && self.random.percent(85);
        let tag = if own { lock.tag & LOCK_TAG } else { 1 + self.random.below(3) };
        let flags = if takes { MapFlags::COUNT } else { MapFlags::CLEAR };
        let wide = self.random.pick(&[LOCK_WANTED, 1 << 30]);
        let map = MapRepr {
            flags: flags ^ if self.random.once_in(25) { 1 << self.random.below(16) } else { 0 },
            to: ForwardTarget::Src as u8,
            index,
            threshold: u32::from(takes) + u32::from(self.random.once_in(40)),
            tag: if self.random.once_in(40) { tag | wide } else { tag },
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }

    /// Server's release of a lock, with the number of grants meanwhile.
    pub(super) fn lock_release(&mut self, a: usize) -> Vec<u8> {
        let index = self.pick_row(a);
        let registers = self.program.tables().registers();
        let found =
            self.register_index(a, index).map(|at| (registers.locks.peek(at, 1)[0], registers.grants.peek(at, 1)[0]));
        let (lock, grants) = found.unwrap_or_default();
        let round = match self.random.below(100) {
            0 => u32::MAX,
            1..30 => grants.saturating_add(self.random.below(5)),
            _ => self.random.below(10),
        };
        let base = BaseRepr { round, ..self.server_head(a, FrameKind::MapFree, false) };
        let tag = lock.tag & !LOCK_WANTED;
        let map = MapRepr {
            flags: self.laneless_flags(),
            index,
            threshold: lock.owner + u32::from(self.random.once_in(10)),
            tag: if self.random.once_in(10) { tag ^ self.random.pick(&[1, 1 << 30]) } else { tag },
            ..MapRepr::default()
        };
        frame::bare(&base, &map)
    }
}
