//! Workload of the paper's clients: reads of objects by Zipf's law, and rare scans (NetClone §5.5).

use std::sync::Arc;

use apps_load::{Random, Zipf};

use crate::objects::{SCAN, key, value};

/// Zipf exponent of the papers.
const THETA: f64 = 0.99;

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Read of one object.
    Get,
    /// Read of [`SCAN`] objects.
    Scan,
}

/// Read call: kind and first object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadCall {
    /// Kind of the call.
    pub kind: Kind,
    /// Number of the first object.
    pub first: u64,
}

/// Sequence of calls; a call depends only on its number.
#[derive(Debug, Clone)]
pub struct ReadMix {
    zipf: Arc<Zipf>,
    gets: f64,
    seed: u64,
}

impl ReadMix {
    /// Mix of `gets`, a share from 0 to 1, and scans, in a store with this number of objects.
    ///
    /// # Panics
    /// Panics if the store is too small for a scan.
    #[must_use]
    pub fn new(objects: u64, gets: f64, seed: u64) -> Self {
        assert!(objects > u64::from(SCAN), "{objects} objects are too few for scans");
        Self { zipf: Arc::new(Zipf::new(objects, THETA)), gets, seed }
    }

    /// Call number `nth`.
    #[must_use]
    pub fn read(&self, nth: u64) -> ReadCall {
        // A generator for each call, so that a call depends only on its number.
        let mut random = Random::new(self.seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kind = if random.happens(self.gets) { Kind::Get } else { Kind::Scan };
        let drawn = self.zipf.draw(&mut random);
        let last = self.zipf.keys() - u64::from(if kind == Kind::Scan { SCAN } else { 1 });
        ReadCall { kind, first: drawn.min(last) }
    }
}

impl ReadCall {
    /// Numbers of the objects to read.
    #[must_use]
    pub fn objects(self) -> std::ops::Range<u64> {
        self.first..self.first + if self.kind == Kind::Scan { u64::from(SCAN) } else { 1 }
    }

    /// True if these are the objects of a filled store, in order.
    #[must_use]
    pub fn is(self, objects: &[crate::pb::Object]) -> bool {
        let right =
            |(number, object): (u64, &crate::pb::Object)| object.key == key(number) && object.value == value(number);
        objects.len() as u64 == self.objects().end - self.first && self.objects().zip(objects).all(right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::Object;

    #[test]
    fn read_mix_matches_shares_and_range() {
        let mix = ReadMix::new(1000, 0.9, 3);
        let calls: Vec<ReadCall> = (0..20_000).map(|nth| mix.read(nth)).collect();
        assert!(calls.iter().all(|call| call.objects().end <= 1000));
        let gets = calls.iter().filter(|call| call.kind == Kind::Get).count();
        assert!((17_700..18_300).contains(&gets), "{gets}");
        assert_eq!(mix.read(77), calls[77]);
        assert_ne!(calls[..100], (0..100).map(|nth| ReadMix::new(1000, 0.9, 4).read(nth)).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn answer_check_detects_wrong_objects() {
        let read = ReadCall { kind: Kind::Get, first: 7 };
        let object = |n: u64, of: u64| Object { key: key(n).to_vec(), value: value(of).to_vec() };
        assert!(read.is(&[object(7, 7)]));
        assert!(!read.is(&[object(7, 8)]) && !read.is(&[object(8, 8)]) && !read.is(&[]));
        assert!(!read.is(&[object(7, 7), object(8, 8)]));
    }
}
