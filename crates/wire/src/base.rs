//! The base header: what every frame starts with.

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
    /// A [`Kind`].
    kind (set_kind): u8, 3;
    /// [`Flags`].
    flags (set_flags): u16, 4;
    /// Length of the whole frame in bytes, from the first byte of this header.
    length (set_length): u16, 6;
    /// Global application id (NetRPC §5.1).
    gaid (set_gaid): u32, 8;
    /// Epoch of the application's registers.
    epoch (set_epoch): u32, 12;
    /// Endpoint that sends.
    src (set_src): u32, 16;
    /// Incarnation of the sending endpoint.
    src_incarnation (set_src_incarnation): u32, 20;
    /// Endpoint that is addressed.
    dst (set_dst): u32, 24;
    /// Incarnation of the addressed endpoint; 0 when the sender does not know it.
    dst_incarnation (set_dst_incarnation): u32, 28;
    /// Flow slot on the element: the state register of reliable transmission, SRRT (NetRPC App. B.1).
    slot (set_slot): u32, 32;
    /// Sequence number in the flow, counted from 1 and never wrapped within an incarnation.
    seq (set_seq): u32, 36;
    /// Round of a linear frame (from 1), generation of a keyed one.
    round (set_round): u32, 40;
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Caller to server: lanes to be worked on by the element.
    MapData = 1,
    /// To the caller: its frame took effect; the bitmap names lanes that overflowed and did not.
    MapAck = 2,
    /// Server to callers: sums of a round; the element clears the round in passing.
    MapResult = 3,
    /// To the caller: its contribution is held, the round waits for others.
    MapHeld = 4,
    /// Server to callers: this round is summed in software; send it past the element.
    MapSoft = 5,
    /// Server to element: reflect the lanes of a register row.
    MapRead = 6,
    /// Element to server: the answer to [`Kind::MapRead`].
    MapValues = 7,
    /// Server to caller: the call can't be done; the payload says why.
    MapError = 8,
    /// Caller to server: whole keys for the software path ([`crate::pairs`]).
    MapPairs = 9,
    /// Server to caller: the answer to [`Kind::MapPairs`], entry by entry.
    MapPairsAck = 10,
    /// Server to element: close generation `round`; from now on frames carry mapping version `index`.
    MapClose = 11,
    /// Element to server: generation `round` is open, under mapping version `index`.
    MapClosed = 12,
    /// Server to element: what of flow slot `index` was applied, and when.
    MapPlaces = 13,
    /// Element to server: the answer to [`Kind::MapPlaces`].
    MapRecord = 14,
    /// Server to element: generation `round` is the server's; zero row `index` of it.
    MapWipe = 15,
    /// Element to server: the answer to [`Kind::MapWipe`].
    MapWiped = 16,
    /// Server to callers: generations up to `round` are the server's.
    MapCommit = 17,
    /// Caller to server: make generation `round` yours.
    MapFlush = 18,
    /// Caller to server: what an ended epoch had held of mine is done again.
    MapSettled = 19,
    /// Element to caller: not applied, now or ever; the mapping version is `round`.
    MapRefused = 20,
    /// Caller to server: the element does not answer me.
    MapSilent = 21,
    /// Server to element: lock `index` is free if endpoint `threshold` has it by the acquiring `tag`;
    /// its count of grants is at least `round`.
    MapFree = 22,
    /// Element to server: the answer to [`Kind::MapFree`]. Who had it is in `slot`, by which acquiring
    /// in `para`; `round` counts its grants.
    MapFreed = 23,
    /// Server to callers: the registers in the payload hold other keys from mapping version `round` on.
    MapWithdraw = 24,
    /// Server to element: no ballot takes row `index` any more, its votes are the server's to count.
    MapMove = 26,
    /// Element to server: the answer to [`Kind::MapMove`].
    MapMoved = 27,
    /// Caller to server: lend me locks in session `tag`; `round` counts these requests.
    MapLease = 28,
    /// Server to caller: the answer to [`Kind::MapLease`]; `tag` is 0 if locks can't be lent yet,
    /// and under CLEAR not in this session any more.
    MapLent = 29,
    /// Caller to server: do you hear me? The answer is a [`Kind::MapAck`], whose `round` is 1 if an element
    /// has admitted the question on its way. With `round` 1: one has admitted such an answer, too.
    MapHello = 30,
    /// Caller to a pool of servers: a call, which the element steers and may clone (NetClone: REQ).
    CloneRequest = 32,
    /// Server to caller: the answer (NetClone: RESP).
    CloneReply = 33,
    /// Caller to a pool: the call that server `sid` has answered need not be begun elsewhere.
    CloneCancel = 34,
    /// Server to caller: your call is here and not yet answered.
    CloneWorking = 35,
}

impl Kind {
    /// The kind with this number.
    ///
    /// # Errors
    /// [`Error::Value`] when there is none.
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

    /// Whether a [`crate::CloneHeader`] follows the base header; otherwise a map header.
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
    /// Congestion was met on the way.
    pub const ECN: u16 = 1 << 1;
    /// From the server (NetRPC's isSA).
    pub const FROM_SERVER: u16 = 1 << 2;
    /// To every caller of the application (isMcast).
    pub const MCAST: u16 = 1 << 3;
    /// Past the element, untouched, to the server (isCross).
    pub const CROSS: u16 = 1 << 4;
    /// A token follows the base header.
    pub const TOKEN: u16 = 1 << 5;
    /// No element has admitted the frame: it is untouched. An element says so of what it refuses; a sender of what
    /// one on the way may admit, which then takes it off.
    pub const NOT_ADMITTED: u16 = 1 << 6;
}

/// The flip bit of a sequence number, as a flag. Ours count from 1, the paper's from 0, so that
/// every place's first frame carries 0.
#[inline]
#[must_use]
pub const fn flip(seq: u32) -> u16 {
    if (seq.wrapping_sub(1) / crate::W_MAX) % 2 == 1 { Flags::FLIP } else { 0 }
}

impl<T: AsRef<[u8]>> Base<T> {
    /// A view of `bytes`, checked: long enough, ours, a known kind, and exactly as long as it says.
    ///
    /// # Errors
    /// The first thing found wrong.
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
        Kind::parse(view.kind())?;
        let expected = usize::from(view.length());
        if expected != got {
            return Err(Error::Length { expected, got });
        }
        if got < view.header_len() {
            return Err(Error::Short { expected: view.header_len(), got });
        }
        Ok(view)
    }

    /// A view of bytes that a frame view has checked already.
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

    /// Bytes before the ability header: this header and the token, if there is one.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        Base::LEN + if self.has(Flags::TOKEN) { TOKEN_LEN } else { 0 }
    }

    /// The authentication token, if the frame carries one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        let bytes = self.0.as_ref().get(Base::LEN..)?.first_chunk::<TOKEN_LEN>()?;
        self.has(Flags::TOKEN).then(|| u64::from_be_bytes(*bytes))
    }
}

impl BaseRepr {
    /// A header of `kind` with magic and version set and everything else zero.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { magic: MAGIC, version: VERSION, kind: kind as u8, ..Self::default() }
    }
}
