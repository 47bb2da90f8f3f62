//! Where endpoints of this host come for shared memory: the element's side of the agreement.
//!
//! ```text
//! hello, by UDP ─► offer (a token for the address it came from)
//! connection ─► join (the token, and memory) ─► a ring for that address
//! ```
//!
//! What is kept for those that have not joined is bounded, whoever they are; a token costs nothing. Memory
//! is made by those who want it: that takes longer than an element's frames should wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pathcall_shm::{Listener, Map, Peer};
use pathcall_wire::link::{Link, LinkKind, LinkRepr, Secret};
use rustix::rand::{GetRandomFlags, getrandom};

/// Connections that have not said yet for whom they come; one more ends the oldest.
const WAITING_MAX: usize = 16;
/// Connections taken in at a time, so that frames need not wait long for them.
const ARRIVALS_MAX: usize = 4;
/// Length of a period, in which one address has one token.
const PERIOD: Duration = Duration::from_secs(5);

/// An open door.
#[derive(Debug)]
pub(super) struct Door {
    listener: Listener,
    name: u128,
    secret: Secret,
    opened: Instant,
    waiting: Vec<(u64, Peer)>,
}

impl Door {
    /// Opens one under a name that nobody can guess.
    pub(super) fn open() -> io::Result<Self> {
        let name = u128::from(random()?) << 64 | u128::from(random()?);
        let listener = Listener::bind(path(name).as_bytes())?;
        let secret = Secret::new([random()?, random()?]);
        Ok(Self { listener, name, secret, opened: Instant::now(), waiting: Vec::new() })
    }

    /// The answer to a hello that came from there.
    pub(super) fn offer(&self, from: SocketAddr, hello: &LinkRepr) -> LinkRepr {
        LinkRepr::offer(hello.nonce, from, self.name, self.secret.token(from, self.period()))
    }

    /// Takes in who has come; `known` is told of each, under a key that it draws. Whether there may be more.
    pub(super) fn arrivals(&mut self, mut known: impl FnMut(&Peer) -> io::Result<u64>) -> bool {
        for _ in 0..ARRIVALS_MAX {
            // Nobody, or no descriptor for one: whoever comes next has the others taken in, too.
            let Ok(peer) = self.listener.accept() else { return false };
            if self.waiting.len() == WAITING_MAX {
                self.waiting.remove(0);
            }
            if let Ok(key) = known(&peer) {
                self.waiting.push((key, peer));
            }
        }
        true
    }

    /// Whether this is the key of one that has not joined.
    pub(super) fn awaits(&self, key: u64) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == key)
    }

    /// One that has come says something: the address that it proves to be at, and its memory.
    ///
    /// # Errors
    /// Why it does not; it is gone then.
    pub(super) fn join(&mut self, key: u64) -> io::Result<(SocketAddr, OwnedFd, Peer)> {
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == key).ok_or(io::ErrorKind::NotFound)?;
        let (_, peer) = self.waiting.remove(place);
        let (message, memory) = peer.take::<{ Link::LEN }>()?;
        let join = Link::new_checked(&message).map_err(|_| io::ErrorKind::InvalidData)?;
        let seen = join.seen();
        if !join.repr().is(LinkKind::Join) || !self.secret.knows(join.token(), seen, self.period()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok((seen, memory, peer))
    }

    fn period(&self) -> u64 {
        self.opened.elapsed().as_secs() / PERIOD.as_secs()
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Maps the memory of one that has joined, and says so.
pub(super) fn welcome(peer: &Peer, memory: OwnedFd) -> io::Result<Map> {
    let map = Map::take(memory).map_err(io::Error::other)?;
    peer.welcome()?;
    Ok(map)
}

/// Comes by a door that was offered, with memory.
pub(super) fn knock(offer: LinkRepr) -> io::Result<(Peer, Map)> {
    let peer = Peer::connect(path(offer.door).as_bytes())?;
    let (map, memory) = Map::make().map_err(io::Error::other)?;
    peer.give(&offer.join().bytes(), memory.as_fd())?;
    Ok((peer, map))
}

/// A number that nobody can guess.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The name of a door in the abstract namespace.
fn path(name: u128) -> String {
    format!("pathcall-{name:032x}")
}
