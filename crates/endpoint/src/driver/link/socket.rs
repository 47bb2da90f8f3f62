//! The socket of a link: one system call in, one out, as many frames as it takes.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pathcall_wire::link::LinkRepr;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::outbox::Port;
use super::{Looking, RECV_MESSAGE_BYTES, RECV_MESSAGES, RECV_MESSAGES_FEW};

/// The socket and what the system can do for it.
#[derive(Debug)]
pub(super) struct Io {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) offload: UdpSocketState,
    pub(super) local: SocketAddr,
}

impl Io {
    /// One receive call, of as many messages as `meta` has room for; `WouldBlock` when nothing is there.
    pub(super) fn recv(&self, looking: Looking, buffer: &mut [u8], meta: &mut [RecvMeta]) -> io::Result<usize> {
        if looking == Looking::Anyway {
            return self.recv_now(buffer, meta);
        }
        let (mut received, asked) = (0, meta.len());
        let result = self.socket.try_io(Interest::READABLE, || {
            received = self.recv_now(buffer, meta)?;
            // A call that could have taken more has emptied the socket: saying so clears the
            // readiness and saves the call that would find nothing.
            if received < asked { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if received > 0 { Ok(received) } else { result.map(|()| 0) }
    }

    fn recv_now(&self, buffer: &mut [u8], meta: &mut [RecvMeta]) -> io::Result<usize> {
        match meta.len() {
            RECV_MESSAGES_FEW => self.recv_into::<RECV_MESSAGES_FEW>(buffer, meta),
            _ => self.recv_into::<RECV_MESSAGES>(buffer, meta),
        }
    }

    fn recv_into<const N: usize>(&self, buffer: &mut [u8], meta: &mut [RecvMeta]) -> io::Result<usize> {
        let mut chunks = buffer.chunks_exact_mut(RECV_MESSAGE_BYTES);
        let mut buffers: [IoSliceMut<'_>; N] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.offload.recv((&*self.socket).into(), &mut buffers, meta)
    }

    /// Whether the system sends nothing from here to there: a route says so, a blackhole for one, or the socket's own
    /// address is gone for the moment. It answers such a send with the error that stands for missing offload too.
    #[cold]
    fn has_no_way(&self, to: SocketAddr) -> bool {
        let mut from = self.local;
        from.set_port(0);
        std::net::UdpSocket::bind(from).and_then(|asking| asking.connect(to)).is_err()
    }

    /// Sends a message of the link itself; what is lost is said again.
    pub(super) fn tell(&mut self, to: SocketAddr, message: &LinkRepr) {
        let bytes = message.bytes();
        let _ = self.send(to, &bytes, bytes.len());
    }
}

impl Port for Io {
    fn send(&mut self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()> {
        // ECT(0): routers that are short of room mark the frame instead of dropping it.
        let ecn = Some(EcnCodepoint::Ect0);
        let transmit = Transmit { destination: to, ecn, contents, segment_size: Some(segment), src_ip: None };
        let send = || self.offload.try_send((&*self.socket).into(), &transmit);
        let mut tried = false;
        let result = self.socket.try_io(Interest::WRITABLE, || {
            tried = true;
            send()
        });
        // The runtime learns only in its next turn that a new socket can be written to.
        let result = if tried { result } else { send() };
        // Offload and marks have been given up for all by now, but maybe for the fault of one.
        if result.as_ref().is_err_and(stands_for_missing_offload)
            && self.has_no_way(to)
            && let Ok(offload) = UdpSocketState::new((&*self.socket).into())
        {
            self.offload = offload;
        }
        result
    }

    fn segments_max(&self) -> usize {
        self.offload.max_gso_segments()
    }

    /// Whether a send from here to there can be meant. The system answers some that can't with the
    /// error that stands for missing offload too, and the offload would be given up for all others.
    fn reaches(&self, to: SocketAddr) -> bool {
        let ip = to.ip();
        let family = match self.local.ip() {
            IpAddr::V4(_) => ip.is_ipv4(),
            // A dual-stack socket: one bound to an address proper speaks its own family only.
            IpAddr::V6(local) => ip.is_ipv6() || local.is_unspecified(),
        };
        let loopback = !self.local.ip().is_loopback() || ip.is_loopback();
        to.port() != 0 && !ip.is_unspecified() && family && loopback
    }
}

/// What the system says where a socket's options are not supported, and in some other cases.
fn stands_for_missing_offload(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::IO))
}
