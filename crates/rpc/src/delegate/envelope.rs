//! Encoding of a delegated request: method and metadata before the message.
//!
//! ```text
//! length 2 │ path │ entries 2 │ (length 2 │ name │ length 2 │ value) … │ message
//! ```
//!
//! The entry `pathcall-avoid` lists the servers that have failed, which further requests of the call avoid.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::headers::{ADMITTED, AVOID, is_application_metadata};

/// Decoded request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) path: String,
    pub(crate) metadata: HeaderMap,
    /// Servers that further requests of the call should avoid.
    pub(crate) avoided: Vec<SocketAddr>,
    pub(crate) message: Bytes,
}

/// Reason why bytes are not a valid request, or a request cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeError {
    /// The bytes end too soon.
    #[error("the request ends in the middle of its {0}")]
    Short(&'static str),
    /// A field is not valid text.
    #[error("the request's {0} is invalid")]
    Text(&'static str),
    /// A field is too long for its length prefix.
    #[error("the request's {what} has {got} bytes, more than the maximum of {}", u16::MAX)]
    Long {
        /// Name of the field.
        what: &'static str,
        /// Its size, bytes.
        got: usize,
    },
}

/// Encodes a request for a method.
pub(crate) fn encode(
    path: &str,
    metadata: &HeaderMap,
    avoided: &[SocketAddr],
    message: &[u8],
) -> Result<Bytes, EnvelopeError> {
    let of_application = metadata.iter().filter(|(name, _)| is_application_metadata(name) || *name == ADMITTED);
    let mut entries: Vec<_> = of_application.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let avoid = AVOID;
    let avoided = avoided.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    if !avoided.is_empty() {
        entries.push((avoid.as_str(), avoided.as_bytes()));
    }
    let mut out = BytesMut::with_capacity(64 + path.len() + message.len());
    put(&mut out, "path", path.as_bytes())?;
    put_metadata(&mut out, entries)?;
    out.put_slice(message);
    Ok(out.freeze())
}

/// Decodes a request.
pub(crate) fn decode(mut bytes: Bytes) -> Result<Envelope, EnvelopeError> {
    let path = String::from_utf8(take(&mut bytes, "path")?.to_vec()).map_err(|_| EnvelopeError::Text("path"))?;
    let mut metadata = take_metadata(&mut bytes)?;
    let avoided = metadata.remove(AVOID).and_then(|avoided| avoided.to_str().ok().map(addresses)).unwrap_or_default();
    Ok(Envelope { path, metadata, avoided, message: bytes })
}

/// Encodes metadata: the number of entries, and the entries.
pub(super) fn put_metadata(out: &mut BytesMut, entries: Vec<(&str, &[u8])>) -> Result<(), EnvelopeError> {
    let count = u16::try_from(entries.len());
    out.put_u16(count.map_err(|_| EnvelopeError::Long { what: "metadata", got: entries.len() })?);
    for (name, value) in entries {
        put(out, "metadata", name.as_bytes())?;
        put(out, "metadata", value)?;
    }
    Ok(())
}

/// Decodes metadata, and leaves the bytes after it.
pub(super) fn take_metadata(bytes: &mut Bytes) -> Result<HeaderMap, EnvelopeError> {
    let entries = bytes.try_get_u16().map_err(|_| EnvelopeError::Short("metadata"))?;
    let mut metadata = HeaderMap::new();
    for _ in 0..entries {
        let (name, value) = (take(bytes, "metadata")?, take(bytes, "metadata")?);
        let name = HeaderName::from_bytes(&name).map_err(|_| EnvelopeError::Text("metadata"))?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| EnvelopeError::Text("metadata"))?;
        // A header map has a maximum size.
        metadata.try_append(name, value).map_err(|_| EnvelopeError::Text("metadata"))?;
    }
    Ok(metadata)
}

/// Addresses in a list; what is no address has no meaning.
fn addresses(list: &str) -> Vec<SocketAddr> {
    list.split(',').filter_map(|address| address.parse().ok()).collect()
}

fn put(out: &mut BytesMut, what: &'static str, bytes: &[u8]) -> Result<(), EnvelopeError> {
    let len = u16::try_from(bytes.len()).map_err(|_| EnvelopeError::Long { what, got: bytes.len() })?;
    out.put_u16(len);
    out.put_slice(bytes);
    Ok(())
}

fn take(bytes: &mut Bytes, what: &'static str) -> Result<Bytes, EnvelopeError> {
    let len = bytes.try_get_u16().map_err(|_| EnvelopeError::Short(what))?.into();
    if bytes.len() < len { Err(EnvelopeError::Short(what)) } else { Ok(bytes.split_to(len)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_encoding_round_trips() {
        let mut metadata = HeaderMap::new();
        metadata.append("authorization", HeaderValue::from_static("Bearer x"));
        metadata.append("trace-bin", HeaderValue::from_static("AAEC"));
        metadata.append("trace-bin", HeaderValue::from_static("Aw"));
        let mut sent = metadata.clone();
        sent.append("grpc-timeout", HeaderValue::from_static("1S"));
        sent.append("te", HeaderValue::from_static("trailers"));
        sent.append(AVOID, HeaderValue::from_static("10.0.0.9:9"));
        for avoided in [vec![], vec!["10.0.0.1:7".parse().unwrap(), "[::1]:8".parse().unwrap()]] {
            let envelope = decode(encode("/a.B/C", &sent, &avoided, b"message").unwrap()).unwrap();
            let (path, metadata, message) = ("/a.B/C".into(), metadata.clone(), Bytes::from_static(b"message"));
            assert_eq!(envelope, Envelope { path, metadata, avoided, message });
        }
    }

    #[test]
    fn too_many_metadata_entries_are_refused() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, "path", b"/a.B/C").unwrap();
        bytes.put_u16(u16::MAX);
        for entry in 0..u16::MAX {
            put(&mut bytes, "metadata", format!("x-{entry}").as_bytes()).unwrap();
            put(&mut bytes, "metadata", b"").unwrap();
        }
        assert_eq!(decode(bytes.freeze()), Err(EnvelopeError::Text("metadata")));
    }

    proptest! {
        #[test]
        fn decode_accepts_or_refuses_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(bytes.into());
        }
    }
}
