//! Clone header of requests and responses (NetClone Fig. 3, §3.7; STATE carries RackSched's load).
//!
//! ```text
//! base │ header 32 B │ payload: this part of the request or the reply
//! ```
//!
//! The caller's endpoint, the base header's `seq` and the attempt identify a request. The base header's `epoch` is the
//! version of the group table that the caller used to choose `grp`. TYPE is the kind in the base header.

use core::num::NonZeroU16;

use crate::base::{Base, BaseRepr};
use crate::header::header;
use crate::{Error, FrameKind, TokenKey};

header! {
    /// View of the clone header; the payload follows.
    view CloneHeader;
    /// Values of a clone header.
    repr CloneRepr;
    length 32;
    /// REQ_ID: input of the response filter's fingerprint. 0 in a request that the element numbers. A request of
    /// several frames, or one that is sent again, has an id that its caller chose ([`caller_id`]).
    req_id (set_req_id): u64, 0;
    /// GRP: ordered pair of servers, drawn by the caller.
    grp (set_grp): u32, 8;
    /// SID: server that answers; in a recirculated request, server that gets the clone.
    sid (set_sid): u16, 12;
    /// STATE, in replies: length of the server's queue; 0 if the server is idle. The base header's `round` numbers these
    /// reports.
    state (set_state): u16, 14;
    /// CLO: 0 not cloned, [`ORIGINAL`] or [`CLONE`]. Without [`CloneFlags::CLONE`], the clone is a hedge that the element
    /// holds or has sent.
    clo (set_clo): u8, 16;
    /// IDX: filter table for the answers, drawn by the caller.
    idx (set_idx): u8, 17;
    /// Element that made the decision; 0: no decision yet. Other elements forward the frame unchanged.
    switch_id (set_switch_id): u16, 18;
    /// Number of earlier transmissions of the call.
    attempt (set_attempt): u8, 20;
    /// [`CloneFlags`].
    flags (set_flags): u8, 21;
    /// Index of this part of the request or reply, from 0.
    part (set_part): u16, 22;
    /// Number of parts, at least 1.
    parts (set_parts): u16, 24;
    /// Length of the payload in bytes.
    payload_len (set_payload_len): u16, 26;
    /// In requests: time in microseconds after which the caller expects a notice that the server works on the request. In
    /// failed answers: time in microseconds before which no other server shall be asked; [`NO_ATTEMPT`]: never.
    patience (set_patience): u32, 28;
}

/// Patience of a failed answer after which no other server shall be asked.
pub const NO_ATTEMPT: u32 = u32::MAX;
/// CLO of a request that was cloned or of which the element holds a copy, and of its answer.
pub const ORIGINAL: u8 = 1;
/// CLO of the clone or hedge, and of its answer.
pub const CLONE: u8 = 2;
/// Payload bytes of each part except the last: as many as fit a frame with a token.
pub const PART: usize = crate::MAX_UNSIGNED - Base::LEN - CloneHeader::LEN;
/// Maximum number of parts of a request or a reply; longer ones use HTTP/2.
pub const MAX_PARTS: usize = 64;
/// Maximum number of servers of a pool.
pub const MAX_SERVERS: usize = 512;

/// Bits of the clone header's `flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneFlags;

impl CloneFlags {
    /// The request may be cloned. The element clears it when it holds a copy for later.
    pub const CLONE: u8 = 1 << 0;
    /// If the request is not cloned, it goes to the server with the shorter queue of the pair (RackSched, NetClone
    /// §3.7); without this flag, to the first server of the pair.
    pub const SHORTEST: u8 = 1 << 1;
    /// To the addressed server, regardless of the group.
    pub const DIRECT: u8 = 1 << 2;
    /// In answers: the server failed, and another server may succeed (gRPC A6). CLO is 0, so that no element filters
    /// the good answer; `CLONE` says that the request had a clone.
    pub const FAILED: u8 = 1 << 3;
    /// All defined flags.
    pub const ALL: u8 = Self::CLONE | Self::SHORTEST | Self::DIRECT | Self::FAILED;
}

/// Load of a server as the server reports it: STATE, and the number of the report. A server process numbers its reports
/// from 1; the number wraps around, without 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerReport {
    /// Number of the report; 0: there is none.
    pub number: u32,
    /// Length of the server's queue.
    pub state: u16,
}

impl ServerReport {
    /// Whether the server process has made this report after another one.
    #[inline]
    #[must_use]
    pub const fn is_newer_than(self, other: Self) -> bool {
        self.number != 0 && (other.number.wrapping_sub(self.number) as i32) < 0
    }

    /// Next report of the process, with this state.
    #[must_use]
    pub const fn next(self, state: u16) -> Self {
        let number = self.number.wrapping_add(1);
        Self { number: if number == 0 { 1 } else { number }, state }
    }
}

/// Number of groups, the ordered pairs of `servers` (NetClone §3.3). A single server forms a pair with itself and
/// never gets a clone.
#[must_use]
pub const fn groups(servers: usize) -> u32 {
    (if servers == 1 { 1 } else { servers * servers.saturating_sub(1) }) as u32
}

/// Pair of servers of group `grp`; `None` if there is no such group.
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

/// Group of an ordered pair of different servers.
#[must_use]
pub const fn group_of(first: u16, second: u16, servers: usize) -> u32 {
    let other = if second < first { second } else { second.saturating_sub(1) };
    first as u32 * (servers as u32).saturating_sub(1) + other as u32
}

/// Bit of a REQ_ID that the caller chose; without it, the element chose the id.
pub const CALLER_ID: u64 = 1 << 63;
/// Position and mask of the caller's endpoint in a REQ_ID.
const CALLER_SHIFT: u32 = 40;
const CALLER_MASK: u64 = 0x7f_ffff;

/// REQ_ID that a caller gives to a request of several frames or to a repeated request (§3.7). It is unique for call and
/// attempt. Bit 63 distinguishes it from ids of an element.
#[must_use]
pub const fn caller_id(endpoint: u32, seq: u32, attempt: u8) -> u64 {
    CALLER_ID | (endpoint as u64 & CALLER_MASK) << CALLER_SHIFT | (seq as u64) << 8 | attempt as u64
}

/// Whether the endpoint may have chosen this id. An element drops a request with an id of another endpoint.
#[must_use]
pub const fn is_id_of(req_id: u64, endpoint: u32) -> bool {
    req_id >> CALLER_SHIFT == caller_id(endpoint, 0, 0) >> CALLER_SHIFT
}

/// Number of an element in 16 bits, never 0.
#[must_use]
pub const fn switch_id(element: u32) -> NonZeroU16 {
    let id = element.wrapping_sub(1) % u16::MAX as u32 + 1;
    match NonZeroU16::new(id as u16) {
        Some(id) => id,
        None => NonZeroU16::MIN,
    }
}

/// Checked clone frame: base header, clone header, payload.
#[derive(Debug, Clone, Copy)]
pub struct CloneFrame<T> {
    bytes: T,
    /// Start of the clone header.
    start: usize,
}

/// Whether the kind byte is that of a clone frame. It decides which view checks the bytes.
#[inline]
#[must_use]
pub fn is_clone(bytes: &[u8]) -> bool {
    const KIND: usize = 3;
    bytes.get(KIND).is_some_and(|&kind| FrameKind::parse(kind).is_ok_and(FrameKind::is_clone))
}

impl<T: AsRef<[u8]>> CloneFrame<T> {
    /// Checked view of `bytes`; no accessor panics after it.
    ///
    /// # Errors
    /// First violation found.
    pub fn new_checked(bytes: T) -> Result<Self, Error> {
        let got = bytes.as_ref().len();
        let base = Base::new_checked(bytes.as_ref())?;
        if !FrameKind::parse(base.kind()).is_ok_and(FrameKind::is_clone) {
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

    /// The clone header.
    #[inline]
    #[must_use]
    pub fn head(&self) -> CloneHeader<&[u8; CloneHeader::LEN]> {
        CloneHeader(self.bytes.as_ref()[self.start..].first_chunk().expect("checked by new_checked"))
    }

    /// Kind of the frame.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> FrameKind {
        FrameKind::parse(self.base().kind()).expect("checked by new_checked")
    }

    /// Payload: one part of the request or the reply.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.start + CloneHeader::LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> CloneFrame<T> {
    /// Mutable base header. The caller must not change magic, version, kind, length and the token flag.
    #[inline]
    pub fn base_mut(&mut self) -> Base<&mut [u8]> {
        Base::unchecked(self.bytes.as_mut())
    }

    /// Mutable clone header. The caller must not change parts and payload length.
    #[inline]
    pub fn head_mut(&mut self) -> CloneHeader<&mut [u8; CloneHeader::LEN]> {
        CloneHeader(self.bytes.as_mut()[self.start..].first_chunk_mut().expect("checked by new_checked"))
    }

    /// Computes the token again after a change; a frame without a token stays unchanged.
    pub fn sign(&mut self, key: &TokenKey) {
        key.sign(self.bytes.as_mut());
    }
}

/// Writes a frame without a token into `out`, computes its length fields, and returns its length.
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
        let len = emit(&BaseRepr::new(FrameKind::CloneRequest), repr, payload, &mut bytes);
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn clone_frame_round_trips() {
        let repr = CloneRepr { req_id: 7, grp: 3, clo: CLONE, part: 1, parts: 2, ..CloneRepr::default() };
        let bytes = frame(&repr, b"end");
        let frame = CloneFrame::new_checked(&bytes).expect("valid frame");
        assert_eq!(frame.head().repr(), CloneRepr { payload_len: 3, ..repr });
        assert_eq!((frame.kind(), frame.payload()), (FrameKind::CloneRequest, &b"end"[..]));
    }

    #[test]
    fn invalid_clone_fields_are_rejected() {
        let of = |repr: CloneRepr| CloneFrame::new_checked(frame(&repr, b"")).map(drop);
        let fine = CloneRepr { parts: 1, ..CloneRepr::default() };
        assert_eq!(of(fine), Ok(()));
        assert_eq!(of(CloneRepr { clo: 3, ..fine }), Err(Error::Value { field: "clo", value: 3 }));
        assert_eq!(of(CloneRepr { flags: 16, ..fine }), Err(Error::Value { field: "flags", value: 16 }));
        assert_eq!(of(CloneRepr { parts: 0, ..fine }), Err(Error::Value { field: "parts", value: 0 }));
        assert_eq!(of(CloneRepr { parts: 65, ..fine }), Err(Error::Value { field: "parts", value: 65 }));
        assert_eq!(of(CloneRepr { part: 1, ..fine }), Err(Error::Value { field: "part", value: 1 }));
        let mut bytes = frame(&fine, b"");
        bytes[3] = FrameKind::MapData as u8;
        assert_eq!(CloneFrame::new_checked(&bytes).map(drop), Err(Error::Value { field: "kind", value: 1 }));
    }

    #[test]
    fn groups_are_all_ordered_pairs() {
        for servers in (2..=64).chain([MAX_SERVERS]) {
            let pairs: HashSet<_> = (0..groups(servers)).filter_map(|grp| pair(grp, servers)).collect();
            assert_eq!(pairs.len(), servers * (servers - 1));
            assert!(pairs.iter().all(|(a, b)| a != b && usize::from(*a.max(b)) < servers));
            assert!(pairs.iter().all(|(a, b)| pair(group_of(*a, *b, servers), servers) == Some((*a, *b))));
            assert_eq!(pair(groups(servers), servers), None);
        }
        assert_eq!((pair(0, 1), pair(1, 1), pair(0, 0)), (Some((0, 0)), None, None));
    }

    #[test]
    fn caller_id_identifies_its_endpoint() {
        for (seq, attempt) in [(0, 0), (1, 2), (u32::MAX, u8::MAX)] {
            let id = caller_id(7, seq, attempt);
            assert_eq!((is_id_of(id, 7), is_id_of(id, 8), is_id_of(id & !CALLER_ID, 7)), (true, false, false));
        }
        assert!(is_id_of(caller_id(u32::MAX, 1, 1), u32::MAX));
    }

    #[test]
    fn switch_id_is_never_zero() {
        let ids = [1, 2, u16::MAX.into(), u32::from(u16::MAX) + 1, 0, u32::MAX].map(|element| switch_id(element).get());
        assert_eq!(ids, [1, 2, u16::MAX, 1, 1, u16::MAX]);
    }

    #[test]
    fn reports_are_ordered_by_number_that_wraps_around() {
        let report = |number| ServerReport { number, state: 3 };
        for (newer, older) in [(2, 1), (u32::MAX, u32::MAX - 1), (1, u32::MAX), (1 << 31, 1)] {
            assert!(report(newer).is_newer_than(report(older)), "{newer}, {older}");
            assert!(!report(older).is_newer_than(report(newer)), "{newer}, {older}");
        }
        assert!(!report(7).is_newer_than(report(7)));
        let numbers = [0, 1, u32::MAX].map(|number| report(number).next(5));
        assert_eq!(numbers, [1, 2, 1].map(|number| ServerReport { number, state: 5 }));
        assert!(!ServerReport::default().is_newer_than(report(u32::MAX)), "no report is not newer than any");
    }

    #[test]
    fn full_part_with_token_fits_max_frame() {
        assert_eq!(Base::LEN + crate::base::TOKEN_LEN + CloneHeader::LEN + PART, crate::MAX_FRAME);
    }
}
