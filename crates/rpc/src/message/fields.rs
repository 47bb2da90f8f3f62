//! Fields of an encoded protobuf message (protobuf encoding guide), and separation of a field, given by its path, from the
//! rest of the message.

use std::ops::Range;

use super::Malformed;

/// Maximum nesting of groups, as in prost.
const GROUP_DEPTH_MAX: usize = 100;

/// Iterator over the fields of a message.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// One field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedField<'a> {
    /// Field number.
    pub number: u32,
    /// Field value.
    pub value: FieldValue<'a>,
    /// Byte range in the message, including the tag.
    pub span: Range<usize>,
}

/// Value by wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// Integers and enums.
    Varint(u64),
    /// `double` and the fixed 64-bit integers.
    Fixed64([u8; 8]),
    /// Messages, strings, bytes, packed values.
    Bytes(&'a [u8]),
    /// `float` and the fixed 32-bit integers.
    Fixed32([u8; 4]),
    /// A group: deprecated, but unknown fields may contain it.
    Group,
}

impl<'a> Fields<'a> {
    /// Fields of this message.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self { bytes: message, at: 0 }
    }

    /// Next field; `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a field.
    pub fn next_field(&mut self) -> Result<Option<EncodedField<'a>>, Malformed> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let start = self.at;
        let (number, wire_type) = self.tag()?;
        let value = self.value(number, wire_type, GROUP_DEPTH_MAX)?;
        Ok(Some(EncodedField { number, value, span: start..self.at }))
    }

    /// Next value of a sequence of varints (packed field); `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a varint.
    pub fn next_varint(&mut self) -> Result<Option<u64>, Malformed> {
        if self.at == self.bytes.len() { Ok(None) } else { self.varint().map(Some) }
    }

    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let start = self.at;
        let key = self.varint()?;
        let number = (key >> 3) as u32;
        if key > u64::from(u32::MAX) || number == 0 {
            return Err(Malformed { expected: "a field number", at: start, len: self.bytes.len() });
        }
        Ok((number, (key & 7) as u8))
    }

    fn value(&mut self, number: u32, wire_type: u8, groups: usize) -> Result<FieldValue<'a>, Malformed> {
        Ok(match wire_type {
            0 => FieldValue::Varint(self.varint()?),
            1 => FieldValue::Fixed64(self.fixed()?),
            2 => {
                let start = self.at;
                let len = self.varint()?;
                let Ok(len) = usize::try_from(len) else {
                    return Err(Malformed { expected: "a length", at: start, len: self.bytes.len() });
                };
                FieldValue::Bytes(self.take(len)?)
            }
            3 if groups > 0 => {
                self.group(number, groups - 1)?;
                FieldValue::Group
            }
            5 => FieldValue::Fixed32(self.fixed()?),
            _ => return Err(self.expected("a wire type")),
        })
    }

    /// Skips a group whose start tag has been read, including its end tag.
    fn group(&mut self, number: u32, groups: usize) -> Result<(), Malformed> {
        loop {
            match self.tag()? {
                (inner, 4) if inner == number => return Ok(()),
                (inner, wire_type) => {
                    self.value(inner, wire_type, groups)?;
                }
            }
        }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let mut value = 0;
        for (i, byte) in self.bytes[start..].iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                // The tenth byte has one bit left.
                if i == 9 && *byte > 1 {
                    break;
                }
                self.at = start + i + 1;
                return Ok(value);
            }
        }
        Err(self.expected("a varint"))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let at = self.at;
        match self.bytes[at..].first_chunk() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.expected("a fixed-width value")),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        match self.bytes[self.at..].get(..len) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(self.expected("as many bytes as the length says")),
        }
    }

    fn expected(&self, expected: &'static str) -> Malformed {
        Malformed { expected, at: self.at, len: self.bytes.len() }
    }
}

/// Decodes a `sint64` from its varint.
#[inline]
#[must_use]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Encodes a `sint64` as its varint.
#[inline]
#[must_use]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Length of a varint, bytes.
#[inline]
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    // ⌈bits / 7⌉ with at least one bit: 9/64 approximates 1/7 and is exact for 1 to 64 bits.
    (((value | 1).ilog2() as usize + 1) * 9 + 64) / 64
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends tag and length of a length-delimited field. The caller appends its bytes.
pub fn put_bytes_header(out: &mut Vec<u8>, number: u32, len: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, len as u64);
}

/// Length of a length-delimited field with tag and length, bytes.
#[must_use]
pub const fn bytes_field_len(number: u32, len: usize) -> usize {
    varint_len((number as u64) << 3 | 2) + varint_len(len as u64) + len
}

/// Separates the field at `path` (field numbers from the outermost message inwards) from `message`: passes each of its
/// occurrences to `found` and appends everything else to `rest`.
///
/// A message may contain a field in several parts, which are concatenated; the same holds for the messages around it.
/// The enclosing messages stay in the rest, even if they become empty: a handler can see whether they are present.
///
/// Returns whether the rest has content, that is any field except the enclosing messages.
///
/// # Errors
/// `message` is not a valid message, or `found` fails.
pub fn split<'a, E: From<Malformed>>(
    message: &'a [u8],
    path: &[u32],
    rest: &mut Vec<u8>,
    found: &mut impl FnMut(&'a [u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let Some((number, inner_path)) = path.split_first() else {
        rest.extend_from_slice(message);
        return Ok(!message.is_empty());
    };
    let mut content = false;
    // Fields of the rest are copied in runs; start of the current run.
    let mut run = 0;
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_field()? {
        if field.number != *number {
            content = true;
            continue;
        }
        let FieldValue::Bytes(inner) = field.value else {
            let at = field.span.start;
            return Err(Malformed { expected: "an embedded message", at, len: message.len() }.into());
        };
        rest.extend_from_slice(&message[run..field.span.start]);
        run = field.span.end;
        if inner_path.is_empty() {
            found(inner)?;
        } else {
            let mut inner_rest = Vec::new();
            content |= split(inner, inner_path, &mut inner_rest, found)?;
            put_bytes_header(rest, *number, inner_rest.len());
            rest.extend_from_slice(&inner_rest);
        }
    }
    rest.extend_from_slice(&message[run..]);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_len_matches_encoding() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, !0 >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value:#x}");
                assert_eq!(out.len(), prost::length_delimiter_len(value as usize), "{value:#x}");
                assert_eq!(Fields::new(&out).next_varint(), Ok(Some(value)));
            }
        }
    }

    #[test]
    fn overlong_varint_is_refused() {
        let mut eleven = [0x80; 11];
        eleven[10] = 0;
        assert!(Fields::new(&eleven).next_varint().is_err());
        let mut too_much = [0xff; 10];
        too_much[9] = 2;
        assert!(Fields::new(&too_much).next_varint().is_err());
    }

    #[test]
    fn zigzag_round_trips() {
        for value in [0, 1, -1, i64::MAX, i64::MIN, 123_456_789] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }

    #[test]
    fn group_is_one_field() {
        // field 1 group { field 2 varint 5, field 3 group {} }, then field 4 varint 1
        let bytes = [0x0b, 0x10, 5, 0x1b, 0x1c, 0x0c, 0x20, 1];
        let mut fields = Fields::new(&bytes);
        assert_eq!(fields.next_field(), Ok(Some(EncodedField { number: 1, value: FieldValue::Group, span: 0..6 })));
        assert_eq!(fields.next_field(), Ok(Some(EncodedField { number: 4, value: FieldValue::Varint(1), span: 6..8 })));
        assert_eq!(fields.next_field(), Ok(None));
        // A group without an end, one with another end tag, and too many nested groups.
        assert!(Fields::new(&[0x0b, 0x10, 5]).next_field().is_err());
        assert!(Fields::new(&[0x0b, 0x14]).next_field().is_err());
        assert!(Fields::new(&[0x0b; 10_000]).next_field().is_err());
    }

    fn parts(message: &[u8], path: &[u32]) -> (Vec<Vec<u8>>, Vec<u8>, bool) {
        let (mut found, mut rest) = (Vec::new(), Vec::new());
        let content = split(message, path, &mut rest, &mut |part| {
            found.push(part.to_vec());
            Ok::<_, Malformed>(())
        });
        (found, rest, content.unwrap())
    }

    #[test]
    fn all_parts_are_found_and_rest_keeps_order() {
        // Message `1: "ab", 2: 7, 1: "c", 3: 1`.
        let message = [0x0a, 2, b'a', b'b', 0x10, 7, 0x0a, 1, b'c', 0x18, 1];
        assert_eq!(parts(&message, &[1]), (vec![b"ab".to_vec(), b"c".to_vec()], vec![0x10, 7, 0x18, 1], true));
        assert_eq!(parts(&message[..4], &[1]), (vec![b"ab".to_vec()], vec![], false));
        assert_eq!(parts(&message, &[9]), (vec![], message.to_vec(), true));
        assert_eq!(parts(&[], &[1]), (vec![], vec![], false));
    }

    #[test]
    fn enclosing_messages_stay_without_content() {
        // 5: { 1: "ab" }
        let nested = [0x2a, 4, 0x0a, 2, b'a', b'b'];
        assert_eq!(parts(&nested, &[5, 1]), (vec![b"ab".to_vec()], vec![0x2a, 0], false));
        // 5: { 1: "ab", 2: 7 }
        let with_more = [0x2a, 6, 0x0a, 2, b'a', b'b', 0x10, 7];
        assert_eq!(parts(&with_more, &[5, 1]), (vec![b"ab".to_vec()], vec![0x2a, 2, 0x10, 7], true));
    }

    #[test]
    fn field_of_wrong_type_is_refused() {
        let refused = split(&[0x08, 1], &[1], &mut Vec::new(), &mut |_| Ok::<_, Malformed>(()));
        assert_eq!(refused, Err(Malformed { expected: "an embedded message", at: 0, len: 2 }));
    }
}
