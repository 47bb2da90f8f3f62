//! A gRPC frame around one message: a flag byte, a length of four bytes, the message.

use bytes::Bytes;
use http::HeaderMap;

/// Bytes before the message.
pub const HEADER_LEN: usize = 5;

/// Longest message of somebody else that is unpacked, bytes: as tonic's own limit.
pub(crate) const UNPACKED_MAX: usize = 4 << 20;

/// Why bytes are not one plain gRPC message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed, as can't be undone here: its fields can't be seen.
    #[error("the message is compressed")]
    Compressed,
    /// It is no compressed message, though it is said to be one.
    #[error("the message is said to be compressed, and is not")]
    Damaged,
    /// It takes too much room.
    #[error("the message has more than {0} bytes when it is unpacked")]
    Unpacked(usize),
    /// Not one message.
    #[error("expected one gRPC message of {expected} bytes, got {got} bytes")]
    Length {
        /// What the prefix says, itself included.
        expected: usize,
        /// What there is.
        got: usize,
    },
    /// A message that no prefix can describe.
    #[error("a message of {0} bytes is more than a gRPC frame carries")]
    TooLong(usize),
}

/// The message of a frame.
///
/// # Errors
/// When the bytes are not exactly one uncompressed message.
pub fn open(frame: &Bytes) -> Result<Bytes, FrameError> {
    let Some((&[flag, ref len @ ..], message)) = frame.split_first_chunk::<HEADER_LEN>() else {
        return Err(FrameError::Length { expected: HEADER_LEN, got: frame.len() });
    };
    let expected = u32::from_be_bytes(*len) as usize;
    if message.len() != expected {
        return Err(FrameError::Length { expected: HEADER_LEN + expected, got: frame.len() });
    }
    if flag != 0 {
        return Err(FrameError::Compressed);
    }
    Ok(frame.slice(HEADER_LEN..))
}

/// The message of a frame whose call has these headers: compressed or not.
///
/// # Errors
/// As [`open`]; a message that is compressed otherwise than with gzip is not taken, and none without the feature `gzip`, nor
/// one of more than `max` bytes when it is unpacked.
pub(crate) fn read(headers: &HeaderMap, frame: &Bytes, max: usize) -> Result<Bytes, FrameError> {
    match open(frame) {
        Err(FrameError::Compressed) => unpack(headers, &frame[HEADER_LEN..], max),
        opened => opened,
    }
}

#[cfg(feature = "gzip")]
fn unpack(headers: &HeaderMap, packed: &[u8], max: usize) -> Result<Bytes, FrameError> {
    use std::io::Read;

    if headers.get("grpc-encoding").is_none_or(|encoding| encoding != "gzip") {
        return Err(FrameError::Compressed);
    }
    let mut message = Vec::new();
    // A few bytes may be said to be very many.
    let unpacked = flate2::read::GzDecoder::new(packed).take(max as u64 + 1).read_to_end(&mut message);
    match unpacked {
        Ok(len) if len > max => Err(FrameError::Unpacked(max)),
        Ok(_) => Ok(message.into()),
        Err(_) => Err(FrameError::Damaged),
    }
}

#[cfg(not(feature = "gzip"))]
fn unpack(_: &HeaderMap, _: &[u8], _: usize) -> Result<Bytes, FrameError> {
    Err(FrameError::Compressed)
}

/// The start of a frame whose message is appended next; [`close`] it then.
#[must_use]
pub fn begin() -> Vec<u8> {
    vec![0; HEADER_LEN]
}

/// The frame, when its message is complete.
///
/// # Errors
/// When the message is longer than 4 GiB.
pub fn close(mut frame: Vec<u8>) -> Result<Bytes, FrameError> {
    let len = frame.len().saturating_sub(HEADER_LEN);
    let Ok(prefix) = u32::try_from(len) else {
        return Err(FrameError::TooLong(len));
    };
    frame[1..HEADER_LEN].copy_from_slice(&prefix.to_be_bytes());
    Ok(frame.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_opens_to_what_was_put_in() {
        let mut frame = begin();
        frame.extend_from_slice(b"hello");
        let frame = close(frame).unwrap();
        assert_eq!(frame, &b"\0\0\0\0\x05hello"[..]);
        assert_eq!(open(&frame).unwrap(), &b"hello"[..]);
    }

    #[cfg(feature = "gzip")]
    #[test]
    fn compressed_message_is_unpacked() {
        use std::io::Write;

        let packed = |message: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(vec![1, 0, 0, 0, 0], flate2::Compression::fast());
            gzip.write_all(message).unwrap();
            let mut frame = gzip.finish().unwrap();
            let len = u32::try_from(frame.len() - HEADER_LEN).unwrap();
            frame[1..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
            Bytes::from(frame)
        };
        let headers = |encoding| HeaderMap::from_iter([(http::HeaderName::from_static("grpc-encoding"), encoding)]);
        let gzip = headers(http::HeaderValue::from_static("gzip"));
        for message in [&b""[..], b"hello", &[7; 100_000]] {
            assert_eq!(read(&gzip, &packed(message), UNPACKED_MAX).unwrap(), message);
        }
        assert_eq!(read(&HeaderMap::new(), &packed(b"hello"), UNPACKED_MAX), Err(FrameError::Compressed));
        assert_eq!(
            read(&headers(http::HeaderValue::from_static("zstd")), &packed(b""), UNPACKED_MAX),
            Err(FrameError::Compressed)
        );
        assert_eq!(read(&gzip, &Bytes::from_static(b"\x01\0\0\0\x01a"), UNPACKED_MAX), Err(FrameError::Damaged));
        let huge = packed(&vec![0; UNPACKED_MAX + 1]);
        assert!(huge.len() < 1 << 20, "it is sent as {} bytes", huge.len());
        assert_eq!(read(&gzip, &huge, UNPACKED_MAX), Err(FrameError::Unpacked(UNPACKED_MAX)));
        // What is not compressed is taken as it is.
        assert_eq!(read(&gzip, &Bytes::from_static(b"\0\0\0\0\x01a"), UNPACKED_MAX).unwrap(), &b"a"[..]);
    }

    #[test]
    fn other_bytes_are_refused() {
        let open = |bytes: &'static [u8]| open(&Bytes::from_static(bytes));
        assert_eq!(open(b""), Err(FrameError::Length { expected: 5, got: 0 }));
        assert_eq!(open(b"\0\0\0\0\x02a"), Err(FrameError::Length { expected: 7, got: 6 }));
        assert_eq!(open(b"\0\0\0\0\x01ab"), Err(FrameError::Length { expected: 6, got: 7 }));
        assert_eq!(open(b"\x01\0\0\0\x01a"), Err(FrameError::Compressed));
        assert_eq!(open(b"\0\0\0\0\0").unwrap(), &b""[..]);
    }
}
