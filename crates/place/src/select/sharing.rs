//! Accelerators that paths share: a path over one that does not work is probably not the only one.

use crate::model::ACCELERATORS_MAX;
use crate::path::{Path, Paths, RequestKind};

/// Accelerators of each path.
#[derive(Debug)]
pub(super) struct SharedAccelerators {
    /// Accelerators of both hosts as bits, by path.
    uses: Vec<u16>,
    /// Whether a request type may use several accelerators of a host.
    has_several: bool,
}

impl SharedAccelerators {
    pub(super) fn new(paths: &Paths) -> Self {
        Self {
            uses: paths.paths.iter().map(uses).collect(),
            has_several: paths.kinds.iter().any(|kind| uses_several(paths, kind)),
        }
    }

    /// Whether a request type may use several accelerators of a host.
    pub(super) fn has_several(&self) -> bool {
        self.has_several
    }

    /// Whether two paths use a common accelerator, or are the same.
    pub(super) fn is_shared(&self, one: u16, other: u16) -> bool {
        self.uses[usize::from(one)] & self.uses[usize::from(other)] != 0 || one == other
    }
}

/// Number of ends of a path that are on accelerators.
pub(super) fn accelerators(path: &Path) -> u8 {
    uses(path).count_ones() as u8
}

fn uses(path: &Path) -> u16 {
    let bit = |number: Option<usize>| number.map_or(0, |number| 1 << number);
    bit(path.role.accelerator()) | bit(path.requester_role.accelerator()) << ACCELERATORS_MAX
}

/// Whether paths of a request type use different accelerators of one host.
fn uses_several(paths: &Paths, kind: &RequestKind) -> bool {
    let first = usize::from(kind.first.0);
    let own = &paths.paths[first..first + usize::from(kind.count)];
    [|path: &Path| path.role, |path: &Path| path.requester_role].into_iter().any(|role| {
        let mut roles = own.iter().map(role).filter(|role| role.is_acc());
        roles.next().is_some_and(|first| roles.any(|other| other != first))
    })
}
