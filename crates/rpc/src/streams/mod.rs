//! Streamed calls of methods with a filter: each message of a stream is one call of the filter.
//!
//! ```text
//! requests ─► message_reader ─► map operations ─► in order ─┬─ for the handler ─► its stream of requests
//!                               (up to a window)            └─ otherwise ─────┐             │
//! replies ◄───────────────────── in order ◄── map's answer ◄──────────────────┴◄─ a reply for each
//! ```
//!
//! Map operations begin in the order of the messages. The stream reads no message beyond its window, so the caller's
//! flow control holds for all hops. An error ends the stream; what earlier messages did remains.
//!
//! The channel and the server's layer each execute streams, and give the two things that differ: [`StreamedMethod`].

mod handler_stream;
mod last_answers;
mod message_reader;
mod operations;
mod replies;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pathcall_proto::manifest::{FilterStreams, ForwardTarget, Kind, LaneFormat, Method};
use pathcall_wire::{Mutant, mutant};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;

use self::handler_stream::{HandlerEvent, HandlerStream};
use self::last_answers::{LastAnswers, STREAM_KEYS_MAX};
use self::message_reader::MessageReader;
pub(crate) use self::operations::Begun;
use self::operations::{OperationEvent, Operations};
use self::replies::RepliesBody;
use crate::assemble::{self, HandlerOutcome};
use crate::request::{DIRECT_BYTES_MAX, MapAnswer, Request};

/// Maximum number of messages of a stream that are in progress.
pub(crate) const STREAM_WINDOW: usize = 64;

/// Future of a part of a streamed call.
pub(crate) type StreamFuture<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// Execution of a streamed method, by the channel or by the layer.
pub(crate) trait StreamedMethod: Send + Sync + 'static {
    /// Executes the map operation of a message of `len` bytes. `begun` is dropped when the next one may begin.
    fn operate(self: Arc<Self>, request: Request, len: usize, begun: Begun)
    -> StreamFuture<(MapAnswer, Option<Bytes>)>;

    /// Calls the handler.
    fn call_handler(self: Arc<Self>, request: http::Request<Body>) -> StreamFuture<http::Response<Body>>;
}

/// Number of messages of a stream of this method that are in progress at once. Results that depend on earlier
/// messages of the stream are made one after the other.
fn window(method: &Method) -> usize {
    match method.kind {
        Kind::Add { get: true, .. } | Kind::Query => 1,
        Kind::Sum { .. } if method.lanes != LaneFormat::Int32 => 1,
        _ => STREAM_WINDOW,
    }
}

/// Makes the call of a streamed method.
pub(crate) async fn call(
    method: &'static Method,
    request: http::Request<Body>,
    calls: Arc<impl StreamedMethod>,
) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let reader = MessageReader::new(method, body, parts.headers.clone(), DIRECT_BYTES_MAX);
    let handler = HandlerStream::new(method, parts);
    let stream = StreamedCall { method, calls, reader, handler, operations: Operations::default(), messages: 0 };
    if method.streams == FilterStreams::Client {
        return stream.answer_once().await;
    }
    let (replies, received) = mpsc::channel(1);
    let task = tokio::spawn(stream.answer_each(replies));
    // The caller may send its messages only when it has the response's headers.
    Ok(assemble::streamed_response(Body::new(RepliesBody::new(received, task.abort_handle()))))
}

/// Streamed call in progress.
struct StreamedCall<C> {
    method: &'static Method,
    calls: Arc<C>,
    reader: MessageReader,
    handler: HandlerStream,
    operations: Operations,
    /// Number of messages so far.
    messages: u64,
}

/// Input of a streamed call.
enum StreamEvent {
    /// Next message; `None` at the end.
    Message(Option<Bytes>),
    Operation(OperationEvent),
    Handler(HandlerEvent),
}

impl<C: StreamedMethod> StreamedCall<C> {
    /// Waits for the next input; `None` if none can come. `may_read`: another message may begin.
    async fn next_event(&mut self, may_read: bool) -> Result<Option<StreamEvent>, Status> {
        let begun = self.operations.has_begun() || mutant::on(Mutant::FilterStreamOvertakes);
        let may_read = may_read && self.operations.len() < window(self.method) && begun;
        let (operations, handler, reader) = (&mut self.operations, &mut self.handler, &mut self.reader);
        let (operates, handles) = (operations.len() > 0, handler.is_open());
        Ok(Some(tokio::select! {
            biased;
            event = operations.next(), if operates => StreamEvent::Operation(event?),
            event = handler.next(), if handles => StreamEvent::Handler(event?),
            message = reader.next(), if may_read => StreamEvent::Message(message?),
            else => return Ok(None),
        }))
    }

    /// Begins the map operation of a message.
    fn begin(&mut self, message: &Bytes) -> Result<(), Status> {
        self.messages += 1;
        let request = Request::new(self.method, message)?;
        let (begun, flag) = Begun::new();
        let calls = Arc::clone(&self.calls);
        self.operations.push(calls.operate(request, message.len(), begun), flag);
        Ok(())
    }

    /// Ends the handler's requests. The handler of a stream without messages runs if `to` is SERVER.
    fn end_requests(&mut self) {
        if self.messages == 0
            && self.method.to == ForwardTarget::Server
            && !matches!(self.method.kind, Kind::Count { .. })
        {
            self.handler.open(&self.calls);
        }
        self.handler.end_requests();
    }

    /// Makes a call with one reply: the handler's, with the last values.
    async fn answer_once(mut self) -> Result<http::Response<Body>, Status> {
        let (mut answers, mut has_ended, mut handled) = (LastAnswers::default(), false, None);
        while let Some(event) = self.next_event(!has_ended && handled.is_none()).await? {
            match event {
                StreamEvent::Message(Some(message)) => self.begin(&message)?,
                StreamEvent::Message(None) => has_ended = true,
                StreamEvent::Operation(OperationEvent::Begun) => {}
                StreamEvent::Operation(OperationEvent::Done(answer, message)) => {
                    let forwards = answer.forwarded != Some(false);
                    if !answers.add(answer) {
                        let path = self.method.path;
                        let what = format!("{path}: the reply to the stream has more than {STREAM_KEYS_MAX} keys");
                        return Err(Status::out_of_range(what));
                    }
                    // A handler that has replied needs no further messages.
                    if let Some(message) = message.filter(|_| forwards && handled.is_none()) {
                        self.handler.open(&self.calls);
                        self.handler.send(&message).await?;
                    }
                }
                StreamEvent::Handler(HandlerEvent::Opened(response)) => self.handler.read_outcome(response),
                StreamEvent::Handler(HandlerEvent::Answered(outcome)) => handled = Some(outcome),
                StreamEvent::Handler(HandlerEvent::Reply(_) | HandlerEvent::Ended(_)) => {}
            }
            if matches!(handled, Some(HandlerOutcome::Failed(_))) {
                break;
            }
            if has_ended && self.operations.len() == 0 {
                self.end_requests();
            }
        }
        assemble::reply(self.method, handled, &answers.into_answer())
    }

    /// Makes a call with a reply for each request.
    async fn answer_each(mut self, replies: mpsc::Sender<ReplyFrame>) {
        let trailers = self.send_replies(&replies).await.unwrap_or_else(|status| {
            let mut trailers = HeaderMap::new();
            // A status with a message that is no header value keeps its code.
            if status.add_header(&mut trailers).is_err() {
                trailers.insert(assemble::GRPC_STATUS, http::HeaderValue::from(status.code() as i32));
            }
            trailers
        });
        // Without a receiver, nobody waits.
        let _ = replies.send(ReplyFrame::Trailers(trailers)).await;
    }

    /// Sends the replies; returns the trailers.
    async fn send_replies(&mut self, replies: &mpsc::Sender<ReplyFrame>) -> Result<HeaderMap, Status> {
        // Answers in order, with whether a reply of the handler belongs to them.
        let mut answers = VecDeque::<(MapAnswer, bool)>::new();
        let mut has_ended = false;
        while let Some(event) = self.next_event(!has_ended && answers.len() < STREAM_WINDOW).await? {
            let mut reply = None;
            match event {
                StreamEvent::Message(Some(message)) => self.begin(&message)?,
                StreamEvent::Message(None) => has_ended = true,
                StreamEvent::Operation(OperationEvent::Begun) => {}
                StreamEvent::Operation(OperationEvent::Done(answer, message)) => {
                    let is_dropped = answer.forwarded == Some(false) && !mutant::on(Mutant::FilterStreamForwarded);
                    let message = message.filter(|_| !is_dropped);
                    answers.push_back((answer, message.is_some()));
                    if let Some(message) = message {
                        self.handler.open(&self.calls);
                        self.handler.send(&message).await?;
                    }
                }
                StreamEvent::Handler(HandlerEvent::Opened(response)) => self.handler.read_replies(response)?,
                StreamEvent::Handler(HandlerEvent::Answered(_)) => {}
                StreamEvent::Handler(HandlerEvent::Reply(message)) => reply = Some(message),
                StreamEvent::Handler(HandlerEvent::Ended(trailers)) => {
                    let is_ok = trailers.get(assemble::GRPC_STATUS).is_some_and(|status| status == "0");
                    let is_answered = answers.iter().all(|(_, handled)| !*handled);
                    if !is_ok || is_answered && !has_ended {
                        // As in gRPC, the server may end a stream before its caller does.
                        return Ok(trailers);
                    }
                }
            }
            if let Some(message) = reply {
                let next = answers.front().is_some_and(|(_, handled)| *handled);
                let Some((answer, _)) = answers.pop_front().filter(|_| next) else {
                    return Err(self.defect("has sent more replies than it has got messages"));
                };
                send_reply(self.method, replies, &message, &answer).await?;
            }
            let replies_first = mutant::on(Mutant::FilterStreamUnordered);
            while let Some(at) = answers.iter().position(|(_, handled)| !handled).filter(|at| *at == 0 || replies_first)
            {
                let answer = answers.remove(at).map_or(MapAnswer::EMPTY, |(answer, _)| answer);
                send_reply(self.method, replies, &[], &answer).await?;
            }
            if has_ended && self.operations.len() == 0 {
                self.end_requests();
            }
        }
        if !answers.is_empty() {
            return Err(self.defect(&format!("has ended without replies to {} messages", answers.len())));
        }
        Ok(self.handler.trailers())
    }

    fn defect(&self, what: &str) -> Status {
        Status::internal(format!("{}: the handler's stream {what}: it answers each message with one", self.method.path))
    }
}

/// Part of the response's body.
#[derive(Debug)]
pub(crate) enum ReplyFrame {
    Message(Bytes),
    Trailers(HeaderMap),
}

async fn send_reply(
    method: &Method,
    replies: &mpsc::Sender<ReplyFrame>,
    message: &[u8],
    answer: &MapAnswer,
) -> Result<(), Status> {
    let reply = assemble::reply_frame(method, message, answer)?;
    let sent = replies.send(ReplyFrame::Message(reply)).await;
    sent.map_err(|_| Status::cancelled(format!("{}: the caller has dropped the stream", method.path)))
}

#[cfg(test)]
mod tests;
