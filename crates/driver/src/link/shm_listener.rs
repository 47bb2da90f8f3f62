//! Listener for shared memory: the element's side of the agreement with endpoints of the same host.
//!
//! ```text
//! hello, by UDP ─► offer (a token for the source address)
//! connection ─► join (the token, and memory) ─► a ring for that address
//! ```
//!
//! The memory for peers that have not joined is bounded; a token needs no memory. The endpoint creates the shared
//! memory, because that takes longer than an element's frames should wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pathcall_shm::{MemoryPeer, PeerListener, RingMap};
use pathcall_wire::link::{Link, LinkKind, LinkRepr, LinkSecret};
use rustix::rand::{GetRandomFlags, getrandom};

/// Connections that have not sent a join yet; one more closes the oldest.
const PENDING_MAX: usize = 16;
/// Connections accepted at a time, so that frames need not wait long.
const ACCEPTS_MAX: usize = 4;
/// Length of a period in which an address has the same token.
const PERIOD: Duration = Duration::from_secs(5);

/// Listening socket for endpoints that request shared memory.
#[derive(Debug)]
pub(super) struct ShmListener {
    listener: PeerListener,
    name: u128,
    secret: LinkSecret,
    opened_at: Instant,
    pending: Vec<(u64, MemoryPeer)>,
}

impl ShmListener {
    /// Opens a listener under an unguessable name.
    pub(super) fn open() -> io::Result<Self> {
        let name = u128::from(random()?) << 64 | u128::from(random()?);
        let listener = PeerListener::bind(path(name).as_bytes())?;
        let secret = LinkSecret::new([random()?, random()?]);
        Ok(Self { listener, name, secret, opened_at: Instant::now(), pending: Vec::new() })
    }

    /// Returns the offer that answers a hello from `from`.
    pub(super) fn offer(&self, from: SocketAddr, hello: &LinkRepr) -> LinkRepr {
        LinkRepr::offer(hello.nonce, from, self.name, self.secret.token(from, self.period()))
    }

    /// Accepts new connections. `register` registers each and returns its key. Returns whether more may be waiting.
    pub(super) fn accept_new(&mut self, mut register: impl FnMut(&MemoryPeer) -> io::Result<u64>) -> bool {
        for _ in 0..ACCEPTS_MAX {
            // No connection, or no descriptor for one: the next arrival triggers another accept.
            let Ok(peer) = self.listener.accept() else { return false };
            if self.pending.len() == PENDING_MAX {
                self.pending.remove(0);
            }
            if let Ok(key) = register(&peer) {
                self.pending.push((key, peer));
            }
        }
        true
    }

    /// Returns whether `key` belongs to a connection that has not joined.
    pub(super) fn is_pending(&self, key: u64) -> bool {
        self.pending.iter().any(|(pending, _)| *pending == key)
    }

    /// Reads the join message of a connection: the address that it proves, its memory and its socket.
    ///
    /// # Errors
    /// The join was invalid; the connection is closed.
    pub(super) fn join(&mut self, key: u64) -> io::Result<(SocketAddr, OwnedFd, MemoryPeer)> {
        let index = self.pending.iter().position(|(pending, _)| *pending == key).ok_or(io::ErrorKind::NotFound)?;
        let (_, peer) = self.pending.remove(index);
        let (message, memory) = peer.receive_memory::<{ Link::LEN }>()?;
        let join = Link::new_checked(&message).map_err(|_| io::ErrorKind::InvalidData)?;
        let address = join.observed_address();
        if !join.repr().is(LinkKind::Join) || !self.secret.accepts(join.token(), address, self.period()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok((address, memory, peer))
    }

    fn period(&self) -> u64 {
        self.opened_at.elapsed().as_secs() / PERIOD.as_secs()
    }
}

impl AsFd for ShmListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Maps the memory of a peer that has joined, and confirms it.
pub(super) fn map_and_confirm(peer: &MemoryPeer, memory: OwnedFd) -> io::Result<RingMap> {
    let map = RingMap::from_fd(memory).map_err(io::Error::other)?;
    peer.send_ready()?;
    Ok(map)
}

/// Connects to the listener that was offered, and sends memory.
pub(super) fn connect(offer: LinkRepr) -> io::Result<(MemoryPeer, RingMap)> {
    let peer = MemoryPeer::connect(path(offer.listener).as_bytes())?;
    let (map, memory) = RingMap::create().map_err(io::Error::other)?;
    peer.send_memory(&offer.join().bytes(), memory.as_fd())?;
    Ok((peer, map))
}

/// Returns an unguessable random number.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Name of a listener in the abstract socket namespace.
fn path(name: u128) -> String {
    format!("pathcall-{name:032x}")
}
