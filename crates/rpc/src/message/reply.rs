//! Writer of a typed field at the end of an encoded message.
//!
//! The end is a valid position for any field number: fields may come in any order, and parts of a message are merged.

use std::borrow::Cow;

use pathcall_endpoint::map::{Key, Lanes};
use pathcall_proto::manifest::Shape;

use super::fields::{bytes_field_len, put_bytes_header, put_varint, varint_len, zigzag};
use super::number::Scale;
use super::typed::TypedValues;
use super::{Collection, Number, layout};

/// Maximum number of lanes of an array in a reply: the limit of a gRPC message of 4 GiB.
pub const ARRAY_LANES_MAX: usize = 1 << 29;
/// Longer arrays must have a value for at least one of [`SPARSE_MAX`] lanes: a query for one key of many must not be
/// answered with all of the memory.
const SPARSE_LANES_MAX: usize = 1 << 20;
const SPARSE_MAX: usize = 64;

/// Error of values that do not fit the reply's typed field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A key does not fit the field's type.
    #[error("key {key:?} does not fit {wanted}")]
    Key {
        /// The key.
        key: Key,
        /// Type of the field.
        wanted: &'static str,
    },
    /// The array would be far longer than its number of values.
    #[error("{pairs} keys need an array of length {len}: use a map as reply field")]
    Sparse {
        /// Length of the array.
        len: usize,
        /// Number of values.
        pairs: usize,
    },
    /// A scalar has several values.
    #[error("a scalar field received {0} values")]
    Several(usize),
}

/// Appends the field at `path` with these values. An empty field is written, too.
///
/// An array is dense from 0 to the largest index, with 0 for missing values.
///
/// # Errors
/// The values do not fit the field's shape; `message` is then unchanged.
pub fn append(
    message: &mut Vec<u8>,
    path: &[u32],
    shape: Shape,
    precision: u8,
    values: &TypedValues,
) -> Result<(), ReplyError> {
    let (collection, kind) = layout(shape);
    if let TypedValues::Floats(values) = values {
        put_floats(message, path, kind, values);
        return Ok(());
    }
    let number = NumberWriter { kind, scale: Scale::new(precision) };
    match collection {
        Collection::Array => {
            let lanes = dense(values)?;
            let lanes = lanes.as_ref();
            let packed: usize = number.packed_len(lanes);
            let inner = if lanes.is_empty() { 0 } else { bytes_field_len(1, packed) };
            put_path(message, path, inner);
            if !lanes.is_empty() {
                put_bytes_header(message, 1, packed);
                number.put_packed(message, lanes);
            }
        }
        Collection::Scalar => {
            let lanes = dense(values)?;
            let value = lanes.get(0);
            if lanes.len() > 1 {
                return Err(ReplyError::Several(lanes.len()));
            }
            put_path(message, path, value.map_or(0, |value| number.field_len(value)));
            if let Some(value) = value {
                number.put_field(message, 1, value);
            }
        }
        Collection::StringMap => {
            let pairs = keyed(values, "a map with string keys", |key| key.as_str())?;
            let key_len = |key: &&str| bytes_field_len(1, key.len());
            put_map(message, path, number, &pairs, key_len, |out, key| {
                put_bytes_header(out, 1, key.len());
                out.extend_from_slice(key.as_bytes());
            });
        }
        Collection::IntMap => {
            let pairs = keyed(values, "a map with integer keys", Key::as_int)?;
            let key_len = |key: &i64| 1 + varint_len(zigzag(*key));
            put_map(message, path, number, &pairs, key_len, |out, key| {
                out.push(1 << 3);
                put_varint(out, zigzag(*key));
            });
        }
    }
    Ok(())
}

/// Appends the headers of the messages along `path`; the innermost has `len` bytes, which follow.
fn put_path(message: &mut Vec<u8>, path: &[u32], len: usize) {
    let Some((number, inner)) = path.split_first() else {
        message.reserve(len);
        return;
    };
    let inner_len = inner.iter().rev().fold(len, |len, number| bytes_field_len(*number, len));
    put_bytes_header(message, *number, inner_len);
    put_path(message, inner, len);
}

/// Appends an array of values that were not quantised.
fn put_floats(message: &mut Vec<u8>, path: &[u32], kind: Number, values: &[f32]) {
    let packed = values.len() * if kind == Number::Double { 8 } else { 4 };
    put_path(message, path, if values.is_empty() { 0 } else { bytes_field_len(1, packed) });
    if values.is_empty() {
        return;
    }
    put_bytes_header(message, 1, packed);
    if kind == Number::Double {
        message.extend(values.iter().flat_map(|value| f64::from(*value).to_le_bytes()));
    } else {
        message.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

fn put_map<K>(
    message: &mut Vec<u8>,
    path: &[u32],
    number: NumberWriter,
    pairs: &[(K, i64)],
    key_len: impl Fn(&K) -> usize,
    put_key: impl Fn(&mut Vec<u8>, &K),
) {
    let entry_len = |(key, value): &(K, i64)| key_len(key) + number.field_len(*value);
    put_path(message, path, pairs.iter().map(|pair| bytes_field_len(1, entry_len(pair))).sum());
    for pair in pairs {
        put_bytes_header(message, 1, entry_len(pair));
        put_key(message, &pair.0);
        number.put_field(message, 2, pair.1);
    }
}

/// Pairs with keys converted to the map's key type.
fn keyed<'a, K>(
    values: &'a TypedValues,
    wanted: &'static str,
    convert: impl Fn(&'a Key) -> Option<K>,
) -> Result<Vec<(K, i64)>, ReplyError> {
    match values {
        TypedValues::Pairs(pairs) => pairs
            .iter()
            .map(|(key, value)| match convert(key) {
                Some(converted) => Ok((converted, *value)),
                None => Err(ReplyError::Key { key: key.clone(), wanted }),
            })
            .collect(),
        TypedValues::Lanes(lanes) if lanes.is_empty() => Ok(Vec::new()),
        TypedValues::Lanes(_) | TypedValues::Floats(_) => Err(ReplyError::Key { key: Key::from(0), wanted }),
    }
}

/// One value per index.
fn dense(values: &TypedValues) -> Result<Cow<'_, Lanes>, ReplyError> {
    let pairs = match values {
        TypedValues::Lanes(lanes) => return Ok(Cow::Borrowed(lanes)),
        TypedValues::Floats(_) => return Ok(Cow::Owned(Lanes::default())),
        TypedValues::Pairs(pairs) => pairs,
    };
    let index = |key: &Key| {
        let index = key.as_int().and_then(|int| usize::try_from(int).ok());
        index.filter(|index| *index < ARRAY_LANES_MAX)
    };
    let mut len = 0;
    for (key, _) in pairs {
        match index(key) {
            Some(index) => len = len.max(index + 1),
            None => return Err(ReplyError::Key { key: key.clone(), wanted: "an array" }),
        }
    }
    if len > SPARSE_LANES_MAX && len / SPARSE_MAX > pairs.len() {
        return Err(ReplyError::Sparse { len, pairs: pairs.len() });
    }
    let mut lanes = vec![0; len];
    for (key, value) in pairs {
        if let Some(lane) = index(key).and_then(|index| lanes.get_mut(index)) {
            *lane = *value;
        }
    }
    Ok(Cow::Owned(lanes.into()))
}

/// Writer of numbers of the field's type.
#[derive(Clone, Copy)]
struct NumberWriter {
    kind: Number,
    scale: Scale,
}

impl NumberWriter {
    fn packed_len(self, lanes: &Lanes) -> usize {
        match self.kind {
            Number::Int => lanes.iter().map(|lane| varint_len(zigzag(lane))).sum(),
            Number::Double => lanes.len() * 8,
            Number::Float => lanes.len() * 4,
        }
    }

    /// Length of a single number with its tag (below 16), bytes.
    fn field_len(self, value: i64) -> usize {
        1 + match self.kind {
            Number::Int => varint_len(zigzag(value)),
            Number::Double => 8,
            Number::Float => 4,
        }
    }

    fn put_field(self, out: &mut Vec<u8>, number: u8, value: i64) {
        let wire_type = match self.kind {
            Number::Int => 0,
            Number::Double => 1,
            Number::Float => 5,
        };
        out.push(number << 3 | wire_type);
        self.put(out, value);
    }

    fn put_packed(self, out: &mut Vec<u8>, lanes: &Lanes) {
        match self.kind {
            Number::Int => lanes.iter().for_each(|lane| put_varint(out, zigzag(lane))),
            Number::Double => self.scale.dequantise_all(lanes, f64::to_le_bytes, out),
            Number::Float => self.scale.dequantise_all(lanes, |number| (number as f32).to_le_bytes(), out),
        }
    }

    #[inline]
    fn put(self, out: &mut Vec<u8>, value: i64) {
        match self.kind {
            Number::Int => put_varint(out, zigzag(value)),
            Number::Double => out.extend_from_slice(&self.scale.dequantise(value).to_le_bytes()),
            Number::Float => out.extend_from_slice(&(self.scale.dequantise(value) as f32).to_le_bytes()),
        }
    }
}
