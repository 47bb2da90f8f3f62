//! The authentication token: a frame comes from one who knows the application's key, unchanged.
//!
//! ```text
//! base header │ token u64 │ all that follows
//!             └ SipHash-2-4 (key, all that follows ‖ base header)
//! ```
//!
//! A whole frame is covered but for the token itself. The base header is hashed last, so that copies of
//! a multicast, which differ in nothing else, share the work ([`TokenKey::copies`]). Whoever changes a
//! frame on its way signs it anew. Nothing here allocates, or panics on any bytes.
//!
//! An application has a key or none, and its frames a token or none: [`admits`] is the one rule.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::base::{Base, Flags, TOKEN_LEN};

/// Where the token stands.
const TOKEN_AT: usize = Base::LEN;
/// Where what follows it begins.
const REST_AT: usize = Base::LEN + TOKEN_LEN;

/// An application's 128-bit key. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenKey([u64; 2]);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(secret)")
    }
}

/// Whether a frame may be worked on in an application with this key, or with none: it carries the
/// right token, or none where there is none to carry. To be asked before anything else is made of
/// the frame, and before any of its bits are changed.
#[inline]
#[must_use]
pub fn admits(key: Option<&TokenKey>, frame: &[u8]) -> bool {
    match key {
        Some(key) => key.has_signed(frame),
        None => !has_token(frame),
    }
}

impl TokenKey {
    /// The key of these two words, SipHash's k0 and k1.
    #[must_use]
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// Its two words: for whoever hands it out.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// Whether the frame carries the token that its bytes call for.
    #[must_use]
    pub fn has_signed(&self, frame: &[u8]) -> bool {
        // One comparison of whole words: its time says nothing of where they differ.
        has_token(frame) && token_of(frame).is_some_and(|token| token == self.over(frame).token(frame))
    }

    /// Puts the token into a frame that has a place for it, anew after a change.
    ///
    /// A frame without a place is left as it is: false.
    pub fn sign(&self, frame: &mut [u8]) -> bool {
        self.copies(frame).sign(frame);
        has_token(frame)
    }

    /// What copies of this frame share that differ in the base header alone.
    #[must_use]
    pub fn copies(&self, frame: &[u8]) -> Copies {
        self.over(frame)
    }

    /// Writes into `out` the frame with a place for its token and the token in it; what was written.
    /// `None` when `out` or a frame's length field has no room for it.
    pub fn seal<'a>(&self, frame: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
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

    /// What makes tokens of frames that are no applications'.
    pub(crate) fn hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_keys(self.0[0], self.0[1])
    }

    fn over(&self, frame: &[u8]) -> Copies {
        let mut hasher = self.hasher();
        hasher.write(frame.get(REST_AT..).unwrap_or_default());
        Copies(hasher)
    }
}

/// Signs copies of one frame that differ in the base header alone.
#[derive(Clone, Copy)]
pub struct Copies(SipHasher24);

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its state tells the key.
        f.write_str("Copies(secret)")
    }
}

impl Copies {
    /// Puts the token into the place for it, if there is one.
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

/// Whether the frame has a place for a token.
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

    /// Outputs of the authors' SipHash-2-4 for the inputs 00 01 02 …, of 44 bytes and more (`vectors.h`
    /// of the reference code): what a base header alone makes, and one with up to 19 bytes before it.
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
    fn tokens_are_those_of_the_reference_code() {
        let key = TokenKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        for (rest, expected) in REFERENCE.into_iter().enumerate() {
            // The input is what follows the token, then the base header.
            let mut frame = [0xff; REST_AT + REFERENCE.len()];
            frame[REST_AT..].iter_mut().zip(0..).take(rest).for_each(|(byte, input)| *byte = input);
            frame[..TOKEN_AT].iter_mut().zip(rest as u8..).for_each(|(byte, input)| *byte = input);
            let frame = &frame[..REST_AT + rest];
            assert_eq!(key.copies(frame).token(frame), expected, "{rest} bytes after the token");
        }
    }
}
