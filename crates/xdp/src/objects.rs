//! What there is of BPF in this kernel.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};

/// The objects of BPF that this kernel has, by their numbers, whoever made them: what is left of an element that was
/// killed shows here. A number is given once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps, with their names.
    pub maps: BTreeMap<u32, String>,
    /// Links between programs and what they are attached to.
    pub links: BTreeSet<u32>,
}

impl Objects {
    /// Those of now. Takes root: without it there seem to be none.
    #[must_use]
    pub fn now() -> Self {
        Self {
            programs: ProgInfoIter::default().map(|program| program.id).collect(),
            maps: MapInfoIter::default().map(|map| (map.id, map.name.to_string_lossy().into_owned())).collect(),
            links: LinkInfoIter::default().map(|link| link.id).collect(),
        }
    }
}
