//! Ordering key of a request: requests with equal values of a field keep their order.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use http::HeaderMap;
use tonic::Status;

use crate::message::fields::{FieldValue, Fields};
use crate::message::frame;

/// Hash of the values of ordering keys; senders cannot provoke collisions.
#[derive(Debug, Clone, Default)]
pub(super) struct OrderingKeyHasher(RandomState);

impl OrderingKeyHasher {
    /// Ordering address of a request: the hash of the field with this number, or 0 for field number 0. A missing field
    /// has its default value.
    pub(super) fn address(&self, headers: &HeaderMap, frame: &Bytes, key: u32) -> Result<u64, Status> {
        if key == 0 {
            return Ok(0);
        }
        let message = frame::read(headers, frame, frame::UNPACKED_MAX)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        self.address_of(&message, key)
    }

    /// The same for a message without its frame.
    pub(super) fn address_of(&self, message: &[u8], key: u32) -> Result<u64, Status> {
        if key == 0 {
            return Ok(0);
        }
        let malformed = |error| Status::invalid_argument(format!("not a message: {error}"));
        let (mut fields, mut last) = (Fields::new(message), None);
        while let Some(field) = fields.next_field().map_err(malformed)? {
            if field.number == key {
                last = Some(field.value);
            }
        }
        Ok(match last {
            None | Some(FieldValue::Varint(0) | FieldValue::Fixed64([0, 0, 0, 0, 0, 0, 0, 0])) => self.0.hash_one(()),
            Some(FieldValue::Fixed32([0, 0, 0, 0]) | FieldValue::Bytes([]) | FieldValue::Group) => self.0.hash_one(()),
            Some(FieldValue::Varint(value)) => self.0.hash_one(value),
            Some(FieldValue::Fixed64(bytes)) => self.0.hash_one(u64::from_le_bytes(bytes)),
            Some(FieldValue::Fixed32(bytes)) => self.0.hash_one(u32::from_le_bytes(bytes)),
            Some(FieldValue::Bytes(bytes)) => self.0.hash_one(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Request {
        #[prost(string, tag = "1")]
        other: String,
        #[prost(bytes = "vec", tag = "2")]
        key: Vec<u8>,
        #[prost(sint64, tag = "3")]
        number: i64,
    }

    fn framed(request: &Request, more: &[u8]) -> Bytes {
        let mut frame = frame::begin();
        request.encode(&mut frame).unwrap();
        frame.extend_from_slice(more);
        frame::close(frame).unwrap()
    }

    #[test]
    fn equal_values_have_equal_address() {
        let hasher = OrderingKeyHasher::default();
        let one = Request { other: "a".into(), key: b"k".into(), number: 7 };
        let same = Request { other: "b".into(), ..one.clone() };
        let other = Request { key: b"l".into(), ..one.clone() };
        let at = |request: &Request, key| hasher.address(&HeaderMap::new(), &framed(request, &[]), key).unwrap();
        assert_eq!(at(&one, 2), at(&same, 2));
        assert_ne!(at(&one, 2), at(&other, 2));
        assert_eq!(at(&one, 3), at(&other, 3));
        assert_eq!((at(&one, 0), at(&other, 0)), (0, 0));
    }

    #[test]
    fn missing_field_is_default_and_last_value_counts() {
        let hasher = OrderingKeyHasher::default();
        let (empty, zero) = (Request::default(), [0x12, 0]);
        let at = |more: &[u8]| hasher.address(&HeaderMap::new(), &framed(&empty, more), 2).unwrap();
        assert_eq!(at(&[]), at(&zero));
        assert_eq!(at(&[0x12, 1, b'a', 0x12, 1, b'b']), at(&[0x12, 1, b'b']));
    }

    #[test]
    fn invalid_message_is_refused() {
        let hasher = OrderingKeyHasher::default();
        let wrong = hasher.address(&HeaderMap::new(), &framed(&Request::default(), &[0x12, 9]), 2).unwrap_err();
        assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
        let compressed = Bytes::from_static(&[1, 0, 0, 0, 0]);
        assert_eq!(
            hasher.address(&HeaderMap::new(), &compressed, 2).unwrap_err().code(),
            tonic::Code::FailedPrecondition
        );
    }
}
