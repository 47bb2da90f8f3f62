//! Header between an element and the servers of a network function (CLIP §IV-B).
//!
//! ```text
//! Ethernet 14 B │ header 8 B │ parameters │ carried │ options │ original packet, from its first byte
//! ```
//!
//! The EtherType of the outer Ethernet header is [`REQUEST`] or [`RESPONSE`]. The server writes the response into the
//! request and swaps the addresses. The compiler of the function defines the layout of parameters, carried values and
//! options: whole bytes, together a multiple of four. Parameters of request and response have the same position.

use crate::Error;
use crate::header::header;

/// EtherType of a request: IEEE local experimental EtherType 1.
pub const REQUEST: u16 = 0x88b5;
/// EtherType of a response: IEEE local experimental EtherType 2.
pub const RESPONSE: u16 = 0x88b6;
/// Version of the header.
pub const VERSION: u8 = 1;
/// Length of the fixed part of the header.
pub const HEADER: usize = FunctionHeader::LEN;
/// Length of the outer Ethernet header.
pub const ETHERNET: usize = 14;
/// Offset of the EtherType in the Ethernet header.
const ETHER_TYPE: usize = 12;

header! {
    /// View of the header's fixed part, after the Ethernet header.
    view FunctionHeader;
    /// Values of the header's fixed part.
    repr FunctionRepr;
    length 8;
    /// EtherType of the original packet.
    load_type (set_load_type): u16, 0;
    /// Id of the function; an element may run several.
    function (set_function): u16, 2;
    /// Cell that guards the packet order of the flow (§V-A).
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
    /// In a response: the handler consumed the packet; the element only records its return.
    pub const ENDED: u8 = 1 << 0;
    /// All defined flags.
    pub const ALL: u8 = Self::ENDED;
}

/// Checked request or response.
#[derive(Debug, Clone, Copy)]
pub struct FunctionFrame<T> {
    bytes: T,
    /// Length of the whole header after the Ethernet header.
    header: usize,
}

impl<T: AsRef<[u8]>> FunctionFrame<T> {
    /// Checked view of `bytes` for a function whose header has `header` bytes, fixed part included. No accessor panics
    /// after it.
    ///
    /// # Errors
    /// First violation found.
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

    /// Fixed part of the header.
    #[inline]
    #[must_use]
    pub fn head(&self) -> FunctionHeader<&[u8]> {
        FunctionHeader(&self.bytes.as_ref()[ETHERNET..])
    }

    /// Whole header after the Ethernet header: fixed part, parameters, carried values, options.
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

    /// Original packet.
    #[inline]
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.bytes.as_ref()[ETHERNET + self.header..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> FunctionFrame<T> {
    /// Mutable fixed part.
    #[inline]
    pub fn head_mut(&mut self) -> FunctionHeader<&mut [u8]> {
        FunctionHeader(&mut self.bytes.as_mut()[ETHERNET..])
    }

    /// Mutable header. The caller must not change version and function.
    #[inline]
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[ETHERNET..ETHERNET + self.header]
    }

    /// Mutable parameters, carried values and options.
    #[inline]
    pub fn values_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[ETHERNET + FunctionHeader::LEN..ETHERNET + self.header]
    }

    /// Turns the request into a response to its sender.
    #[inline]
    pub fn turn(&mut self) {
        let (to, from) = self.bytes.as_mut()[..ETHER_TYPE].split_at_mut(6);
        to.swap_with_slice(from);
        self.bytes.as_mut()[ETHER_TYPE..ETHERNET].copy_from_slice(&RESPONSE.to_be_bytes());
    }
}

/// Writes the headers of a request into `out`: Ethernet header, fixed part, and zeros up to `header` bytes.
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
        fn function_header_round_trips(load_type: u16, function: u16, guard: u16, ended: bool) {
            let flags = if ended { FunctionFlags::ENDED } else { 0 };
            let head = FunctionRepr { load_type, function, guard, flags, version: VERSION };
            let mut bytes = frame(&head);
            let parsed = FunctionFrame::new_checked(&mut bytes[..], HEADER).expect("valid frame");
            prop_assert_eq!(parsed.head().repr(), head);
            prop_assert_eq!(parsed.ether_type(), REQUEST);
            prop_assert_eq!(parsed.values(), &[0; HEADER - 8]);
            prop_assert_eq!(parsed.packet().len(), 9);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), header in 0usize..48) {
            if let Ok(mut frame) = FunctionFrame::new_checked(bytes.clone(), header) {
                frame.turn();
                frame.values_mut().fill(1);
                prop_assert_eq!(ETHERNET + header.max(8) + frame.packet().len(), bytes.len());
            }
        }
    }

    #[test]
    fn response_swaps_ethernet_addresses() {
        let head = FunctionRepr { version: VERSION, ..FunctionRepr::default() };
        let mut bytes = frame(&head);
        FunctionFrame::new_checked(&mut bytes[..], HEADER).expect("valid frame").turn();
        assert_eq!(bytes[..14], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0x88, 0xb6]);
    }

    #[test]
    fn parse_error_names_the_violation() {
        let head = FunctionRepr { version: VERSION, ..FunctionRepr::default() };
        let whole = frame(&head);
        let error = |bytes: &[u8]| FunctionFrame::new_checked(bytes, HEADER).map(|_| ()).expect_err("invalid frame");
        assert_eq!(error(&whole[..33]), Error::Short { expected: 34, got: 33 });
        assert_eq!(error(&frame(&FunctionRepr { version: 2, ..head })), Error::Version(2));
        assert_eq!(error(&frame(&FunctionRepr { flags: 2, ..head })), Error::Value { field: "flags", value: 2 });
        let mut other = whole;
        other[12] = 8;
        assert_eq!(error(&other), Error::Value { field: "ether_type", value: 0x08b5 });
    }
}
