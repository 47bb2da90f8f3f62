//! Separation of a typed field, given by its path, from the rest of a message.

use super::Malformed;
use super::fields::{FieldValue, Fields, put_bytes_header};

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
