//! Layout of the register arrays by stage, for `Registers`, for reports, and for other executions of the program.

use pathcall_wire::clone::MAX_SERVERS;
use pathcall_wire::{KEYED_LANES, LINEAR_LANES, RECORD_PLACES, W_MAX};

use crate::{CloneSize, Size};

/// Stages in packet order; an [`Array`] names its stage by index. Stages from `number` to `filter` are for calls to
/// pools, the earlier ones for *map*.
pub const STAGES: [&str; 16] = [
    "admit",
    "generation",
    "repeat_filter",
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
/// Default tables for calls to pools.
const CLONES: CloneSize = CloneSize::DEFAULT;

/// Unit for which an array has a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterUnit {
    /// Row of an application.
    Row,
    /// Entry of a flow slot's repeat filter.
    Place,
    /// Lane of a row.
    Lane,
    /// Whole element.
    Element,
    /// Server of a pool.
    Server,
    /// Slot of the table of cloned requests.
    Request,
    /// Slot of a filter table.
    Fingerprint,
}

/// Register array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Name in the program.
    pub name: &'static str,
    /// Index of the stage: a frame visits arrays in this order, each once.
    pub stage: u8,
    /// Unit that has one register.
    pub per: RegisterUnit,
    /// Widths of a register's fields, bits.
    pub fields: &'static [u32],
    /// Number of dependent steps, each on fields of its own: `round` is compared before `workers` is set.
    pub steps: usize,
    /// Most registers visited by one frame.
    pub visited: usize,
    /// Indices in [`ARRAYS`] of the arrays whose registers decide what happens to this array's.
    pub after: &'static [usize],
}

/// All register arrays.
pub const ARRAYS: [Array; 14] = [
    Array {
        name: "generations",
        stage: 1,
        per: RegisterUnit::Row,
        fields: &[32, 32, 32],
        steps: 1,
        visited: 1,
        after: &[],
    },
    Array {
        name: "places",
        stage: 2,
        per: RegisterUnit::Place,
        fields: &[32, 32, 1],
        steps: 1,
        visited: RECORD_PLACES,
        after: &[0],
    },
    Array {
        name: "rounds",
        stage: 3,
        per: RegisterUnit::Row,
        fields: &[32, 32, 64, 1],
        steps: 2,
        visited: 1,
        after: &[1],
    },
    Array { name: "counts", stage: 4, per: RegisterUnit::Row, fields: &[32], steps: 1, visited: 1, after: &[1, 2] },
    // In the stage of counts, because a frame belongs to a round or to a ballot. Fields: key, its length, moved,
    // decided, count, round. The key is compared or stored before the vote is counted.
    Array {
        name: "ballots",
        stage: 4,
        per: RegisterUnit::Row,
        fields: &[32, 32, 32, 32, 32, 32, 32, 32, 8, 1, 1, 32, 31],
        steps: 2,
        visited: 1,
        after: &[1],
    },
    Array { name: "locks", stage: 5, per: RegisterUnit::Row, fields: &[32, 32], steps: 1, visited: 1, after: &[1] },
    Array { name: "grants", stage: 6, per: RegisterUnit::Row, fields: &[32], steps: 1, visited: 1, after: &[5] },
    Array {
        name: "lanes",
        stage: 7,
        per: RegisterUnit::Lane,
        fields: &[32],
        steps: 1,
        visited: LINEAR_LANES,
        after: &[1, 2, 3],
    },
    Array {
        name: "overflows",
        stage: 15,
        per: RegisterUnit::Place,
        fields: &[32],
        steps: 1,
        visited: RECORD_PLACES,
        after: &[1, 4, 7],
    },
    Array {
        name: "numbers",
        stage: 8,
        per: RegisterUnit::Element,
        fields: &[32, 32],
        steps: 1,
        visited: 1,
        after: &[],
    },
    // Number of the latest report, queue length.
    Array { name: "loads", stage: 10, per: RegisterUnit::Server, fields: &[32, 16], steps: 1, visited: 1, after: &[] },
    // Shadow copy of the loads: a frame that needs the loads of two servers visits each array once (NetClone §3.4).
    Array {
        name: "shadows",
        stage: 11,
        per: RegisterUnit::Server,
        fields: &[32, 16],
        steps: 1,
        visited: 1,
        after: &[10],
    },
    // Id, gaid, decision; the id is compared before the decision is written or read.
    Array {
        name: "requests",
        stage: 12,
        per: RegisterUnit::Request,
        fields: &[32, 32, 32, 2],
        steps: 1,
        visited: 1,
        after: &[10, 11],
    },
    // Id, gaid, server.
    Array {
        name: "filters",
        stage: 14,
        per: RegisterUnit::Fingerprint,
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
            RegisterUnit::Row => size.rows as u64,
            RegisterUnit::Place => size.slots as u64 * W_MAX as u64,
            RegisterUnit::Lane => size.lanes as u64,
            RegisterUnit::Element => 1,
            RegisterUnit::Server => (CLONES.pools * MAX_SERVERS) as u64,
            RegisterUnit::Request => CLONES.requests as u64,
            RegisterUnit::Fingerprint => (CLONES.filters * CLONES.slots) as u64,
        }
    }

    /// Number of hardware arrays: each lane of a keyed frame needs one, because a frame visits an array once (NetRPC
    /// §5.2.2), and so does each filter table (NetClone §3.5).
    #[must_use]
    pub const fn parallel(&self) -> usize {
        match self.per {
            RegisterUnit::Lane => KEYED_LANES,
            RegisterUnit::Fingerprint => CLONES.filters,
            RegisterUnit::Row
            | RegisterUnit::Place
            | RegisterUnit::Element
            | RegisterUnit::Server
            | RegisterUnit::Request => 1,
        }
    }
}

/// Register bytes of a memory of this size, of a whole element or of an application's part.
#[must_use]
pub fn bytes(size: &Size) -> u64 {
    let given_out =
        ARRAYS.iter().filter(|array| matches!(array.per, RegisterUnit::Row | RegisterUnit::Place | RegisterUnit::Lane));
    given_out.map(|array| array.registers(size) * array.bits()).sum::<u64>().div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_in_stage_order_after_dependencies() {
        for (place, array) in ARRAYS.iter().enumerate() {
            assert!((array.stage as usize) < STAGES.len(), "{}", array.name);
            for &before in array.after {
                assert!(before < place && ARRAYS[before].stage < array.stage, "{}", array.name);
            }
        }
    }

    #[test]
    fn memory_size_is_in_bytes() {
        // A row: 96 + 129 + 32 + 329 + 64 + 32 bits; a lane: 32; a slot: 256 entries of 65 + 32 bits.
        assert_eq!(bytes(&Size { rows: 8, lanes: 0, slots: 0 }), 682);
        assert_eq!(bytes(&Size { rows: 0, lanes: 3, slots: 0 }), 12);
        assert_eq!(bytes(&Size { rows: 0, lanes: 0, slots: 1 }), 256 * 97 / 8);
    }
}
