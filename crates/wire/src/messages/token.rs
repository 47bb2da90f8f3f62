//! Tokens of messages: what a node says comes from one who knows the nodes' key, unchanged.
//!
//! ```text
//! a datagram     frame, its kind with the bit TOKEN │ token u64 = SipHash-2-4 (key, frame)
//! by TCP         hello │ proof u64 │ length u32 │ piece │ token u64 │ piece │ token u64 │ length …
//! ```
//!
//! The numbers in a datagram say which way it goes: a session's are drawn by one side, and mean nothing to any other.
//! Each direction of a connection has a key of its own, made of the nodes' key and both hellos, in which each side
//! has put 64 random bits ([`GreetingRepr::session`](super::GreetingRepr)); pieces are counted. So no piece is taken on
//! another connection, in the other direction, twice, or in another order. The proof is the token of nothing: who is
//! at the other end knows the key. Nothing here allocates, or panics on any bytes.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::{Greeting, MAGIC, TOKEN};
use crate::TokenKey;
use crate::base::TOKEN_LEN;

/// What keys of connections are made of, before both hellos: no datagram begins like this.
const OF_CONNECTIONS: &[u8] = b"connection";

/// Whether a frame may be worked on by a node with this key, or with none: it carries the right token, or none where
/// there is none to carry. To be asked before anything else is made of it.
#[inline]
#[must_use]
pub fn admits(key: Option<&TokenKey>, frame: &[u8]) -> bool {
    match (key, frame.split_last_chunk::<TOKEN_LEN>()) {
        // One comparison of whole words: its time says nothing of where they differ.
        (Some(key), Some((signed, token))) => has_token(frame) && of(key, signed) == u64::from_be_bytes(*token),
        (Some(_), None) => false,
        (None, _) => !has_token(frame),
    }
}

/// The frame in the first `len` bytes of `room`, with its token behind it if there is a key.
///
/// # Panics
/// When `room` is shorter than that.
#[must_use]
pub fn seal<'a>(key: Option<&TokenKey>, room: &'a mut [u8], len: usize) -> &'a [u8] {
    let Some(key) = key else { return &room[..len] };
    room[3] |= TOKEN;
    let token = of(key, &room[..len]);
    room[len..len + TOKEN_LEN].copy_from_slice(&token.to_be_bytes());
    &room[..len + TOKEN_LEN]
}

fn of(key: &TokenKey, signed: &[u8]) -> u64 {
    let mut hasher = key.hasher();
    hasher.write(signed);
    hasher.finish()
}

/// Whether a frame of these says that it has a token.
#[inline]
fn has_token(frame: &[u8]) -> bool {
    frame.first_chunk().is_some_and(|&[m0, m1, _, kind]| u16::from_be_bytes([m0, m1]) == MAGIC && kind & TOKEN != 0)
}

/// What one direction of a connection is signed with.
pub struct Direction {
    key: TokenKey,
    pieces: u64,
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direction").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

impl Direction {
    /// From the side that made the connection, and to it.
    #[must_use]
    pub fn both(key: &TokenKey, dialled: &[u8; Greeting::LEN], taken: &[u8; Greeting::LEN]) -> [Self; 2] {
        let word = |number: u8| {
            let mut hasher = key.hasher();
            hasher.write(OF_CONNECTIONS);
            hasher.write(&[number]);
            hasher.write(dialled);
            hasher.write(taken);
            hasher.finish()
        };
        [[0, 1], [2, 3]].map(|words| Self { key: TokenKey::new(words.map(word)), pieces: 0 })
    }

    /// The next piece, of a message of this length.
    pub fn piece(&mut self, of: u32) -> Piece {
        let mut hasher = self.key.hasher();
        hasher.write(&self.pieces.to_be_bytes());
        hasher.write(&of.to_be_bytes());
        self.pieces += 1;
        Piece(hasher)
    }

    /// The token of nothing: said first.
    pub fn proof(&mut self) -> [u8; TOKEN_LEN] {
        self.piece(0).token()
    }
}

/// A piece that is to be signed, or checked.
pub struct Piece(SipHasher24);

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its state tells the key.
        f.write_str("Piece(secret)")
    }
}

impl Piece {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Its token.
    #[must_use]
    pub fn token(self) -> [u8; TOKEN_LEN] {
        self.0.finish().to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GreetingRepr, MessageFrame, MessageKind, PART, Part, PartRepr, SIGNED_PART};
    use super::*;
    use crate::MAX_FRAME;

    const KEY: TokenKey = TokenKey::new([1, 2]);

    /// Parts of a message of two, each signed.
    fn parts() -> [([u8; MAX_FRAME], usize); 2] {
        [0, SIGNED_PART].map(|offset| {
            let (mut frame, part) = ([7; MAX_FRAME], PartRepr::new(9, 1, 2, offset as u32, SIGNED_PART as u32 + 5));
            part.emit(&mut frame);
            let len = seal(Some(&KEY), &mut frame, Part::LEN + part.bytes(SIGNED_PART)).len();
            (frame, len)
        })
    }

    #[test]
    fn signed_frames_are_read_as_others_and_fit_the_same_links() {
        let [(first, whole), (last, short)] = parts();
        assert_eq!((whole, short), (MAX_FRAME, Part::LEN + 5 + TOKEN_LEN));
        for (frame, len, offset) in [(first, whole, 0), (last, short, SIGNED_PART)] {
            let expected = PartRepr::new(9, 1, 2, offset as u32, SIGNED_PART as u32 + 5);
            let bytes = expected.bytes(SIGNED_PART);
            assert_eq!(MessageFrame::parse(&frame[..len]), Ok(MessageFrame::Part(expected, &[7; PART][..bytes])));
        }
        let hello = GreetingRepr::new(MessageKind::Hello, 7, 8, 0);
        let mut room = [0; Greeting::LEN + TOKEN_LEN];
        hello.emit(&mut room);
        let sealed = seal(Some(&KEY), &mut room, Greeting::LEN);
        assert_eq!(MessageFrame::parse(sealed), Ok(MessageFrame::Hello(hello)));
    }

    #[test]
    fn frame_with_any_bit_changed_is_not_admitted() {
        let [_, (mut frame, len)] = parts();
        assert!(admits(Some(&KEY), &frame[..len]));
        for bit in 0..8 * len {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!admits(Some(&KEY), &frame[..len]), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        assert!((0..len).all(|len| !admits(Some(&KEY), &frame[..len])));
    }

    #[test]
    fn frame_without_the_right_token_is_not_admitted() {
        let [_, (frame, len)] = parts();
        assert!(!admits(Some(&TokenKey::new([1, 3])), &frame[..len]), "another key");
        assert!(!admits(None, &frame[..len]), "there is none to carry");
        let hello = GreetingRepr::new(MessageKind::Hello, 7, 8, 0).bytes();
        assert!(admits(None, &hello) && !admits(Some(&KEY), &hello));
        assert!(!admits(Some(&KEY), b"") && admits(None, b""), "and it is no frame");
    }

    #[test]
    fn piece_is_of_one_connection_one_direction_and_one_place() {
        let hello = |session| GreetingRepr::new(MessageKind::Hello, 7, session, 0).bytes();
        let tokens = |dialled, taken| {
            Direction::both(&KEY, &hello(dialled), &hello(taken)).map(|mut direction| {
                [0, 5, 5].map(|of| {
                    let mut piece = direction.piece(of);
                    piece.add(b"piece");
                    piece.token()
                })
            })
        };
        let all = [tokens(1, 2), tokens(2, 1), tokens(1, 3)];
        let all = all.as_flattened().as_flattened();
        assert!((0..all.len()).all(|at| !all[..at].contains(&all[at])), "{all:?}");
        assert_eq!(tokens(1, 2), tokens(1, 2));
    }

    #[test]
    fn piece_is_of_a_message_of_one_length() {
        let hello = GreetingRepr::new(MessageKind::Hello, 7, 1, 0).bytes();
        let tokens = [5, 6].map(|of| Direction::both(&KEY, &hello, &hello)[0].piece(of).token());
        assert_ne!(tokens[0], tokens[1], "the length before it is signed with it");
    }
}
