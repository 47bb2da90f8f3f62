//! Permissions of a caller in a map, and the check of its frames.

use pathcall_wire::{Kind, MapFlags, MapFrame};

use super::MapServer;

/// What a caller may do with a map, as its frames ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions(u16);

impl Permissions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Adding, also to sums of several workers.
    pub const ADD: Self = Self(MapFlags::ADD);
    /// Getting values with an addition.
    pub const GET: Self = Self(MapFlags::GET);
    /// Counting up to a threshold: votes and locks.
    pub const COUNT: Self = Self(MapFlags::COUNT);
    /// Clearing values, and giving locks back.
    pub const CLEAR: Self = Self(MapFlags::CLEAR);
    /// All of it.
    pub const ALL: Self = Self(MapFlags::ADD | MapFlags::GET | MapFlags::COUNT | MapFlags::CLEAR);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all that `asked` has is in it.
    #[must_use]
    pub const fn has(self, asked: Self) -> bool {
        self.0 & asked.0 == asked.0
    }

    /// Whether what a frame of a caller asks for is in it. A count that is taken back is a count still.
    pub(super) fn admit(self, frame: &MapFrame<&[u8]>) -> bool {
        if !matches!(frame.kind(), Kind::MapData | Kind::MapPairs) {
            return true;
        }
        let flags = frame.map().flags();
        let asked = if flags & MapFlags::COUNT != 0 {
            MapFlags::COUNT
        } else if flags & MapFlags::CLEAR != 0 {
            MapFlags::CLEAR
        } else {
            flags & (MapFlags::ADD | MapFlags::GET)
        };
        // One that asks for none of it is no caller's that has been let in for something.
        self == Self::ALL || asked != 0 && self.has(Self(asked))
    }
}

impl MapServer {
    /// Says what a caller may do from now on; everything, unless it is said. Frames that ask for something else are dropped
    /// here: an element does not know it, so it must not be told of a caller that may not do everything.
    pub fn permit(&mut self, endpoint: u32, incarnation: u32, may: Permissions) {
        let member = self.shared.members.get_mut(&endpoint).filter(|state| state.member.incarnation == incarnation);
        if let Some(state) = member {
            state.may = may;
        }
    }
}
