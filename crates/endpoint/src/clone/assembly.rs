//! A request or an answer of several parts, until they are all there.

use bytes::Bytes;
use pathcall_wire::clone::{MAX_PARTS, PART};

/// What a part led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// All are there.
    Whole(Bytes),
    /// Others are missing.
    Part,
    /// It had come before.
    Repeat,
    /// It does not go with those that came before.
    Refused,
}

/// Parts that have come. Each but the last is [`PART`] long, so each has its place.
#[derive(Debug)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    /// Parts that are there, a bit each.
    there: u64,
    parts: u16,
}

const _: () = assert!(MAX_PARTS <= u64::BITS as usize);

impl Assembly {
    /// For so many parts, from 1.
    pub(super) const fn new(parts: u16) -> Self {
        Self { bytes: Vec::new(), there: 0, parts }
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Takes a part; it is whole once.
    pub(super) fn take(&mut self, part: u16, parts: u16, payload: &[u8]) -> Taken {
        let last = part + 1 == parts;
        let fits = if last { payload.len() <= PART } else { payload.len() == PART };
        if parts != self.parts || part >= parts || !fits {
            return Taken::Refused;
        }
        if self.there & 1 << part != 0 {
            return Taken::Repeat;
        }
        let at = usize::from(part) * PART;
        if self.bytes.len() < at + payload.len() {
            self.bytes.resize(at + payload.len(), 0);
        }
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
        self.there |= 1 << part;
        if self.there == u64::MAX >> (u64::BITS - u32::from(parts)) {
            return Taken::Whole(std::mem::take(&mut self.bytes).into());
        }
        Taken::Part
    }
}

/// Parts of a message of `len` bytes, and `None` if it is too long; an empty one has one.
pub(super) fn parts(len: usize) -> Option<u16> {
    let parts = len.div_ceil(PART).max(1);
    (parts <= MAX_PARTS).then_some(parts as u16)
}

/// The bytes of a message's part.
pub(super) fn part_of(message: &[u8], part: u16) -> &[u8] {
    let at = (usize::from(part) * PART).min(message.len());
    &message[at..(at + PART).min(message.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut assembly = Assembly::new(2);
        assert_eq!(assembly.take(0, 2, b"short, but not the last"), Taken::Refused);
        assert_eq!(assembly.take(0, 3, &[0; PART]), Taken::Refused);
        assert_eq!(assembly.take(2, 2, b""), Taken::Refused);
        assert_eq!(assembly.take(1, 2, b"end"), Taken::Part);
        assert_eq!(assembly.take(1, 2, b"end"), Taken::Repeat);
        let Taken::Whole(whole) = assembly.take(0, 2, &[7; PART]) else { panic!("all parts were there") };
        assert_eq!((whole.len(), &whole[PART..]), (PART + 3, &b"end"[..]));
    }

    #[test]
    fn bounds() {
        assert_eq!((parts(0), parts(PART), parts(PART + 1)), (Some(1), Some(1), Some(2)));
        assert_eq!((parts(MAX_PARTS * PART), parts(MAX_PARTS * PART + 1)), (Some(MAX_PARTS as u16), None));
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_message(len in 0..MAX_PARTS * PART, order in any::<u64>(), seed in any::<u8>()) {
            let message: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
            let parts = parts(len).expect("it fits");
            let mut numbers: Vec<u16> = (0..parts).collect();
            numbers.sort_by_key(|number| order.rotate_left(u32::from(*number)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assembly = Assembly::new(parts);
            for (index, number) in numbers.iter().enumerate() {
                let taken = assembly.take(*number, parts, part_of(&message, *number));
                if index + 1 < numbers.len() {
                    prop_assert_eq!(taken, Taken::Part);
                } else {
                    prop_assert_eq!(taken, Taken::Whole(message.clone().into()));
                }
            }
        }
    }
}
