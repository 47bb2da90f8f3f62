//! Layout of the header between element and servers (CLIP §IV-B).
//!
//! ```text
//! fixed 8 B │ parameters: request, overlapped by the response │ travelling │ carried │ options │ zeros to 4 B
//! ```
//!
//! Parameters and travelling values of the generated parts are whole bytes, big-endian, in the order of their
//! declaration, so a server reads and writes them without the program. Carried values are private to the element and
//! packed.

use pathcall_wire::function::FunctionHeader;

use crate::interp::bits;
use crate::ir::{SlotId, Ty};

/// Length of the fixed part, bytes.
pub const FIXED: usize = FunctionHeader::LEN;

/// Header layout of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Number of the function.
    pub function: u16,
    /// Length of the header with the fixed part, bytes; a multiple of 4.
    pub length: usize,
    /// Length of the parameters behind the fixed part, bytes.
    pub params: usize,
    /// Request parameters in the order of the handler, without those that servers compute.
    pub request: Vec<HeaderField>,
    /// Response parameters, at the same offset.
    pub response: Vec<HeaderField>,
    /// Values exchanged between the generated parts and the server.
    pub travelling: Vec<HeaderField>,
    /// Values of the part before the call that the part after it needs.
    pub carried: Vec<HeaderField>,
    /// Offset and length, in bytes, of the last header that the parser extracted.
    pub options: Vec<HeaderField>,
}

/// Value in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderField {
    /// Name in the program.
    pub name: String,
    /// Slot of the element's program; `None` for the validity of a header.
    pub slot: Option<SlotId>,
    /// Type.
    pub ty: Ty,
    /// Bit offset within the header.
    pub offset_bits: usize,
}

impl HeaderField {
    /// Reads the value; `header` begins with the fixed part.
    ///
    /// # Panics
    /// If `header` is shorter than the layout.
    #[must_use]
    pub fn read(&self, header: &[u8]) -> u128 {
        bits::read(header, self.offset_bits, self.ty.width())
    }

    /// Writes the value; bits beyond the width are dropped.
    ///
    /// # Panics
    /// If `header` is shorter than the layout.
    pub fn write(&self, header: &mut [u8], value: u128) {
        bits::write(header, self.offset_bits, self.ty.width(), value);
    }

    /// Byte range of a byte-aligned field, such as a parameter or travelling value.
    #[must_use]
    pub fn bytes(&self) -> std::ops::Range<usize> {
        self.offset_bits / 8..(self.offset_bits + usize::from(self.ty.width())).div_ceil(8)
    }
}

/// Part of the header under layout: the fields of one IR header.
#[derive(Debug, Default)]
pub struct HeaderArea {
    /// Name, type in the header, and index in [`Self::values`] if the field is a value.
    pub fields: Vec<(String, Ty, Option<usize>)>,
    /// Values.
    pub values: Vec<HeaderField>,
    bits: usize,
    pads: usize,
}

impl HeaderArea {
    /// Adds a value of whole bytes, with zero bits in front if necessary.
    pub fn whole(&mut self, name: &str, slot: Option<SlotId>, ty: Ty) {
        self.pad(usize::from(ty.width()).next_multiple_of(8) - usize::from(ty.width()));
        self.close(name, slot, ty);
    }

    /// Adds a value directly behind the last one.
    pub fn close(&mut self, name: &str, slot: Option<SlotId>, ty: Ty) {
        let wire = Ty::Bit(ty.width());
        self.fields.push((name.to_owned(), wire, Some(self.values.len())));
        self.values.push(HeaderField { name: name.to_owned(), slot, ty, offset_bits: self.bits });
        self.bits += usize::from(ty.width());
    }

    /// Pads the area to `bytes` bytes.
    pub fn fill(&mut self, bytes: usize) {
        while self.bits < bytes * 8 {
            self.pad((bytes * 8 - self.bits).min(128));
        }
    }

    /// Number of bytes so far.
    pub fn bytes(&self) -> usize {
        self.bits.div_ceil(8)
    }

    /// Values with offsets in the whole header, in which the area begins at byte `before`.
    pub fn placed(&self, before: usize) -> Vec<HeaderField> {
        let shifted =
            |field: &HeaderField| HeaderField { offset_bits: field.offset_bits + before * 8, ..field.clone() };
        self.values.iter().map(shifted).collect()
    }

    fn pad(&mut self, bits: usize) {
        if bits > 0 {
            self.fields.push((format!("zero{}", self.pads), Ty::Bit(bits as u16), None));
            self.pads += 1;
            self.bits += bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_places_values_contiguously() {
        let mut area = HeaderArea::default();
        area.whole("port", None, Ty::Bit(9));
        area.whole("addr", None, Ty::Bit(32));
        area.close("a", None, Ty::Bool);
        area.close("b", None, Ty::Bit(2));
        area.fill(12);
        let widths: u16 = area.fields.iter().map(|(_, ty, _)| ty.width()).sum();
        assert_eq!((area.bytes(), widths), (12, 96));
        let placed = area.placed(8);
        assert_eq!(placed.iter().map(|f| f.offset_bits).collect::<Vec<_>>(), [64 + 7, 64 + 16, 64 + 48, 64 + 49]);
        assert_eq!(placed[0].bytes(), 8..10);
        let mut header = [0; 20];
        placed[0].write(&mut header, 0x1ff);
        placed[3].write(&mut header, 2);
        assert_eq!((header[8], header[9], header[14]), (1, 0xff, 0b0100_0000));
        assert_eq!((placed[0].read(&header), placed[2].read(&header), placed[3].read(&header)), (0x1ff, 0, 2));
    }
}
