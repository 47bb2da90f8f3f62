//! Estimate of the program's resources in a switch pipeline, by a few rules and without a compiler.
//!
//! ```text
//! PIPELINE_ARRAYS, profile, sizes ─► place ─► stage by stage: groups and memory; what is too large for a stage
//! ```
//!
//! An array takes a register group. A group is in one stage, after the arrays that decide about it; of the arrays that
//! may be in a stage, those with the longest chain of others behind them come first.

use crate::pipeline::{PIPELINE_ARRAYS, PipelineArray, PipelineProfile};
use crate::{CloneSize, Size};

/// Resources of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineLimits {
    /// Number of stages.
    pub stages: usize,
    /// Register groups per stage; a frame accesses each once.
    pub groups: usize,
    /// Register memory per stage, bytes.
    pub stage_bytes: u64,
    /// Stages before the first register, for the admission tables.
    pub tables: usize,
}

/// Tofino, as far as published.
pub const TOFINO: PipelineLimits = PipelineLimits { stages: 12, groups: 4, stage_bytes: 48 * 1024 * 16, tables: 1 };

/// Rules of the estimate, with their sources.
pub const RULES: [&str; 9] = [
    "12 stages, 4 register groups a stage, each accessed once by a pass (NetRPC 5.2.2, 6.1)",
    "each register array of the P4 text takes a group; a group's register has at most 64 bits, two words of 32",
    "768 KiB of registers a stage: 48 RAM blocks of 1,024 x 128 bits with map RAM (p4c, backends/tofino)",
    "32 lanes a frame (NetRPC 5.2.2), an array for each lane of a pass; wider rows of hosts take several frames",
    "an array is in a later stage than arrays and tables that decide about it, found in the compiled text",
    "admission tables take the first stage; the decision where the frame goes is after all arrays that decide it",
    "ingress and egress share a stage's groups and memory, so dividing a program between them adds none; only the chain \
     of decisions may begin again. All registers are in the ingress here; the egress writes headers",
    "a second pass costs a pass of a recirculation port, and processes lanes with the same arrays, in other cells; \
     passes through further pipelines (SwitchML) would add groups, and are not used",
    "not counted: match tables' memory, header space, hash and action units, what a register's ALU can compute and \
     return in one access, additions of a compiler",
];

/// Program to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelinePlan {
    /// Profile.
    pub profile: PipelineProfile,
    /// Register arrays of lanes.
    pub lane_arrays: usize,
    /// Memory of applications.
    pub size: Size,
    /// Tables of calls.
    pub clones: CloneSize,
}

impl PipelinePlan {
    /// Profile with its default sizes.
    #[must_use]
    pub const fn of(profile: PipelineProfile) -> Self {
        Self { profile, lane_arrays: profile.lane_arrays(), size: profile.size(), clones: profile.clones() }
    }

    /// The plan with other memory of applications.
    #[must_use]
    pub const fn with_size(self, size: Size) -> Self {
        Self { size, ..self }
    }
}

/// Part of an array in a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayPart {
    /// Path of the array.
    pub array: &'static str,
    /// Groups in this stage; 0 for a table.
    pub groups: usize,
    /// Bytes in this stage.
    pub bytes: u64,
}

/// Placement of the arrays in stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Parts by stage, with the empty stages of the tables first and the stage of the decision last, if it needs one of
    /// its own; more stages than available if the program does not fit.
    pub stages: Vec<Vec<ArrayPart>>,
    /// Stage of the decision where the frame goes.
    pub decision: usize,
    /// Arrays that are larger than a stage's memory: path, bytes.
    pub too_large: Vec<(&'static str, u64)>,
}

impl Placement {
    /// Whether the placement fits a pipeline with these limits.
    #[must_use]
    pub fn fits(&self, limits: &PipelineLimits) -> bool {
        self.stages.len() <= limits.stages && self.too_large.is_empty()
    }

    /// Number of register groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.stages.iter().flatten().map(|part| part.groups).sum()
    }

    /// Register bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.stages.iter().flatten().map(|part| part.bytes).sum()
    }
}

/// Array that is being placed.
#[derive(Debug, Clone, Copy)]
struct Unplaced {
    array: &'static PipelineArray,
    /// Groups not placed yet.
    left: usize,
    bytes: u64,
    /// Stages from this array's first to the last of those behind it.
    chain: usize,
    /// Last stage, once placed.
    end: Option<usize>,
}

/// Places the arrays of a plan.
#[must_use]
pub fn place(plan: &PipelinePlan, limits: &PipelineLimits) -> Placement {
    let mut arrays = unplaced(plan, limits);
    let too_large = arrays.iter().filter(|array| array.bytes > limits.stage_bytes);
    let too_large = too_large.map(|array| (array.array.path, array.bytes)).collect();
    let mut stages = vec![Vec::new(); limits.tables];
    while arrays.iter().any(|array| array.end.is_none()) {
        let stage = fill_stage(&mut arrays, stages.len(), limits);
        stages.push(stage);
    }
    let decides = arrays.iter().filter(|array| array.array.decides).filter_map(|array| array.end);
    let decision = decides.max().map_or(limits.tables, |last| last + 1);
    if decision == stages.len() {
        stages.push(Vec::new());
    }
    Placement { stages, decision, too_large }
}

/// Largest number of lane arrays, at most a frame's lanes, for which the stages suffice.
#[must_use]
pub fn lane_arrays_fitting(plan: &PipelinePlan, limits: &PipelineLimits) -> usize {
    let fits =
        |lanes: &usize| place(&PipelinePlan { lane_arrays: *lanes, ..*plan }, limits).stages.len() <= limits.stages;
    (1..=plan.profile.frame_lanes()).rev().find(fits).unwrap_or(0)
}

/// Largest number of flow slots for which no array exceeds a stage's memory.
#[must_use]
pub fn slots_fitting(plan: &PipelinePlan, limits: &PipelineLimits) -> usize {
    let fits = |slots: usize| place(&plan.with_size(Size { slots, ..plan.size }), limits).too_large.is_empty();
    let (mut fitting, mut too_many) = (0, plan.size.slots + 1);
    while too_many - fitting > 1 {
        let middle = usize::midpoint(fitting, too_many);
        if fits(middle) { fitting = middle } else { too_many = middle }
    }
    fitting
}

fn unplaced(plan: &PipelinePlan, limits: &PipelineLimits) -> Vec<Unplaced> {
    let of_profile = PIPELINE_ARRAYS.iter().filter(|array| array.is_of(plan.profile));
    let mut arrays: Vec<_> = of_profile
        .map(|array| {
            let cells = array.cells(&plan.size, &plan.clones, plan.profile.passes());
            let bytes = cells * u64::from(array.bits.div_ceil(32)) * 4;
            Unplaced { array, left: array.count(plan.lane_arrays), bytes, chain: 0, end: None }
        })
        .collect();
    // An array stands after those that decide about it.
    for at in (0..arrays.len()).rev() {
        let behind = arrays[at + 1..].iter().filter(|other| other.array.after.contains(&arrays[at].array.path));
        let decision = usize::from(arrays[at].array.decides);
        let longest = behind.map(|other| other.chain).max().unwrap_or(0).max(decision);
        arrays[at].chain = longest + own_stages(arrays[at].left, limits);
    }
    arrays
}

/// Stages that `groups` take at least.
fn own_stages(groups: usize, limits: &PipelineLimits) -> usize {
    groups.div_ceil(limits.groups).max(1)
}

/// Fills a stage with arrays that may be in it.
fn fill_stage(arrays: &mut [Unplaced], stage: usize, limits: &PipelineLimits) -> Vec<ArrayPart> {
    let is_before = |arrays: &[Unplaced], path: &str| {
        arrays
            .iter()
            .find(|array| array.array.path == path)
            .is_none_or(|array| array.end.is_some_and(|end| end < stage))
    };
    let mut ready: Vec<usize> = (0..arrays.len())
        .filter(|at| arrays[*at].end.is_none())
        .filter(|at| arrays[*at].array.after.iter().all(|path| is_before(arrays, path)))
        .collect();
    ready.sort_by_key(|at| std::cmp::Reverse(arrays[*at].chain));
    let (mut parts, mut groups, mut bytes) = (Vec::new(), 0, 0);
    for at in ready {
        let array = &mut arrays[at];
        let (had, room) = (array.left, limits.stage_bytes.saturating_sub(bytes) / array.bytes.max(1));
        // An array that is too large for any stage is reported elsewhere; here it takes an empty stage.
        let by_memory = if array.bytes > limits.stage_bytes { usize::from(groups == 0) } else { room as usize };
        let taken = had.min(limits.groups - groups).min(by_memory);
        if taken == 0 && had > 0 {
            continue;
        }
        let part = ArrayPart { array: array.array.path, groups: taken, bytes: taken as u64 * array.bytes };
        (groups, bytes) = (groups + taken, bytes + part.bytes);
        parts.push(part);
        array.left -= taken;
        array.chain -= own_stages(had, limits) - own_stages(array.left, limits);
        if array.left == 0 {
            array.end = Some(stage);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::LANES;

    /// Map of the paper: 32 arrays of 40k words in one pass, and few flows.
    const PAPER: PipelinePlan = PipelinePlan {
        profile: PipelineProfile::Map,
        lane_arrays: 32,
        size: Size { rows: 10_240, lanes: 10_240 * 64, slots: 16 },
        clones: CloneSize::DEFAULT,
    };

    fn stages_of(placement: &Placement, path: &str) -> Vec<usize> {
        let has = |stage: &Vec<ArrayPart>| stage.iter().any(|part| part.array == path);
        (0..placement.stages.len()).filter(|at| has(&placement.stages[*at])).collect()
    }

    #[test]
    fn profiles_fit_pipeline_of_12_stages() {
        for (profile, stages) in [(PipelineProfile::Map, 12), (PipelineProfile::Clone, 6)] {
            let placement = place(&PipelinePlan::of(profile), &TOFINO);
            assert!(placement.fits(&TOFINO), "{placement:#?}");
            assert_eq!(placement.stages.len(), stages, "{placement:#?}");
        }
        let whole = place(&PipelinePlan::of(PipelineProfile::Whole), &TOFINO);
        assert!(!whole.fits(&TOFINO) && whole.stages.len() > TOFINO.stages, "{whole:#?}");
    }

    #[test]
    fn lanes_of_paper_in_one_pass_take_groups_of_eight_stages() {
        let placement = place(&PAPER, &TOFINO);
        let groups: usize =
            placement.stages.iter().flatten().filter(|part| part.array == LANES).map(|p| p.groups).sum();
        assert_eq!(groups, 8 * TOFINO.groups, "{placement:#?}");
        assert!(placement.too_large.is_empty() && !placement.fits(&TOFINO), "{placement:#?}");
        // The paper's program has no ballots of whole keys, and one counter for all (5.2.3).
        assert!((16..32).contains(&lane_arrays_fitting(&PAPER, &TOFINO)));
    }

    #[test]
    fn arrays_and_decision_follow_their_dependencies() {
        for profile in PipelineProfile::ALL {
            let placement = place(&PipelinePlan::of(profile), &TOFINO);
            for array in PIPELINE_ARRAYS.iter().filter(|array| array.is_of(profile)) {
                let own = stages_of(&placement, array.path);
                let first = *own.first().unwrap_or_else(|| panic!("{} is not placed", array.path));
                assert!(first >= TOFINO.tables, "{placement:#?}");
                for before in array.after {
                    assert!(stages_of(&placement, before).last() < Some(&first), "{before}, {}", array.path);
                }
                assert!(!array.decides || own.last() < Some(&placement.decision), "{}", array.path);
            }
        }
    }

    #[test]
    fn placement_respects_limits_of_stage() {
        for profile in PipelineProfile::ALL {
            let plan = PipelinePlan::of(profile);
            let placement = place(&plan, &TOFINO);
            for stage in &placement.stages {
                assert!(stage.iter().map(|part| part.groups).sum::<usize>() <= TOFINO.groups, "{placement:#?}");
                let too_large =
                    stage.iter().any(|part| placement.too_large.iter().any(|(path, _)| *path == part.array));
                let bytes = stage.iter().map(|part| part.bytes).sum::<u64>();
                assert!(bytes <= TOFINO.stage_bytes || too_large, "{placement:#?}");
            }
            let arrays = PIPELINE_ARRAYS.iter().filter(|array| array.is_of(profile));
            assert_eq!(placement.groups(), arrays.map(|array| array.count(plan.lane_arrays)).sum::<usize>());
        }
    }

    #[test]
    fn largest_fitting_sizes_fit_exactly() {
        let plan = PipelinePlan::of(PipelineProfile::Map);
        let lanes = lane_arrays_fitting(&plan, &TOFINO);
        assert!((plan.lane_arrays..32).contains(&lanes), "{lanes}");
        let with = |lane_arrays| place(&PipelinePlan { lane_arrays, ..plan }, &TOFINO);
        assert!(with(lanes).fits(&TOFINO) && !with(lanes + 1).fits(&TOFINO));
        let plan = plan.with_size(Size { slots: 4096, ..plan.size });
        let slots = slots_fitting(&plan, &TOFINO);
        let too_large = |slots| !place(&plan.with_size(Size { slots, ..plan.size }), &TOFINO).too_large.is_empty();
        assert!(slots > 0 && !too_large(slots) && too_large(slots + 1), "{slots}");
    }
}
