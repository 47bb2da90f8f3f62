//! gRPC frame of one message: flag (1 byte), length (4 bytes), message.

use bytes::Bytes;
use http::HeaderMap;

/// Length of the frame's header, bytes.
pub const HEADER_LEN: usize = 5;

/// Maximum size of a peer's message after decompression, bytes: tonic's default limit.
pub(crate) const UNPACKED_MAX: usize = 4 << 20;

/// Error of a frame that is not exactly one readable message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed in a way that this build cannot decompress.
    #[error("the message is compressed")]
    Compressed,
    /// The message has the flag "compressed", but cannot be decompressed.
    #[error("the message is marked as compressed, but is not")]
    Damaged,
    /// The message is too large after decompression.
    #[error("the decompressed message has more than {0} bytes")]
    Unpacked(usize),
    /// The bytes are not one message.
    #[error("expected one gRPC message of {expected} bytes, got {got} bytes")]
    Length {
        /// Expected length including the header, bytes.
        expected: usize,
        /// Actual length, bytes.
        got: usize,
    },
    /// The message is too long for the length field.
    #[error("a message of {0} bytes is more than a gRPC frame carries")]
    TooLong(usize),
}

/// Message of a frame.
///
/// # Errors
/// The bytes are not exactly one uncompressed message.
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

/// Message of a frame with these headers, decompressed if necessary.
///
/// # Errors
/// As [`open`]. Only gzip can be decompressed, with the feature `gzip`, up to `max` bytes.
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
    // A few compressed bytes may claim a huge length.
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

/// Begins a frame. The caller appends the message and then calls [`close`].
#[must_use]
pub fn begin() -> Vec<u8> {
    vec![0; HEADER_LEN]
}

/// Completes the frame.
///
/// # Errors
/// The message is longer than 4 GiB.
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
    fn frame_round_trips() {
        let mut frame = begin();
        frame.extend_from_slice(b"hello");
        let frame = close(frame).unwrap();
        assert_eq!(frame, &b"\0\0\0\0\x05hello"[..]);
        assert_eq!(open(&frame).unwrap(), &b"hello"[..]);
    }

    #[cfg(feature = "gzip")]
    #[test]
    fn compressed_message_is_decompressed() {
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
        // An uncompressed message is returned as it is.
        assert_eq!(read(&gzip, &Bytes::from_static(b"\0\0\0\0\x01a"), UNPACKED_MAX).unwrap(), &b"a"[..]);
    }

    #[test]
    fn invalid_frames_are_refused() {
        let open = |bytes: &'static [u8]| open(&Bytes::from_static(bytes));
        assert_eq!(open(b""), Err(FrameError::Length { expected: 5, got: 0 }));
        assert_eq!(open(b"\0\0\0\0\x02a"), Err(FrameError::Length { expected: 7, got: 6 }));
        assert_eq!(open(b"\0\0\0\0\x01ab"), Err(FrameError::Length { expected: 6, got: 7 }));
        assert_eq!(open(b"\x01\0\0\0\x01a"), Err(FrameError::Compressed));
        assert_eq!(open(b"\0\0\0\0\0").unwrap(), &b""[..]);
    }
}
