//! Messages of a gRPC stream, read one after the other from its body.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use pathcall_proto::manifest::Method;
use tonic::Status;
use tonic::body::Body;

use crate::message::frame::{self, FrameError};
use crate::status;

/// Reader of the messages of a body. It reads no more than the next message from the connection.
#[derive(Debug)]
pub(crate) struct MessageReader {
    method: &'static Method,
    body: Body,
    /// Headers with the encoding of the messages.
    headers: HeaderMap,
    /// Bytes that have arrived, of at most one message and the rest of a frame of HTTP/2.
    buffer: BytesMut,
    /// Maximum size of a message, bytes.
    max: usize,
    ended: bool,
    trailers: HeaderMap,
}

impl MessageReader {
    pub(crate) fn new(method: &'static Method, body: Body, headers: HeaderMap, max: usize) -> Self {
        Self { method, body, headers, buffer: BytesMut::new(), max, ended: false, trailers: HeaderMap::new() }
    }

    /// Next message; `None` at the end of the stream. A dropped future loses nothing.
    ///
    /// # Errors
    /// The stream has failed, or its bytes are no messages.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            if self.ended {
                let (expected, got) = (frame::HEADER_LEN, self.buffer.len());
                let cut = || status::of_frame(self.method, FrameError::Length { expected, got });
                return if got == 0 { Ok(None) } else { Err(cut()) };
            }
            match self.body.frame().await {
                None => self.ended = true,
                Some(frame) => match frame?.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => self.trailers.extend(frame.into_trailers().unwrap_or_default()),
                },
            }
        }
    }

    /// Trailers of the stream, once it has ended.
    pub(crate) fn trailers(&self) -> &HeaderMap {
        &self.trailers
    }

    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((&[_, ref len @ ..], _)) = self.buffer.split_first_chunk::<{ frame::HEADER_LEN }>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*len) as usize;
        if len > self.max {
            let (path, max) = (self.method.path, self.max);
            return Err(Status::out_of_range(format!("{path}: a message of the stream has {len} bytes (up to {max})")));
        }
        if self.buffer.remaining() < frame::HEADER_LEN + len {
            return Ok(None);
        }
        let message = self.buffer.split_to(frame::HEADER_LEN + len).freeze();
        let message = frame::read(&self.headers, &message, self.max);
        message.map(Some).map_err(|error| status::of_frame(self.method, error))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    static METHOD: Method = Method { path: "/a.S/M", ..Method::DEFAULT };

    fn reader(parts: Vec<Vec<u8>>) -> MessageReader {
        let frames = parts.into_iter().map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
        let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));
        MessageReader::new(&METHOD, body, HeaderMap::new(), 300)
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0][..], &u32::try_from(message.len()).expect("short").to_be_bytes(), message].concat()
    }

    proptest::proptest! {
        #[test]
        fn messages_survive_any_split(
            messages in proptest::collection::vec(proptest::collection::vec(0u8.., 0..300), 0..8),
            piece in 1usize..100,
        ) {
            let bytes = messages.iter().flat_map(|message| framed(message)).collect::<Vec<_>>();
            let mut reader = reader(bytes.chunks(piece).map(<[u8]>::to_vec).collect());
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                for message in &messages {
                    assert_eq!(reader.next().await.expect("a message").as_deref(), Some(&message[..]));
                }
                assert_eq!(reader.next().await.expect("the end"), None);
            });
        }
    }

    #[tokio::test]
    async fn damaged_streams_are_refused() {
        for (bytes, code) in [
            (vec![0, 0, 0, 0, 9, 1], tonic::Code::Internal),
            (vec![0, 0, 0], tonic::Code::Internal),
            (vec![0, 0, 0, 2, 0], tonic::Code::OutOfRange),
            (vec![1, 0, 0, 0, 1, 7], tonic::Code::FailedPrecondition),
        ] {
            assert_eq!(reader(vec![bytes]).next().await.expect_err("damaged").code(), code);
        }
    }
}
