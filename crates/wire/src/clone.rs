//! The clone header (NetClone Fig. 3, §3.7; RackSched's load in its STATE).
//!
//! ```text
//! base │ header 32 B │ payload: this part of the request or the reply
//! ```
//!
//! A call is named by its caller's endpoint, the base header's `seq` and the attempt; the base header's
//! `epoch` is the version of the group table that `grp` was drawn under. TYPE is the base header's kind.

use core::num::NonZeroU16;

use crate::base::{Base, BaseRepr};
use crate::header::header;
use crate::{Error, Kind, TokenKey};

header! {
    /// View of the clone header; the payload follows.
    view CloneHeader;
    /// Values of a clone header.
    repr CloneRepr;
    length 32;
    /// REQ_ID: what the fingerprint of an answer is made of. 0 in a request that the element is to number;
    /// of several frames, or sent again, they carry their caller's ([`caller_id`]).
    req_id (set_req_id): u64, 0;
    /// GRP: an ordered pair of servers, drawn by the caller.
    grp (set_grp): u32, 8;
    /// SID: which of the pool's servers answers; in a request on its second pass, which gets the clone.
    sid (set_sid): u16, 12;
    /// STATE: requests that wait in the server's queue, 0: it is idle. Of replies.
    state (set_state): u16, 14;
    /// CLO: 0 not cloned, [`ORIGINAL`] or [`CLONE`].
    clo (set_clo): u8, 16;
    /// IDX: which of the filter tables the answers meet, drawn by the caller.
    idx (set_idx): u8, 17;
    /// The element that decided; 0: none yet. Another one passes the frame on as it is.
    switch_id (set_switch_id): u16, 18;
    /// How often the call was sent before.
    attempt (set_attempt): u8, 20;
    /// [`CloneFlags`].
    flags (set_flags): u8, 21;
    /// Which part of the request or reply this is, from 0.
    part (set_part): u16, 22;
    /// How many parts it has, from 1.
    parts (set_parts): u16, 24;
    /// Length of the payload in bytes.
    payload_len (set_payload_len): u16, 26;
    /// Of a request: microseconds after which its caller would like to hear that it is being worked on.
    patience (set_patience): u32, 28;
}

/// CLO of a request that was cloned, and of its answer.
pub const ORIGINAL: u8 = 1;
/// CLO of the clone, and of its answer.
pub const CLONE: u8 = 2;
/// Payload of a part, but for the last: what fits a frame that carries a token.
pub const PART: usize = crate::MAX_UNSIGNED - Base::LEN - CloneHeader::LEN;
/// Parts of a request or a reply at most; longer ones go by HTTP/2.
pub const MAX_PARTS: usize = 64;
/// Servers of a pool at most.
pub const MAX_SERVERS: usize = 64;

/// Bits of the clone header's `flags`: what the caller allows, and what an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneFlags;

impl CloneFlags {
    /// The request may be cloned.
    pub const CLONE: u8 = 1 << 0;
    /// If it is not cloned, it goes to the shorter of the pair's queues (RackSched, NetClone §3.7), else to
    /// the pair's first server.
    pub const SHORTEST: u8 = 1 << 1;
    /// To the addressed server, whatever the group says.
    pub const DIRECT: u8 = 1 << 2;
    /// Of an answer: its server could not do it, and another may (gRPC A6). It has no CLO, so that no element takes
    /// it for the answer; `CLONE` says that the request had one.
    pub const FAILED: u8 = 1 << 3;
    /// All flags there are.
    pub const ALL: u8 = Self::CLONE | Self::SHORTEST | Self::DIRECT | Self::FAILED;
}

/// Number of ordered pairs of `servers`: the groups there are to draw from (NetClone §3.3). A single server
/// is a pair with itself, and never gets a clone.
#[must_use]
pub const fn groups(servers: usize) -> u32 {
    (if servers == 1 { 1 } else { servers * servers.saturating_sub(1) }) as u32
}

/// The pair of group `grp` of `servers`; `None`: there is no such group.
#[must_use]
pub const fn pair(grp: u32, servers: usize) -> Option<(u16, u16)> {
    if grp >= groups(servers) {
        return None;
    }
    if servers == 1 {
        return Some((0, 0));
    }
    let others = servers as u32 - 1;
    let (first, other) = (grp / others, grp % others);
    Some((first as u16, (if other < first { other } else { other + 1 }) as u16))
}

/// Bit of a REQ_ID that a caller gave; without it the id is an element's number.
pub const CALLER_ID: u64 = 1 << 63;
/// Where the caller's endpoint stands in such an id, and how much of it.
const CALLER_SHIFT: u32 = 40;
const CALLER_MASK: u64 = 0x7f_ffff;

/// The id that a caller gives a request of several frames or one that it sends again (§3.7): of no other
/// attempt or call. Bit 63 tells it from an element's numbers.
#[must_use]
pub const fn caller_id(endpoint: u32, seq: u32, attempt: u8) -> u64 {
    CALLER_ID | (endpoint as u64 & CALLER_MASK) << CALLER_SHIFT | (seq as u64) << 8 | attempt as u64
}

/// Whether this is an id that the endpoint could have given: an element takes none that another gives in
/// its name.
#[must_use]
pub const fn is_id_of(req_id: u64, endpoint: u32) -> bool {
    req_id >> CALLER_SHIFT == caller_id(endpoint, 0, 0) >> CALLER_SHIFT
}

/// An element's number, from 1, as its frames carry it: in 16 bits, and never 0.
#[must_use]
pub const fn switch_id(element: u32) -> NonZeroU16 {
    let id = element.wrapping_sub(1) % u16::MAX as u32 + 1;
    match NonZeroU16::new(id as u16) {
        Some(id) => id,
        None => NonZeroU16::MIN,
    }
}

/// A whole clone frame, checked: base header, clone header, payload.
#[derive(Debug, Clone, Copy)]
pub struct CloneFrame<T> {
    bytes: T,
    /// Start of the clone header.
    start: usize,
}

/// Whether bytes that came say that they are a clone frame: which view is to check them.
#[inline]
#[must_use]
pub fn is_clone(bytes: &[u8]) -> bool {
    const KIND: usize = 3;
    bytes.get(KIND).is_some_and(|&kind| Kind::parse(kind).is_ok_and(Kind::is_clone))
}

impl<T: AsRef<[u8]>> CloneFrame<T> {
    /// A view of `bytes`, after which no accessor panics.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn new_checked(bytes: T) -> Result<Self, Error> {
        let got = bytes.as_ref().len();
        let base = Base::new_checked(bytes.as_ref())?;
        if !Kind::parse(base.kind()).is_ok_and(Kind::is_clone) {
            return Err(Error::Value { field: "kind", value: base.kind().into() });
        }
        let start = base.header_len();
        let expected = start + CloneHeader::LEN;
        if got < expected {
            return Err(Error::Short { expected, got });
        }
        let frame = Self { bytes, start };
        let clone = frame.head();
        let expected = expected + usize::from(clone.payload_len());
        if got != expected {
            return Err(Error::Length { expected, got });
        }
        let value = |field, value: u64| Err(Error::Value { field, value });
        if clone.clo() > CLONE {
            return value("clo", clone.clo().into());
        }
        if clone.flags() & !CloneFlags::ALL != 0 {
            return value("flags", clone.flags().into());
        }
        if clone.parts() == 0 || usize::from(clone.parts()) > MAX_PARTS {
            return value("parts", clone.parts().into());
        }
        if clone.part() >= clone.parts() {
            return value("part", clone.part().into());
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

    /// The clone header.
    #[inline]
    #[must_use]
    pub fn head(&self) -> CloneHeader<&[u8; CloneHeader::LEN]> {
        CloneHeader(self.bytes.as_ref()[self.start..].first_chunk().expect("checked by new_checked"))
    }

    /// What the frame is.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::parse(self.base().kind()).expect("checked by new_checked")
    }

    /// This part of the request or the reply.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.start + CloneHeader::LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> CloneFrame<T> {
    /// The base header, to be changed. Magic, version, kind, length and the token flag stay.
    #[inline]
    pub fn base_mut(&mut self) -> Base<&mut [u8]> {
        Base::unchecked(self.bytes.as_mut())
    }

    /// The clone header, to be changed. Parts and payload length stay.
    #[inline]
    pub fn head_mut(&mut self) -> CloneHeader<&mut [u8; CloneHeader::LEN]> {
        CloneHeader(self.bytes.as_mut()[self.start..].first_chunk_mut().expect("checked by new_checked"))
    }

    /// Puts the token into the place for it, anew after a change; a frame without one stays as it is.
    pub fn sign(&mut self, key: &TokenKey) {
        key.sign(self.bytes.as_mut());
    }
}

/// Writes a frame without a token into `out`, its lengths filled in; how long it is.
///
/// # Panics
/// When `out` is too short or the payload longer than [`PART`].
pub fn emit(base: &BaseRepr, clone: &CloneRepr, payload: &[u8], out: &mut [u8]) -> usize {
    assert!(payload.len() <= PART, "{} bytes do not fit a frame", payload.len());
    let len = Base::LEN + CloneHeader::LEN + payload.len();
    BaseRepr { length: len as u16, ..*base }.emit(out);
    CloneRepr { payload_len: payload.len() as u16, ..*clone }.emit(&mut out[Base::LEN..]);
    out[Base::LEN + CloneHeader::LEN..len].copy_from_slice(payload);
    len
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::HashSet;
    use std::vec;

    use super::*;

    fn frame(repr: &CloneRepr, payload: &[u8]) -> std::vec::Vec<u8> {
        let mut bytes = vec![0; crate::MAX_FRAME];
        let len = emit(&BaseRepr::new(Kind::CloneRequest), repr, payload, &mut bytes);
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let repr = CloneRepr { req_id: 7, grp: 3, clo: CLONE, part: 1, parts: 2, ..CloneRepr::default() };
        let bytes = frame(&repr, b"end");
        let frame = CloneFrame::new_checked(&bytes).expect("a frame");
        assert_eq!(frame.head().repr(), CloneRepr { payload_len: 3, ..repr });
        assert_eq!((frame.kind(), frame.payload()), (Kind::CloneRequest, &b"end"[..]));
    }

    #[test]
    fn what_no_sender_writes_is_refused() {
        let of = |repr: CloneRepr| CloneFrame::new_checked(frame(&repr, b"")).map(drop);
        let fine = CloneRepr { parts: 1, ..CloneRepr::default() };
        assert_eq!(of(fine), Ok(()));
        assert_eq!(of(CloneRepr { clo: 3, ..fine }), Err(Error::Value { field: "clo", value: 3 }));
        assert_eq!(of(CloneRepr { flags: 16, ..fine }), Err(Error::Value { field: "flags", value: 16 }));
        assert_eq!(of(CloneRepr { parts: 0, ..fine }), Err(Error::Value { field: "parts", value: 0 }));
        assert_eq!(of(CloneRepr { parts: 65, ..fine }), Err(Error::Value { field: "parts", value: 65 }));
        assert_eq!(of(CloneRepr { part: 1, ..fine }), Err(Error::Value { field: "part", value: 1 }));
        let mut bytes = frame(&fine, b"");
        bytes[3] = Kind::MapData as u8;
        assert_eq!(CloneFrame::new_checked(&bytes).map(drop), Err(Error::Value { field: "kind", value: 1 }));
    }

    #[test]
    fn groups_are_the_ordered_pairs() {
        for servers in 2..=MAX_SERVERS {
            let pairs: HashSet<_> = (0..groups(servers)).filter_map(|grp| pair(grp, servers)).collect();
            assert_eq!(pairs.len(), servers * (servers - 1));
            assert!(pairs.iter().all(|(a, b)| a != b && usize::from(*a.max(b)) < servers));
            assert_eq!(pair(groups(servers), servers), None);
        }
        assert_eq!((pair(0, 1), pair(1, 1), pair(0, 0)), (Some((0, 0)), None, None));
    }

    #[test]
    fn an_id_says_whose_it_is() {
        for (seq, attempt) in [(0, 0), (1, 2), (u32::MAX, u8::MAX)] {
            let id = caller_id(7, seq, attempt);
            assert_eq!((is_id_of(id, 7), is_id_of(id, 8), is_id_of(id & !CALLER_ID, 7)), (true, false, false));
        }
        assert!(is_id_of(caller_id(u32::MAX, 1, 1), u32::MAX));
    }

    #[test]
    fn every_element_has_a_switch_id() {
        let ids = [1, 2, u16::MAX.into(), u32::from(u16::MAX) + 1, 0, u32::MAX].map(|element| switch_id(element).get());
        assert_eq!(ids, [1, 2, u16::MAX, 1, 1, u16::MAX]);
    }

    #[test]
    fn a_part_fits_every_link() {
        assert_eq!(Base::LEN + crate::base::TOKEN_LEN + CloneHeader::LEN + PART, crate::MAX_FRAME);
    }
}
