//! Routing table like the public one of the paper (§VII-A): 59 % of the prefixes have 24 bits.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_netfn::place::LeasableTables;
use pathcall_p4::ir::{ActionId, Match, TableEntry, TableId};
use pathcall_sim::random::Random;

/// Prefixes per flow.
const PREFIXES: usize = 4;
/// Prefix lengths in bits, each with its share of the prefixes in percent.
const LENGTHS: [(u16, u64); 9] = [(24, 59), (22, 11), (23, 10), (20, 5), (21, 5), (19, 4), (16, 3), (18, 2), (17, 1)];
const WIDTHS: [u16; 1] = [32];

/// Table of a server: exact entries of flows, or prefixes.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerTable {
    exact: bool,
    prefixes: BTreeSet<(u32, u16)>,
}

fn mask(bits: u16) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

impl ServerTable {
    pub(super) fn exact() -> Self {
        Self { exact: true, prefixes: BTreeSet::new() }
    }

    /// Draws prefixes in a part of the address space that they fill, so that long prefixes often lie within shorter
    /// ones, and one address per flow within some prefix.
    pub(super) fn routes(random: &mut Random, flows: usize) -> (Self, Vec<u32>) {
        let mut prefixes = BTreeSet::new();
        let space = (flows * PREFIXES * 256 * 2) as u64;
        for _ in 0..flows * PREFIXES {
            let mut drawn = random.below(LENGTHS.iter().map(|(_, share)| share).sum());
            let length = LENGTHS.iter().find(|(_, share)| match drawn.checked_sub(*share) {
                Some(rest) => {
                    drawn = rest;
                    false
                }
                None => true,
            });
            let bits = length.map_or(24, |(bits, _)| *bits);
            prefixes.insert((random.below(space) as u32 & mask(bits), bits));
        }
        let all: Vec<(u32, u16)> = prefixes.iter().copied().collect();
        let mut addresses = BTreeMap::new();
        while addresses.len() < flows {
            let (value, bits) = random.pick(&all);
            addresses.insert(value | random.below(1 << (32 - bits)) as u32, ());
        }
        let mut addresses: Vec<u32> = addresses.into_keys().collect();
        random.shuffle(&mut addresses);
        (Self { exact: false, prefixes }, addresses)
    }

    fn longest(&self, key: u32) -> Option<(u32, u16)> {
        (8..=32).rev().map(|bits| (key & mask(bits), bits)).find(|prefix| self.prefixes.contains(prefix))
    }
}

impl LeasableTables for ServerTable {
    fn lookup(&self, _: TableId, key: &[u128]) -> Option<TableEntry> {
        let key = key[0] as u32;
        let (value, prefix_bits) = if self.exact { (key, 32) } else { self.longest(key)? };
        let keys = vec![Match { value: value.into(), prefix_bits }];
        Some(TableEntry { keys, action: ActionId(0), args: Vec::new() })
    }

    fn has_more_specific(&self, _: TableId, keys: &[Match]) -> bool {
        let Match { value, prefix_bits } = keys[0];
        let (first, last) = (value as u32, value as u32 | !mask(prefix_bits));
        self.prefixes.range((first, 0)..=(last, 32)).any(|(_, bits)| *bits > prefix_bits)
    }

    fn widths(&self, _: TableId) -> &[u16] {
        &WIDTHS
    }

    fn lpm(&self, _: TableId) -> Option<usize> {
        (!self.exact).then_some(0)
    }
}
