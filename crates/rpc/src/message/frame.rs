//! A gRPC frame around one message: a flag byte, a length of four bytes, the message.

use bytes::Bytes;

/// Bytes before the message.
pub const HEADER_LEN: usize = 5;

/// Why bytes are not one plain gRPC message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed: its fields can't be seen.
    #[error("the message is compressed")]
    Compressed,
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
