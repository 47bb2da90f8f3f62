//! Names: a node, an execution on it, a message of that (DPC §4.1).
//!
//! A [`Context`] is a node's id and a number that the node counts: the caller gives one to each call, a server one
//! to each request that it works on. A request's [`Branch`] is the context that sent it and its number there,
//! from 1; responses count apart, so a response is −n where a request is +n. A request that is all that its
//! predecessor sent inherits the predecessor's branch (§4.3.1); [`RequestId`] tells the two apart by how often
//! the branch was inherited (§5.3).

use core::fmt;

/// A number of 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct U24([u8; 3]);

/// A node's id: 48 bits, drawn at random or given out by a controller at every start, never its address alone
/// (DPC §4.1.1): what a node says after a restart is not taken for what it said before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId([u8; 6]);

/// A node's id and a number of its own: the id of a call, and of an execution (DPC §4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Context([u8; 10]);

/// A request as completion is counted by: who sent it first, and the how manieth of its requests it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Branch([u8; 13]);

/// One request: its branch, and how often that was inherited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId([u8; 14]);

macro_rules! big_endian {
    ($name:ident, $len:literal) => {
        impl $name {
            /// As it travels.
            #[inline]
            #[must_use]
            pub const fn from_be_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// As it travels.
            #[inline]
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; $len] {
                self.0
            }
        }
    };
}
big_endian!(U24, 3);
big_endian!(NodeId, 6);
big_endian!(Context, 10);
big_endian!(Branch, 13);
big_endian!(RequestId, 14);

impl U24 {
    /// The largest.
    pub const MAX: u32 = (1 << 24) - 1;

    /// The number, or the largest.
    #[must_use]
    pub const fn saturating(value: u32) -> Self {
        let [high, a, b, c] = value.to_be_bytes();
        if high == 0 { Self([a, b, c]) } else { Self([0xff; 3]) }
    }

    /// Its value.
    #[must_use]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

impl NodeId {
    /// The id of these 48 lower bits.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// Its bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl Context {
    /// The `number`th of a node.
    #[must_use]
    pub const fn new(node: NodeId, number: u32) -> Self {
        let ([a, b, c, d, e, f], [g, h, i, j]) = (node.0, number.to_be_bytes());
        Self([a, b, c, d, e, f, g, h, i, j])
    }

    /// Whose it is.
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId(*self.0.first_chunk().expect("six of ten bytes"))
    }

    /// Its number there.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from_be_bytes(*self.0.last_chunk().expect("four of ten bytes"))
    }

    /// The `number`th request of this context, from 1.
    #[must_use]
    pub fn request(self, number: u32) -> Branch {
        let mut bytes = [0; 13];
        bytes[..10].copy_from_slice(&self.0);
        bytes[10..].copy_from_slice(&U24::saturating(number).0);
        Branch(bytes)
    }
}

impl Branch {
    /// Who sent it.
    #[must_use]
    pub fn context(self) -> Context {
        Context(*self.0.first_chunk().expect("ten of thirteen bytes"))
    }

    /// The how manieth request it is there, from 1.
    #[must_use]
    pub fn number(self) -> u32 {
        U24(*self.0.last_chunk().expect("three of thirteen bytes")).get()
    }

    /// The request that inherited it `seq` times.
    #[must_use]
    pub fn inherited(self, seq: u8) -> RequestId {
        let mut bytes = [seq; 14];
        bytes[..13].copy_from_slice(&self.0);
        RequestId(bytes)
    }
}

impl RequestId {
    /// Its branch.
    #[must_use]
    pub fn branch(self) -> Branch {
        Branch(*self.0.first_chunk().expect("thirteen of fourteen bytes"))
    }

    /// How often the branch was inherited.
    #[must_use]
    pub const fn seq(self) -> u8 {
        self.0[13]
    }
}

impl fmt::Debug for U24 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.bits())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{:x}", self.node(), self.number())
    }
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.+{}", self.context(), self.number())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.branch())?;
        if self.seq() > 0 { write!(f, "~{}", self.seq()) } else { Ok(()) }
    }
}
