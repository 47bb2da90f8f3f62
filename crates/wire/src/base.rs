//! Base header at the start of each frame.

use crate::Error;
use crate::header::header;

/// First two bytes of every frame: "PC".
pub const MAGIC: u16 = 0x5043;
/// Version of the layout described here.
pub const VERSION: u8 = 1;
/// Length of the optional authentication token.
pub const TOKEN_LEN: usize = 8;

header! {
    /// View of the base header; a token of 8 bytes follows when [`Flags::TOKEN`] is set.
    view Base;
    /// Values of a base header.
    repr BaseRepr;
    length 44;
    /// [`MAGIC`].
    magic (set_magic): u16, 0;
    /// [`VERSION`].
    version (set_version): u8, 2;
    /// Number of a [`FrameKind`].
    kind (set_kind): u8, 3;
    /// [`Flags`].
    flags (set_flags): u16, 4;
    /// Length of the whole frame in bytes, from the first byte of this header.
    length (set_length): u16, 6;
    /// Global application id (NetRPC §5.1).
    gaid (set_gaid): u32, 8;
    /// Epoch of the application's registers.
    epoch (set_epoch): u32, 12;
    /// Sending endpoint.
    src (set_src): u32, 16;
    /// Incarnation of the sending endpoint.
    src_incarnation (set_src_incarnation): u32, 20;
    /// Addressed endpoint.
    dst (set_dst): u32, 24;
    /// Incarnation of the addressed endpoint; 0 if the sender does not know it.
    dst_incarnation (set_dst_incarnation): u32, 28;
    /// Flow slot on the element: the state register of reliable transmission, SRRT (NetRPC App. B.1).
    slot (set_slot): u32, 32;
    /// Sequence number in the flow, from 1. It does not wrap within an incarnation.
    seq (set_seq): u32, 36;
    /// Round of a linear frame (from 1), generation of a keyed one. In answers to calls of a pool: number of the server's
    /// report of its load, from 1, which wraps and is never 0. In requests to a pool: time in microseconds after which an
    /// element that holds hedges may send the request to another server, too; 0: it may not.
    round (set_round): u32, 40;
}

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Caller to server: lanes for the element.
    MapData = 1,
    /// To the caller: its frame took effect, except the lanes in the bitmap, which overflowed.
    MapAck = 2,
    /// Server to callers: sums of a round. The element clears the round when it forwards the frame.
    MapResult = 3,
    /// To the caller: its contribution is stored, and the round waits for other workers.
    MapHeld = 4,
    /// Server to callers: the server sums this round; send contributions past the element.
    MapSoft = 5,
    /// Server to element: return the values of a register row.
    MapRead = 6,
    /// Element to server: answer to [`FrameKind::MapRead`].
    MapValues = 7,
    /// Server to caller: the call failed; `index` is the error number.
    MapError = 8,
    /// Caller to server: whole keys for the software path ([`crate::pairs`]).
    MapPairs = 9,
    /// Server to caller: answer to [`FrameKind::MapPairs`], entry by entry.
    MapPairsAck = 10,
    /// Server to element: close generation `round`, and accept mapping version `index` after it.
    MapClose = 11,
    /// Element to server: generation `round` is open, with mapping version `index`.
    MapClosed = 12,
    /// Server to element: return the record of applied frames of flow slot `index`.
    MapPlaces = 13,
    /// Element to server: answer to [`FrameKind::MapPlaces`].
    MapRecord = 14,
    /// Server to element: generation `round` is committed; clear row `index` of its bank.
    MapWipe = 15,
    /// Element to server: answer to [`FrameKind::MapWipe`].
    MapWiped = 16,
    /// Server to callers: generations up to `round` are committed.
    MapCommit = 17,
    /// Caller to server: commit generation `round`.
    MapFlush = 18,
    /// Caller to server: all additions that an ended epoch lost are repeated.
    MapSettled = 19,
    /// Element to caller: the frame will never be applied; the mapping version is `round`.
    MapRefused = 20,
    /// Caller to server: the element does not answer.
    MapSilent = 21,
    /// Server to element: free lock `index` if endpoint `threshold` holds it with tag `tag`; raise its grant count to
    /// at least `round`.
    MapFree = 22,
    /// Element to server: answer to [`FrameKind::MapFree`]. `slot` is the endpoint that held the lock, `para` its tag,
    /// `round` the number of grants.
    MapFreed = 23,
    /// Server to callers: the registers in the payload belong to other keys from mapping version `round` on.
    MapWithdraw = 24,
    /// Server to element: do not count ballots in row `index` any more; the server counts them.
    MapMove = 26,
    /// Element to server: answer to [`FrameKind::MapMove`].
    MapMoved = 27,
    /// Caller to server: request for a lock lease in session `tag`; `round` is the number of the request.
    MapLease = 28,
    /// Server to caller: answer to [`FrameKind::MapLease`]. `tag` is 0 if no lease is possible yet; with CLEAR, the
    /// session has ended.
    MapLent = 29,
    /// Caller to server: greeting. The answer is a [`FrameKind::MapAck`]; its `round` is 1 if an element on the route
    /// admitted the greeting. A greeting with `round` 1 says that an element admitted such an answer.
    MapHello = 30,
    /// Caller to a pool of servers: request, which the element steers and may clone (NetClone: REQ).
    CloneRequest = 32,
    /// Server to caller: response (NetClone: RESP).
    CloneReply = 33,
    /// Caller to a pool: server `sid` has answered the call; other servers need not start it.
    CloneCancel = 34,
    /// Server to caller: the server has the call and has not answered it yet.
    CloneWorking = 35,
}

impl FrameKind {
    /// Kind with this number.
    ///
    /// # Errors
    /// [`Error::Value`] if the number is unknown.
    pub const fn parse(value: u8) -> Result<Self, Error> {
        Ok(match value {
            1 => Self::MapData,
            2 => Self::MapAck,
            3 => Self::MapResult,
            4 => Self::MapHeld,
            5 => Self::MapSoft,
            6 => Self::MapRead,
            7 => Self::MapValues,
            8 => Self::MapError,
            9 => Self::MapPairs,
            10 => Self::MapPairsAck,
            11 => Self::MapClose,
            12 => Self::MapClosed,
            13 => Self::MapPlaces,
            14 => Self::MapRecord,
            15 => Self::MapWipe,
            16 => Self::MapWiped,
            17 => Self::MapCommit,
            18 => Self::MapFlush,
            19 => Self::MapSettled,
            20 => Self::MapRefused,
            21 => Self::MapSilent,
            22 => Self::MapFree,
            23 => Self::MapFreed,
            24 => Self::MapWithdraw,
            26 => Self::MapMove,
            27 => Self::MapMoved,
            28 => Self::MapLease,
            29 => Self::MapLent,
            30 => Self::MapHello,
            32 => Self::CloneRequest,
            33 => Self::CloneReply,
            34 => Self::CloneCancel,
            35 => Self::CloneWorking,
            _ => return Err(Error::Value { field: "kind", value: value as u64 }),
        })
    }

    /// Whether a [`crate::CloneHeader`] follows the base header, not a map header.
    #[inline]
    #[must_use]
    pub const fn is_clone(self) -> bool {
        matches!(self, Self::CloneRequest | Self::CloneReply | Self::CloneCancel | Self::CloneWorking)
    }
}

/// Bits of the base header's `flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags;

impl Flags {
    /// Flip bit: `((seq - 1) / w_max) % 2` (NetRPC §5.1).
    pub const FLIP: u16 = 1 << 0;
    /// Congestion on the route.
    pub const ECN: u16 = 1 << 1;
    /// Sent by the server (NetRPC: isSA).
    pub const FROM_SERVER: u16 = 1 << 2;
    /// Multicast to all callers of the application (NetRPC: isMcast).
    pub const MCAST: u16 = 1 << 3;
    /// Past the element to the server, unchanged (NetRPC: isCross).
    pub const CROSS: u16 = 1 << 4;
    /// A token follows the base header.
    pub const TOKEN: u16 = 1 << 5;
    /// No element has admitted the frame. An element sets this flag on a frame that it refuses. A sender sets it on a
    /// frame that an element on the route may admit; this element then clears the flag.
    pub const NOT_ADMITTED: u16 = 1 << 6;
}

/// Flip bit of a sequence number, as a flag. Sequence numbers count from 1 here and from 0 in the paper, so the first
/// frame at each window position has flip bit 0.
#[inline]
#[must_use]
pub const fn flip(seq: u32) -> u16 {
    if (seq.wrapping_sub(1) / crate::W_MAX) % 2 == 1 { Flags::FLIP } else { 0 }
}

impl<T: AsRef<[u8]>> Base<T> {
    /// Checked view of `bytes`: magic, version, known kind, and a length field equal to the number of bytes.
    ///
    /// # Errors
    /// First violation found.
    pub fn new_checked(bytes: T) -> Result<Self, Error> {
        let got = bytes.as_ref().len();
        if got < Base::LEN {
            return Err(Error::Short { expected: Base::LEN, got });
        }
        let view = Self(bytes);
        if view.magic() != MAGIC {
            return Err(Error::Magic(view.magic()));
        }
        if view.version() != VERSION {
            return Err(Error::Version(view.version()));
        }
        FrameKind::parse(view.kind())?;
        let expected = usize::from(view.length());
        if expected != got {
            return Err(Error::Length { expected, got });
        }
        if got < view.header_len() {
            return Err(Error::Short { expected: view.header_len(), got });
        }
        Ok(view)
    }

    /// View of bytes that a frame view has checked already.
    #[inline]
    pub(crate) const fn unchecked(bytes: T) -> Self {
        Self(bytes)
    }

    /// Whether all bits of `flag` are set.
    #[inline]
    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags() & flag == flag
    }

    /// Bytes before the ability header: base header and token, if any.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        Base::LEN + if self.has(Flags::TOKEN) { TOKEN_LEN } else { 0 }
    }

    /// Authentication token, if the frame carries one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        let bytes = self.0.as_ref().get(Base::LEN..)?.first_chunk::<TOKEN_LEN>()?;
        self.has(Flags::TOKEN).then(|| u64::from_be_bytes(*bytes))
    }
}

impl BaseRepr {
    /// Header of `kind` with magic and version; all other fields are zero.
    #[must_use]
    pub fn new(kind: FrameKind) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: kind as u8, ..Self::default() }
    }
}
