//! Permissions of a caller in a map, and their check on its frames.

use pathcall_wire::{FrameKind, MapFlags, MapFrame};

use super::MapServer;

/// Set of operations that a caller may use on a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions(u16);

impl Permissions {
    /// No operation.
    pub const NONE: Self = Self(0);
    /// Addition, also to sums of several workers.
    pub const ADD: Self = Self(MapFlags::ADD);
    /// Read of values with an addition.
    pub const GET: Self = Self(MapFlags::GET);
    /// Count up to a threshold: votes and locks.
    pub const COUNT: Self = Self(MapFlags::COUNT);
    /// Clear of values, and release of locks.
    pub const CLEAR: Self = Self(MapFlags::CLEAR);
    /// All operations.
    pub const ALL: Self = Self(MapFlags::ADD | MapFlags::GET | MapFlags::COUNT | MapFlags::CLEAR);

    /// Union of two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this set contains all operations of `requested`.
    #[must_use]
    pub const fn contains(self, requested: Self) -> bool {
        self.0 & requested.0 == requested.0
    }

    /// Whether a caller's frame requests permitted operations only. Leaving a lock queue needs the permission to count.
    pub(super) fn allows(self, frame: &MapFrame<&[u8]>) -> bool {
        if !matches!(frame.kind(), FrameKind::MapData | FrameKind::MapPairs) {
            return true;
        }
        let flags = frame.map().flags();
        let requested = if flags & MapFlags::COUNT != 0 {
            MapFlags::COUNT
        } else if flags & MapFlags::CLEAR != 0 {
            MapFlags::CLEAR
        } else {
            flags & (MapFlags::ADD | MapFlags::GET)
        };
        // A frame without an operation needs all permissions.
        self == Self::ALL || requested != 0 && self.contains(Self(requested))
    }
}

impl MapServer {
    /// Sets the permissions of a caller; the default is all. The owner drops frames with other operations. The element
    /// does not know permissions, so it must not admit a caller without all permissions.
    pub fn set_permissions(&mut self, endpoint: u32, incarnation: u32, may: Permissions) {
        let member = self.shared.members.get_mut(&endpoint).filter(|state| state.member.incarnation == incarnation);
        if let Some(state) = member {
            state.may = may;
        }
    }
}
