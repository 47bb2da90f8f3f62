//! Authentication token of a frame: proof that its sender has the application's key and that the frame is unchanged.
//!
//! ```text
//! base header │ token u64 │ rest of the frame
//!             └ SipHash-2-4 (key, rest of the frame ‖ base header)
//! ```
//!
//! The token covers the whole frame except itself. The base header is hashed last: multicast copies differ in the base
//! header only, so they share the hash of the rest ([`TokenKey::copy_signer`]). An element that changes a frame signs
//! it again. This module does not allocate, and no bytes make it panic.
//!
//! Frames have a token exactly if the application has a key; [`admits`] checks this rule.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::base::{Base, Flags, TOKEN_LEN};

/// Offset of the token.
const TOKEN_AT: usize = Base::LEN;
/// Offset of the rest of the frame.
const REST_AT: usize = Base::LEN + TOKEN_LEN;

/// An application's 128-bit key. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenKey([u64; 2]);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(secret)")
    }
}

/// Whether a frame of an application with this key may be processed. With a key, the frame must have the right token;
/// without a key, it must have none. Check this before any other use of the frame and before any change of it.
#[inline]
#[must_use]
pub fn admits(key: Option<&TokenKey>, frame: &[u8]) -> bool {
    match key {
        Some(key) => key.has_signed(frame),
        None => !has_token(frame),
    }
}

impl TokenKey {
    /// Key from two words, SipHash's k0 and k1.
    #[must_use]
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// Words of the key, for distribution.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// Whether the frame has the right token.
    #[must_use]
    pub fn has_signed(&self, frame: &[u8]) -> bool {
        // Comparison of whole words: its duration does not depend on the position of a difference.
        has_token(frame) && token_of(frame).is_some_and(|token| token == self.over(frame).token(frame))
    }

    /// Computes the token of a frame with a token field, for example after a change of the frame.
    ///
    /// Returns false if the frame has no token field; the frame stays unchanged.
    pub fn sign(&self, frame: &mut [u8]) -> bool {
        self.copy_signer(frame).sign(frame);
        has_token(frame)
    }

    /// Signer for copies of this frame that differ in the base header only.
    #[must_use]
    pub fn copy_signer(&self, frame: &[u8]) -> CopySigner {
        self.over(frame)
    }

    /// Writes the frame with its token into `out`, and returns the written bytes. `None` if the result does not fit
    /// `out` or the length field.
    pub fn insert_token<'a>(&self, frame: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
        let (head, rest) = frame.split_at_checked(TOKEN_AT)?;
        let out = out.get_mut(..frame.len() + TOKEN_LEN)?;
        out[..TOKEN_AT].copy_from_slice(head);
        out[REST_AT..].copy_from_slice(rest);
        let length = u16::try_from(out.len()).ok()?;
        let mut base = Base::unchecked(&mut *out);
        base.set_length(length);
        let flags = base.flags() | Flags::TOKEN;
        base.set_flags(flags);
        self.sign(out);
        Some(out)
    }

    /// Hash function with this key, for tokens of other formats.
    pub(crate) fn hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_keys(self.0[0], self.0[1])
    }

    fn over(&self, frame: &[u8]) -> CopySigner {
        let mut hasher = self.hasher();
        hasher.write(frame.get(REST_AT..).unwrap_or_default());
        CopySigner(hasher)
    }
}

/// Signer for copies of one frame that differ in the base header only.
#[derive(Clone, Copy)]
pub struct CopySigner(SipHasher24);

impl fmt::Debug for CopySigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state would reveal the key.
        f.write_str("CopySigner(secret)")
    }
}

impl CopySigner {
    /// Writes the token into the token field, if the copy has one.
    pub fn sign(&self, copy: &mut [u8]) {
        let token = self.token(copy);
        if has_token(copy)
            && let Some(place) = copy.get_mut(TOKEN_AT..REST_AT)
        {
            place.copy_from_slice(&token.to_be_bytes());
        }
    }

    fn token(mut self, copy: &[u8]) -> u64 {
        self.0.write(copy.get(..TOKEN_AT).unwrap_or_default());
        self.0.finish()
    }
}

/// Whether the frame has a token field.
#[inline]
fn has_token(frame: &[u8]) -> bool {
    frame.len() >= REST_AT && Base::unchecked(frame).has(Flags::TOKEN)
}

#[inline]
fn token_of(frame: &[u8]) -> Option<u64> {
    frame.get(TOKEN_AT..)?.first_chunk().map(|token| u64::from_be_bytes(*token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs of the authors' SipHash-2-4 for the inputs 00 01 02 … of 44 to 63 bytes (`vectors.h` of the reference
    /// code): a base header with 0 to 19 bytes before it.
    const REFERENCE: [u64; 20] = [
        0xf935_451d_e4f2_1df2,
        0xa953_8f04_1975_5787,
        0xdb9a_cddf_f56c_a510,
        0xd06c_98cd_5c09_75eb,
        0xe612_a3cb_9ecb_a951,
        0xc766_e62c_fcad_af96,
        0xee64_435a_9752_fe72,
        0xa192_d576_b245_165a,
        0x0a87_87bf_8ecb_74b2,
        0x81b3_e73d_20b4_9b6f,
        0x7fa8_220b_a3b2_ecea,
        0x2457_31c1_3ca4_2499,
        0xb78d_bfaf_3a8d_83bd,
        0xea1a_d565_322a_1a0b,
        0x60e6_1c23_a379_5013,
        0x6606_d7e4_4628_2b93,
        0x6ca4_ecb1_5c5f_91e1,
        0x9f62_6da1_5c96_25f3,
        0xe51b_3860_8ef2_5f57,
        0x958a_324c_eb06_4572,
    ];

    #[test]
    fn tokens_match_siphash_reference_vectors() {
        let key = TokenKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        for (rest, expected) in REFERENCE.into_iter().enumerate() {
            // Input of the hash: bytes after the token, then the base header.
            let mut frame = [0xff; REST_AT + REFERENCE.len()];
            frame[REST_AT..].iter_mut().zip(0..).take(rest).for_each(|(byte, input)| *byte = input);
            frame[..TOKEN_AT].iter_mut().zip(rest as u8..).for_each(|(byte, input)| *byte = input);
            let frame = &frame[..REST_AT + rest];
            assert_eq!(key.copy_signer(frame).token(frame), expected, "{rest} bytes after the token");
        }
    }
}
