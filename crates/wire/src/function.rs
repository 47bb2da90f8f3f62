//! What an element and the servers of a network function say to each other (CLIP §IV-B).
//!
//! ```text
//! Ethernet 14 B │ header 8 B │ parameters │ carried │ options │ the packet as it came, from its first byte
//! ```
//!
//! The Ethernet header in front has [`REQUEST`] or [`RESPONSE`] as its type; the server answers in place and turns it
//! round. Parameters, carried values and options are the function's own: a compiler lays them out, whole bytes and
//! a multiple of four together; a request's parameters and a response's take the same place.

use crate::Error;
use crate::header::header;

/// EtherType of a request: IEEE's first for local experiments.
pub const REQUEST: u16 = 0x88b5;
/// EtherType of a response: IEEE's second.
pub const RESPONSE: u16 = 0x88b6;
/// The version of the header.
pub const VERSION: u8 = 1;
/// Length of the fixed part of the header.
pub const HEADER: usize = FunctionHeader::LEN;
/// Length of the Ethernet header in front.
pub const ETHERNET: usize = 14;
/// Where its EtherType stands.
const ETHER_TYPE: usize = 12;

header! {
    /// View of the header's fixed part, behind the Ethernet header.
    view FunctionHeader;
    /// Values of the header's fixed part.
    repr FunctionRepr;
    length 8;
    /// The EtherType of the packet as it came.
    load_type (set_load_type): u16, 0;
    /// Which function: an element may carry several.
    function (set_function): u16, 2;
    /// The cell that guards the order of the packet's flow (§V-A).
    guard (set_guard): u16, 4;
    /// [`FunctionFlags`].
    flags (set_flags): u8, 6;
    /// [`VERSION`].
    version (set_version): u8, 7;
}

/// Bits of the header's `flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionFlags;

impl FunctionFlags {
    /// In a response: the handler ended the packet; the element only takes note that it is back.
    pub const ENDED: u8 = 1 << 0;
    /// All flags there are.
    pub const ALL: u8 = Self::ENDED;
}

/// A request or a response, checked.
#[derive(Debug, Clone, Copy)]
pub struct FunctionFrame<T> {
    bytes: T,
    /// Length of the whole header behind the Ethernet header.
    header: usize,
}

impl<T: AsRef<[u8]>> FunctionFrame<T> {
    /// A view of `bytes`, of a function whose header has `header` bytes, the fixed part included; after this no
    /// accessor panics.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn new_checked(bytes: T, header: usize) -> Result<Self, Error> {
        let header = header.max(FunctionHeader::LEN);
        let (expected, got) = (ETHERNET + header, bytes.as_ref().len());
        if got < expected {
            return Err(Error::Short { expected, got });
        }
        let frame = Self { bytes, header };
        if !matches!(frame.ether_type(), REQUEST | RESPONSE) {
            return Err(Error::Value { field: "ether_type", value: frame.ether_type().into() });
        }
        let head = frame.head();
        if head.version() != VERSION {
            return Err(Error::Version(head.version()));
        }
        if head.flags() & !FunctionFlags::ALL != 0 {
            return Err(Error::Value { field: "flags", value: head.flags().into() });
        }
        Ok(frame)
    }

    /// [`REQUEST`] or [`RESPONSE`].
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        let bytes = self.bytes.as_ref();
        u16::from_be_bytes([bytes[ETHER_TYPE], bytes[ETHER_TYPE + 1]])
    }

    /// The fixed part.
    #[inline]
    #[must_use]
    pub fn head(&self) -> FunctionHeader<&[u8]> {
        FunctionHeader(&self.bytes.as_ref()[ETHERNET..])
    }

    /// The whole header behind the Ethernet header: fixed part, parameters, carried values, options.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.bytes.as_ref()[ETHERNET..ETHERNET + self.header]
    }

    /// Parameters, carried values, options.
    #[inline]
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.bytes.as_ref()[ETHERNET + FunctionHeader::LEN..ETHERNET + self.header]
    }

    /// The packet as it came.
    #[inline]
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.bytes.as_ref()[ETHERNET + self.header..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> FunctionFrame<T> {
    /// The fixed part, to be changed.
    #[inline]
    pub fn head_mut(&mut self) -> FunctionHeader<&mut [u8]> {
        FunctionHeader(&mut self.bytes.as_mut()[ETHERNET..])
    }

    /// The whole header, to be changed. Version and function stay.
    #[inline]
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[ETHERNET..ETHERNET + self.header]
    }

    /// Parameters, carried values and options, to be changed.
    #[inline]
    pub fn values_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[ETHERNET + FunctionHeader::LEN..ETHERNET + self.header]
    }

    /// Makes it a response to whom it came from.
    #[inline]
    pub fn turn(&mut self) {
        let (to, from) = self.bytes.as_mut()[..ETHER_TYPE].split_at_mut(6);
        to.swap_with_slice(from);
        self.bytes.as_mut()[ETHER_TYPE..ETHERNET].copy_from_slice(&RESPONSE.to_be_bytes());
    }
}

/// Writes a request's front into `out`: Ethernet header, fixed part, zeros for the rest of `header` bytes.
///
/// # Panics
/// When `out` is shorter than that.
pub fn emit(to: [u8; 6], from: [u8; 6], head: &FunctionRepr, header: usize, out: &mut [u8]) {
    out[..6].copy_from_slice(&to);
    out[6..ETHER_TYPE].copy_from_slice(&from);
    out[ETHER_TYPE..ETHERNET].copy_from_slice(&REQUEST.to_be_bytes());
    out[ETHERNET..ETHERNET + header].fill(0);
    head.emit(&mut out[ETHERNET..]);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const HEADER: usize = 20;

    fn frame(head: &FunctionRepr) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..ETHERNET + HEADER + 9).map(|at| at as u8).collect();
        emit([1; 6], [2; 6], head, HEADER, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn what_was_emitted_is_parsed(load_type: u16, function: u16, guard: u16, ended: bool) {
            let flags = if ended { FunctionFlags::ENDED } else { 0 };
            let head = FunctionRepr { load_type, function, guard, flags, version: VERSION };
            let mut bytes = frame(&head);
            let parsed = FunctionFrame::new_checked(&mut bytes[..], HEADER).expect("a frame");
            prop_assert_eq!(parsed.head().repr(), head);
            prop_assert_eq!(parsed.ether_type(), REQUEST);
            prop_assert_eq!(parsed.values(), &[0; HEADER - 8]);
            prop_assert_eq!(parsed.packet().len(), 9);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), header in 0usize..48) {
            if let Ok(mut frame) = FunctionFrame::new_checked(bytes.clone(), header) {
                frame.turn();
                frame.values_mut().fill(1);
                prop_assert_eq!(ETHERNET + header.max(8) + frame.packet().len(), bytes.len());
            }
        }
    }

    #[test]
    fn an_answer_goes_back() {
        let head = FunctionRepr { version: VERSION, ..FunctionRepr::default() };
        let mut bytes = frame(&head);
        FunctionFrame::new_checked(&mut bytes[..], HEADER).expect("a frame").turn();
        assert_eq!(bytes[..14], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0x88, 0xb6]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let head = FunctionRepr { version: VERSION, ..FunctionRepr::default() };
        let whole = frame(&head);
        let error = |bytes: &[u8]| FunctionFrame::new_checked(bytes, HEADER).map(|_| ()).expect_err("wrong");
        assert_eq!(error(&whole[..33]), Error::Short { expected: 34, got: 33 });
        assert_eq!(error(&frame(&FunctionRepr { version: 2, ..head })), Error::Version(2));
        assert_eq!(error(&frame(&FunctionRepr { flags: 2, ..head })), Error::Value { field: "flags", value: 2 });
        let mut other = whole;
        other[12] = 8;
        assert_eq!(error(&other), Error::Value { field: "ether_type", value: 0x08b5 });
    }
}
