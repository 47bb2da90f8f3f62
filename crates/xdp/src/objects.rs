//! BPF objects in this kernel.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};

/// Ids of all BPF objects in this kernel, whoever made them, to find those left by an element that was killed. The
/// kernel does not reuse ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfObjects {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps, with their names.
    pub maps: BTreeMap<u32, String>,
    /// Links between programs and their attachment points.
    pub links: BTreeSet<u32>,
}

impl BpfObjects {
    /// Lists the current objects. Needs root: without it the lists are empty.
    #[must_use]
    pub fn now() -> Self {
        Self {
            programs: ProgInfoIter::default().map(|program| program.id).collect(),
            maps: MapInfoIter::default().map(|map| (map.id, map.name.to_string_lossy().into_owned())).collect(),
            links: LinkInfoIter::default().map(|link| link.id).collect(),
        }
    }
}
