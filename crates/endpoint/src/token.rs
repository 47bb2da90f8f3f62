//! The doors of an endpoint whose application has tokens: what comes in is checked before the state
//! machine sees it, what goes out is signed.
//!
//! ```text
//! driver ─ frame ─► Guard::admits ─► state machine ─ frame ─► Signing ─ with its token ─► driver
//! ```
//!
//! State machines write frames without tokens, so that nothing of tokens is in them.

use pathcall_wire::{Base, Flags, MAX_FRAME, TokenKey, token};

use crate::map::{Dest, Outbox};

/// What an application's frames are checked and signed with; by default nothing.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    key: Option<TokenKey>,
    /// Where a frame gets its token.
    room: Box<[u8]>,
}

impl Guard {
    pub(crate) fn new(key: Option<TokenKey>) -> Self {
        Self { key, room: vec![0; if key.is_some() { MAX_FRAME } else { 0 }].into() }
    }

    /// Whether a frame may be looked at; `skip`: a test has it not look.
    pub(crate) fn admits(&self, frame: &[u8], skip: bool) -> bool {
        token::admits(self.key.as_ref(), frame) || skip
    }

    /// `out`, by which frames leave with their tokens.
    pub(crate) fn signing<'a, O: Outbox>(&'a mut self, out: &'a mut O) -> Signing<'a, O> {
        Signing { guard: self, out }
    }
}

/// An outbox that signs.
pub(crate) struct Signing<'a, O> {
    guard: &'a mut Guard,
    out: &'a mut O,
}

impl<O: Outbox> Outbox for Signing<'_, O> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let Some(key) = self.guard.key else { return self.out.send(to, frame) };
        let sealed = key.seal(frame, &mut self.guard.room);
        debug_assert!(sealed.is_some(), "{} bytes leave no room for a token", frame.len());
        if let Some(sealed) = sealed {
            self.out.send(to, sealed);
        }
    }
}

/// Notes in a frame that the network below marked it: a host counts that like a mark by the element.
pub(crate) fn mark(frame: &mut [u8]) {
    if let Ok(mut base) = Base::new_checked(frame) {
        let flags = base.flags() | Flags::ECN;
        base.set_flags(flags);
    }
}
