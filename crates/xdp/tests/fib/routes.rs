//! Random routes that cover one another.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use pathcall_conformance::Random;

/// Next hops there are, by number from 0.
pub const HOPS: u16 = 64;
/// Groups of several.
const GROUPS: usize = 500;
/// Shares of prefix lengths, much as on the Internet, with hosts.
const LENGTHS: [(u8, u32); 11] =
    [(8, 1), (11, 2), (14, 3), (16, 10), (19, 10), (20, 10), (21, 10), (22, 14), (23, 12), (24, 55), (32, 10)];

/// An address and how many of its bits count.
pub type Prefix = (u32, u8);

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hops {
    /// To the group of this number.
    Group(usize),
    /// Nowhere, in the kernel's word for it.
    None(&'static str),
}

/// Routes, and the groups of next hops that they lead to.
pub struct Routes {
    /// The first have one next hop each.
    pub groups: Vec<Vec<u16>>,
    held: BTreeMap<Prefix, Hops>,
}

impl Routes {
    /// So many, one of them the default route.
    pub fn random(random: &mut Random, count: usize) -> Self {
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

    /// All of them, in the order of addresses.
    pub fn all(&self) -> impl Iterator<Item = (Prefix, Hops)> {
        self.held.iter().map(|(prefix, hops)| (*prefix, *hops))
    }

    /// Gives these prefixes new next hops; what they got.
    pub fn put(&mut self, random: &mut Random, prefixes: Vec<Prefix>) -> Vec<(Prefix, Hops)> {
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

    /// Takes so many out, also the default route.
    pub fn remove(&mut self, random: &mut Random, count: usize) -> Vec<(Prefix, Hops)> {
        let every = self.held.len().div_ceil(count).max(2);
        let from = 1 + random.index(every - 1);
        let gone: Vec<_> =
            self.all().enumerate().filter(|(at, _)| *at == 0 || at % every == from).map(|(_, held)| held).collect();
        for (prefix, _) in &gone {
            self.held.remove(prefix);
        }
        gone
    }
}

fn random_prefix(random: &mut Random, before: &[Prefix]) -> Prefix {
    let all: u32 = LENGTHS.iter().map(|(_, share)| share).sum();
    let mut left = random.below(all);
    let bits = LENGTHS.iter().find(|(_, share)| left.checked_sub(*share).map(|rest| left = rest).is_none());
    let bits = bits.expect("one of them").0;
    loop {
        let mut address = random.bits() as u32;
        // Half lie in another: the longest prefix decides.
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

/// Not the host's own, nor what only a host interprets: 0/8, 127/8, those from 224 on, and the network of the next hops.
fn is_routed(address: u32) -> bool {
    let first = address >> 24;
    !matches!(first, 0 | 127 | 224..) && address >> 16 != 10 << 8 | 200
}

/// Random addresses: half of all, half within a route that was there.
pub fn addresses(routes: &Routes, random: &mut Random, count: usize) -> Vec<Ipv4Addr> {
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
