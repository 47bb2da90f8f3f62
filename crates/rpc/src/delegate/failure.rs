//! Status of a failed request, as it travels: code, text, and in its details the rest, which is gRPC's status details and
//! trailing metadata.

use bytes::BytesMut;
use http::HeaderMap;
use pathcall_endpoint::delegate::{self, STATUS_DETAILS_MAX};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::envelope;
use crate::headers::PUSHBACK;

/// Headers of gRPC that travel as code and text.
const CODE_AND_TEXT: [&str; 2] = ["grpc-status", "grpc-message"];
/// Header of gRPC with the status details.
const DETAILS: &str = "grpc-status-details-bin";

/// Status that a server sends. If details and metadata are too long, the details are left out, and then all metadata but
/// the pushback.
pub(super) fn encode(status: &Status) -> delegate::Status {
    let plain = delegate::Status::new(status.code() as u8, status.message());
    if status.details().is_empty() && status.metadata().is_empty() {
        return plain;
    }
    let mut headers = HeaderMap::new();
    // Without headers, the status has its code and its text.
    let _ = status.add_header(&mut headers);
    CODE_AND_TEXT.iter().for_each(|name| drop(headers.remove(*name)));
    let fits = |headers: &HeaderMap| {
        let mut out = BytesMut::new();
        let entries = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        envelope::put_metadata(&mut out, entries)
            .ok()
            .map(|()| out.freeze())
            .filter(|it| it.len() <= STATUS_DETAILS_MAX)
    };
    let whole = fits(&headers);
    let without_details = || {
        headers.remove(DETAILS);
        fits(&headers)
    };
    let details = whole.or_else(without_details).or_else(|| {
        let pushback = status.metadata().get(PUSHBACK).map(|pushback| pushback.as_bytes().to_vec())?;
        let mut out = BytesMut::new();
        envelope::put_metadata(&mut out, vec![(PUSHBACK, &pushback)]).ok().map(|()| out.freeze())
    });
    delegate::Status { details: details.unwrap_or_default(), ..plain }
}

/// Status that a caller gets. Details and metadata that are invalid are left out.
pub(super) fn decode(status: delegate::Status) -> Status {
    let (code, mut rest) = (Code::from_i32(status.code.into()), status.details);
    if rest.is_empty() {
        return Status::new(code, status.message);
    }
    let mut metadata = envelope::take_metadata(&mut rest).map(MetadataMap::from_headers).unwrap_or_default();
    CODE_AND_TEXT.iter().for_each(|name| drop(metadata.remove(*name)));
    let details = metadata.remove_bin(DETAILS).and_then(|details| details.to_bytes().ok()).unwrap_or_default();
    Status::with_details_and_metadata(code, status.message, details, metadata)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
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

    #[test]
    fn invalid_entries_are_left_out() {
        let mut out = BytesMut::new();
        let entries: Vec<(&str, &[u8])> = vec![(DETAILS, b"!"), ("grpc-status", b"0"), ("a", b"b")];
        envelope::put_metadata(&mut out, entries).unwrap();
        let decoded = decode(delegate::Status { details: out.freeze(), ..delegate::Status::new(5, "text") });
        assert_eq!((decoded.code(), decoded.message(), decoded.details()), (Code::NotFound, "text", &b""[..]));
        assert_eq!(decoded.metadata().keys().count(), 1);
        let mut headers = HeaderMap::new();
        decoded.add_header(&mut headers).unwrap();
        assert_eq!(headers.get("grpc-status").unwrap(), "5");
    }

    #[test]
    fn pushback_travels_with_details_and_metadata_that_are_too_long() {
        let with = |details: usize, metadata: usize| {
            let details = Bytes::from(vec![7; details]);
            let mut status = Status::with_details(Code::Unavailable, "busy", details);
            status.metadata_mut().insert("why", "x".repeat(metadata).parse().unwrap());
            status.metadata_mut().insert(PUSHBACK, "-1".parse().unwrap());
            let decoded = decode(encode(&status));
            assert_eq!(decoded.metadata().get(PUSHBACK).unwrap(), "-1");
            (decoded.details().len(), decoded.metadata().contains_key("why"))
        };
        assert_eq!(with(100, 100), (100, true));
        assert_eq!(with(STATUS_DETAILS_MAX, 100), (0, true));
        assert_eq!(with(100, STATUS_DETAILS_MAX), (0, false));
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
