//! What there is of BPF in this kernel.

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};

/// How many objects of BPF this kernel has, whoever made them: what is left of an element that was killed shows here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objects {
    /// Programs.
    pub programs: usize,
    /// Maps.
    pub maps: usize,
    /// Links between programs and what they are attached to.
    pub links: usize,
}

impl Objects {
    /// Those of now. Takes root: without it there seem to be none.
    #[must_use]
    pub fn now() -> Self {
        Self {
            programs: ProgInfoIter::default().count(),
            maps: MapInfoIter::default().count(),
            links: LinkInfoIter::default().count(),
        }
    }
}
