//! Generator of keys: short and long ones, strings and integers, and colliding ones.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pathcall_endpoint::map::{Key, logical_address};

use crate::random::Random;

/// Number of integers searched; a few hundred thousand have some collisions in 32 bits.
const TRIED: i64 = 300_000;

/// Pairs of keys with the same logical address.
#[must_use]
pub fn colliding_keys() -> &'static [(Key, Key)] {
    static FOUND: OnceLock<Vec<(Key, Key)>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut addresses: Vec<(u32, i64)> =
            (0..TRIED).map(|int| (logical_address(Key::from(int).as_bytes()), int)).collect();
        addresses.sort_unstable();
        let pairs = addresses.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        pairs.map(|pair| (Key::from(pair[0].1), Key::from(pair[1].1))).collect()
    })
}

/// Draws about `count` different keys, at least one.
pub(super) fn draw(random: &mut Random, count: usize) -> Vec<Key> {
    // A map removes duplicates, in a deterministic order.
    let mut keys = BTreeMap::new();
    let colliding = colliding_keys();
    while keys.len() < count.max(1) {
        let number = random.below(1 << 40);
        match random.below(100) {
            0..10 if !colliding.is_empty() => {
                let (one, other) = &colliding[random.index(colliding.len())];
                keys.insert(one.clone(), ());
                keys.insert(other.clone(), ());
            }
            0..50 => drop(keys.insert(Key::from(format!("word-{number:x}").as_str()), ())),
            50..97 => drop(keys.insert(Key::from(number as i64 - (1 << 39)), ())),
            97 => drop(keys.insert(Key::from(""), ())),
            _ => {
                let long = random.range(100..=1000) as usize;
                keys.insert(Key::from(format!("{number:0long$}").as_str()), ());
            }
        }
    }
    let mut keys: Vec<Key> = keys.into_keys().collect();
    random.shuffle(&mut keys);
    keys
}

/// Draws a few different keys, at most `most`; half the time all may be chosen.
pub(super) fn choose(random: &mut Random, from: &[Key], most: usize) -> Vec<Key> {
    let most = most.min(from.len());
    let most = if random.percent(50) { most } else { most.min(4) };
    let count = random.range(1..=most.max(1) as u64) as usize;
    let mut order: Vec<usize> = (0..from.len()).collect();
    random.shuffle(&mut order);
    order.into_iter().take(count).map(|i| from[i].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_keys_exist() {
        let pairs = colliding_keys();
        assert!(pairs.len() >= 2, "{}", pairs.len());
        for (one, other) in pairs {
            assert_ne!(one, other);
            assert_eq!(logical_address(one.as_bytes()), logical_address(other.as_bytes()));
        }
    }
}
