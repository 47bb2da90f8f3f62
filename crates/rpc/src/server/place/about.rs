//! What a request is about: requests with equal values of a field keep their order.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use http::HeaderMap;
use tonic::Status;

use crate::message::fields::{Fields, Value};
use crate::message::frame;

/// Hashes the values of keys; who sends requests can't make two of them meet.
#[derive(Debug, Clone, Default)]
pub(super) struct About(RandomState);

impl About {
    /// The address of a request: of the field of this number in a message, 0 for any. A field that is not there has
    /// its default.
    pub(super) fn address(&self, headers: &HeaderMap, frame: &Bytes, key: u32) -> Result<u64, Status> {
        if key == 0 {
            return Ok(0);
        }
        let message = frame::read(headers, frame, frame::UNPACKED_MAX)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        self.address_of(&message, key)
    }

    /// As [`address`](Self::address), of a message without its frame.
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
            None | Some(Value::Varint(0) | Value::Fixed64([0, 0, 0, 0, 0, 0, 0, 0])) => self.0.hash_one(()),
            Some(Value::Fixed32([0, 0, 0, 0]) | Value::Bytes([]) | Value::Group) => self.0.hash_one(()),
            Some(Value::Varint(value)) => self.0.hash_one(value),
            Some(Value::Fixed64(bytes)) => self.0.hash_one(u64::from_le_bytes(bytes)),
            Some(Value::Fixed32(bytes)) => self.0.hash_one(u32::from_le_bytes(bytes)),
            Some(Value::Bytes(bytes)) => self.0.hash_one(bytes),
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
    fn equal_values_have_one_address() {
        let about = About::default();
        let one = Request { other: "a".into(), key: b"k".into(), number: 7 };
        let same = Request { other: "b".into(), ..one.clone() };
        let other = Request { key: b"l".into(), ..one.clone() };
        let at = |request: &Request, key| about.address(&HeaderMap::new(), &framed(request, &[]), key).unwrap();
        assert_eq!(at(&one, 2), at(&same, 2));
        assert_ne!(at(&one, 2), at(&other, 2));
        assert_eq!(at(&one, 3), at(&other, 3));
        assert_eq!((at(&one, 0), at(&other, 0)), (0, 0));
    }

    #[test]
    fn what_is_not_there_is_the_default_and_the_last_value_counts() {
        let about = About::default();
        let (empty, zero) = (Request::default(), [0x12, 0]);
        let at = |more: &[u8]| about.address(&HeaderMap::new(), &framed(&empty, more), 2).unwrap();
        assert_eq!(at(&[]), at(&zero));
        assert_eq!(at(&[0x12, 1, b'a', 0x12, 1, b'b']), at(&[0x12, 1, b'b']));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let about = About::default();
        let wrong = about.address(&HeaderMap::new(), &framed(&Request::default(), &[0x12, 9]), 2).unwrap_err();
        assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
        let compressed = Bytes::from_static(&[1, 0, 0, 0, 0]);
        assert_eq!(
            about.address(&HeaderMap::new(), &compressed, 2).unwrap_err().code(),
            tonic::Code::FailedPrecondition
        );
    }
}
