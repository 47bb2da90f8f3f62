//! Link messages: negotiation of shared memory between two processes of one host.
//!
//! ```text
//! endpoint ── hello, from its UDP address ──▶ element
//!          ◀── offer, to that address: name of a listener, and a token ──
//!          ── join, at the listener: the offer, and memory ──▶         (a unix socket)
//! ```
//!
//! The token in a join proves that its sender receives frames at the address: the element sent the token there. The
//! element computes tokens from address and time with its [`LinkSecret`], so it stores nothing for endpoints that never
//! join. An offer is as long as its hello, so a forged sender address causes no amplification.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher24;

use crate::Error;
use crate::header::header;

/// First two bytes of a link message: "PL".
pub const MAGIC: u16 = 0x504c;
/// Version of the messages and of the layout of the shared memory.
pub const VERSION: u8 = 1;

header! {
    /// View of a link message.
    view Link;
    /// Values of a link message.
    repr LinkRepr;
    length 56;
    /// [`MAGIC`].
    magic (set_magic): u16, 0;
    /// [`VERSION`].
    version (set_version): u8, 2;
    /// A [`LinkKind`].
    kind (set_kind): u8, 3;
    /// Port of the source address of the hello.
    port (set_port): u16, 4;
    /// 0.
    reserved (set_reserved): u16, 6;
    /// Source IP address of the hello; IPv4 addresses are mapped to IPv6.
    ip (set_ip): u128, 8;
    /// Random number of the hello; an offer without the nonce of a hello is invalid.
    nonce (set_nonce): u64, 24;
    /// Name of the listener, an abstract Unix socket.
    listener (set_listener): u128, 32;
    /// Proof that the address belongs to the sender, see [`LinkSecret`].
    token (set_token): u64, 48;
}

/// Kind of a link message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkKind {
    /// Request for an offer of shared memory.
    Hello = 1,
    /// Offer of shared memory at a listener.
    Offer = 2,
    /// Acceptance of an offer, with the memory.
    Join = 3,
}

impl<T: AsRef<[u8]>> Link<T> {
    /// Checked view of `bytes`: a link message of this version with the exact length.
    ///
    /// # Errors
    /// First violation found.
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

    /// Source address of the hello, as its receiver observed it.
    #[must_use]
    pub fn observed_address(&self) -> SocketAddr {
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
    /// Hello with this nonce.
    #[must_use]
    pub fn hello(nonce: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: LinkKind::Hello as u8, nonce, ..Self::default() }
    }

    /// Offer that answers a hello from `observed`.
    #[must_use]
    pub fn offer(nonce: u64, observed: SocketAddr, listener: u128, token: u64) -> Self {
        let ip = match observed.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (ip, port) = (ip.to_bits(), observed.port());
        Self { kind: LinkKind::Offer as u8, ip, port, listener, token, ..Self::hello(nonce) }
    }

    /// Join that accepts this offer.
    #[must_use]
    pub fn join(self) -> Self {
        Self { kind: LinkKind::Join as u8, ..self }
    }

    /// Whether the message is of this kind.
    #[must_use]
    pub fn is(&self, kind: LinkKind) -> bool {
        self.kind == kind as u8
    }

    /// Encoded message.
    #[must_use]
    pub fn bytes(&self) -> [u8; Link::LEN] {
        let mut bytes = [0; Link::LEN];
        self.emit(&mut bytes);
        bytes
    }
}

/// Secret key of one element for address tokens: SipHash-2-4 of an address and a period. `Debug` does not show the key.
#[derive(Clone, Copy)]
pub struct LinkSecret([u64; 2]);

impl core::fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("LinkSecret(secret)")
    }
}

impl LinkSecret {
    /// Secret from two random words.
    #[must_use]
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// Hash function with a fixed key, for values that several processes must agree on.
    #[must_use]
    pub fn hasher() -> impl Hasher {
        SipHasher24::new_with_keys(0, 0)
    }

    /// Token of an address in a `period`. Tokens expire, since a port may belong to another process later.
    #[must_use]
    pub fn token(&self, of: SocketAddr, period: u64) -> u64 {
        let LinkRepr { ip, port, .. } = LinkRepr::offer(0, of, 0, 0);
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write(&ip.to_be_bytes());
        hasher.write(&port.to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.finish()
    }

    /// Whether the token is valid for the address in this period or the previous one.
    #[must_use]
    pub fn accepts(&self, token: u64, of: SocketAddr, period: u64) -> bool {
        token == self.token(of, period) || period > 0 && token == self.token(of, period - 1)
    }
}
