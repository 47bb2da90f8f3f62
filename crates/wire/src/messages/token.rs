//! Tokens of the message transport: proof that a frame comes from a node with the shared key and is unchanged.
//!
//! ```text
//! a datagram     frame, its kind with the bit TOKEN │ token u64 = SipHash-2-4 (key, frame)
//! by TCP         hello │ proof u64 │ length u32 │ piece │ token u64 │ piece │ token u64 │ length …
//! ```
//!
//! The session numbers in a datagram are random and known to one pair of nodes only, so a datagram is valid in one
//! direction only. Each direction of a TCP connection has its own key, derived from the shared key and both hellos;
//! each side puts 64 random bits into its hello ([`GreetingRepr::session`](super::GreetingRepr)). Pieces are numbered.
//! So a piece is rejected on another connection, in the other direction, as a repeat, or out of order. The proof is the
//! token of an empty piece: it shows that the peer has the key. This module does not allocate, and no bytes make it
//! panic.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::{Greeting, MAGIC, TOKEN};
use crate::TokenKey;
use crate::base::TOKEN_LEN;

/// Prefix of the input for connection keys, before both hellos. No datagram starts with it.
const OF_CONNECTIONS: &[u8] = b"connection";

/// Whether a node with this key may process the frame. With a key, the frame must have the right token; without a key,
/// it must have none. Check this before any other use of the frame.
#[inline]
#[must_use]
pub fn admits(key: Option<&TokenKey>, frame: &[u8]) -> bool {
    match (key, frame.split_last_chunk::<TOKEN_LEN>()) {
        // Comparison of whole words: its duration does not depend on the position of a difference.
        (Some(key), Some((signed, token))) => has_token(frame) && token_of(key, signed) == u64::from_be_bytes(*token),
        (Some(_), None) => false,
        (None, _) => !has_token(frame),
    }
}

/// Appends the token to the frame in the first `len` bytes of `buffer`, if there is a key. Returns the whole frame.
///
/// # Panics
/// If `buffer` is too short.
#[must_use]
pub fn append_token<'a>(key: Option<&TokenKey>, buffer: &'a mut [u8], len: usize) -> &'a [u8] {
    let Some(key) = key else { return &buffer[..len] };
    buffer[3] |= TOKEN;
    let token = token_of(key, &buffer[..len]);
    buffer[len..len + TOKEN_LEN].copy_from_slice(&token.to_be_bytes());
    &buffer[..len + TOKEN_LEN]
}

fn token_of(key: &TokenKey, signed: &[u8]) -> u64 {
    let mut hasher = key.hasher();
    hasher.write(signed);
    hasher.finish()
}

/// Whether the frame has the token flag.
#[inline]
fn has_token(frame: &[u8]) -> bool {
    frame.first_chunk().is_some_and(|&[m0, m1, _, kind]| u16::from_be_bytes([m0, m1]) == MAGIC && kind & TOKEN != 0)
}

/// Signer of the pieces in one direction of a TCP connection.
pub struct DirectionSigner {
    key: TokenKey,
    pieces: u64,
}

impl fmt::Debug for DirectionSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectionSigner").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

impl DirectionSigner {
    /// Signers of both directions: from the side that opened the connection, and to it.
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

    /// Signer of the next piece, which belongs to a message of this length.
    pub fn piece(&mut self, of: u32) -> PieceSigner {
        let mut hasher = self.key.hasher();
        hasher.write(&self.pieces.to_be_bytes());
        hasher.write(&of.to_be_bytes());
        self.pieces += 1;
        PieceSigner(hasher)
    }

    /// Proof of the key: token of an empty piece, sent first.
    pub fn proof(&mut self) -> [u8; TOKEN_LEN] {
        self.piece(0).token()
    }
}

/// Signer of one piece, to create or to check its token.
pub struct PieceSigner(SipHasher24);

impl fmt::Debug for PieceSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state would reveal the key.
        f.write_str("PieceSigner(secret)")
    }
}

impl PieceSigner {
    /// Adds bytes of the piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Token of the piece.
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

    /// Two signed parts of one message.
    fn parts() -> [([u8; MAX_FRAME], usize); 2] {
        [0, SIGNED_PART].map(|offset| {
            let (mut frame, part) = ([7; MAX_FRAME], PartRepr::new(9, 1, 2, offset as u32, SIGNED_PART as u32 + 5));
            part.emit(&mut frame);
            let len = append_token(Some(&KEY), &mut frame, Part::LEN + part.bytes(SIGNED_PART)).len();
            (frame, len)
        })
    }

    #[test]
    fn signed_frame_round_trips_and_fits_max_frame() {
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
        let sealed = append_token(Some(&KEY), &mut room, Greeting::LEN);
        assert_eq!(MessageFrame::parse(sealed), Ok(MessageFrame::Hello(hello)));
    }

    #[test]
    fn frame_with_flipped_bit_is_not_admitted() {
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
    fn frame_without_valid_token_is_not_admitted() {
        let [_, (frame, len)] = parts();
        assert!(!admits(Some(&TokenKey::new([1, 3])), &frame[..len]), "token of another key");
        assert!(!admits(None, &frame[..len]), "token without a key");
        let hello = GreetingRepr::new(MessageKind::Hello, 7, 8, 0).bytes();
        assert!(admits(None, &hello) && !admits(Some(&KEY), &hello));
        assert!(!admits(Some(&KEY), b"") && admits(None, b""), "an empty frame has no token");
    }

    #[test]
    fn piece_token_is_unique_per_connection_direction_and_index() {
        let hello = |session| GreetingRepr::new(MessageKind::Hello, 7, session, 0).bytes();
        let tokens = |dialled, taken| {
            DirectionSigner::both(&KEY, &hello(dialled), &hello(taken)).map(|mut direction| {
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
    fn piece_token_covers_message_length() {
        let hello = GreetingRepr::new(MessageKind::Hello, 7, 1, 0).bytes();
        let tokens = [5, 6].map(|of| DirectionSigner::both(&KEY, &hello, &hello)[0].piece(of).token());
        assert_ne!(tokens[0], tokens[1], "the token covers the message length");
    }
}
