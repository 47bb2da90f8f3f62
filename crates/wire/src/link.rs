//! What links say to each other beneath the frames: two processes of one host agree on shared memory.
//!
//! ```text
//! endpoint ── hello, from its UDP address ──▶ element
//!          ◀── offer, to that address: a door, and a token for it ──
//!          ── join, by the door: what was offered, and memory ──▶      (a unix socket)
//! ```
//!
//! Whoever names an address in a join proves by the token that frames to the address come to it: it was
//! sent there, and the element's [`Secret`] makes it of the address and the time, so that nothing need be
//! kept for those that never join. An offer is as long as its hello: nobody gains by a wrong sender.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher24;

use crate::Error;
use crate::header::header;

/// First two bytes of a link's message: "PL".
pub const MAGIC: u16 = 0x504c;
/// Version of the messages and of the memory that they lead to.
pub const VERSION: u8 = 1;

header! {
    /// View of a link's message.
    view Link;
    /// Values of a link's message.
    repr LinkRepr;
    length 56;
    /// [`MAGIC`].
    magic (set_magic): u16, 0;
    /// [`VERSION`].
    version (set_version): u8, 2;
    /// A [`LinkKind`].
    kind (set_kind): u8, 3;
    /// Port of the address that the hello came from.
    port (set_port): u16, 4;
    /// 0.
    reserved (set_reserved): u16, 6;
    /// IP address that the hello came from; an IPv4 address as IPv6 maps it.
    ip (set_ip): u128, 8;
    /// Drawn for the hello: an offer that answers none is none.
    nonce (set_nonce): u64, 24;
    /// Name of the door.
    door (set_door): u128, 32;
    /// That the address is its sender's, see [`Secret`].
    token (set_token): u64, 48;
}

/// What a link's message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkKind {
    /// Is there shared memory between us?
    Hello = 1,
    /// There is: come by this door.
    Offer = 2,
    /// Here I am.
    Join = 3,
}

impl<T: AsRef<[u8]>> Link<T> {
    /// A view of `bytes`, if they are a link's message of this version, to the byte.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn new_checked(bytes: T) -> Result<Self, Error> {
        let (expected, got) = (Link::LEN, bytes.as_ref().len());
        if got != expected {
            return Err(Error::Length { expected, got });
        }
        let view = Self(bytes);
        if view.magic() != MAGIC {
            return Err(Error::Magic(view.magic()));
        }
        if view.version() != VERSION {
            return Err(Error::Version(view.version()));
        }
        if view.reserved() != 0 {
            return Err(Error::Value { field: "reserved", value: view.reserved().into() });
        }
        LinkKind::parse(view.kind())?;
        Ok(view)
    }

    /// The address that the hello came from, as its receiver saw it.
    #[must_use]
    pub fn seen(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(self.ip())).to_canonical(), self.port())
    }
}

impl LinkKind {
    const fn parse(value: u8) -> Result<Self, Error> {
        Ok(match value {
            1 => Self::Hello,
            2 => Self::Offer,
            3 => Self::Join,
            _ => return Err(Error::Value { field: "kind", value: value as u64 }),
        })
    }
}

impl LinkRepr {
    /// A hello.
    #[must_use]
    pub fn hello(nonce: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: LinkKind::Hello as u8, nonce, ..Self::default() }
    }

    /// The offer to a hello that came from `seen`.
    #[must_use]
    pub fn offer(nonce: u64, seen: SocketAddr, door: u128, token: u64) -> Self {
        let ip = match seen.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (ip, port) = (ip.to_bits(), seen.port());
        Self { kind: LinkKind::Offer as u8, ip, port, door, token, ..Self::hello(nonce) }
    }

    /// The join that takes an offer up.
    #[must_use]
    pub fn join(self) -> Self {
        Self { kind: LinkKind::Join as u8, ..self }
    }

    /// Whether it is of this kind.
    #[must_use]
    pub fn is(&self, kind: LinkKind) -> bool {
        self.kind == kind as u8
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; Link::LEN] {
        let mut bytes = [0; Link::LEN];
        self.emit(&mut bytes);
        bytes
    }
}

/// Makes and knows the tokens of one element: SipHash-2-4 of an address and a time, under a key that
/// nobody else has. `Debug` does not show it.
#[derive(Clone, Copy)]
pub struct Secret([u64; 2]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(secret)")
    }
}

impl Secret {
    /// The secret of these two words, drawn at random.
    #[must_use]
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// A hash function that is the same everywhere, for whoever has to agree with others.
    #[must_use]
    pub fn hasher() -> impl Hasher {
        SipHasher24::new_with_keys(0, 0)
    }

    /// The token of an address in a `period`: a port may be another process's in the period after next.
    #[must_use]
    pub fn token(&self, of: SocketAddr, period: u64) -> u64 {
        let LinkRepr { ip, port, .. } = LinkRepr::offer(0, of, 0, 0);
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write(&ip.to_be_bytes());
        hasher.write(&port.to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.finish()
    }

    /// Whether a token was made of the address in this period or the last.
    #[must_use]
    pub fn knows(&self, token: u64, of: SocketAddr, period: u64) -> bool {
        token == self.token(of, period) || period > 0 && token == self.token(of, period - 1)
    }
}
