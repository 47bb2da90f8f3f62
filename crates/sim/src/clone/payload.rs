//! Payload of requests and answers: every byte depends on the call and the execution.

use bytes::Bytes;

/// Minimum length in bytes.
pub(super) const SHORTEST: usize = 12;

/// Identity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadTag {
    /// Index of the call.
    pub(super) call: u32,
    /// Number of the execution that answers, from 1; 0 in a request.
    pub(super) execution: u32,
}

impl PayloadTag {
    /// Builds a message of this length, at least [`SHORTEST`].
    pub(super) fn message(self, len: usize) -> Bytes {
        let len = len.max(SHORTEST);
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(self.call.to_be_bytes());
        bytes.extend(self.execution.to_be_bytes());
        bytes.extend((len as u32).to_be_bytes());
        bytes.extend((SHORTEST..len).map(|at| self.byte(at)));
        bytes.into()
    }

    /// Tag of a message; `None` if the message is damaged.
    pub(super) fn of(message: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(*message.get(at..)?.first_chunk()?));
        let (call, execution, len) = (word(0)?, word(4)?, word(8)?);
        let tag = Self { call, execution };
        let rest = message[SHORTEST..].iter().enumerate();
        let whole =
            len as usize == message.len() && rest.into_iter().all(|(at, byte)| *byte == tag.byte(at + SHORTEST));
        whole.then_some(tag)
    }

    fn byte(self, at: usize) -> u8 {
        let mixed = (self.call.wrapping_mul(0x9e37_79b9) ^ self.execution.wrapping_mul(0x85eb_ca6b))
            .wrapping_add((at as u32).wrapping_mul(0xc2b2_ae35));
        (mixed >> 24) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_parts_of_two_messages_are_rejected() {
        let (one, other) =
            (PayloadTag { call: 3, execution: 1 }.message(3000), PayloadTag { call: 3, execution: 2 }.message(3000));
        assert_eq!(PayloadTag::of(&one), Some(PayloadTag { call: 3, execution: 1 }));
        let mixed = [&one[..1500], &other[1500..]].concat();
        assert_eq!((PayloadTag::of(&mixed), PayloadTag::of(&one[..2999]), PayloadTag::of(b"")), (None, None, None));
    }
}
