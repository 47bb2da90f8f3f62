//! Encoding of a request in frames.
//!
//! ```text
//! time left 8, µs, 0: no limit │ method, metadata and message as in delegated requests
//! ```

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;

use crate::delegate::envelope::{self, Envelope, EnvelopeError};

/// Encodes a request for a method.
pub(crate) fn encode(
    path: &str,
    metadata: &HeaderMap,
    left: Option<Duration>,
    message: &[u8],
) -> Result<Bytes, EnvelopeError> {
    let encoded = envelope::encode(path, metadata, message)?;
    let mut out = BytesMut::with_capacity(8 + encoded.len());
    // An expired limit is not "no limit".
    out.put_u64(left.map_or(0, |left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1)));
    out.put_slice(&encoded);
    Ok(out.freeze())
}

/// Decodes a request and the time left for it.
pub(crate) fn decode(mut bytes: Bytes) -> Result<(Option<Duration>, Envelope), EnvelopeError> {
    let left = bytes.try_get_u64().map_err(|_| EnvelopeError::Short("time limit"))?;
    Ok(((left > 0).then(|| Duration::from_micros(left)), envelope::decode(bytes)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encoding_round_trips() {
        for left in [None, Some(Duration::from_micros(1)), Some(Duration::from_secs(9))] {
            let encoded = encode("/a.B/C", &HeaderMap::new(), left, b"message").unwrap();
            let (opened, envelope) = decode(encoded).unwrap();
            assert_eq!((opened, &*envelope.path, &*envelope.message), (left, "/a.B/C", &b"message"[..]));
        }
        let (over, _) = decode(encode("/a.B/C", &HeaderMap::new(), Some(Duration::ZERO), b"").unwrap()).unwrap();
        assert!(over.is_some(), "an expired limit is kept");
    }

    proptest! {
        #[test]
        fn decode_accepts_or_refuses_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(bytes.into());
        }
    }
}
