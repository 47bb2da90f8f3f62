//! UDP socket with waits for a frame or a deadline.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant as Clock};

use anyhow::Result;
use pathcall_wire::{Instant, MAX_FRAME};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Buffer of a frame.
pub(super) type Frame = [u8; MAX_FRAME];

pub(super) struct Socket {
    socket: UdpSocket,
    began: Clock,
}

impl Socket {
    /// Creates a socket; its clock starts at `began`.
    pub(super) fn new(socket: UdpSocket, began: Clock) -> Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, began })
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    pub(super) fn now(&self) -> Instant {
        Instant(self.began.elapsed().as_nanos() as u64)
    }

    /// Waits for a frame, at most until `until`.
    pub(super) fn wait(&self, until: Option<Instant>) -> Result<()> {
        let left = until.map(|until| until.since(self.now()));
        let timeout =
            left.map(|left: Duration| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Next datagram, if any.
    pub(super) fn receive(&self, frame: &mut Frame) -> Result<Option<usize>> {
        match self.socket.recv(frame) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame; it is lost if the send buffer is full, as on any link.
    pub(super) fn send(&self, to: SocketAddr, frame: &[u8]) {
        let _ = self.socket.send_to(frame, to);
    }
}
