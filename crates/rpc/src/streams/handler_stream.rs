//! Handler's side of a streamed call: opened when the first message is for the handler.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use pathcall_proto::manifest::Method;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;

use super::message_reader::MessageReader;
use super::{STREAM_WINDOW, StreamFuture, StreamedMethod};
use crate::assemble::{self, HANDLER_REPLY_BYTES_MAX, HandlerOutcome};
use crate::message::frame;
use crate::status;

/// Stream of requests to a handler, and of its replies.
pub(super) struct HandlerStream {
    method: &'static Method,
    /// Metadata of the call, until it is sent.
    parts: Option<http::request::Parts>,
    /// Requests that the handler has not read.
    requests: Option<mpsc::Sender<Bytes>>,
    state: HandlerState,
}

enum HandlerState {
    Closed,
    Opening(StreamFuture<http::Response<Body>>),
    /// Reads the one reply of a handler.
    Answering(StreamFuture<HandlerOutcome>),
    Open(HeaderMap, MessageReader),
    Ended(HeaderMap),
}

/// Event of a handler's stream.
pub(super) enum HandlerEvent {
    /// The handler has responded.
    Opened(http::Response<Body>),
    /// The handler has sent its one reply.
    Answered(HandlerOutcome),
    Reply(Bytes),
    /// Trailers of the handler's stream.
    Ended(HeaderMap),
}

impl HandlerStream {
    pub(super) fn new(method: &'static Method, parts: http::request::Parts) -> Self {
        Self { method, parts: Some(parts), requests: None, state: HandlerState::Closed }
    }

    /// Calls the handler, unless it has been called.
    pub(super) fn open(&mut self, calls: &Arc<impl StreamedMethod>) {
        let Some(mut parts) = self.parts.take() else { return };
        assemble::clean_handler_headers(&mut parts.headers);
        let (sender, receiver) = mpsc::channel(STREAM_WINDOW);
        let frames = ReceiverStream::new(receiver).map(|message| Ok::<_, Infallible>(Frame::data(message)));
        let request = http::Request::from_parts(parts, Body::new(StreamBody::new(frames)));
        self.requests = Some(sender);
        self.state = HandlerState::Opening(Arc::clone(calls).call_handler(request));
    }

    /// Whether events can come.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, HandlerState::Closed | HandlerState::Ended(_))
    }

    /// Sends a message to the handler. A handler that reads no more gets no more.
    pub(super) async fn send(&mut self, message: &[u8]) -> Result<(), Status> {
        let mut framed = frame::begin();
        framed.extend_from_slice(message);
        let framed = frame::close(framed).map_err(|error| status::of_frame(self.method, error))?;
        let Some(requests) = &self.requests else { return Ok(()) };
        match requests.try_send(framed) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(framed)) => self.send_waiting(framed).await,
        }
    }

    /// Waits for room for a message; meanwhile the handler's call makes progress.
    async fn send_waiting(&mut self, framed: Bytes) -> Result<(), Status> {
        let Some(requests) = self.requests.clone() else { return Ok(()) };
        match &mut self.state {
            HandlerState::Opening(opening) => tokio::select! {
                _ = requests.send(framed) => {}
                response = opening => self.state = HandlerState::Opening(Box::pin(std::future::ready(response))),
            },
            HandlerState::Answering(answering) => tokio::select! {
                _ = requests.send(framed) => {}
                outcome = answering => {
                    self.requests = None;
                    self.state = HandlerState::Answering(Box::pin(std::future::ready(outcome)));
                }
            },
            // The end of the handler's stream ends the wait.
            HandlerState::Open(..) | HandlerState::Closed | HandlerState::Ended(_) => drop(requests.send(framed).await),
        }
        Ok(())
    }

    /// Ends the stream of requests.
    pub(super) fn end_requests(&mut self) {
        self.requests = None;
    }

    /// Next event. A dropped future loses nothing.
    ///
    /// # Errors
    /// The handler was not reached, or its stream failed.
    pub(super) async fn next(&mut self) -> Result<HandlerEvent, Status> {
        match &mut self.state {
            HandlerState::Opening(opening) => {
                let response = opening.await?;
                self.state = HandlerState::Closed;
                Ok(HandlerEvent::Opened(response))
            }
            HandlerState::Answering(answering) => {
                let outcome = answering.await?;
                self.state = HandlerState::Closed;
                Ok(HandlerEvent::Answered(outcome))
            }
            HandlerState::Open(headers, reader) => {
                if let Some(message) = reader.next().await? {
                    return Ok(HandlerEvent::Reply(message));
                }
                // The response's headers have been sent, so the handler's go with the trailers.
                let mut trailers = std::mem::take(headers);
                trailers.extend(reader.trailers().clone());
                self.requests = None;
                self.state = HandlerState::Ended(trailers.clone());
                Ok(HandlerEvent::Ended(trailers))
            }
            HandlerState::Closed | HandlerState::Ended(_) => std::future::pending().await,
        }
    }

    /// Begins to read the one reply of a response.
    pub(super) fn read_outcome(&mut self, response: http::Response<Body>) {
        let method = self.method;
        self.state = HandlerState::Answering(Box::pin(async move { HandlerOutcome::read(method, response).await }));
    }

    /// Begins to read the replies of a response.
    pub(super) fn read_replies(&mut self, response: http::Response<Body>) -> Result<(), Status> {
        if let Some(status) =
            Status::from_header_map(response.headers()).filter(|status| status.code() != tonic::Code::Ok)
        {
            return Err(status);
        }
        let (parts, body) = response.into_parts();
        let reader = MessageReader::new(self.method, body, parts.headers.clone(), HANDLER_REPLY_BYTES_MAX);
        let mut headers = parts.headers;
        headers.remove(http::header::CONTENT_TYPE);
        headers.remove(http::header::CONTENT_LENGTH);
        self.state = HandlerState::Open(headers, reader);
        Ok(())
    }

    /// Trailers of the call: the handler's, or OK.
    pub(super) fn trailers(&self) -> HeaderMap {
        match &self.state {
            HandlerState::Ended(trailers) => trailers.clone(),
            _ => assemble::ok_trailers(),
        }
    }
}
