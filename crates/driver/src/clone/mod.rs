//! Drivers of *clone*'s callers and servers (NetClone §3).
//!
//! ```text
//! CloneCallerHandle::call ─▶ CloneCaller ══ requests ══▶ element ══▶ CloneWorker ─▶ CloneWorkerEvents::next
//!                 answer ◀── CloneCaller ◀══ answers ═══ element ◀══ CloneWorker ◀─ ReplySender::finish
//! ```
//!
//! Each has one socket, or memory that it shares with the element. A call runs in the calling thread, up to the system
//! call that sends its frames. A [`PoolAddresses`] lists the servers of the pool and their addresses; the handles take
//! its updates. Outgoing frames are signed and incoming frames checked, if the pool has a key.

mod caller;
mod worker;

use std::net::SocketAddr;

pub use caller::{CloneCallError, CloneCallerHandle, PoolUpdateSender};
use pathcall_wire::clone::CloneFrame;
use pathcall_wire::{MAX_FRAME, TokenKey, token};
pub use worker::{CloneWorkerEvent, CloneWorkerEvents, CloneWorkerHandle, ReplySender};

use pathcall_endpoint::clone::Pool;
use pathcall_endpoint::tables::SeededHashMap;

/// Endpoints whose addresses are learnt from their frames at most; another one replaces any of them.
const LEARNT_MAX: usize = 16_384;

/// Pool with the addresses of its servers and its element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolAddresses {
    /// Servers of the pool.
    pub pool: Pool,
    /// Address of each server, by SID.
    pub addresses: Vec<SocketAddr>,
    /// Address of the element.
    pub element: Option<SocketAddr>,
    /// Switch id in the element's frames.
    pub switch_id: u16,
    /// Whether the element holds hedges.
    pub element_holds: bool,
}

impl PoolAddresses {
    /// Address of a server.
    fn server(&self, endpoint: u32) -> Option<SocketAddr> {
        let sid = self.pool.servers.iter().position(|server| *server == endpoint)?;
        self.addresses.get(sid).copied()
    }
}

/// Buffers for an outgoing frame and its signed copy, with the key.
#[derive(Debug)]
struct FrameBuffer {
    key: Option<TokenKey>,
    frame: Box<[u8]>,
    signed: Box<[u8]>,
    /// Frames received without the right token, or with a token although there is no key.
    unauthentic: u64,
}

impl FrameBuffer {
    fn new(key: Option<TokenKey>) -> Self {
        let signed = if key.is_some() { MAX_FRAME } else { 0 };
        Self { key, frame: vec![0; MAX_FRAME].into(), signed: vec![0; signed].into(), unauthentic: 0 }
    }

    /// Returns whether an incoming frame is authentic; counts it if not.
    fn admits(&mut self, frame: &[u8]) -> bool {
        let admits = token::admits(self.key.as_ref(), frame);
        self.unauthentic += u64::from(!admits);
        admits
    }

    /// Outgoing bytes of the frame of `len` bytes, signed if there is a key.
    fn outgoing(&mut self, len: usize) -> &[u8] {
        let Self { key, frame, signed, .. } = self;
        match key {
            None => &frame[..len],
            // Writers of frames leave room for the token.
            Some(key) => key.insert_token(&frame[..len], signed).unwrap_or_default(),
        }
    }
}

/// Addresses learnt from frames.
#[derive(Debug, Default)]
struct LearntAddresses(SeededHashMap<u32, SocketAddr>);

impl LearntAddresses {
    /// Records the source address of an endpoint's frames.
    fn note(&mut self, endpoint: u32, from: SocketAddr) {
        if let Some(known) = self.0.get_mut(&endpoint) {
            *known = from;
            return;
        }
        if self.0.len() >= LEARNT_MAX {
            // The caller of the removed entry asks again, and is learnt again.
            let any = self.0.keys().next().copied();
            any.map(|any| self.0.remove(&any));
        }
        self.0.insert(endpoint, from);
    }

    fn find(&self, endpoint: u32) -> Option<SocketAddr> {
        self.0.get(&endpoint).copied()
    }
}

/// Switch id of the element that processed a frame.
fn switch_id(frame: &[u8]) -> Option<u16> {
    CloneFrame::new_checked(frame).ok().map(|frame| frame.head().switch_id())
}

/// Source endpoint of a frame, and the switch id of the element that processed it.
fn sender(frame: &[u8]) -> Option<(u32, u16)> {
    let frame = CloneFrame::new_checked(frame).ok()?;
    Some((frame.base().src(), frame.head().switch_id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learnt_addresses_are_bounded() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut learnt = LearntAddresses::default();
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
