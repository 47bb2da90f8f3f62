//! Stub of the shared-memory rings for systems without them: all frames go by UDP.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use pathcall_wire::Instant;
use pathcall_wire::link::LinkRepr;

use super::{LinkStats, PollMode};

/// Peers that an element shares memory with: none.
pub const RINGS_MAX: usize = 0;

/// Uninhabited: there are no rings.
#[derive(Debug)]
pub(super) struct Rings {
    none: None,
    pub(super) senders: RingSenders,
}

/// Uninhabited: there are no ring senders.
#[derive(Debug)]
pub(super) struct RingSenders(None);

/// Uninhabited: there are no peer events.
#[derive(Debug, Clone)]
pub(super) struct PeerEvents(None);

/// Type without values.
#[derive(Debug, Clone, Copy)]
enum None {}

impl Rings {
    pub(super) fn listener() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn requester() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn peer_events(&self) -> PeerEvents {
        match self.none {}
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::empty()
    }

    pub(super) fn request_memory(&mut self, _: Instant, _: Option<SocketAddr>) -> Option<(SocketAddr, LinkRepr)> {
        match self.none {}
    }

    pub(super) fn handle_message(&mut self, _: SocketAddr, _: &LinkRepr, _: &mut LinkStats) -> Option<LinkRepr> {
        match self.none {}
    }

    pub(super) fn note_udp_frame(&mut self, _: SocketAddr) {
        match self.none {}
    }

    pub(super) fn process_peer_events(&mut self, _: PollMode, _: &mut LinkStats) {
        match self.none {}
    }

    pub(super) fn receive(
        &mut self,
        _: &mut [u8],
        _: &mut LinkStats,
        _: impl FnMut(&mut RingSenders, &mut LinkStats, SocketAddr, bool, &mut [u8]),
    ) -> usize {
        match self.none {}
    }

    pub(super) fn can_skip_socket(&self, _: PollMode, _: usize) -> bool {
        match self.none {}
    }

    pub(super) fn arm_wakeup(&mut self) -> bool {
        match self.none {}
    }

    pub(super) fn disarm_wakeup(&mut self) {
        match self.none {}
    }
}

impl PeerEvents {
    pub(super) async fn notified(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn poll_notified(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl RingSenders {
    pub(super) fn queue(&mut self, _: SocketAddr, _: &[u8], _: &mut LinkStats) -> bool {
        match self.0 {}
    }

    pub(super) fn flush(&mut self) {
        match self.0 {}
    }
}
