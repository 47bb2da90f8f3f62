//! Register arrays of the P4 program with their dependencies, and the profiles of the program for a pipeline.
//!
//! ```text
//! PipelineProfile ─┬─ macros ─► p4/switch.p4, compiled without what the profile leaves out
//!                  ├─ what an element with it serves ─► its registration
//!                  └─ PIPELINE_ARRAYS, sizes ─► hardware::place ─► stages
//! ```
//!
//! The arrays are those of the text, one `register` each: a test of `crates/conformance` compares names, widths and
//! dependencies with the compiled text.

use pathcall_wire::{KEYED_LANES, KEYED_WIDTH, W_MAX};

use crate::layout::RegisterUnit;
use crate::{CloneSize, Size};

/// Profile of the P4 program: the whole program, or the part of it that fits a pipeline of 12 stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PipelineProfile {
    /// Map and clone, with an array for each of 32 lanes.
    #[default]
    Whole,
    /// Map alone, with 16 arrays of lanes: frames of more than 16 lanes, and frames that clear a row, pass twice, as in
    /// ATP and SwitchML (NetRPC §6.3 compares with them).
    Map,
    /// Clone alone.
    Clone,
}

impl PipelineProfile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Whole, Self::Map, Self::Clone];

    /// Name, as in `pathcall program report`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Map => "map",
            Self::Clone => "clone",
        }
    }

    /// Macros that select the profile in the text.
    #[must_use]
    pub const fn macros(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &[],
            Self::Map => &["PC_PROFILE_MAP"],
            Self::Clone => &["PC_PROFILE_CLONE"],
        }
    }

    /// Whether an element with the profile serves applications.
    #[must_use]
    pub const fn has_map(self) -> bool {
        !matches!(self, Self::Clone)
    }

    /// Whether an element with the profile serves pools.
    #[must_use]
    pub const fn has_calls(self) -> bool {
        !matches!(self, Self::Map)
    }

    /// Lanes of a frame that the profile processes; 0 without map.
    #[must_use]
    pub const fn frame_lanes(self) -> usize {
        if self.has_map() { KEYED_LANES } else { 0 }
    }

    /// Passes that process the lanes of a frame.
    #[must_use]
    pub const fn passes(self) -> usize {
        if matches!(self, Self::Map) { 2 } else { 1 }
    }

    /// Register arrays of lanes (`PC_ARRAYS`).
    #[must_use]
    pub const fn lane_arrays(self) -> usize {
        self.frame_lanes() / self.passes()
    }

    /// Whether the profile serves applications with rows of this width: a frame's lanes, or two banks of keys.
    #[must_use]
    pub const fn takes_rows_of(self, width: u32) -> bool {
        self.has_map() && pathcall_wire::map::takes_rows(self.frame_lanes() as u32, width)
    }

    /// Default memory (`constants.p4`).
    #[must_use]
    pub const fn size(self) -> Size {
        let (rows, slots) = match self {
            Self::Whole => (40_960, 4_096),
            Self::Map => (10_240, 128),
            Self::Clone => (0, 0),
        };
        Size { rows, lanes: rows * KEYED_WIDTH, slots }
    }

    /// Default sizes of the tables of calls (`constants.p4`).
    #[must_use]
    pub const fn clones(self) -> CloneSize {
        match self {
            Self::Clone => CloneSize { slots: 1 << 15, ..CloneSize::DEFAULT },
            Self::Whole | Self::Map => CloneSize::DEFAULT,
        }
    }

    /// What an element with the profile serves.
    #[must_use]
    pub const fn serves(self) -> &'static str {
        match self {
            Self::Whole => "sums, keyed additions, counts, locks, ballots; pools",
            Self::Map => "sums (copy and shadow, up to 64 workers), keyed additions, counts, locks, ballots",
            Self::Clone => "pools: clones, the shorter queue, the response filter",
        }
    }

    /// What the profile leaves out.
    #[must_use]
    pub const fn leaves_out(self) -> &'static str {
        match self {
            Self::Whole => "rows of more than 32 lanes; tokens",
            Self::Map => "rows of more than 32 lanes; tokens; pools",
            Self::Clone => "tokens; applications",
        }
    }

    /// What the profile costs beside its stages.
    #[must_use]
    pub const fn costs(self) -> &'static str {
        match self {
            Self::Whole => "nothing",
            Self::Map => {
                "frames of more than 16 lanes, and frames that clear a row, take a second pass by a recirculation port"
            }
            Self::Clone => {
                "the clone of a request takes a second pass, as in NetClone; ids that share a CRC share a slot"
            }
        }
    }
}

/// Ability that an array belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Applications.
    Map,
    /// Pools.
    Clone,
}

/// `register` of the P4 text, or a table whose key comes from a register (`bits` is 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineArray {
    /// Path in the text, from the control of its stage on. The array of lanes stands for all of them.
    pub path: &'static str,
    /// Ability.
    pub ability: Ability,
    /// Unit that has one cell.
    pub per: RegisterUnit,
    /// Bits of a cell.
    pub bits: u32,
    /// Paths of the arrays and tables whose result decides about this one's cell, its update, or whether it is accessed.
    pub after: &'static [&'static str],
    /// Whether the result decides where the frame goes, or which frame is sent.
    pub decides: bool,
}

const fn of_map(
    path: &'static str,
    per: RegisterUnit,
    bits: u32,
    after: &'static [&'static str],
    decides: bool,
) -> PipelineArray {
    PipelineArray { path, ability: Ability::Map, per, bits, after, decides }
}

const fn of_calls(
    path: &'static str,
    per: RegisterUnit,
    bits: u32,
    after: &'static [&'static str],
    decides: bool,
) -> PipelineArray {
    PipelineArray { path, ability: Ability::Clone, per, bits, after, decides }
}

const SEQS: &str = "repeat_filter.seqs";
const NUMBERS: &str = "round.numbers";
const LOW: &str = "round.low.parts";
const HIGH: &str = "round.high.parts";
const HOLDERS: &str = "ballot.holders";
const WORDS: [&str; 4] =
    ["ballot.words_0.words", "ballot.words_1.words", "ballot.words_2.words", "ballot.words_3.words"];
const STANDINGS: &str = "ballot.standings";
/// Arrays of lanes.
pub const LANES: &str = "map.lanes";
const VERSIONS: &str = "generation.versions";
const OPENS: &str = "generation.opens";

/// All arrays, in the order of the text.
pub const PIPELINE_ARRAYS: [PipelineArray; 28] = {
    use RegisterUnit::{Element, Fingerprint, Lane, Place, Request, Row, Server};
    [
        of_map(OPENS, Row, 64, &[], false),
        of_map(VERSIONS, Row, 64, &[], false),
        // An entry with the frame's number, and the generation in which it was applied.
        of_map(SEQS, Place, 32, &[VERSIONS], true),
        of_map("repeat_filter.generations", Place, 32, &[VERSIONS, SEQS], false),
        of_map(NUMBERS, Row, 32, &[SEQS], true),
        of_map(LOW, Row, 64, &[SEQS, NUMBERS], true),
        of_map(HIGH, Row, 64, &[SEQS, NUMBERS], true),
        of_map("round.marks", Row, 1, &[SEQS, NUMBERS, LOW, HIGH], false),
        of_map("count.counts", Row, 32, &[SEQS, NUMBERS, LOW, HIGH], true),
        of_map(HOLDERS, Row, 9, &[SEQS], true),
        of_map(WORDS[0], Row, 64, &[SEQS, HOLDERS], true),
        of_map(WORDS[1], Row, 64, &[SEQS, HOLDERS], true),
        of_map(WORDS[2], Row, 64, &[SEQS, HOLDERS], true),
        of_map(WORDS[3], Row, 64, &[SEQS, HOLDERS], true),
        of_map(STANDINGS, Row, 64, &[SEQS, HOLDERS, WORDS[0], WORDS[1], WORDS[2], WORDS[3]], true),
        of_map("lock.locks", Row, 64, &[SEQS], true),
        of_map("grant.grants", Row, 32, &[SEQS, "lock.locks"], false),
        of_map(LANES, Lane, 32, &[OPENS, VERSIONS, SEQS, NUMBERS, LOW, HIGH], false),
        // Lanes left out, and for a vote whether it went to the server.
        of_map(
            "overflow.marks",
            Place,
            32,
            &[
                OPENS, VERSIONS, SEQS, NUMBERS, LOW, HIGH, HOLDERS, WORDS[0], WORDS[1], WORDS[2], WORDS[3], STANDINGS,
                LANES,
            ],
            true,
        ),
        of_calls("number.numbers", Element, 64, &[], true),
        // The two servers of a pair (GrpT); the table also depends on the pool's entry.
        of_calls("group.groups", Element, 0, &[], true),
        of_calls("load.loads", Server, 48, &["group.groups"], true),
        of_calls("load.shadows", Server, 48, &["group.groups"], true),
        of_calls("requests.ids", Request, 64, &["number.numbers", "group.groups"], true),
        of_calls(
            "requests.decisions",
            Request,
            34,
            &["number.numbers", "group.groups", "load.loads", "load.shadows", "requests.ids"],
            true,
        ),
        // Endpoint of a server (AddrT), after the comparison of queues.
        of_calls(
            "address.servers",
            Element,
            0,
            &["group.groups", "load.loads", "load.shadows", "requests.ids", "requests.decisions"],
            true,
        ),
        of_calls("filter.ids", Fingerprint, 64, &["number.numbers", "group.groups"], true),
        of_calls("filter.winners", Fingerprint, 48, &["number.numbers", "group.groups", "filter.ids"], true),
    ]
};

impl PipelineArray {
    /// Number of register arrays: one for each lane of a pass, otherwise one; none for a table.
    #[must_use]
    pub const fn count(&self, lane_arrays: usize) -> usize {
        match self.per {
            _ if self.bits == 0 => 0,
            RegisterUnit::Lane => lane_arrays,
            _ => 1,
        }
    }

    /// Cells of one array. A row has a cell of each lane array for each bank and each pass.
    #[must_use]
    pub const fn cells(&self, size: &Size, clones: &CloneSize, passes: usize) -> u64 {
        let cells = match self.per {
            RegisterUnit::Row => size.rows,
            RegisterUnit::Place => size.slots * W_MAX as usize,
            RegisterUnit::Lane => 2 * size.rows * passes,
            RegisterUnit::Element => 1,
            RegisterUnit::Server => clones.pools * pathcall_wire::clone::MAX_SERVERS,
            RegisterUnit::Request => clones.requests,
            RegisterUnit::Fingerprint => clones.filters * clones.slots,
        };
        cells as u64
    }

    /// Whether a profile has the array.
    #[must_use]
    pub const fn is_of(&self, profile: PipelineProfile) -> bool {
        match self.ability {
            Ability::Map => profile.has_map(),
            Ability::Clone => profile.has_calls(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_stand_after_those_that_decide_about_them() {
        for (at, array) in PIPELINE_ARRAYS.iter().enumerate() {
            assert!(array.bits <= 64, "{}: wider than two words", array.path);
            for after in array.after {
                let before = PIPELINE_ARRAYS[..at].iter().find(|other| other.path == *after);
                let before = before.unwrap_or_else(|| panic!("{} is not after {after}", array.path));
                assert_eq!(before.ability, array.ability, "{}", array.path);
            }
        }
    }

    #[test]
    fn rows_of_frame_or_two_banks_are_taken() {
        let taken = |profile: PipelineProfile, widths: [u32; 6]| widths.map(|width| profile.takes_rows_of(width));
        let widths = [0, 16, 32, 33, 64, 256];
        assert_eq!(taken(PipelineProfile::Map, widths), [true, true, true, false, true, false]);
        assert_eq!(taken(PipelineProfile::Whole, widths), taken(PipelineProfile::Map, widths));
        assert_eq!(taken(PipelineProfile::Clone, widths), [false; 6]);
    }
}
