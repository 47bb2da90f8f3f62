//! Ids of nodes, executions and messages (DPC §4.1).
//!
//! A [`ContextId`] is a node id with a counter of the node: a caller assigns one to each call, a server one to each
//! request that it executes. The [`Branch`] of a request is the context that sent it and its number in that context,
//! from 1. Responses are counted separately: response −n, request +n. If an execution sends one request and nothing
//! else, this request inherits the branch (§4.3.1). [`RequestId`] counts the inheritances, so that it is unique (§5.3).

use core::fmt;

/// Unsigned 24-bit integer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct U24([u8; 3]);

/// Id of a node: 48 bits, drawn at random or assigned by a controller at each start, never the address alone
/// (DPC §4.1.1). So messages from before and after a restart have different ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId([u8; 6]);

/// Id of a call or of an execution: node id and counter (DPC §4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ContextId([u8; 10]);

/// Unit of completion: context that sent the first request, and the number of the request in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Branch([u8; 13]);

/// Id of a request: branch, and number of inheritances of the branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId([u8; 14]);

macro_rules! big_endian {
    ($name:ident, $len:literal) => {
        impl $name {
            /// Id from its encoding.
            #[inline]
            #[must_use]
            pub const fn from_be_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// Encoding of the id.
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
big_endian!(ContextId, 10);
big_endian!(Branch, 13);
big_endian!(RequestId, 14);

impl U24 {
    /// Largest value.
    pub const MAX: u32 = (1 << 24) - 1;

    /// The number, limited to [`U24::MAX`].
    #[must_use]
    pub const fn saturating(value: u32) -> Self {
        let [high, a, b, c] = value.to_be_bytes();
        if high == 0 { Self([a, b, c]) } else { Self([0xff; 3]) }
    }

    /// Value of the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

impl NodeId {
    /// Id with the lower 48 bits of `bits`.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// Bits of the id.
    #[must_use]
    pub const fn bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl ContextId {
    /// Context `number` of a node.
    #[must_use]
    pub const fn new(node: NodeId, number: u32) -> Self {
        let ([a, b, c, d, e, f], [g, h, i, j]) = (node.0, number.to_be_bytes());
        Self([a, b, c, d, e, f, g, h, i, j])
    }

    /// Node of the context.
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId(*self.0.first_chunk().expect("six of ten bytes"))
    }

    /// Number of the context at its node.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from_be_bytes(*self.0.last_chunk().expect("four of ten bytes"))
    }

    /// Branch of request `number` of this context, from 1.
    #[must_use]
    pub fn request(self, number: u32) -> Branch {
        let mut bytes = [0; 13];
        bytes[..10].copy_from_slice(&self.0);
        bytes[10..].copy_from_slice(&U24::saturating(number).0);
        Branch(bytes)
    }
}

impl Branch {
    /// Context that sent the request.
    #[must_use]
    pub fn context(self) -> ContextId {
        ContextId(*self.0.first_chunk().expect("ten of thirteen bytes"))
    }

    /// Number of the request in its context, from 1.
    #[must_use]
    pub fn number(self) -> u32 {
        U24(*self.0.last_chunk().expect("three of thirteen bytes")).get()
    }

    /// Request that inherited the branch `seq` times.
    #[must_use]
    pub fn inherited(self, seq: u8) -> RequestId {
        let mut bytes = [seq; 14];
        bytes[..13].copy_from_slice(&self.0);
        RequestId(bytes)
    }
}

impl RequestId {
    /// Branch of the request.
    #[must_use]
    pub fn branch(self) -> Branch {
        Branch(*self.0.first_chunk().expect("thirteen of fourteen bytes"))
    }

    /// Number of inheritances of the branch.
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

impl fmt::Debug for ContextId {
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
