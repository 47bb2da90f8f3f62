//! Encoding of records: numbers of variable length, and bytes with their length.

/// Writer of a record.
#[derive(Debug, Default, Clone)]
pub(in super::super) struct RecordWriter(Vec<u8>);

impl RecordWriter {
    pub(in super::super) fn number(&mut self, number: impl Into<u64>) {
        let mut left = number.into();
        while left > 0x7f {
            self.0.push(left as u8 | 0x80);
            left >>= 7;
        }
        self.0.push(left as u8);
    }

    pub(in super::super) fn signed(&mut self, value: i64) {
        self.number((value << 1 ^ value >> 63).cast_unsigned());
    }

    pub(in super::super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(in super::super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reader of a record; each function returns `None` if the record is damaged.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    pub(in super::super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in super::super) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            let part = u64::from(first & 0x7f);
            number |= part.checked_shl(shift).filter(|shifted| shifted >> shift == part)?;
            if first & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(in super::super) fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub(in super::super) fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(in super::super) fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(in super::super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Items of a list that begins with its length. An item has at least one byte, so the length is bounded.
    pub(in super::super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= self.0.len())?;
        (0..count).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips_and_damage_is_detected() {
        let mut writer = RecordWriter::default();
        let numbers = [0, 1, 127, 128, 1 << 40, u64::MAX];
        let values = [0, -1, 1, i64::MIN, i64::MAX];
        writer.number(numbers.len() as u64);
        numbers.iter().for_each(|number| writer.number(*number));
        values.iter().for_each(|value| writer.signed(*value));
        writer.bytes(b"key");
        let bytes = writer.into_bytes();
        let read = |bytes: &[u8]| {
            let mut reader = RecordReader::new(bytes);
            let list = reader.list(RecordReader::number)?;
            let signed = (0..values.len()).map(|_| reader.signed()).collect::<Option<Vec<_>>>()?;
            let key = reader.bytes()?;
            Some((list, signed, key.to_vec(), reader.is_empty()))
        };
        assert_eq!(read(&bytes), Some((numbers.to_vec(), values.to_vec(), b"key".to_vec(), true)));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), None, "{len} of {} bytes", bytes.len());
        }
        assert_eq!(RecordReader::new(&[0xff; 11]).number(), None, "more than 64 bits");
        assert!(
            RecordReader::new(&[0xff, 0xff, 0x7f]).list(RecordReader::number).is_none(),
            "a length beyond the record"
        );
    }
}
