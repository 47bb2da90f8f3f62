//! A request as it travels in frames.
//!
//! ```text
//! time left 8, µs, 0: no limit │ method, metadata and message as calls that are passed on have them
//! ```

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;

use crate::delegate::envelope::{self, Envelope, EnvelopeError};

/// A request for a method.
pub(crate) fn seal(
    path: &str,
    metadata: &HeaderMap,
    left: Option<Duration>,
    message: &[u8],
) -> Result<Bytes, EnvelopeError> {
    let sealed = envelope::seal(path, metadata, message)?;
    let mut out = BytesMut::with_capacity(8 + sealed.len());
    // A limit that is over is one all the same.
    out.put_u64(left.map_or(0, |left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1)));
    out.put_slice(&sealed);
    Ok(out.freeze())
}

/// The request in these bytes, and how much time is left for it.
pub(crate) fn open(mut bytes: Bytes) -> Result<(Option<Duration>, Envelope), EnvelopeError> {
    let left = bytes.try_get_u64().map_err(|_| EnvelopeError::Short("time limit"))?;
    Ok(((left > 0).then(|| Duration::from_micros(left)), envelope::open(bytes)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_sealed_is_opened() {
        for left in [None, Some(Duration::from_micros(1)), Some(Duration::from_secs(9))] {
            let sealed = seal("/a.B/C", &HeaderMap::new(), left, b"message").unwrap();
            let (opened, envelope) = open(sealed).unwrap();
            assert_eq!((opened, &*envelope.path, &*envelope.message), (left, "/a.B/C", &b"message"[..]));
        }
        let (over, _) = open(seal("/a.B/C", &HeaderMap::new(), Some(Duration::ZERO), b"").unwrap()).unwrap();
        assert!(over.is_some(), "a limit that is over is no freedom");
    }

    proptest! {
        #[test]
        fn any_bytes_are_opened_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = open(bytes.into());
        }
    }
}
