//! The map header and its lanes (NetRPC Fig. 14 and App. B.1).
//!
//! ```text
//! linear  │ header │ bitmap ⌈n/32⌉ × u32 │ value i32 × n (i64 when WIDE)    │ payload
//! keyed   │ header │ bitmap ⌈n/32⌉ × u32 │ (row u32, value i32) × n         │ payload
//! bare    │ header │ bitmap ⌈n/32⌉ × u32 │                                  │ payload
//! ```
//!
//! The i-th lane belongs to the i-th register array. Going to the server, bit i of the bitmap says
//! that the element works on lane i; in an acknowledgement it says that lane i overflowed and was
//! left out.

mod op;

use crate::base::{Base, BaseRepr};
use crate::header::header;
use crate::{Error, Kind};

pub use op::{OpType, Target};

header! {
    /// View of the map header; bitmap, lanes and payload follow.
    view MapHeader;
    /// Values of a map header.
    repr MapRepr;
    length 28;
    /// An [`OpType`]: `Stream.modify` of every lane.
    op (set_op): u8, 0;
    /// A [`Target`]: where `CntFwd` forwards to.
    to (set_to): u8, 1;
    /// [`MapFlags`].
    flags (set_flags): u16, 2;
    /// Number of lanes.
    lanes (set_lanes): u16, 4;
    /// Position of the first lane in its row; not 0 only in WIDE frames, which carry a row in parts.
    first_lane (set_first_lane): u16, 6;
    /// Operand of `op`.
    para (set_para): i32, 8;
    /// Linear: register row. Keyed: counter of `CntFwd`.
    index (set_index): u32, 12;
    /// `CntFwd` forwards when the counter reaches this; 0: always.
    threshold (set_threshold): u32, 16;
    /// Which of the threshold workers sends: its bit in the round's worker bitmap.
    worker (set_worker): u16, 20;
    /// Length of the payload in bytes.
    payload_len (set_payload_len): u16, 22;
    /// What all contributions to a round must agree on: a hash of the place in the call and its length.
    /// Locks in the element: names the acquiring, so that nothing but its own release frees it, in
    /// [`LOCK_TAG`]. Locks at the server: the session that they are lent under.
    tag (set_tag): u32, 24;
}

/// Bits of the map header's `flags`: the primitives asked for, and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapFlags;

impl MapFlags {
    /// A lane overflowed (isOf).
    pub const OVERFLOW: u16 = 1 << 0;
    /// `CntFwd` (isCnf).
    pub const COUNT: u16 = 1 << 1;
    /// `Map.clear` (isClr). In a worker's part of a round: policy *shadow* (NetRPC §5.2.2). The first part of a later
    /// round clears the row, and the part that reaches the threshold becomes the result.
    pub const CLEAR: u16 = 1 << 2;
    /// `Map.addTo`.
    pub const ADD: u16 = 1 << 3;
    /// `Map.get`.
    pub const GET: u16 = 1 << 4;
    /// Lanes are a row of registers from `index`; otherwise each names its row.
    pub const LINEAR: u16 = 1 << 5;
    /// Linear lanes are 64 bits wide: only between hosts.
    pub const WIDE: u16 = 1 << 6;
    /// No lane data: the bitmap only.
    pub const BARE: u16 = 1 << 7;
    /// The frame takes part in a round: `round`, `worker` and `tag` count.
    pub const ROUND: u16 = 1 << 8;
    /// Set by the element: the threshold is reached and the lanes are the sums.
    pub const REACHED: u16 = 1 << 9;
    /// Set by the element: the round is over there; the server answers from its backup.
    pub const OLD: u16 = 1 << 10;
    /// Set by the element: it could not take the frame (round ahead, or tag differs); the server must.
    pub const DIVERTED: u16 = 1 << 11;
    /// Keyed lanes carry logical addresses for the server, not rows.
    pub const LOGICAL: u16 = 1 << 12;

    /// Set by the element: somebody else holds the lock. Trying again takes a new number.
    pub const DENIED: u16 = 1 << 13;
    /// The caller holds this lock by an element whose epoch has ended, and holds it still.
    pub const CLAIM: u16 = 1 << 14;
    /// The caller stands in line for this lock; with CLEAR it leaves the line.
    pub const WAIT: u16 = 1 << 15;

    /// What only an element may say: cleared from frames that come from a host.
    pub const ELEMENT_ONLY: u16 = Self::REACHED | Self::OLD | Self::DIVERTED | Self::DENIED;
}

/// Bits of `tag` that name an acquiring; those above are the element's.
pub const LOCK_TAG: u32 = (1 << 30) - 1;
/// In a lock's register, beside the tag: somebody was denied it.
pub const LOCK_WANTED: u32 = 1 << 31;
/// The same: its holder has given it back, and it is the server's to give to those who wait.
pub const LOCK_PARKED: u32 = 1 << 30;

impl<T: AsRef<[u8]>> MapHeader<T> {
    /// Whether all bits of `flag` are set.
    #[inline]
    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags() & flag == flag
    }

    /// Bytes of one lane; 0 in a bare frame.
    #[inline]
    #[must_use]
    pub fn lane_len(&self) -> usize {
        lane_len(self.flags())
    }
}

/// Bytes of one lane under these flags.
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

/// 32-bit words of the bitmap of `lanes` lanes.
#[inline]
#[must_use]
pub const fn bitmap_words(lanes: usize) -> usize {
    lanes.div_ceil(32)
}

/// A whole map frame, checked: base header, map header, bitmap, lanes, payload.
#[derive(Debug, Clone, Copy)]
pub struct MapFrame<T> {
    bytes: T,
    /// Start of the map header.
    start: usize,
}

impl<T: AsRef<[u8]>> MapFrame<T> {
    /// A view of `bytes`, after which no accessor panics.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn new_checked(bytes: T) -> Result<Self, Error> {
        let got = bytes.as_ref().len();
        let base = Base::new_checked(bytes.as_ref())?;
        if Kind::parse(base.kind())?.is_clone() {
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
        Target::parse(map.to())?;
        let lanes = usize::from(map.lanes());
        let expected = expected + bitmap_words(lanes) * 4 + lanes * map.lane_len() + usize::from(map.payload_len());
        if got != expected {
            return Err(Error::Length { expected, got });
        }
        Ok(frame)
    }

    /// The whole frame.
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

    /// What the frame is.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::parse(self.base().kind()).expect("checked by new_checked")
    }

    /// The operator of `Stream.modify`.
    #[inline]
    #[must_use]
    pub fn op(&self) -> OpType {
        OpType::parse(self.map().op()).expect("checked by new_checked")
    }

    /// Where `CntFwd` forwards to.
    #[inline]
    #[must_use]
    pub fn target(&self) -> Target {
        Target::parse(self.map().to()).expect("checked by new_checked")
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

    /// Word `i` of the bitmap: lanes `32 i ..`, lane `32 i` in the lowest bit; 0 past the end.
    #[inline]
    #[must_use]
    pub fn bitmap(&self, i: usize) -> u32 {
        if i >= bitmap_words(self.lane_count()) {
            return 0;
        }
        be_u32(self.bytes.as_ref(), self.bitmap_at() + i * 4)
    }

    /// Whether lane `i` is marked in the bitmap.
    #[inline]
    #[must_use]
    pub fn marked(&self, i: usize) -> bool {
        self.bitmap(i / 32) >> (i % 32) & 1 == 1
    }

    /// The bytes of all lanes, as they stand in the frame.
    #[inline]
    #[must_use]
    pub fn lanes(&self) -> &[u8] {
        &self.bytes.as_ref()[self.lanes_at()..self.payload_at()]
    }

    /// Linear lane `i`, whatever its width; `None` past the end or in another form.
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

    /// Keyed lane `i`: row (or logical address) and value; `None` past the end or in another form.
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

    /// What follows the lanes.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.payload_at()..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> MapFrame<T> {
    /// The base header, to be written.
    #[inline]
    pub fn base_mut(&mut self) -> Base<&mut [u8]> {
        Base::unchecked(self.bytes.as_mut())
    }

    /// The map header, to be written. Lengths and form are not to be changed through it.
    #[inline]
    pub fn map_mut(&mut self) -> MapHeader<&mut [u8]> {
        let start = self.start;
        MapHeader(&mut self.bytes.as_mut()[start..])
    }

    /// Bitmap bytes and lane bytes, to be written.
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

    /// Makes the frame bare, keeping headers and bitmap, dropping lanes and payload; returns its new length.
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

/// Length of a frame without token that holds this.
#[must_use]
pub const fn frame_len(flags: u16, lanes: usize, payload: usize) -> usize {
    Base::LEN + MapHeader::LEN + bitmap_words(lanes) * 4 + lanes * lane_len(flags) + payload
}

/// Writes headers and a zeroed bitmap and lanes into `out`; lengths are filled in from `map` and
/// the frame is returned as a view, ready for its lanes.
///
/// # Panics
/// When `out` is not exactly [`frame_len`] long, or that does not fit a frame.
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
    /// The payload, to be written.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let at = self.payload_at();
        &mut self.bytes.as_mut()[at..]
    }

    /// Writes keyed lane `i`.
    ///
    /// # Panics
    /// When there is no such lane.
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
