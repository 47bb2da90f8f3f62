//! Socket of a link: one system call receives or sends as many frames as the system takes.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pathcall_wire::link::LinkRepr;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::send_batches::BatchSocket;
use super::{PollMode, RECV_MESSAGE_BYTES, RECV_MESSAGES, RECV_MESSAGES_MIN};

/// UDP socket with the offload that the system supports.
#[derive(Debug)]
pub(super) struct LinkSocket {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) offload: UdpSocketState,
    pub(super) local: SocketAddr,
}

impl LinkSocket {
    /// Receives as many messages as `meta` has entries, in one call; `WouldBlock` when no message is there.
    pub(super) fn recv(&self, mode: PollMode, buffer: &mut [u8], meta: &mut [RecvMeta]) -> io::Result<usize> {
        if mode == PollMode::Always {
            return self.recv_now(buffer, meta);
        }
        let (mut received, asked) = (0, meta.len());
        let result = self.socket.try_io(Interest::READABLE, || {
            received = self.recv_now(buffer, meta)?;
            // A call that could have received more has emptied the socket: reporting that clears the readiness and
            // saves the call that would find nothing.
            if received < asked { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if received > 0 { Ok(received) } else { result.map(|()| 0) }
    }

    fn recv_now(&self, buffer: &mut [u8], meta: &mut [RecvMeta]) -> io::Result<usize> {
        match meta.len() {
            RECV_MESSAGES_MIN => self.recv_into::<RECV_MESSAGES_MIN>(buffer, meta),
            _ => self.recv_into::<RECV_MESSAGES>(buffer, meta),
        }
    }

    fn recv_into<const N: usize>(&self, buffer: &mut [u8], meta: &mut [RecvMeta]) -> io::Result<usize> {
        let mut chunks = buffer.chunks_exact_mut(RECV_MESSAGE_BYTES);
        let mut buffers: [IoSliceMut<'_>; N] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.offload.recv((&*self.socket).into(), &mut buffers, meta)
    }

    /// Returns whether the system sends nothing to this address: a route forbids it (a blackhole route, for example),
    /// or the socket's own address is gone for the moment. The error of such a send also stands for missing offload.
    #[cold]
    fn is_unreachable(&self, to: SocketAddr) -> bool {
        let mut from = self.local;
        from.set_port(0);
        std::net::UdpSocket::bind(from).and_then(|socket| socket.connect(to)).is_err()
    }

    /// Sends a message of the link itself; a lost message is repeated by the protocol.
    pub(super) fn send_message(&mut self, to: SocketAddr, message: &LinkRepr) {
        let bytes = message.bytes();
        let _ = self.send(to, &bytes, bytes.len());
    }
}

impl BatchSocket for LinkSocket {
    fn send(&mut self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()> {
        // ECT(0): congested routers mark the frame instead of dropping it.
        let ecn = Some(EcnCodepoint::Ect0);
        let transmit = Transmit { destination: to, ecn, contents, segment_size: Some(segment), src_ip: None };
        let send = || self.offload.try_send((&*self.socket).into(), &transmit);
        let mut tried = false;
        let result = self.socket.try_io(Interest::WRITABLE, || {
            tried = true;
            send()
        });
        // The runtime learns only in its next turn that a new socket is writable.
        let result = if tried { result } else { send() };
        // Offload and ECN are now disabled for all destinations, perhaps because of this one only.
        if result.as_ref().is_err_and(is_unsupported_offload)
            && self.is_unreachable(to)
            && let Ok(offload) = UdpSocketState::new((&*self.socket).into())
        {
            self.offload = offload;
        }
        result
    }

    fn segments_max(&self) -> usize {
        self.offload.max_gso_segments()
    }

    /// Returns whether a send to this address can succeed. Some impossible sends fail with the error that also stands
    /// for missing offload, and offload would be disabled for all other destinations.
    fn can_reach(&self, to: SocketAddr) -> bool {
        let ip = to.ip();
        let family = match self.local.ip() {
            IpAddr::V4(_) => ip.is_ipv4(),
            // Dual-stack socket; a socket that is bound to a specific IPv6 address sends IPv6 only.
            IpAddr::V6(local) => ip.is_ipv6() || local.is_unspecified(),
        };
        let loopback = !self.local.ip().is_loopback() || ip.is_loopback();
        to.port() != 0 && !ip.is_unspecified() && family && loopback
    }
}

/// Returns whether the error is that of an unsupported socket option, which has other causes as well.
fn is_unsupported_offload(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::IO))
}
