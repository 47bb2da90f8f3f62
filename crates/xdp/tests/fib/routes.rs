//! Random routes with overlapping prefixes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use pathcall_conformance::RandomChoice;
use pathcall_wire::SplitMix64;

/// Number of next hops, numbered from 0.
pub const HOPS: u16 = 64;
/// Number of groups with several next hops.
const GROUPS: usize = 500;
/// Shares of prefix lengths, similar to those of the Internet, with host routes.
const LENGTHS: [(u8, u32); 11] =
    [(8, 1), (11, 2), (14, 3), (16, 10), (19, 10), (20, 10), (21, 10), (22, 14), (23, 12), (24, 55), (32, 10)];

/// Address, and number of significant bits.
pub type Prefix = (u32, u8);

/// Target of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hops {
    /// Group of next hops with this number.
    Group(usize),
    /// No next hop; the route type in the words of `ip route`.
    None(&'static str),
}

/// Routes, and their groups of next hops.
pub struct Routes {
    /// Groups; the first ones have one next hop each.
    pub groups: Vec<Vec<u16>>,
    held: BTreeMap<Prefix, Hops>,
}

impl Routes {
    /// Random routes, one of them the default route.
    pub fn random(random: &mut SplitMix64, count: usize) -> Self {
        let mut groups: Vec<Vec<u16>> = (0..HOPS).map(|hop| vec![hop]).collect();
        for _ in 0..GROUPS {
            let first = random.below(HOPS.into()) as u16;
            let step = 1 + 2 * random.below(8) as u16;
            groups.push((0..2 + random.below(7) as u16).map(|at| (first + at * step) % HOPS).collect());
        }
        let mut routes = Self { groups, held: BTreeMap::new() };
        let mut prefixes = vec![(0, 0)];
        let mut seen = std::collections::BTreeSet::from([(0, 0)]);
        while prefixes.len() < count {
            let prefix = random_prefix(random, &prefixes);
            if seen.insert(prefix) {
                prefixes.push(prefix);
            }
        }
        routes.put(random, prefixes);
        routes
    }

    /// All routes, ordered by address.
    pub fn all(&self) -> impl Iterator<Item = (Prefix, Hops)> {
        self.held.iter().map(|(prefix, hops)| (*prefix, *hops))
    }

    /// Changes the next hops of these prefixes; returns the new ones.
    pub fn put(&mut self, random: &mut SplitMix64, prefixes: Vec<Prefix>) -> Vec<(Prefix, Hops)> {
        let groups = self.groups.len();
        let mut hops = || match random.below(100) {
            0 => Hops::None("unreachable"),
            1 => Hops::None("blackhole"),
            2 => Hops::None("prohibit"),
            3..80 => Hops::Group(random.below(HOPS.into()) as usize),
            _ => Hops::Group(random.index(groups)),
        };
        let put: Vec<_> = prefixes.into_iter().map(|prefix| (prefix, hops())).collect();
        self.held.extend(put.iter().copied());
        put
    }

    /// Removes `count` routes, including the default route.
    pub fn remove(&mut self, random: &mut SplitMix64, count: usize) -> Vec<(Prefix, Hops)> {
        let every = self.held.len().div_ceil(count).max(2);
        let from = 1 + random.index(every - 1);
        let removed: Vec<_> =
            self.all().enumerate().filter(|(at, _)| *at == 0 || at % every == from).map(|(_, held)| held).collect();
        for (prefix, _) in &removed {
            self.held.remove(prefix);
        }
        removed
    }
}

fn random_prefix(random: &mut SplitMix64, before: &[Prefix]) -> Prefix {
    let all: u32 = LENGTHS.iter().map(|(_, share)| share).sum();
    let mut left = random.below(all);
    let bits = LENGTHS.iter().find(|(_, share)| left.checked_sub(*share).map(|rest| left = rest).is_none());
    let bits = bits.expect("one of them").0;
    loop {
        let mut address = random.bits() as u32;
        // Half of the prefixes lie within another one.
        if random.percent(50) {
            let (within, length) = before[random.index(before.len())];
            if length < bits && length > 0 {
                address = within | address & (u32::MAX >> length);
            }
        }
        let address = address & mask(bits);
        if is_routed(address) && is_routed(address | !mask(bits)) {
            return (address, bits);
        }
    }
}

fn mask(bits: u8) -> u32 {
    if bits == 0 { 0 } else { u32::MAX << (32 - bits) }
}

/// Whether an address is routed: not one of the host itself, of 0/8, 127/8, from 224 on, or of the next hops' network.
fn is_routed(address: u32) -> bool {
    let first = address >> 24;
    !matches!(first, 0 | 127 | 224..) && address >> 16 != 10 << 8 | 200
}

/// Random addresses: half of them uniform, half within a route that existed.
pub fn addresses(routes: &Routes, random: &mut SplitMix64, count: usize) -> Vec<Ipv4Addr> {
    let prefixes: Vec<Prefix> = routes.all().map(|(prefix, _)| prefix).collect();
    let mut addresses = Vec::with_capacity(count);
    while addresses.len() < count {
        let mut address = random.bits() as u32;
        if random.percent(50) {
            let (within, bits) = prefixes[random.index(prefixes.len())];
            address = within | address & !mask(bits);
        }
        if is_routed(address) {
            addresses.push(Ipv4Addr::from(address));
        }
    }
    addresses
}
