//! Ring positions and finger tables.

/// Fingers per node: the ring has 2^64 positions.
const FINGERS: u32 = u64::BITS;

/// Members of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring(Vec<u64>);

/// Finger table of a member: finger i is the first member at or after the position 2^i beyond its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerTable {
    position: u64,
    predecessor: u64,
    /// Distinct fingers, nearest first; the first is the successor.
    fingers: Vec<u64>,
}

/// Next hop of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// None: the node owns the key.
    Here,
    /// Member at this position.
    To(u64),
}

impl Ring {
    /// Ring of members at these positions; `None` if there are none.
    #[must_use]
    pub fn new(positions: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut positions: Vec<u64> = positions.into_iter().collect();
        positions.sort_unstable();
        positions.dedup();
        (!positions.is_empty()).then_some(Self(positions))
    }

    /// Ring of `count` members at equal distances. With 2^k members a look-up takes at most k hops.
    #[must_use]
    pub fn even(count: u64) -> Option<Self> {
        let position = |i| ((u128::from(i) << 64) / u128::from(count.max(1))) as u64;
        Self::new((0..count).map(position))
    }

    /// Ring of `count` members at the hashes of their names: on average half of log2 N hops, rarely more than log2 N.
    #[must_use]
    pub fn hashed(count: u64) -> Option<Self> {
        Self::new((0..count).map(|i| position_of(format!("node-{i}").as_bytes())))
    }

    /// Positions of the members, in order.
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        &self.0
    }

    /// Owner of a key: the first member at or after its position.
    #[must_use]
    pub fn owner(&self, key: u64) -> u64 {
        let index = self.0.partition_point(|position| *position < key);
        self.0[index % self.0.len()]
    }

    /// Finger table of a member; `None` if there is no such member.
    #[must_use]
    pub fn table(&self, position: u64) -> Option<FingerTable> {
        let index = self.0.binary_search(&position).ok()?;
        let predecessor = self.0[(index + self.0.len() - 1) % self.0.len()];
        let mut fingers: Vec<u64> = (0..FINGERS).map(|i| self.owner(position.wrapping_add(1 << i))).collect();
        fingers.dedup();
        Some(FingerTable { position, predecessor, fingers })
    }
}

impl FingerTable {
    /// Position of the node.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Members that the node knows.
    #[must_use]
    pub fn fingers(&self) -> &[u64] {
        &self.fingers
    }

    /// Next hop of a look-up: the successor if it owns the key, otherwise the last finger before the key.
    #[must_use]
    pub fn route(&self, key: u64) -> Route {
        // Distances from this node, along the ring.
        let ahead = |position: u64| position.wrapping_sub(self.position);
        if self.predecessor == self.position || key == self.position || ahead(key) > ahead(self.predecessor) {
            return Route::Here;
        }
        let before = self.fingers.iter().rev().find(|finger| (1..ahead(key)).contains(&ahead(**finger)));
        // If no finger is before the key, the successor owns it.
        Route::To(before.copied().unwrap_or(self.fingers[0]))
    }
}

/// Ring position of a name or a key: FNV-1a, mixed by the last step of SplitMix64.
#[must_use]
pub fn position_of(name: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut position = name.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    position = (position ^ (position >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    position = (position ^ (position >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    position ^ (position >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Follows the routes from table to table; returns the owner and the hops.
    fn find(ring: &Ring, mut at: u64, key: u64) -> (u64, u32) {
        for hops in 0..=64 {
            match ring.table(at).expect("a member").route(key) {
                Route::Here => return (at, hops),
                Route::To(next) => at = next,
            }
        }
        panic!("{key} is not found in {ring:?}");
    }

    proptest! {
        #[test]
        fn every_member_finds_owner(
            positions in prop::collection::btree_set(any::<u64>(), 1..40),
            from in any::<prop::sample::Index>(),
            key in any::<u64>(),
        ) {
            let ring = Ring::new(positions).unwrap();
            let from = ring.positions()[from.index(ring.positions().len())];
            for key in [key, from, from.wrapping_add(1), from.wrapping_sub(1)] {
                prop_assert_eq!(find(&ring, from, key).0, ring.owner(key));
            }
        }
    }

    #[test]
    fn even_ring_takes_at_most_log_n_hops() {
        for bits in 0..8_u32 {
            let ring = Ring::even(1 << bits).unwrap();
            assert_eq!(ring.positions().len(), 1 << bits);
            let hops = |from: &u64, key: &u64| find(&ring, *from, key.wrapping_sub(3)).1;
            let from_all = ring.positions().iter().flat_map(|from| ring.positions().iter().map(move |key| (from, key)));
            assert_eq!(from_all.map(|(from, key)| hops(from, key)).max(), Some(bits), "{} members", 1 << bits);
        }
    }

    #[test]
    fn hashed_ring_takes_half_log_n_hops_on_average() {
        let ring = Ring::hashed(1024).unwrap();
        let hops: Vec<u32> = (0..20_000_u32)
            .map(|i| find(&ring, ring.positions()[i as usize % 1024], position_of(&i.to_be_bytes())).1)
            .collect();
        let mean = f64::from(hops.iter().sum::<u32>()) / hops.len() as f64;
        // Chord's Fig. 10: half of log2 N; and with high probability O(log N) (Theorem 2).
        assert!((4.5..6.5).contains(&mean), "{mean}");
        let many = hops.iter().filter(|hops| **hops > 10).count();
        assert!(many * 100 < hops.len(), "{many} look-ups took more than log2 N hops");
        assert!(hops.iter().all(|hops| *hops <= 20));
    }

    #[test]
    fn finger_table_is_small() {
        let ring = Ring::hashed(1024).unwrap();
        for position in ring.positions() {
            let known = ring.table(*position).unwrap().fingers().len();
            assert!((5..30).contains(&known), "{known}");
        }
        assert_eq!(ring.table(ring.positions()[0] + 1), None);
    }

    #[test]
    fn single_member_owns_all_keys() {
        let ring = Ring::new([7]).unwrap();
        assert_eq!(ring.table(7).unwrap().route(3), Route::Here);
        assert_eq!(Ring::new([]), None);
    }
}
