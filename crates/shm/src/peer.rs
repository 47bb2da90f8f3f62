//! Socket between two processes that share memory: it transfers the memory, wakes the other process, and reports its
//! end.
//!
//! ```text
//! creator ── connect, a message and the memory's descriptor ──▶ receiver
//!         ◀──────────────────────── ready ──
//!         ◀──────────────── a byte: wake up ──▶      end of the socket: the process has ended
//! ```
//!
//! The socket has a name in the abstract namespace, which is visible in one network namespace and needs no cleanup. No
//! call blocks: it fails with `WouldBlock` instead.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::time::Timespec;
use rustix::{cmsg_space, net};

/// Connections that may wait to be accepted; one more is refused.
const BACKLOG: i32 = 64;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// Wake-ups read at once. An honest peer sends one for each time that it is asked to.
const WAKEUPS_MAX: usize = 256;
/// Byte that reports the mapped memory, and byte of a wake-up.
const READY: u8 = b'w';
const WAKE: u8 = b'b';

/// Listener for connections of peers.
#[derive(Debug)]
pub struct PeerListener(OwnedFd);

impl PeerListener {
    /// Listens under a name.
    ///
    /// # Errors
    /// Errors of the system; `AddrInUse` when another process has the name.
    pub fn bind(name: &[u8]) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        net::listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// Errors of the system; `WouldBlock` when there is none.
    pub fn accept(&self) -> io::Result<MemoryPeer> {
        Ok(MemoryPeer(net::accept_with(&self.0, FLAGS)?))
    }
}

impl AsFd for PeerListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Connection to the other process.
#[derive(Debug)]
pub struct MemoryPeer(OwnedFd);

impl MemoryPeer {
    /// Connects to the listener of this name.
    ///
    /// # Errors
    /// Errors of the system; `ConnectionRefused` when no process of this network namespace listens.
    pub fn connect(name: &[u8]) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self(socket))
    }

    /// Sends the first message with the descriptor of the memory.
    ///
    /// # Errors
    /// Errors of the system, or `WriteZero`.
    pub fn send_memory(&self, message: &[u8], memory: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory];
        if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = net::sendmsg(&self.0, &[IoSlice::new(message)], &mut rights, SendFlags::NOSIGNAL)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives the first message with the descriptor of the memory.
    ///
    /// # Errors
    /// Errors of the system; `UnexpectedEof` when the message has another length, `InvalidData` when it has no
    /// descriptor.
    pub fn receive_memory<const N: usize>(&self) -> io::Result<([u8; N], OwnedFd)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut message = [0; N];
        let got = net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut message)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        // Further descriptors are closed with the buffer.
        let memory = rights.drain().find_map(|rights| match rights {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match (got.bytes, memory) {
            (got, Some(memory)) if got == N => Ok((message, memory)),
            (got, None) if got == N => Err(io::ErrorKind::InvalidData.into()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reports that the memory is mapped.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn send_ready(&self) -> io::Result<()> {
        net::send(&self.0, &[READY], SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives the report that the memory is mapped.
    ///
    /// # Errors
    /// Errors of the system; `WouldBlock` when it has not arrived, `UnexpectedEof` when the peer has ended.
    pub fn receive_ready(&self) -> io::Result<()> {
        let mut byte = [0];
        match net::recv(&self.0, &mut byte[..], RecvFlags::empty())? {
            (1, _) if byte == [READY] => Ok(()),
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Wakes the peer.
    pub fn wake(&self) {
        // An ended peer is detected elsewhere; a peer with a full socket of wake-ups is awake.
        let _ = net::send(&self.0, &[WAKE], SendFlags::NOSIGNAL);
    }

    /// Reads all pending wake-ups; false when the peer has ended, or sends more than an honest one.
    #[must_use]
    pub fn drain_wakeups(&self) -> bool {
        let mut wakeups = [0; WAKEUPS_MAX];
        match net::recv(&self.0, &mut wakeups[..], RecvFlags::empty()) {
            Ok((got, _)) => (1..WAKEUPS_MAX).contains(&got),
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
}

impl AsFd for MemoryPeer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a liveness socket: the end that this process keeps, and the one for other processes.
pub(crate) fn liveness_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Returns whether the process at the other end of a socket has ended.
pub(crate) fn is_closed(end: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// User of the process at the other end.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(socket_peercred(socket)?.uid.as_raw())
}

/// Waits until the socket is readable, or at its end.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    if wait(&mut fds, deadline)? == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

/// Waits until a descriptor is ready; returns the number of ready ones, 0 at the deadline.
pub(crate) fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(fds, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RingMap;

    fn connected(name: &str) -> (MemoryPeer, MemoryPeer) {
        let name = format!("pathcall-test-{}-{name}", std::process::id());
        let listener = PeerListener::bind(name.as_bytes()).unwrap();
        assert_eq!(PeerListener::bind(name.as_bytes()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let receiver = MemoryPeer::connect(name.as_bytes()).unwrap();
        (listener.accept().unwrap(), receiver)
    }

    #[test]
    fn memory_is_transferred() {
        let (receiver, creator) = connected("memory");
        assert_eq!(receiver.receive_memory::<5>().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (_map, memory) = RingMap::create().unwrap();
        creator.send_memory(b"hello", memory.as_fd()).unwrap();
        let (message, memory) = receiver.receive_memory::<5>().unwrap();
        assert_eq!(&message, b"hello");
        RingMap::from_fd(memory).unwrap();
        assert_eq!(creator.receive_ready().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        receiver.send_ready().unwrap();
        // Wake-ups that follow at once are not consumed.
        receiver.wake();
        creator.receive_ready().unwrap();
        assert!(creator.drain_wakeups());
    }

    #[test]
    fn invalid_messages_are_refused() {
        let (receiver, creator) = connected("else");
        let (_map, memory) = RingMap::create().unwrap();
        creator.wake();
        assert_eq!(receiver.receive_memory::<1>().unwrap_err().kind(), io::ErrorKind::InvalidData);
        creator.send_memory(b"short", memory.as_fd()).unwrap();
        assert_eq!(receiver.receive_memory::<6>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        receiver.wake();
        assert_eq!(creator.receive_ready().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(creator);
        assert_eq!(receiver.receive_memory::<1>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn excess_descriptors_are_closed() {
        let (receiver, creator) = connected("many");
        let (_map, memory) = RingMap::create().unwrap();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory.as_fd(); 8];
        assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let open_descriptors = || {
            let held =
                std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::metadata(fd.ok()?.path()).ok());
            held.filter(|held| std::os::unix::fs::MetadataExt::ino(held) == inode(&memory)).count()
        };
        let before = open_descriptors();
        net::sendmsg(&creator.0, &[IoSlice::new(b"m")], &mut rights, SendFlags::NOSIGNAL).unwrap();
        let taken = receiver.receive_memory::<1>().unwrap();
        assert_eq!(open_descriptors(), before + 1);
        drop(taken);
        assert_eq!(open_descriptors(), before);
    }

    #[test]
    fn wake_ups_and_end_of_peer_are_received() {
        let (creator, receiver) = connected("wakeups");
        assert!(receiver.drain_wakeups(), "no wake-up is pending");
        creator.wake();
        creator.wake();
        assert!(receiver.drain_wakeups());
        drop(creator);
        assert!(!receiver.drain_wakeups());
        receiver.wake();
    }

    #[test]
    fn flood_of_wake_ups_counts_as_end() {
        let (creator, receiver) = connected("flood");
        for _ in 0..=WAKEUPS_MAX {
            creator.wake();
        }
        assert!(!receiver.drain_wakeups());
    }

    #[test]
    fn connect_without_listener_is_refused() {
        let error = MemoryPeer::connect(b"pathcall-test-nobody").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
