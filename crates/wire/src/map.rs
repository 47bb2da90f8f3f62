//! Map header and lanes (NetRPC Fig. 14 and App. B.1).
//!
//! ```text
//! linear  │ header │ bitmap ⌈n/32⌉ × u32 │ value i32 × n (i64 when WIDE)    │ payload
//! keyed   │ header │ bitmap ⌈n/32⌉ × u32 │ (row u32, value i32) × n         │ payload
//! bare    │ header │ bitmap ⌈n/32⌉ × u32 │                                  │ payload
//! ```
//!
//! Lane i uses register array i. In a frame to the server, bit i of the bitmap selects lane i for the element. In an
//! acknowledgement, bit i says that lane i overflowed and was not applied.

mod op;

use crate::base::{Base, BaseRepr};
use crate::header::header;
use crate::{Error, FrameKind, KEYED_LANES, KEYED_WIDTH, LINEAR_LANES};

pub use op::{ForwardTarget, OpType};

header! {
    /// View of the map header; bitmap, lanes and payload follow.
    view MapHeader;
    /// Values of a map header.
    repr MapRepr;
    length 28;
    /// [`OpType`] of `Stream.modify`, applied to each lane.
    op (set_op): u8, 0;
    /// [`ForwardTarget`] of `CntFwd`.
    to (set_to): u8, 1;
    /// [`MapFlags`].
    flags (set_flags): u16, 2;
    /// Number of lanes.
    lanes (set_lanes): u16, 4;
    /// Position of the first lane in its row; nonzero only in WIDE frames, which carry a part of a row.
    first_lane (set_first_lane): u16, 6;
    /// Operand of `op`.
    para (set_para): i32, 8;
    /// Linear frames: register row. Keyed frames: counter of `CntFwd`.
    index (set_index): u32, 12;
    /// Counter value at which `CntFwd` forwards; 0: always.
    threshold (set_threshold): u32, 16;
    /// Index of the sending worker: its bit in the worker bitmap of the round.
    worker (set_worker): u16, 20;
    /// Length of the payload in bytes.
    payload_len (set_payload_len): u16, 22;
    /// Sums: hash of position and length of the call, equal in all contributions to a round. Locks in the element: id
    /// of the acquisition within [`LOCK_TAG`], so that only its own release frees the lock. Locks at the server:
    /// session of the lease.
    tag (set_tag): u32, 24;
}

/// Bits of the map header's `flags`: requested primitives and their outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapFlags;

impl MapFlags {
    /// A lane overflowed (isOf).
    pub const OVERFLOW: u16 = 1 << 0;
    /// `CntFwd` (isCnf).
    pub const COUNT: u16 = 1 << 1;
    /// `Map.clear` (isClr). In a contribution to a round: clear policy *shadow* (NetRPC §5.2.2). The first contribution
    /// to a later round clears the row, and the contribution that reaches the threshold becomes the result.
    pub const CLEAR: u16 = 1 << 2;
    /// `Map.addTo`.
    pub const ADD: u16 = 1 << 3;
    /// `Map.get`.
    pub const GET: u16 = 1 << 4;
    /// Lanes are the registers of row `index`; without this flag, each lane has its own row number.
    pub const LINEAR: u16 = 1 << 5;
    /// Linear lanes have 64 bits; only between hosts.
    pub const WIDE: u16 = 1 << 6;
    /// Bitmap only, no lanes.
    pub const BARE: u16 = 1 << 7;
    /// The frame belongs to a round; `round`, `worker` and `tag` are valid.
    pub const ROUND: u16 = 1 << 8;
    /// Set by the element: the threshold is reached and the lanes are the sums.
    pub const REACHED: u16 = 1 << 9;
    /// Set by the element: the round is complete in the element; the server answers from its backup.
    pub const OLD: u16 = 1 << 10;
    /// Set by the element: the element could not process the frame (later round or different tag); the server must.
    pub const DIVERTED: u16 = 1 << 11;
    /// Keyed lanes contain logical addresses for the server, not rows.
    pub const LOGICAL: u16 = 1 << 12;

    /// Set by the element: another caller holds the lock. A new attempt needs a new sequence number.
    pub const DENIED: u16 = 1 << 13;
    /// Claim: the caller still holds this lock, granted by an element whose epoch has ended. In a read: the server must
    /// not change the value while the caller may use it (linearizable).
    pub const CLAIM: u16 = 1 << 14;
    /// The caller joins the queue of this lock; with CLEAR it leaves the queue. In a read: the caller waits for the whole
    /// value, since it cannot read the register.
    pub const WAIT: u16 = 1 << 15;

    /// Flags that only an element may set; it clears them in frames from hosts.
    pub const ELEMENT_ONLY: u16 = Self::REACHED | Self::OLD | Self::DIVERTED | Self::DENIED;
}

/// Bits of `tag` for the id of an acquisition; the element uses the upper bits.
pub const LOCK_TAG: u32 = (1 << 30) - 1;
/// Bit of a lock register, above the tag: the element denied the lock to another caller.
pub const LOCK_WANTED: u32 = 1 << 31;
/// Bit of a lock register, above the tag: the holder released the lock, and the server grants it to waiting callers.
pub const LOCK_PARKED: u32 = 1 << 30;

impl<T: AsRef<[u8]>> MapHeader<T> {
    /// Whether all bits of `flag` are set.
    #[inline]
    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags() & flag == flag
    }

    /// Length of one lane in bytes; 0 in a bare frame.
    #[inline]
    #[must_use]
    pub fn lane_len(&self) -> usize {
        lane_len(self.flags())
    }
}

/// Length of one lane in bytes with these flags.
#[inline]
#[must_use]
pub const fn lane_len(flags: u16) -> usize {
    if flags & MapFlags::BARE != 0 {
        0
    } else if flags & MapFlags::LINEAR != 0 && flags & MapFlags::WIDE == 0 {
        4
    } else {
        8
    }
}

/// Whether an element that processes frames of `frame_lanes` lanes (0: no limit) takes rows of this width: at most a
/// frame's lanes, or two banks of keys, of which a frame visits one.
#[must_use]
pub const fn takes_rows(frame_lanes: u32, width: u32) -> bool {
    let takes_banks = frame_lanes as usize >= KEYED_LANES && width as usize == KEYED_WIDTH;
    frame_lanes == 0 || width <= frame_lanes || takes_banks
}

/// Widest row of arrays of an element that processes frames of `frame_lanes` lanes (0: no limit).
#[must_use]
pub const fn widest_rows(frame_lanes: u32) -> u32 {
    let most = LINEAR_LANES as u32;
    if frame_lanes == 0 || frame_lanes > most { most } else { frame_lanes }
}

/// Number of 32-bit words in the bitmap of `lanes` lanes.
#[inline]
#[must_use]
pub const fn bitmap_words(lanes: usize) -> usize {
    lanes.div_ceil(32)
}

/// Checked map frame: base header, map header, bitmap, lanes, payload.
#[derive(Debug, Clone, Copy)]
pub struct MapFrame<T> {
    bytes: T,
    /// Start of the map header.
    start: usize,
}

impl<T: AsRef<[u8]>> MapFrame<T> {
    /// Checked view of `bytes`; no accessor panics after it.
    ///
    /// # Errors
    /// First violation found.
    pub fn new_checked(bytes: T) -> Result<Self, Error> {
        let got = bytes.as_ref().len();
        let base = Base::new_checked(bytes.as_ref())?;
        if FrameKind::parse(base.kind())?.is_clone() {
            return Err(Error::Value { field: "kind", value: base.kind().into() });
        }
        let start = base.header_len();
        let expected = start + MapHeader::LEN;
        if got < expected {
            return Err(Error::Short { expected, got });
        }
        let frame = Self { bytes, start };
        let map = frame.map();
        OpType::parse(map.op())?;
        ForwardTarget::parse(map.to())?;
        let lanes = usize::from(map.lanes());
        let expected = expected + bitmap_words(lanes) * 4 + lanes * map.lane_len() + usize::from(map.payload_len());
        if got != expected {
            return Err(Error::Length { expected, got });
        }
        Ok(frame)
    }

    /// All bytes of the frame.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The base header.
    #[inline]
    #[must_use]
    pub fn base(&self) -> Base<&[u8]> {
        Base::unchecked(self.bytes.as_ref())
    }

    /// The map header.
    #[inline]
    #[must_use]
    pub fn map(&self) -> MapHeader<&[u8; MapHeader::LEN]> {
        MapHeader(self.bytes.as_ref()[self.start..].first_chunk().expect("checked by new_checked"))
    }

    /// Kind of the frame.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> FrameKind {
        FrameKind::parse(self.base().kind()).expect("checked by new_checked")
    }

    /// Operator of `Stream.modify`.
    #[inline]
    #[must_use]
    pub fn op(&self) -> OpType {
        OpType::parse(self.map().op()).expect("checked by new_checked")
    }

    /// Target of `CntFwd`.
    #[inline]
    #[must_use]
    pub fn target(&self) -> ForwardTarget {
        ForwardTarget::parse(self.map().to()).expect("checked by new_checked")
    }

    /// Number of lanes.
    #[inline]
    #[must_use]
    pub fn lane_count(&self) -> usize {
        usize::from(self.map().lanes())
    }

    fn bitmap_at(&self) -> usize {
        self.start + MapHeader::LEN
    }

    fn lanes_at(&self) -> usize {
        self.bitmap_at() + bitmap_words(self.lane_count()) * 4
    }

    fn payload_at(&self) -> usize {
        self.lanes_at() + self.lane_count() * self.map().lane_len()
    }

    /// Word `i` of the bitmap. Lane `32 i` has the lowest bit; words after the end are 0.
    #[inline]
    #[must_use]
    pub fn bitmap(&self, i: usize) -> u32 {
        if i >= bitmap_words(self.lane_count()) {
            return 0;
        }
        be_u32(self.bytes.as_ref(), self.bitmap_at() + i * 4)
    }

    /// Whether the bit of lane `i` is set in the bitmap.
    #[inline]
    #[must_use]
    pub fn marked(&self, i: usize) -> bool {
        self.bitmap(i / 32) >> (i % 32) & 1 == 1
    }

    /// Encoded lanes.
    #[inline]
    #[must_use]
    pub fn lanes(&self) -> &[u8] {
        &self.bytes.as_ref()[self.lanes_at()..self.payload_at()]
    }

    /// Value of linear lane `i` of either width; `None` after the end or in a keyed or bare frame.
    #[inline]
    #[must_use]
    pub fn linear(&self, i: usize) -> Option<i64> {
        let map = self.map();
        if !map.has(MapFlags::LINEAR) {
            return None;
        }
        let len = map.lane_len();
        let lane = self.lanes().get(i * len..i * len + len)?;
        match len {
            4 => Some(i64::from(i32::from_be_bytes(*lane.first_chunk()?))),
            8 => Some(i64::from_be_bytes(*lane.first_chunk()?)),
            _ => None,
        }
    }

    /// Row (or logical address) and value of keyed lane `i`; `None` after the end or in a linear or bare frame.
    #[inline]
    #[must_use]
    pub fn keyed(&self, i: usize) -> Option<(u32, i32)> {
        let map = self.map();
        if map.has(MapFlags::LINEAR) || map.has(MapFlags::BARE) {
            return None;
        }
        let lane = self.lanes().get(i * 8..i * 8 + 8)?;
        Some((be_u32(lane, 0), be_u32(lane, 4).cast_signed()))
    }

    /// Payload after the lanes.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.payload_at()..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> MapFrame<T> {
    /// Mutable base header.
    #[inline]
    pub fn base_mut(&mut self) -> Base<&mut [u8]> {
        Base::unchecked(self.bytes.as_mut())
    }

    /// Mutable map header. The caller must not change lengths and lane format.
    #[inline]
    pub fn map_mut(&mut self) -> MapHeader<&mut [u8]> {
        let start = self.start;
        MapHeader(&mut self.bytes.as_mut()[start..])
    }

    /// Mutable bitmap and mutable lanes.
    #[inline]
    pub fn bitmap_and_lanes_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let (bitmap, lanes, end) = (self.bitmap_at(), self.lanes_at(), self.payload_at());
        self.bytes.as_mut()[bitmap..end].split_at_mut(lanes - bitmap)
    }

    /// Writes word `i` of the bitmap.
    #[inline]
    pub fn set_bitmap(&mut self, i: usize, word: u32) {
        let at = i * 4;
        self.bitmap_and_lanes_mut().0[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Removes lanes and payload; headers and bitmap stay. Returns the new length.
    pub fn strip(&mut self) -> usize {
        let len = self.lanes_at();
        let mut map = self.map_mut();
        let flags = map.flags();
        map.set_flags(flags | MapFlags::BARE);
        map.set_payload_len(0);
        self.base_mut().set_length(u16::try_from(len).expect("no longer than before"));
        len
    }
}

/// Length of a frame without token, with this number of lanes and payload bytes.
#[must_use]
pub const fn frame_len(flags: u16, lanes: usize, payload: usize) -> usize {
    Base::LEN + MapHeader::LEN + bitmap_words(lanes) * 4 + lanes * lane_len(flags) + payload
}

/// Writes the headers, a zero bitmap and zero lanes into `out`, and computes the length fields from `map`. Returns a
/// view through which the caller fills the lanes.
///
/// # Panics
/// If the length of `out` is not [`frame_len`], or exceeds the length field.
pub fn emit<'a>(base: &BaseRepr, map: &MapRepr, out: &'a mut [u8]) -> MapFrame<&'a mut [u8]> {
    let expected = frame_len(map.flags, usize::from(map.lanes), usize::from(map.payload_len));
    assert_eq!(out.len(), expected, "buffer for a frame");
    let base = BaseRepr { length: u16::try_from(expected).expect("frame length"), ..*base };
    base.emit(out);
    map.emit(&mut out[Base::LEN..]);
    out[Base::LEN + MapHeader::LEN..].fill(0);
    MapFrame { bytes: out, start: Base::LEN }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> MapFrame<T> {
    /// Mutable payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let at = self.payload_at();
        &mut self.bytes.as_mut()[at..]
    }

    /// Writes keyed lane `i`.
    ///
    /// # Panics
    /// If there is no such lane.
    #[inline]
    pub fn set_keyed(&mut self, i: usize, row: u32, value: i32) {
        let lane = &mut self.bitmap_and_lanes_mut().1[i * 8..i * 8 + 8];
        lane[..4].copy_from_slice(&row.to_be_bytes());
        lane[4..].copy_from_slice(&value.to_be_bytes());
    }
}

#[inline]
fn be_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}
