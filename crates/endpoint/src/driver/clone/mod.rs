//! *clone*'s callers and servers on sockets (NetClone §3).
//!
//! ```text
//! CallerHandle::ask ─▶ Caller ══ requests ══▶ element ══▶ Worker ─▶ Works::next ─▶ a handler
//!        answer ◀───────── ◀════ answers ════════════════ ◀──────── Replies::finish
//! ```
//!
//! Each has one socket, or memory that it shares with the element. What is asked runs in the thread that asks, up
//! to the system call that sends. A [`Table`] says who is in the pool and where; when it changes, the handles are
//! told. Frames are signed on their way out and checked on their way in, if the pool has a key.

mod caller;
mod worker;

use std::net::SocketAddr;

pub use caller::{CallError, CallerHandle, CallerTeller};
use pathcall_wire::clone::CloneFrame;
use pathcall_wire::{MAX_FRAME, TokenKey, token};
pub use worker::{Order, Replies, WorkerHandle, Works};

use crate::clone::Pool;
use crate::tables::ByName;

/// Endpoints whose addresses were learnt from their frames, at most; one more has another one forgotten.
const LEARNT_MAX: usize = 16_384;

/// A pool, and where everybody is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The servers.
    pub pool: Pool,
    /// Where each of them is, by SID.
    pub addresses: Vec<SocketAddr>,
    /// Where the element is.
    pub element: Option<SocketAddr>,
    /// What the element's frames carry as switch id.
    pub switch_id: u16,
}

impl Table {
    /// Where a server is.
    fn server(&self, endpoint: u32) -> Option<SocketAddr> {
        let sid = self.pool.servers.iter().position(|server| *server == endpoint)?;
        self.addresses.get(sid).copied()
    }
}

/// Room for a frame and for its signed copy, and the key.
#[derive(Debug)]
struct Desk {
    key: Option<TokenKey>,
    frame: Box<[u8]>,
    sealed: Box<[u8]>,
    /// Frames that came without the right token, or with one where there is none.
    unauthentic: u64,
}

impl Desk {
    fn new(key: Option<TokenKey>) -> Self {
        let sealed = if key.is_some() { MAX_FRAME } else { 0 };
        Self { key, frame: vec![0; MAX_FRAME].into(), sealed: vec![0; sealed].into(), unauthentic: 0 }
    }

    /// Whether a frame that came may be looked at; counts it if not.
    fn admits(&mut self, frame: &[u8]) -> bool {
        let admits = token::admits(self.key.as_ref(), frame);
        self.unauthentic += u64::from(!admits);
        admits
    }

    /// The frame of `len` bytes as it leaves.
    fn leaving(&mut self, len: usize) -> &[u8] {
        let Self { key, frame, sealed, .. } = self;
        match key {
            None => &frame[..len],
            // Whoever writes frames leaves room for the token.
            Some(key) => key.seal(&frame[..len], sealed).unwrap_or_default(),
        }
    }
}

/// Addresses learnt from frames.
#[derive(Debug, Default)]
struct Learnt(ByName<u32, SocketAddr>);

impl Learnt {
    /// The endpoint's frames come from there.
    fn note(&mut self, endpoint: u32, from: SocketAddr) {
        if let Some(known) = self.0.get_mut(&endpoint) {
            *known = from;
            return;
        }
        if self.0.len() >= LEARNT_MAX {
            // Its caller asks again, and is known again.
            let any = self.0.keys().next().copied();
            any.map(|any| self.0.remove(&any));
        }
        self.0.insert(endpoint, from);
    }

    fn find(&self, endpoint: u32) -> Option<SocketAddr> {
        self.0.get(&endpoint).copied()
    }
}

/// The element that has decided about a frame.
fn switch_id(frame: &[u8]) -> Option<u16> {
    CloneFrame::new_checked(frame).ok().map(|frame| frame.head().switch_id())
}

/// The endpoint that a frame comes from, and the element that has decided about it.
fn sender(frame: &[u8]) -> Option<(u32, u16)> {
    let frame = CloneFrame::new_checked(frame).ok()?;
    Some((frame.base().src(), frame.head().switch_id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_learnt_within_bounds() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut learnt = Learnt::default();
        learnt.note(7, at(1));
        learnt.note(7, at(2));
        assert_eq!((learnt.find(7), learnt.find(8)), (Some(at(2)), None));
        for endpoint in 0..2 * LEARNT_MAX as u32 {
            learnt.note(endpoint, at(3));
        }
        assert_eq!(learnt.0.len(), LEARNT_MAX);
        assert_eq!(learnt.find(2 * LEARNT_MAX as u32 - 1), Some(at(3)));
    }
}
