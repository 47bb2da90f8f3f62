//! Estimate of the program's resources in a switch pipeline, by a few rules and without a compiler.
//!
//! ```text
//! layout::ARRAYS, Size ─► place ─► stage by stage: groups and memory; what is too large for a stage
//! ```
//!
//! An array is divided into register groups of at most two 32-bit words. A group is in one stage, after the arrays that
//! it depends on; independent arrays share stages.

use crate::Size;
use crate::layout::{ARRAYS, Array, RegisterUnit};

/// Resources of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineLimits {
    /// Number of stages.
    pub stages: usize,
    /// Register groups per stage; a frame accesses each once.
    pub groups: usize,
    /// Register memory per stage, bytes.
    pub stage_bytes: u64,
    /// Bits of a register: two words of 32.
    pub register_bits: u32,
    /// Stages before the first register, for the admission tables.
    pub tables: usize,
}

/// Tofino, as far as published.
pub const TOFINO: PipelineLimits =
    PipelineLimits { stages: 12, groups: 4, stage_bytes: 48 * 1024 * 16, register_bits: 64, tables: 1 };

/// Rules of the estimate, with their sources.
pub const RULES: [&str; 6] = [
    "12 stages, 4 register groups a stage, each accessed once by a frame (NetRPC 5.2.2, 6.1)",
    "a group's register has at most 64 bits, two words of 32; wider registers take more groups",
    "768 KiB of registers a stage: 48 RAM blocks of 1,024 x 128 bits with map RAM (p4c, backends/tofino)",
    "32 lanes a frame, an array for each (NetRPC 5.2.2); rows of 256 lanes take eight frames",
    "an array is in a later stage than arrays that it depends on; admission tables take the first stage",
    "not counted: match tables' memory, header space, hash and action units, additions of a compiler",
];

/// Part of an array in a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayPart {
    /// Name of the array.
    pub array: &'static str,
    /// Groups in this stage.
    pub groups: usize,
    /// Bytes in this stage.
    pub bytes: u64,
}

/// Placement of the arrays in stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Parts by stage, with the empty stages of the tables first; more stages than available if the program does not
    /// fit.
    pub stages: Vec<Vec<ArrayPart>>,
    /// Arrays with a group that is larger than a stage's memory: name, bytes of the group.
    pub too_large: Vec<(&'static str, u64)>,
}

impl Placement {
    /// Whether the placement fits a pipeline with these limits.
    #[must_use]
    pub fn fits(&self, limits: &PipelineLimits) -> bool {
        self.stages.len() <= limits.stages && self.too_large.is_empty()
    }
}

/// Places the arrays of a memory of this size, with `lanes` per frame.
#[must_use]
pub fn place(size: &Size, lanes: usize, limits: &PipelineLimits) -> Placement {
    let mut placement = Placement { stages: vec![Vec::new(); limits.tables], too_large: Vec::new() };
    let mut ends = [limits.tables; ARRAYS.len()];
    for (index, array) in ARRAYS.iter().enumerate() {
        let mut at = array.after.iter().map(|before| ends[*before]).max().unwrap_or(limits.tables);
        let (groups, group_bytes) = groups(array, size, lanes, limits);
        if group_bytes > limits.stage_bytes {
            placement.too_large.push((array.name, group_bytes));
        }
        let steps = array.steps.min(groups);
        for step in 0..steps {
            // The last step gets the remaining groups.
            let mut left = if step + 1 == steps { groups - step * (groups / steps) } else { groups / steps };
            while left > 0 {
                let taken = placement.place_in_stage(at, array.name, left, group_bytes, limits);
                left -= taken;
                at += 1;
            }
        }
        ends[index] = at;
    }
    placement
}

/// Largest number of lanes per frame, at most 32, for which the stages suffice.
#[must_use]
pub fn lanes_fitting(size: &Size, limits: &PipelineLimits) -> usize {
    let fits = |lanes: &usize| place(size, *lanes, limits).stages.len() <= limits.stages;
    (1..=pathcall_wire::KEYED_LANES).rev().find(fits).unwrap_or(0)
}

/// Largest number of flow slots for which no group exceeds a stage's memory.
#[must_use]
pub fn slots_fitting(size: &Size, limits: &PipelineLimits) -> usize {
    let fits = |slots: usize| place(&Size { slots, ..*size }, 1, limits).too_large.is_empty();
    let (mut fitting, mut too_many) = (0, size.slots + 1);
    while too_many - fitting > 1 {
        let middle = usize::midpoint(fitting, too_many);
        if fits(middle) { fitting = middle } else { too_many = middle }
    }
    fitting
}

/// Number of groups of an array, and the size of the largest in bytes.
fn groups(array: &Array, size: &Size, lanes: usize, limits: &PipelineLimits) -> (usize, u64) {
    let words: u32 = array.fields.iter().map(|bits| bits.div_ceil(32)).sum();
    let per_group = words.min(limits.register_bits / 32);
    let parallel = if array.per == RegisterUnit::Lane { lanes } else { array.parallel() };
    let registers = array.registers(size).div_ceil(array.parallel() as u64);
    (parallel * words.div_ceil(per_group) as usize, registers * u64::from(per_group) * 4)
}

impl Placement {
    /// Places as many of `groups` in a stage as fit; returns their number.
    fn place_in_stage(
        &mut self,
        at: usize,
        array: &'static str,
        groups: usize,
        bytes: u64,
        limits: &PipelineLimits,
    ) -> usize {
        if self.stages.len() <= at {
            self.stages.resize(at + 1, Vec::new());
        }
        let stage = &mut self.stages[at];
        let used: usize = stage.iter().map(|part| part.groups).sum();
        let used_bytes: u64 = stage.iter().map(|part| part.bytes).sum();
        let room = limits.stage_bytes.saturating_sub(used_bytes) / bytes.max(1);
        // A group that is too large for any stage is reported elsewhere; here it takes an empty stage.
        let by_memory = if bytes > limits.stage_bytes { usize::from(used == 0) } else { room as usize };
        let taken = groups.min(limits.groups.saturating_sub(used)).min(by_memory);
        if taken > 0 {
            stage.push(ArrayPart { array, groups: taken, bytes: taken as u64 * bytes });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Map of the paper: 32 segments of 40k words, and few flows.
    const PAPER: Size = Size { rows: 40_960, lanes: 32 * 40_960, slots: 16 };

    #[test]
    fn map_of_paper_needs_groups_of_eight_stages() {
        let placement = place(&PAPER, 32, &TOFINO);
        let parts = placement.stages.iter().filter_map(|stage| stage.iter().find(|part| part.array == "lanes"));
        let groups: Vec<usize> = parts.map(|part| part.groups).collect();
        assert_eq!(groups.iter().sum::<usize>(), 8 * TOFINO.groups, "{placement:?}");
        // One more if other arrays share the first stage.
        assert!((8..=9).contains(&groups.len()), "{placement:?}");
        assert!(placement.too_large.is_empty(), "{placement:?}");
    }

    #[test]
    fn register_stages_respect_dependencies_and_limits() {
        let placement = place(&PAPER, 32, &TOFINO);
        let first = |name| placement.stages.iter().position(|s| s.iter().any(|p| p.array == name)).expect("placed");
        let last = |name| placement.stages.iter().rposition(|s| s.iter().any(|p| p.array == name)).expect("placed");
        for array in &ARRAYS {
            for &before in array.after {
                assert!(last(ARRAYS[before].name) < first(array.name), "{placement:?}");
            }
        }
        for stage in &placement.stages {
            assert!(stage.iter().map(|part| part.groups).sum::<usize>() <= TOFINO.groups, "{placement:?}");
            assert!(stage.iter().map(|part| part.bytes).sum::<u64>() <= TOFINO.stage_bytes, "{placement:?}");
        }
    }

    /// With the paper's memory not even one lane fits twelve stages; with the least memory eight lanes do.
    #[test]
    fn no_lane_fits_at_memory_of_paper() {
        assert_eq!(lanes_fitting(&PAPER, &TOFINO), 0);
        let placement = place(&PAPER, 1, &TOFINO);
        assert!(placement.stages.len() > TOFINO.stages && placement.too_large.is_empty(), "{placement:?}");
        assert_eq!(lanes_fitting(&Size { rows: 1, lanes: 32, slots: 1 }, &TOFINO), 8);
    }

    #[test]
    fn largest_fitting_sizes_fit_exactly() {
        // A pipeline with as many stages as half of the lanes need.
        let limits = PipelineLimits { stages: place(&PAPER, 16, &TOFINO).stages.len(), ..TOFINO };
        let lanes = lanes_fitting(&PAPER, &limits);
        assert!((16..32).contains(&lanes), "{lanes}");
        assert!(place(&PAPER, lanes, &limits).fits(&limits) && !place(&PAPER, lanes + 1, &limits).fits(&limits));
        let size = Size { slots: 4096, ..PAPER };
        let slots = slots_fitting(&size, &TOFINO);
        let too_large = |slots| !place(&Size { slots, ..size }, 32, &TOFINO).too_large.is_empty();
        assert!(slots > 0 && !too_large(slots) && too_large(slots + 1), "{slots}");
    }
}
