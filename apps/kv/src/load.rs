//! What the paper's clients ask for: objects by Zipf's law, and now and then a scan (NetClone §5.5).

use std::sync::Arc;

use apps_load::{Random, Zipf};

use crate::objects::{SCAN, key, value};

/// Theta of the papers.
const THETA: f64 = 0.99;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An object.
    Get,
    /// [`SCAN`] objects.
    Scan,
}

/// One call: from which object on, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// What it is.
    pub kind: Kind,
    /// Number of its first object.
    pub first: u64,
}

/// Calls, each the same whenever its number is asked for.
#[derive(Debug, Clone)]
pub struct Mix {
    zipf: Arc<Zipf>,
    gets: f64,
    seed: u64,
}

impl Mix {
    /// Of `gets`, a share from 0 to 1, and scans, in a store of so many objects.
    ///
    /// # Panics
    /// When the store has no room for a scan.
    #[must_use]
    pub fn new(objects: u64, gets: f64, seed: u64) -> Self {
        assert!(objects > u64::from(SCAN), "{objects} objects are too few for scans");
        Self { zipf: Arc::new(Zipf::new(objects, THETA)), gets, seed }
    }

    /// Call number `nth`.
    #[must_use]
    pub fn read(&self, nth: u64) -> Read {
        // A generator for each call: its number alone decides.
        let mut random = Random::new(self.seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kind = if random.happens(self.gets) { Kind::Get } else { Kind::Scan };
        let drawn = self.zipf.draw(&mut random);
        let last = self.zipf.keys() - u64::from(if kind == Kind::Scan { SCAN } else { 1 });
        Read { kind, first: drawn.min(last) }
    }
}

impl Read {
    /// Numbers of the objects that it reads.
    #[must_use]
    pub fn objects(self) -> std::ops::Range<u64> {
        self.first..self.first + if self.kind == Kind::Scan { u64::from(SCAN) } else { 1 }
    }

    /// Whether these are the objects that a filled store has there, in their order.
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
    fn calls_are_mixed_as_said_and_stay_in_the_store() {
        let mix = Mix::new(1000, 0.9, 3);
        let calls: Vec<Read> = (0..20_000).map(|nth| mix.read(nth)).collect();
        assert!(calls.iter().all(|call| call.objects().end <= 1000));
        let gets = calls.iter().filter(|call| call.kind == Kind::Get).count();
        assert!((17_700..18_300).contains(&gets), "{gets}");
        assert_eq!(mix.read(77), calls[77]);
        assert_ne!(calls[..100], (0..100).map(|nth| Mix::new(1000, 0.9, 4).read(nth)).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn an_answer_is_right_or_it_is_not() {
        let read = Read { kind: Kind::Get, first: 7 };
        let object = |n: u64, of: u64| Object { key: key(n).to_vec(), value: value(of).to_vec() };
        assert!(read.is(&[object(7, 7)]));
        assert!(!read.is(&[object(7, 8)]) && !read.is(&[object(8, 8)]) && !read.is(&[]));
        assert!(!read.is(&[object(7, 7), object(8, 8)]));
    }
}
