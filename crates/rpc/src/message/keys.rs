//! List of keys as a message, `repeated bytes keys = 1`: the keys of a whole map that a caller clears.

use pathcall_endpoint::map::Key;

use super::Malformed;
use super::fields::{FieldValue, Fields, put_bytes_header};

/// Appends the keys.
pub fn append<'a>(message: &mut Vec<u8>, keys: impl IntoIterator<Item = &'a Key>) {
    for key in keys {
        put_bytes_header(message, 1, key.as_bytes().len());
        message.extend_from_slice(key.as_bytes());
    }
}

/// Decodes the keys of a message.
///
/// # Errors
/// The bytes are not such a message.
pub fn read(message: &[u8]) -> Result<Vec<Key>, Malformed> {
    let mut keys = Vec::new();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_field()? {
        let key = match field.value {
            FieldValue::Bytes(bytes) if field.number == 1 => Key::from_bytes(bytes),
            _ => None,
        };
        keys.push(key.ok_or(Malformed { expected: "a key", at: field.span.start, len: message.len() })?);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip() {
        let keys = [Key::from("word"), Key::from(""), Key::from(-7)];
        let mut message = Vec::new();
        append(&mut message, &keys);
        assert_eq!(read(&message).unwrap(), keys);
        assert_eq!(read(&[]).unwrap(), []);
        assert!(read(&[0x0a, 1, b'x']).is_err());
        assert!(read(&[0x08, 1]).is_err());
    }
}
