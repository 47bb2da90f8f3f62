//! Assembly of a request or an answer from its parts.

use bytes::Bytes;
use pathcall_wire::clone::{MAX_PARTS, PART};

/// Result of adding a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddOutcome {
    /// The message is complete.
    Complete(Bytes),
    /// Other parts are missing.
    Incomplete,
    /// The part was there already.
    Duplicate,
    /// The part does not fit the others.
    Rejected,
}

/// Message under assembly. Each part but the last has [`PART`] bytes, so the part number gives the offset.
#[derive(Debug)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    /// Parts received, one bit each.
    received: u64,
    parts: u16,
}

const _: () = assert!(MAX_PARTS <= u64::BITS as usize);

impl Assembly {
    /// Creates an assembly of `parts` parts, at least 1.
    pub(super) const fn new(parts: u16) -> Self {
        Self { bytes: Vec::new(), received: 0, parts }
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a part; returns the message when its last missing part is added.
    pub(super) fn add(&mut self, part: u16, parts: u16, payload: &[u8]) -> AddOutcome {
        let last = part + 1 == parts;
        let fits = if last { payload.len() <= PART } else { payload.len() == PART };
        if parts != self.parts || part >= parts || !fits {
            return AddOutcome::Rejected;
        }
        if self.received & 1 << part != 0 {
            return AddOutcome::Duplicate;
        }
        let at = usize::from(part) * PART;
        if self.bytes.len() < at + payload.len() {
            self.bytes.resize(at + payload.len(), 0);
        }
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
        self.received |= 1 << part;
        if self.received == u64::MAX >> (u64::BITS - u32::from(parts)) {
            return AddOutcome::Complete(std::mem::take(&mut self.bytes).into());
        }
        AddOutcome::Incomplete
    }
}

/// Number of parts of a message of `len` bytes, 1 for an empty one; `None` if it is too long.
pub(super) fn parts(len: usize) -> Option<u16> {
    let parts = len.div_ceil(PART).max(1);
    (parts <= MAX_PARTS).then_some(parts as u16)
}

/// Bytes of one part of a message.
pub(super) fn part_of(message: &[u8], part: u16) -> &[u8] {
    let at = (usize::from(part) * PART).min(message.len());
    &message[at..(at + PART).min(message.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn inconsistent_part_is_rejected() {
        let mut assembly = Assembly::new(2);
        assert_eq!(assembly.add(0, 2, b"short, but not the last"), AddOutcome::Rejected);
        assert_eq!(assembly.add(0, 3, &[0; PART]), AddOutcome::Rejected);
        assert_eq!(assembly.add(2, 2, b""), AddOutcome::Rejected);
        assert_eq!(assembly.add(1, 2, b"end"), AddOutcome::Incomplete);
        assert_eq!(assembly.add(1, 2, b"end"), AddOutcome::Duplicate);
        let AddOutcome::Complete(message) = assembly.add(0, 2, &[7; PART]) else { panic!("all parts were received") };
        assert_eq!((message.len(), &message[PART..]), (PART + 3, &b"end"[..]));
    }

    #[test]
    fn part_count_is_bounded() {
        assert_eq!((parts(0), parts(PART), parts(PART + 1)), (Some(1), Some(1), Some(2)));
        assert_eq!((parts(MAX_PARTS * PART), parts(MAX_PARTS * PART + 1)), (Some(MAX_PARTS as u16), None));
    }

    proptest! {
        #[test]
        fn parts_in_any_order_assemble_message(len in 0..MAX_PARTS * PART, order in any::<u64>(), seed in any::<u8>()) {
            let message: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
            let parts = parts(len).expect("it fits");
            let mut numbers: Vec<u16> = (0..parts).collect();
            numbers.sort_by_key(|number| order.rotate_left(u32::from(*number)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assembly = Assembly::new(parts);
            for (index, number) in numbers.iter().enumerate() {
                let taken = assembly.add(*number, parts, part_of(&message, *number));
                if index + 1 < numbers.len() {
                    prop_assert_eq!(taken, AddOutcome::Incomplete);
                } else {
                    prop_assert_eq!(taken, AddOutcome::Complete(message.clone().into()));
                }
            }
        }
    }
}
