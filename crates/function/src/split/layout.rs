//! The header between element and servers: what stands where in it (CLIP §IV-B).
//!
//! ```text
//! fixed 8 B │ parameters: request, over them the response │ travelling │ carried │ options │ zeros to 4 B
//! ```
//!
//! Parameters and what travels for the generated parts are whole bytes each, big-endian, in the order of their
//! declaration; so a server reads and writes them without knowing the program. Carried values are the element's own
//! and lie close.

use pathcall_wire::function::FunctionHeader;

use crate::interp::bits;
use crate::ir::{SlotId, Ty};

/// Length of the fixed part, bytes.
pub const FIXED: usize = FunctionHeader::LEN;

/// The header of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The function's number.
    pub function: u16,
    /// Bytes of the whole header, the fixed part included; a multiple of 4.
    pub length: usize,
    /// Bytes of the parameters, behind the fixed part.
    pub params: usize,
    /// The request's parameters, as the program's handler has them, without those that servers work out.
    pub request: Vec<Field>,
    /// The response's, at the same place.
    pub response: Vec<Field>,
    /// What the generated parts send and take back.
    pub travelling: Vec<Field>,
    /// Values that the part behind needs of the part before.
    pub carried: Vec<Field>,
    /// Where in the packet something begins and how long it is, bytes: of the last header that the parser took.
    pub options: Vec<Field>,
}

/// A value in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// As the program has it.
    pub name: String,
    /// The slot of the element's program whose value it is; none for the validity of a header.
    pub slot: Option<SlotId>,
    /// Its type.
    pub ty: Ty,
    /// Bits of the header before it.
    pub offset_bits: usize,
}

impl Field {
    /// Its value; `header` begins with the fixed part.
    ///
    /// # Panics
    /// When `header` is shorter than the layout says.
    #[must_use]
    pub fn read(&self, header: &[u8]) -> u128 {
        bits::read(header, self.offset_bits, self.ty.width())
    }

    /// Writes it; bits beyond its width are lost.
    ///
    /// # Panics
    /// When `header` is shorter than the layout says.
    pub fn write(&self, header: &mut [u8], value: u128) {
        bits::write(header, self.offset_bits, self.ty.width(), value);
    }

    /// Bytes it lies in, if it is alone in them: parameters and what travels are.
    #[must_use]
    pub fn bytes(&self) -> std::ops::Range<usize> {
        self.offset_bits / 8..(self.offset_bits + usize::from(self.ty.width())).div_ceil(8)
    }
}

/// A part of the header as it is laid out: fields of one IR header.
#[derive(Debug, Default)]
pub struct Area {
    /// Name, type in the header, and the value's place in [`Self::values`], if it is one.
    pub fields: Vec<(String, Ty, Option<usize>)>,
    /// What is in it.
    pub values: Vec<Field>,
    bits: usize,
    pads: usize,
}

impl Area {
    /// Adds a value of whole bytes: zeros before it, if it does not fill them.
    pub fn whole(&mut self, name: &str, slot: Option<SlotId>, ty: Ty) {
        self.pad(usize::from(ty.width()).next_multiple_of(8) - usize::from(ty.width()));
        self.close(name, slot, ty);
    }

    /// Adds a value right behind the last one.
    pub fn close(&mut self, name: &str, slot: Option<SlotId>, ty: Ty) {
        let wire = Ty::Bit(ty.width());
        self.fields.push((name.to_owned(), wire, Some(self.values.len())));
        self.values.push(Field { name: name.to_owned(), slot, ty, offset_bits: self.bits });
        self.bits += usize::from(ty.width());
    }

    /// Fills it up to so many bytes.
    pub fn fill(&mut self, bytes: usize) {
        while self.bits < bytes * 8 {
            self.pad((bytes * 8 - self.bits).min(128));
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.bits.div_ceil(8)
    }

    /// Its values, at their place in the whole header of which `before` bytes come before it.
    pub fn placed(&self, before: usize) -> Vec<Field> {
        let shifted = |field: &Field| Field { offset_bits: field.offset_bits + before * 8, ..field.clone() };
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
    fn values_lie_where_the_bits_before_them_end() {
        let mut area = Area::default();
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
