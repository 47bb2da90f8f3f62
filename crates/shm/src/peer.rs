//! The socket between two processes that share memory: by it one gives the memory, each wakes the other,
//! and each learns that the other is gone.
//!
//! ```text
//! maker ── connect, a message and the memory's descriptor ──▶ taker
//!       ◀────────────────────── welcome ──
//!       ◀──────────────── a byte: wake up ──▶        its end: the process is gone, however it went
//! ```
//!
//! It has a name in the abstract namespace, which processes of one network namespace see and nobody has to
//! clean up. Nothing here waits: what would is an error of kind `WouldBlock`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::{cmsg_space, net};

/// Connections that may wait to be accepted; one more is refused.
const BACKLOG: i32 = 64;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// Wake-ups that are taken in at once. A right peer sends one for each time that it is asked to.
const BELLS: usize = 256;
/// The byte that says that the memory is mapped, and the one that wakes.
const WELCOME: u8 = b'w';
const BELL: u8 = b'b';

/// Where connections come in.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens under a name.
    ///
    /// # Errors
    /// What the system says; `AddrInUse` when somebody else has the name.
    pub fn bind(name: &[u8]) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        net::listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// The next connection.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` when there is none.
    pub fn accept(&self) -> io::Result<Peer> {
        Ok(Peer(net::accept_with(&self.0, FLAGS)?))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The other process.
#[derive(Debug)]
pub struct Peer(OwnedFd);

impl Peer {
    /// Connects to whoever listens under a name.
    ///
    /// # Errors
    /// What the system says; `ConnectionRefused` when nobody does, here.
    pub fn connect(name: &[u8]) -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self(socket))
    }

    /// Sends the first message, and the memory with it.
    ///
    /// # Errors
    /// What the system says, or `WriteZero`.
    pub fn give(&self, message: &[u8], memory: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory];
        if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = net::sendmsg(&self.0, &[IoSlice::new(message)], &mut rights, SendFlags::NOSIGNAL)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Takes both.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` when the message is of another length, `InvalidData` when
    /// nothing came with it.
    pub fn take<const N: usize>(&self) -> io::Result<([u8; N], OwnedFd)> {
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

    /// Says that the memory is mapped here, too.
    ///
    /// # Errors
    /// What the system says.
    pub fn welcome(&self) -> io::Result<()> {
        net::send(&self.0, &[WELCOME], SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Whether it has said so.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` when it has said nothing yet, `UnexpectedEof` when it is gone.
    pub fn is_welcome(&self) -> io::Result<()> {
        let mut byte = [0];
        match net::recv(&self.0, &mut byte[..], RecvFlags::empty())? {
            (1, _) if byte == [WELCOME] => Ok(()),
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Wakes it.
    pub fn ring(&self) {
        // One that is gone will be found so; one that has so many bells unheard is awake.
        let _ = net::send(&self.0, &[BELL], SendFlags::NOSIGNAL);
    }

    /// Hears what bells there are; false when it is gone, or rings as no right one does.
    #[must_use]
    pub fn hear(&self) -> bool {
        let mut bells = [0; BELLS];
        match net::recv(&self.0, &mut bells[..], RecvFlags::empty()) {
            Ok((got, _)) => (1..BELLS).contains(&got),
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Map;

    fn connected(name: &str) -> (Peer, Peer) {
        let name = format!("pathcall-test-{}-{name}", std::process::id());
        let listener = Listener::bind(name.as_bytes()).unwrap();
        assert_eq!(Listener::bind(name.as_bytes()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let taker = Peer::connect(name.as_bytes()).unwrap();
        (listener.accept().unwrap(), taker)
    }

    #[test]
    fn the_memory_gets_across() {
        let (taker, maker) = connected("memory");
        assert_eq!(taker.take::<5>().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (_map, memory) = Map::make().unwrap();
        maker.give(b"hello", memory.as_fd()).unwrap();
        let (message, memory) = taker.take::<5>().unwrap();
        assert_eq!(&message, b"hello");
        Map::take(memory).unwrap();
        assert_eq!(maker.is_welcome().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        taker.welcome().unwrap();
        // Bells that follow at once are not taken with it.
        taker.ring();
        maker.is_welcome().unwrap();
        assert!(maker.hear());
    }

    #[test]
    fn anything_else_is_not_taken_for_memory() {
        let (taker, maker) = connected("else");
        let (_map, memory) = Map::make().unwrap();
        maker.ring();
        assert_eq!(taker.take::<1>().unwrap_err().kind(), io::ErrorKind::InvalidData);
        maker.give(b"short", memory.as_fd()).unwrap();
        assert_eq!(taker.take::<6>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        taker.ring();
        assert_eq!(maker.is_welcome().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(maker);
        assert_eq!(taker.take::<1>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn descriptors_that_were_not_asked_for_are_closed() {
        let (taker, maker) = connected("many");
        let (_map, memory) = Map::make().unwrap();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory.as_fd(); 8];
        assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let ours = || {
            let held =
                std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::metadata(fd.ok()?.path()).ok());
            held.filter(|held| std::os::unix::fs::MetadataExt::ino(held) == inode(&memory)).count()
        };
        let before = ours();
        net::sendmsg(&maker.0, &[IoSlice::new(b"m")], &mut rights, SendFlags::NOSIGNAL).unwrap();
        let taken = taker.take::<1>().unwrap();
        assert_eq!(ours(), before + 1);
        drop(taken);
        assert_eq!(ours(), before);
    }

    #[test]
    fn bells_are_heard_and_so_is_the_end() {
        let (maker, taker) = connected("bells");
        assert!(taker.hear(), "nothing is no end");
        maker.ring();
        maker.ring();
        assert!(taker.hear());
        drop(maker);
        assert!(!taker.hear());
        taker.ring();
    }

    #[test]
    fn one_that_rings_without_end_is_taken_for_gone() {
        let (maker, taker) = connected("flood");
        for _ in 0..=BELLS {
            maker.ring();
        }
        assert!(!taker.hear());
    }

    #[test]
    fn nobody_listens_there() {
        let error = Peer::connect(b"pathcall-test-nobody").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
