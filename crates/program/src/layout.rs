//! The register arrays by stage, as `Registers` makes them: what a report, or another execution of
//! the program, has to know of them.

use pathcall_wire::clone::MAX_SERVERS;
use pathcall_wire::{KEYED_LANES, LINEAR_LANES, RECORD_PLACES, W_MAX};

use crate::{CloneSize, Size};

/// Stages in the order in which a frame passes them; an [`Array`] names its stage by place. Those from
/// `number` to `filter` are of calls to pools, those before of *map*.
pub const STAGES: [&str; 16] = [
    "admit",
    "generation",
    "once",
    "round",
    "count",
    "lock",
    "grant",
    "map",
    "number",
    "group",
    "load",
    "shadow",
    "request",
    "address",
    "filter",
    "emit",
];
/// The element's tables for calls to pools.
const CLONES: CloneSize = CloneSize::DEFAULT;

/// What an array has a register for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// A row of an application.
    Row,
    /// A place of a flow slot's repeat filter.
    Place,
    /// A lane of a row.
    Lane,
    /// The element: there is one.
    Element,
    /// A server of a pool.
    Server,
    /// A slot of the table of cloned requests.
    Request,
    /// A slot of a filter table.
    Fingerprint,
}

/// One register array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Its name in the program.
    pub name: &'static str,
    /// Its stage: a frame touches arrays in this order, each once.
    pub stage: u8,
    /// What there is a register for.
    pub per: Per,
    /// Widths of a register's fields, in bits.
    pub fields: &'static [u32],
    /// Steps that depend on each other, each on fields of its own: `round` is compared before `workers`
    /// is set.
    pub steps: usize,
    /// Most registers that one frame works on in its visit.
    pub visited: usize,
    /// Arrays, by place in [`ARRAYS`], whose registers decide what happens to this one's.
    pub after: &'static [usize],
}

/// All of them.
pub const ARRAYS: [Array; 14] = [
    Array { name: "generations", stage: 1, per: Per::Row, fields: &[32, 32, 32], steps: 1, visited: 1, after: &[] },
    Array {
        name: "places",
        stage: 2,
        per: Per::Place,
        fields: &[32, 32, 1],
        steps: 1,
        visited: RECORD_PLACES,
        after: &[0],
    },
    Array { name: "rounds", stage: 3, per: Per::Row, fields: &[32, 32, 64, 1], steps: 2, visited: 1, after: &[1] },
    Array { name: "counts", stage: 4, per: Per::Row, fields: &[32], steps: 1, visited: 1, after: &[1, 2] },
    // In the stage of counts: a frame is of a round or of a ballot. Key, its length, moved, decided, count,
    // round; the key is compared, or taken, before the vote is counted.
    Array {
        name: "ballots",
        stage: 4,
        per: Per::Row,
        fields: &[32, 32, 32, 32, 32, 32, 32, 32, 8, 1, 1, 32, 31],
        steps: 2,
        visited: 1,
        after: &[1],
    },
    Array { name: "locks", stage: 5, per: Per::Row, fields: &[32, 32], steps: 1, visited: 1, after: &[1] },
    Array { name: "grants", stage: 6, per: Per::Row, fields: &[32], steps: 1, visited: 1, after: &[5] },
    Array {
        name: "lanes",
        stage: 7,
        per: Per::Lane,
        fields: &[32],
        steps: 1,
        visited: LINEAR_LANES,
        after: &[1, 2, 3],
    },
    Array {
        name: "overflows",
        stage: 15,
        per: Per::Place,
        fields: &[32],
        steps: 1,
        visited: RECORD_PLACES,
        after: &[1, 4, 7],
    },
    Array { name: "numbers", stage: 8, per: Per::Element, fields: &[32, 32], steps: 1, visited: 1, after: &[] },
    Array { name: "loads", stage: 10, per: Per::Server, fields: &[16], steps: 1, visited: 1, after: &[] },
    // The copy of the loads: a frame that asks for two servers' visits each array once (NetClone §3.4).
    Array { name: "shadows", stage: 11, per: Per::Server, fields: &[16], steps: 1, visited: 1, after: &[10] },
    // Id, gaid, what was decided; compared before the decision is written or read.
    Array {
        name: "requests",
        stage: 12,
        per: Per::Request,
        fields: &[32, 32, 32, 2],
        steps: 1,
        visited: 1,
        after: &[10, 11],
    },
    // Id, gaid, server.
    Array {
        name: "filters",
        stage: 14,
        per: Per::Fingerprint,
        fields: &[32, 32, 32, 16],
        steps: 1,
        visited: 1,
        after: &[],
    },
];

impl Array {
    /// Bits of a register.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.fields.iter().map(|bits| u64::from(*bits)).sum()
    }

    /// Number of registers in a memory of this size.
    #[must_use]
    pub const fn registers(&self, size: &Size) -> u64 {
        match self.per {
            Per::Row => size.rows as u64,
            Per::Place => size.slots as u64 * W_MAX as u64,
            Per::Lane => size.lanes as u64,
            Per::Element => 1,
            Per::Server => (CLONES.pools * MAX_SERVERS) as u64,
            Per::Request => CLONES.requests as u64,
            Per::Fingerprint => (CLONES.filters * CLONES.slots) as u64,
        }
    }

    /// Arrays that it is made of in hardware: a lane of a keyed frame has one of its own, because a frame
    /// visits an array once (NetRPC §5.2.2); and so has each filter table (NetClone §3.5).
    #[must_use]
    pub const fn parallel(&self) -> usize {
        match self.per {
            Per::Lane => KEYED_LANES,
            Per::Fingerprint => CLONES.filters,
            Per::Row | Per::Place | Per::Element | Per::Server | Per::Request => 1,
        }
    }
}

/// Bytes of registers in a memory of this size: an element's for its applications, or an application's part of it.
#[must_use]
pub fn bytes(size: &Size) -> u64 {
    let given_out = ARRAYS.iter().filter(|array| matches!(array.per, Per::Row | Per::Place | Per::Lane));
    given_out.map(|array| array.registers(size) * array.bits()).sum::<u64>().div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_stand_in_stage_order_and_depend_on_earlier_ones() {
        for (place, array) in ARRAYS.iter().enumerate() {
            assert!((array.stage as usize) < STAGES.len(), "{}", array.name);
            for &before in array.after {
                assert!(before < place && ARRAYS[before].stage < array.stage, "{}", array.name);
            }
        }
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        // A row: 96 + 129 + 32 + 329 + 64 + 32 bits; a lane: 32; a slot: 256 places of 65 + 32 bits.
        assert_eq!(bytes(&Size { rows: 8, lanes: 0, slots: 0 }), 682);
        assert_eq!(bytes(&Size { rows: 0, lanes: 3, slots: 0 }), 12);
        assert_eq!(bytes(&Size { rows: 0, lanes: 0, slots: 1 }), 256 * 97 / 8);
    }
}
