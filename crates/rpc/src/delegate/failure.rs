//! Status of a failed request, as it travels: code, text, and in its details the rest, which is gRPC's status details and
//! trailing metadata.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use pathcall_endpoint::delegate;
use tonic::{Code, Status};

use super::envelope;

/// Headers of gRPC that travel as code and text.
const CODE_AND_TEXT: [&str; 2] = ["grpc-status", "grpc-message"];

/// Status that a server sends. Details and metadata that are too long are left out.
pub(super) fn encode(status: &Status) -> delegate::Status {
    let plain = delegate::Status::new(status.code() as u8, status.message());
    if status.details().is_empty() && status.metadata().is_empty() {
        return plain;
    }
    delegate::Status { details: details(status).unwrap_or_default(), ..plain }
}

fn details(status: &Status) -> Option<Bytes> {
    let (mut headers, mut out) = (HeaderMap::new(), BytesMut::new());
    status.add_header(&mut headers).ok()?;
    let entries = headers.iter().filter(|(name, _)| !CODE_AND_TEXT.contains(&name.as_str()));
    let entries = entries.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    envelope::put_metadata(&mut out, entries).ok()?;
    Some(out.freeze())
}

/// Status that a caller gets. Details that are invalid are left out.
pub(super) fn decode(status: delegate::Status) -> Status {
    let code = Code::from_i32(status.code.into());
    let plain = || Status::new(code, status.message.clone());
    let mut details = status.details.clone();
    if details.is_empty() {
        return plain();
    }
    let Ok(mut headers) = envelope::take_metadata(&mut details) else { return plain() };
    headers.insert(CODE_AND_TEXT[0], HeaderValue::from(i32::from(code)));
    let Some(rest) = Status::from_header_map(&headers) else { return plain() };
    Status::with_details_and_metadata(
        code,
        status.message,
        Bytes::copy_from_slice(rest.details()),
        rest.metadata().clone(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::metadata::{MetadataMap, MetadataValue};

    use super::*;

    #[test]
    fn status_round_trips_with_details_and_metadata() {
        let mut metadata = MetadataMap::new();
        metadata.insert("retry-info", "soon".parse().unwrap());
        metadata.insert_bin("trace-bin", MetadataValue::from_bytes(&[0, 255, 7]));
        for (details, metadata) in [
            (Bytes::new(), MetadataMap::new()),
            (Bytes::from_static(b"\x08\x05"), MetadataMap::new()),
            (Bytes::from_static(b"\xff\x00"), metadata.clone()),
            (Bytes::new(), metadata),
        ] {
            let status = Status::with_details_and_metadata(Code::NotFound, "no such ☃", details, metadata);
            let decoded = decode(encode(&status));
            assert_eq!((decoded.code(), decoded.message()), (status.code(), status.message()));
            assert_eq!(decoded.details(), status.details());
            assert_eq!(decoded.metadata().as_ref(), status.metadata().as_ref());
        }
    }

    proptest! {
        #[test]
        fn any_details_give_a_status_with_code_and_text(details in prop::collection::vec(any::<u8>(), 0..100)) {
            let status = delegate::Status { details: details.into(), ..delegate::Status::new(5, "text") };
            let decoded = decode(status);
            prop_assert_eq!((decoded.code(), decoded.message()), (Code::NotFound, "text"));
        }
    }
}
