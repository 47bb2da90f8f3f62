//! Values of a typed field, and their reader from the encoded parts of the field, which quantises them.
//!
//! The encodings are those of `pathcall/types.proto`: arrays packed, unpacked or mixed, in any number of parts; map
//! entries in any order, the last value of a key counts; a missing number is 0.

use std::collections::hash_map::Entry;
use std::fmt;

use pathcall_endpoint::map::{Key, Lanes};
use pathcall_endpoint::tables::SeededHashMap;
use pathcall_proto::manifest::Shape;

use super::fields::{FieldValue, Fields, unzigzag};
use super::number::Scale;
use super::{Collection, Malformed, Number, layout};

/// Values of a typed field, quantised.
#[derive(Debug, Clone, PartialEq)]
pub enum TypedValues {
    /// Values of an array, from index 0, or of a scalar.
    Lanes(Lanes),
    /// Keys with their values, each key once. The keys of an array are its indices.
    Pairs(Vec<(Key, i64)>),
    /// Values of an array that are not quantised here: the sum of gradients does it (key `lanes`).
    Floats(Vec<f32>),
}

impl TypedValues {
    /// Values of an empty field of any type.
    pub const EMPTY: Self = Self::Pairs(Vec::new());

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Lanes(lanes) => lanes.len(),
            Self::Pairs(pairs) => pairs.len(),
            Self::Floats(values) => values.len(),
        }
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The quantised values alone.
    #[must_use]
    pub fn into_lanes(self) -> Lanes {
        match self {
            Self::Lanes(lanes) => lanes,
            Self::Floats(_) => Lanes::default(),
            Self::Pairs(pairs) => pairs.into_iter().map(|(_, value)| value).collect(),
        }
    }

    /// Keys and quantised values.
    #[must_use]
    pub fn into_pairs(self) -> Vec<(Key, i64)> {
        match self {
            Self::Lanes(lanes) => (0i64..).map(Key::from).zip(lanes.iter()).collect(),
            Self::Pairs(pairs) => pairs,
            Self::Floats(_) => Vec::new(),
        }
    }

    /// The keys alone.
    #[must_use]
    pub fn into_keys(self) -> Vec<Key> {
        self.into_pairs().into_iter().map(|(key, _)| key).collect()
    }
}

/// Error of a typed field whose values cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TypedError {
    /// The bytes do not match the declared type.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A number cannot be quantised.
    #[error("{place} holds {value}: with Precision {precision}, values must be finite and below 2^62 / 10^{precision}")]
    Number {
        /// Position in the field.
        place: ValuePosition,
        /// The number.
        value: f64,
        /// The filter's Precision.
        precision: u8,
    },
}

/// Position of a value in a typed field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePosition {
    /// Index in an array.
    Index(usize),
    /// Key in a map.
    Key(Key),
    /// Value of a scalar.
    Only,
}

impl fmt::Display for ValuePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "index {index}"),
            Self::Key(key) => write!(f, "key {key:?}"),
            Self::Only => f.write_str("the value"),
        }
    }
}

/// Reader of a typed field, which collects the values of its parts.
#[derive(Debug)]
pub struct TypedFieldReader<'a> {
    collection: Collection,
    kind: Number,
    precision: u8,
    scale: Scale,
    /// Values of an array, or the last value of a scalar.
    lanes: Lanes,
    /// Values of an array that are not quantised here.
    floats: Option<Vec<f32>>,
    /// Entries of a map, in the order in which the keys first occurred.
    entries: Vec<(RawKey<'a>, i64)>,
    positions: SeededHashMap<RawKey<'a>, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RawKey<'a> {
    Text(&'a str),
    Int(i64),
}

impl RawKey<'_> {
    fn to_key(self) -> Key {
        match self {
            Self::Text(text) => text.into(),
            Self::Int(int) => int.into(),
        }
    }
}

impl<'a> TypedFieldReader<'a> {
    /// Reader for a field of this shape, without values yet.
    #[must_use]
    pub fn new(shape: Shape, precision: u8) -> Self {
        let (collection, kind) = layout(shape);
        Self {
            collection,
            kind,
            precision,
            scale: Scale::new(precision),
            lanes: Lanes::default(),
            floats: None,
            entries: Vec::new(),
            positions: SeededHashMap::default(),
        }
    }

    /// Reader of an array whose values are not quantised.
    #[must_use]
    pub fn floats(self) -> Self {
        Self { floats: Some(Vec::new()), ..self }
    }

    /// Reads one occurrence of the field.
    ///
    /// # Errors
    /// The bytes do not match the declared type, or a number cannot be quantised.
    pub fn part(&mut self, part: &'a [u8]) -> Result<(), TypedError> {
        match self.collection {
            Collection::Array => self.array(part),
            Collection::StringMap | Collection::IntMap => self.map(part),
            Collection::Scalar => self.scalar(part),
        }
    }

    /// Values of the field. Those of a map are in the order in which the keys first occurred.
    #[must_use]
    pub fn into_values(self) -> TypedValues {
        if let Some(floats) = self.floats {
            return TypedValues::Floats(floats);
        }
        match self.collection {
            Collection::Array | Collection::Scalar => TypedValues::Lanes(self.lanes),
            Collection::StringMap | Collection::IntMap => {
                TypedValues::Pairs(self.entries.into_iter().map(|(key, value)| (key.to_key(), value)).collect())
            }
        }
    }

    fn array(&mut self, part: &'a [u8]) -> Result<(), TypedError> {
        let mut fields = Fields::new(part);
        while let Some(field) = fields.next_field()? {
            if field.number != 1 {
                continue;
            }
            match (self.kind, field.value) {
                (Number::Int, FieldValue::Bytes(packed)) => {
                    let mut varints = Fields::new(packed);
                    while let Some(value) = varints.next_varint()? {
                        self.lanes.push(unzigzag(value));
                    }
                }
                (Number::Double, FieldValue::Bytes(packed)) => self.packed(packed, f64::from_le_bytes)?,
                (Number::Float, FieldValue::Bytes(packed)) => {
                    self.packed(packed, |bytes| f64::from(f32::from_le_bytes(bytes)))?;
                }
                (_, single) => {
                    let at = (field.span.start, part.len());
                    if let Some(floats) = &mut self.floats {
                        floats.push(float(self.kind, single).ok_or_else(|| no_number(at))? as f32);
                        continue;
                    }
                    let value = self.number(single, at, |reader| ValuePosition::Index(reader.lanes.len()))?;
                    self.lanes.push(value);
                }
            }
        }
        Ok(())
    }

    /// Reads packed numbers of fixed width.
    fn packed<const N: usize>(
        &mut self,
        packed: &[u8],
        read: impl Fn([u8; N]) -> f64 + Copy,
    ) -> Result<(), TypedError> {
        let (numbers, more) = packed.as_chunks::<N>();
        if !more.is_empty() {
            let at = packed.len() - more.len();
            return Err(Malformed { expected: "whole numbers in a packed field", at, len: packed.len() }.into());
        }
        if let Some(floats) = &mut self.floats {
            floats.extend(numbers.iter().map(|bytes| read(*bytes) as f32));
            return Ok(());
        }
        let before = self.lanes.len();
        self.scale.quantise_all(numbers, read, &mut self.lanes);
        match numbers.get(self.lanes.len() - before) {
            Some(bytes) => Err(self.no_integer(ValuePosition::Index(self.lanes.len()), read(*bytes))),
            None => Ok(()),
        }
    }

    fn map(&mut self, part: &'a [u8]) -> Result<(), TypedError> {
        let mut fields = Fields::new(part);
        while let Some(field) = fields.next_field()? {
            match field.value {
                _ if field.number != 1 => {}
                FieldValue::Bytes(entry) => self.entry(entry)?,
                _ => {
                    return Err(Malformed { expected: "a map entry", at: field.span.start, len: part.len() }.into());
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &'a [u8]) -> Result<(), TypedError> {
        let text = self.collection == Collection::StringMap;
        let mut key = if text { RawKey::Text("") } else { RawKey::Int(0) };
        let mut number = None;
        let mut fields = Fields::new(entry);
        while let Some(field) = fields.next_field()? {
            let malformed = |expected| Malformed { expected, at: field.span.start, len: entry.len() };
            match (field.number, field.value) {
                (1, FieldValue::Bytes(bytes)) if text => {
                    key = RawKey::Text(str::from_utf8(bytes).map_err(|_| malformed("a key in UTF-8"))?);
                }
                (1, FieldValue::Varint(value)) if !text => key = RawKey::Int(unzigzag(value)),
                (1, _) => return Err(malformed("a key of the map's type").into()),
                // The key for an error message may follow: store the number only.
                (2, value) => number = Some((value, (field.span.start, entry.len()))),
                _ => {}
            }
        }
        let value = match number {
            Some((value, at)) => self.number(value, at, |_| ValuePosition::Key(key.to_key()))?,
            None => 0,
        };
        match self.positions.entry(key) {
            Entry::Occupied(position) => self.entries[*position.get()].1 = value,
            Entry::Vacant(position) => {
                position.insert(self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    fn scalar(&mut self, part: &'a [u8]) -> Result<(), TypedError> {
        // The field is present: its value is 0 at least.
        let mut number = self.lanes.get(0).unwrap_or_default();
        let mut fields = Fields::new(part);
        while let Some(field) = fields.next_field()? {
            if field.number == 1 {
                let at = (field.span.start, part.len());
                number = self.number(field.value, at, |_| ValuePosition::Only)?;
            }
        }
        self.lanes = [number].into_iter().collect();
        Ok(())
    }

    /// Reads a single number; `at` has its offset and the length of the message.
    fn number(
        &self,
        value: FieldValue<'_>,
        (at, len): (usize, usize),
        place: impl FnOnce(&Self) -> ValuePosition,
    ) -> Result<i64, TypedError> {
        if let (Number::Int, FieldValue::Varint(value)) = (self.kind, value) {
            return Ok(unzigzag(value));
        }
        let value = float(self.kind, value).ok_or_else(|| no_number((at, len)))?;
        self.scale.quantise(value).ok_or_else(|| self.no_integer(place(self), value))
    }

    #[cold]
    fn no_integer(&self, place: ValuePosition, value: f64) -> TypedError {
        TypedError::Number { place, value, precision: self.precision }
    }
}

/// Floating-point number of this type.
fn float(kind: Number, value: FieldValue<'_>) -> Option<f64> {
    match (kind, value) {
        (Number::Double, FieldValue::Fixed64(bytes)) => Some(f64::from_le_bytes(bytes)),
        (Number::Float, FieldValue::Fixed32(bytes)) => Some(f32::from_le_bytes(bytes).into()),
        _ => None,
    }
}

fn no_number((at, len): (usize, usize)) -> Malformed {
    Malformed { expected: "a number of the field's type", at, len }
}
