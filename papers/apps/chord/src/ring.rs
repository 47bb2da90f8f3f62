//! Places on the ring, and whom a node knows.

/// Fingers of a node: the ring has 2^64 places.
const FINGERS: u32 = u64::BITS;

/// Members of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring(Vec<u64>);

/// A member, and the others that it knows: finger i is the first at or after the place 2^i beyond its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    place: u64,
    predecessor: u64,
    /// Without those that repeat the one before; the first is the successor. Nearest first.
    fingers: Vec<u64>,
}

/// Where a look-up goes from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Nowhere: the key is the node's.
    Here,
    /// To the member at this place.
    To(u64),
}

impl Ring {
    /// A ring of members at these places; none if there are none.
    #[must_use]
    pub fn new(places: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut places: Vec<u64> = places.into_iter().collect();
        places.sort_unstable();
        places.dedup();
        (!places.is_empty()).then_some(Self(places))
    }

    /// So many members at equal distances. With 2^k of them no look-up takes more than k hops.
    #[must_use]
    pub fn even(count: u64) -> Option<Self> {
        let place = |i| ((u128::from(i) << 64) / u128::from(count.max(1))) as u64;
        Self::new((0..count).map(place))
    }

    /// So many members, each where its name falls: about half of log2 N hops, seldom more than log2 N.
    #[must_use]
    pub fn hashed(count: u64) -> Option<Self> {
        Self::new((0..count).map(|i| place_of(format!("node-{i}").as_bytes())))
    }

    /// Where the members are, in order.
    #[must_use]
    pub fn places(&self) -> &[u64] {
        &self.0
    }

    /// Who owns a key: the first member at or after it.
    #[must_use]
    pub fn owner(&self, key: u64) -> u64 {
        let index = self.0.partition_point(|place| *place < key);
        self.0[index % self.0.len()]
    }

    /// What a member knows; nothing, where there is none.
    #[must_use]
    pub fn table(&self, place: u64) -> Option<Table> {
        let index = self.0.binary_search(&place).ok()?;
        let predecessor = self.0[(index + self.0.len() - 1) % self.0.len()];
        let mut fingers: Vec<u64> = (0..FINGERS).map(|i| self.owner(place.wrapping_add(1 << i))).collect();
        fingers.dedup();
        Some(Table { place, predecessor, fingers })
    }
}

impl Table {
    /// Where the node is.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.place
    }

    /// The members that it knows.
    #[must_use]
    pub fn fingers(&self) -> &[u64] {
        &self.fingers
    }

    /// Where a look-up goes: to the successor, if that owns the key, and else to the last finger before the key.
    #[must_use]
    pub fn route(&self, key: u64) -> Route {
        // Distances from here, along the ring.
        let ahead = |place: u64| place.wrapping_sub(self.place);
        if self.predecessor == self.place || key == self.place || ahead(key) > ahead(self.predecessor) {
            return Route::Here;
        }
        let before = self.fingers.iter().rev().find(|finger| (1..ahead(key)).contains(&ahead(**finger)));
        // If none is before the key, the successor owns it.
        Route::To(before.copied().unwrap_or(self.fingers[0]))
    }
}

/// The place of a name or a key: FNV-1a, mixed so that all bits count (SplitMix64's last step).
#[must_use]
pub fn place_of(name: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut place = name.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    place = (place ^ (place >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    place = (place ^ (place >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    place ^ (place >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goes from table to table: the owner, and hops.
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
        fn every_member_finds_the_owner(
            places in prop::collection::btree_set(any::<u64>(), 1..40),
            from in any::<prop::sample::Index>(),
            key in any::<u64>(),
        ) {
            let ring = Ring::new(places).unwrap();
            let from = ring.places()[from.index(ring.places().len())];
            for key in [key, from, from.wrapping_add(1), from.wrapping_sub(1)] {
                prop_assert_eq!(find(&ring, from, key).0, ring.owner(key));
            }
        }
    }

    #[test]
    fn an_even_ring_takes_log_n_hops_at_most() {
        for bits in 0..8_u32 {
            let ring = Ring::even(1 << bits).unwrap();
            assert_eq!(ring.places().len(), 1 << bits);
            let hops = |from: &u64, key: &u64| find(&ring, *from, key.wrapping_sub(3)).1;
            let from_all = ring.places().iter().flat_map(|from| ring.places().iter().map(move |key| (from, key)));
            assert_eq!(from_all.map(|(from, key)| hops(from, key)).max(), Some(bits), "{} members", 1 << bits);
        }
    }

    #[test]
    fn a_hashed_ring_takes_half_of_that_on_average() {
        let ring = Ring::hashed(1024).unwrap();
        let hops: Vec<u32> = (0..20_000_u32)
            .map(|i| find(&ring, ring.places()[i as usize % 1024], place_of(&i.to_be_bytes())).1)
            .collect();
        let mean = f64::from(hops.iter().sum::<u32>()) / hops.len() as f64;
        // Chord's Fig. 10: half of log2 N; and with high probability at most O(log N) (its Theorem 2).
        assert!((4.5..6.5).contains(&mean), "{mean}");
        let many = hops.iter().filter(|hops| **hops > 10).count();
        assert!(many * 100 < hops.len(), "{many} look-ups took more than log2 N hops");
        assert!(hops.iter().all(|hops| *hops <= 20));
    }

    #[test]
    fn a_node_knows_few() {
        let ring = Ring::hashed(1024).unwrap();
        for place in ring.places() {
            let known = ring.table(*place).unwrap().fingers().len();
            assert!((5..30).contains(&known), "{known}");
        }
        assert_eq!(ring.table(ring.places()[0] + 1), None);
    }

    #[test]
    fn alone_one_owns_all() {
        let ring = Ring::new([7]).unwrap();
        assert_eq!(ring.table(7).unwrap().route(3), Route::Here);
        assert_eq!(Ring::new([]), None);
    }
}
