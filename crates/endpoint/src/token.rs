//! Frame authentication of an endpoint: checks the token of each received frame before the state machine gets it, and
//! signs each sent frame.
//!
//! ```text
//! driver ─ frame ─► FrameAuth::admits ─► state machine ─ frame ─► SigningOutbox ─ frame and token ─► driver
//! ```
//!
//! State machines write frames without tokens.

use pathcall_wire::{Base, Flags, MAX_FRAME, TokenKey, token};

use crate::map::{Dest, FrameSink};

/// Key of the application's frames, and buffer for signed frames; without a key by default.
#[derive(Debug, Default)]
pub(crate) struct FrameAuth {
    key: Option<TokenKey>,
    /// Buffer for a frame with its token.
    buffer: Box<[u8]>,
}

impl FrameAuth {
    pub(crate) fn new(key: Option<TokenKey>) -> Self {
        Self { key, buffer: vec![0; if key.is_some() { MAX_FRAME } else { 0 }].into() }
    }

    /// Whether a frame may be processed; `skip`: a mutant disables the check.
    pub(crate) fn admits(&self, frame: &[u8], skip: bool) -> bool {
        token::admits(self.key.as_ref(), frame) || skip
    }

    /// Wraps `out` so that each frame gets its token.
    pub(crate) fn signing<'a, O: FrameSink>(&'a mut self, out: &'a mut O) -> SigningOutbox<'a, O> {
        SigningOutbox { guard: self, out }
    }
}

/// Frame sink that signs frames.
pub(crate) struct SigningOutbox<'a, O> {
    guard: &'a mut FrameAuth,
    out: &'a mut O,
}

impl<O: FrameSink> FrameSink for SigningOutbox<'_, O> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let Some(key) = self.guard.key else { return self.out.send(to, frame) };
        let signed = key.insert_token(frame, &mut self.guard.buffer);
        debug_assert!(signed.is_some(), "a frame of {} bytes is too long for a token", frame.len());
        if let Some(signed) = signed {
            self.out.send(to, signed);
        }
    }
}

/// Sets the congestion flag of a frame whose IP packet has a congestion mark. Hosts treat it like a mark by the
/// element.
pub(crate) fn set_congestion_flag(frame: &mut [u8]) {
    if let Ok(mut base) = Base::new_checked(frame) {
        let flags = base.flags() | Flags::ECN;
        base.set_flags(flags);
    }
}
