//! Where the system has no memory to share: all frames go by UDP.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use pathcall_wire::Instant;
use pathcall_wire::link::LinkRepr;

use super::{LinkStats, Looking};

/// Peers that an element shares memory with.
pub const RINGS_MAX: usize = 0;

/// There is none.
#[derive(Debug)]
pub(super) struct Rings {
    none: None,
    pub(super) senders: Senders,
}

/// There is none.
#[derive(Debug)]
pub(super) struct Senders(None);

/// There is none.
#[derive(Debug, Clone)]
pub(super) struct Bells(None);

/// What nothing has.
#[derive(Debug, Clone, Copy)]
enum None {}

impl Rings {
    pub(super) fn offering() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn seeking() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn bells(&self) -> Bells {
        match self.none {}
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::empty()
    }

    pub(super) fn seek(&mut self, _: Instant, _: Option<SocketAddr>) -> Option<(SocketAddr, LinkRepr)> {
        match self.none {}
    }

    pub(super) fn hear(&mut self, _: SocketAddr, _: &LinkRepr, _: &mut LinkStats) -> Option<LinkRepr> {
        match self.none {}
    }

    pub(super) fn came_beside(&mut self, _: SocketAddr) {
        match self.none {}
    }

    pub(super) fn attend(&mut self, _: Looking, _: &mut LinkStats) {
        match self.none {}
    }

    pub(super) fn take(
        &mut self,
        _: &mut [u8],
        _: &mut LinkStats,
        _: impl FnMut(&mut Senders, &mut LinkStats, SocketAddr, bool, &mut [u8]),
    ) -> usize {
        match self.none {}
    }

    pub(super) fn spares_the_socket(&self, _: Looking, _: usize) -> bool {
        match self.none {}
    }

    pub(super) fn wait(&mut self) -> bool {
        match self.none {}
    }

    pub(super) fn look(&mut self) {
        match self.none {}
    }
}

impl Bells {
    pub(super) async fn rung(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) fn poll_rung(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl Senders {
    pub(super) fn queue(&mut self, _: SocketAddr, _: &[u8], _: &mut LinkStats) -> bool {
        match self.0 {}
    }

    pub(super) fn flush(&mut self) {
        match self.0 {}
    }
}
