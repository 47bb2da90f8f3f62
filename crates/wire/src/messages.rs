//! Frames of the message transport: messages of any length between two nodes, over UDP.
//!
//! ```text
//! sender ── hello: node, session ──▶ receiver
//!        ◀── welcome: node, session, key ──        to that address: the key proves that it receives frames
//!        ── part: key, number; of a message ──▶    all parts, within the flow's window
//!        ◀── acks: session, numbers ──
//!        ◀── gone: key ──                          the receiver does not have the session
//! ```
//!
//! A session has one direction. The sender draws a random number for each session, and a restarted receiver has no
//! sessions. So the receiver never assigns a part to a wrong session, and a message arrives at most once, even after
//! restarts. A welcome is as long as its hello, so a forged sender address causes no amplification.
//!
//! If the nodes share a key, each frame has a token at its end, see [`token`].

pub mod token;

use crate::Error;
use crate::base::TOKEN_LEN;
use crate::header::header;

/// First two bytes of a frame: "PM".
pub const MAGIC: u16 = 0x504d;
/// Version of these frames.
pub const VERSION: u8 = 1;
/// Message bytes in each part except the last.
pub const PART: usize = 1344;
/// Message bytes in each part with a token, except the last.
pub const SIGNED_PART: usize = PART - TOKEN_LEN;
/// Bit of a frame's kind: the frame ends with a token.
pub const TOKEN: u8 = 0x80;
/// Maximum number of acknowledgements in one frame.
pub const ACKS_MAX: usize = 64;

header! {
    /// View of a hello, welcome or gone.
    view Greeting;
    /// Values of a hello, welcome or gone.
    repr GreetingRepr;
    length 32;
    /// [`MAGIC`].
    magic (set_magic): u16, 0;
    /// [`VERSION`].
    version (set_version): u8, 2;
    /// Number of a [`MessageKind`].
    kind (set_kind): u8, 3;
    /// 0.
    reserved (set_reserved): u32, 4;
    /// Sending node.
    node (set_node): u64, 8;
    /// Random number of the session, chosen by the sender of messages. In a hello on a TCP connection: random number of
    /// this connection, or 0 if the sender has no key.
    session (set_session): u64, 16;
    /// Random key of the session, chosen by the receiver of messages; 0 in a hello. In a hello on a TCP connection:
    /// port at which the sender listens.
    key (set_key): u64, 24;
}

header! {
    /// View of the header of a part.
    view Part;
    /// Values of the header of a part.
    repr PartRepr;
    length 28;
    /// [`MAGIC`].
    magic (set_magic): u16, 0;
    /// [`VERSION`].
    version (set_version): u8, 2;
    /// [`MessageKind::Part`].
    kind (set_kind): u8, 3;
    /// Receiver's key of the session.
    key (set_key): u64, 4;
    /// Sequence number in the session's flow, from 1.
    seq (set_seq): u32, 12;
    /// Number of the message in the session.
    message (set_message): u32, 16;
    /// Offset of the bytes in the message: a multiple of [`PART`], or of [`SIGNED_PART`] in a frame with a token.
    offset (set_offset): u32, 20;
    /// Length of the message.
    total (set_total): u32, 24;
}

header! {
    /// View of the header of acknowledgements; the sequence numbers follow, 4 bytes each.
    view Acks;
    /// Values of the header of acknowledgements.
    repr AcksRepr;
    length 20;
    /// [`MAGIC`].
    magic (set_magic): u16, 0;
    /// [`VERSION`].
    version (set_version): u8, 2;
    /// [`MessageKind::Acks`].
    kind (set_kind): u8, 3;
    /// Sender's number of the session.
    session (set_session): u64, 4;
    /// Congestion marks: bit `i` for sequence number `i` of this frame.
    marked (set_marked): u64, 12;
}

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// Request for a session.
    Hello = 1,
    /// Acceptance of a session.
    Welcome = 2,
    /// Part of a message.
    Part = 3,
    /// Acknowledgement of parts.
    Acks = 4,
    /// Notice that the receiver does not have the session.
    Gone = 5,
}

/// Checked frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFrame<'a> {
    /// Request for a session.
    Hello(GreetingRepr),
    /// Acceptance of a session.
    Welcome(GreetingRepr),
    /// Header and bytes of a part.
    Part(PartRepr, &'a [u8]),
    /// Header of acknowledgements, and the acknowledged sequence numbers.
    Acks(AcksRepr, &'a [[u8; 4]]),
    /// Notice that the receiver does not have the session.
    Gone(GreetingRepr),
}

impl<'a> MessageFrame<'a> {
    /// Parses a frame. The token is not checked here, see [`token::admits`].
    ///
    /// # Errors
    /// First violation found.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some(&[m0, m1, version, kind]) = bytes.first_chunk() else {
            return Err(Error::Short { expected: 4, got: bytes.len() });
        };
        let magic = u16::from_be_bytes([m0, m1]);
        if magic != MAGIC {
            return Err(Error::Magic(magic));
        }
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let (bytes, longest) = match bytes.split_last_chunk::<TOKEN_LEN>() {
            _ if kind & TOKEN == 0 => (bytes, PART),
            Some((bytes, _)) => (bytes, SIGNED_PART),
            None => return Err(Error::Short { expected: 4 + TOKEN_LEN, got: bytes.len() }),
        };
        match kind & !TOKEN {
            1 => Ok(Self::Hello(greeting(bytes)?)),
            2 => Ok(Self::Welcome(greeting(bytes)?)),
            3 => part(bytes, longest),
            4 => acks(bytes),
            5 => Ok(Self::Gone(greeting(bytes)?)),
            _ => Err(Error::Value { field: "kind", value: kind.into() }),
        }
    }
}

fn greeting(bytes: &[u8]) -> Result<GreetingRepr, Error> {
    exactly(Greeting::LEN, bytes.len())?;
    let view = Greeting(bytes);
    if view.reserved() != 0 {
        return Err(Error::Value { field: "reserved", value: view.reserved().into() });
    }
    Ok(GreetingRepr { kind: view.kind() & !TOKEN, ..view.repr() })
}

fn part(bytes: &[u8], longest: usize) -> Result<MessageFrame<'_>, Error> {
    let Some((head, rest)) = bytes.split_at_checked(Part::LEN) else {
        return Err(Error::Short { expected: Part::LEN, got: bytes.len() });
    };
    let view = Part(head);
    let part = PartRepr { kind: view.kind() & !TOKEN, ..view.repr() };
    if part.offset >= part.total || !(part.offset as usize).is_multiple_of(longest) {
        return Err(Error::Value { field: "offset", value: part.offset.into() });
    }
    exactly(Part::LEN + part.bytes(longest), bytes.len())?;
    Ok(MessageFrame::Part(part, rest))
}

fn acks(bytes: &[u8]) -> Result<MessageFrame<'_>, Error> {
    let Some((head, rest)) = bytes.split_at_checked(Acks::LEN) else {
        return Err(Error::Short { expected: Acks::LEN, got: bytes.len() });
    };
    let (seqs, odd) = rest.as_chunks();
    if !odd.is_empty() || seqs.is_empty() || seqs.len() > ACKS_MAX {
        return Err(Error::Value { field: "acks", value: rest.len() as u64 });
    }
    let view = Acks(head);
    Ok(MessageFrame::Acks(AcksRepr { kind: view.kind() & !TOKEN, ..view.repr() }, seqs))
}

fn exactly(expected: usize, got: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Length { expected, got }) }
}

impl GreetingRepr {
    /// Greeting of this kind.
    #[must_use]
    pub fn new(kind: MessageKind, node: u64, session: u64, key: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: kind as u8, reserved: 0, node, session, key }
    }

    /// Encoded greeting.
    #[must_use]
    pub fn bytes(&self) -> [u8; Greeting::LEN] {
        let mut bytes = [0; Greeting::LEN];
        self.emit(&mut bytes);
        bytes
    }
}

impl PartRepr {
    /// Header of a part of a message of `total` bytes.
    #[must_use]
    pub fn new(key: u64, seq: u32, message: u32, offset: u32, total: u32) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: MessageKind::Part as u8, key, seq, message, offset, total }
    }

    /// Message bytes in this part, if each part has at most `longest`.
    #[must_use]
    pub fn bytes(&self, longest: usize) -> usize {
        longest.min(self.total.saturating_sub(self.offset) as usize)
    }
}

impl AcksRepr {
    /// Header of acknowledgements for a session.
    #[must_use]
    pub fn new(session: u64, marked: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: MessageKind::Acks as u8, session, marked }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use super::*;

    #[test]
    fn message_frames_round_trip() {
        let hello = GreetingRepr::new(MessageKind::Hello, 7, 8, 0);
        assert_eq!(MessageFrame::parse(&hello.bytes()), Ok(MessageFrame::Hello(hello)));
        let part = PartRepr::new(9, 1, 2, PART as u32, PART as u32 + 3);
        let mut bytes = vec![0; Part::LEN];
        part.emit(&mut bytes);
        bytes.extend_from_slice(b"end");
        assert_eq!(MessageFrame::parse(&bytes), Ok(MessageFrame::Part(part, b"end")));
        assert_eq!(part.bytes(PART), 3);
        let acks = AcksRepr::new(8, 0b10);
        let mut bytes = vec![0; Acks::LEN];
        acks.emit(&mut bytes);
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 5]);
        assert_eq!(MessageFrame::parse(&bytes), Ok(MessageFrame::Acks(acks, &[[0, 0, 0, 1], [0, 0, 0, 5]])));
    }

    #[test]
    fn invalid_message_frames_are_rejected() {
        let of = |part: PartRepr, len: usize| {
            let mut bytes = vec![0; Part::LEN + len];
            part.emit(&mut bytes);
            MessageFrame::parse(&bytes).map(drop)
        };
        assert_eq!(of(PartRepr::new(9, 1, 2, 0, 10), 10), Ok(()));
        assert!(matches!(of(PartRepr::new(9, 1, 2, 0, 10), 9), Err(Error::Length { expected: 38, got: 37 })));
        assert!(matches!(of(PartRepr::new(9, 1, 2, 5, 10), 5), Err(Error::Value { field: "offset", value: 5 })));
        assert!(matches!(of(PartRepr::new(9, 1, 2, 0, 0), 0), Err(Error::Value { field: "offset", value: 0 })));
        assert!(matches!(MessageFrame::parse(b"PM"), Err(Error::Short { expected: 4, got: 2 })));
        assert!(matches!(MessageFrame::parse(b"PM\x02\x01"), Err(Error::Version(2))));
        assert!(matches!(MessageFrame::parse(b"PM\x01\x09"), Err(Error::Value { field: "kind", value: 9 })));
        assert!(matches!(MessageFrame::parse(b"PL\x01\x01"), Err(Error::Magic(0x504c))));
    }

    #[test]
    fn full_part_fits_max_frame() {
        assert_eq!(Part::LEN + PART, crate::MAX_FRAME);
        assert_eq!(Part::LEN + SIGNED_PART + TOKEN_LEN, crate::MAX_FRAME);
    }
}
