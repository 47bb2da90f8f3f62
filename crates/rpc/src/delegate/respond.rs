//! A stub's stream of replies, made of a call.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::driver::node::{Call, Node, Reply};
use tonic::body::Body;
use tonic::{Code, Status};

use super::envelope;
use crate::deadline::Deadline;
use crate::message::frame;

/// Longest request that is passed on, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// What all responses of gRPC are.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Calls the node at `to` on behalf of a stub, and gives it what is replied. `unreached` hears of a call that
/// failed, and not because a server said so.
pub(crate) async fn respond(
    node: &Node,
    to: SocketAddr,
    options: CallOptions,
    request: http::Request<Body>,
    deadline: Deadline,
    unreached: impl FnOnce() + Send + 'static,
) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let body = Limited::new(body, REQUEST_BYTES_MAX).collect().await;
    let body = body.map_err(|error| {
        Status::out_of_range(format!("{path}: a request of at most {REQUEST_BYTES_MAX} bytes: {error}"))
    })?;
    let wrong = |error: &dyn std::fmt::Display| Status::invalid_argument(format!("{path}: {error}"));
    let message = frame::open(&body.to_bytes()).map_err(|error| wrong(&error))?;
    let sealed = envelope::seal(path, &parts.headers, &message).map_err(|error| wrong(&error))?;
    let options = CallOptions { deadline: deadline.left(), ..options };
    let call = node.call(options, [(to, sealed)]);
    let call = call.map_err(|error| Status::resource_exhausted(format!("{path}: {error}")))?;
    let mut response =
        http::Response::new(Body::new(Replies { call, over: false, unreached: Some(Box::new(unreached)) }));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    Ok(response)
}

/// The body of a response. Dropped before its end, the call is aborted.
struct Replies {
    call: Call,
    over: bool,
    unreached: Option<Box<dyn FnOnce() + Send>>,
}

impl http_body::Body for Replies {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let status = match ready!(self.call.poll_receive(cx)) {
            Reply::Item(item) => {
                let mut framed = frame::begin();
                framed.extend_from_slice(&item);
                match frame::close(framed) {
                    Ok(framed) => return Poll::Ready(Some(Ok(Frame::data(framed)))),
                    Err(error) => Status::out_of_range(error.to_string()),
                }
            }
            Reply::Ended(outcome) => {
                let silent = matches!(&outcome, Outcome::Failed(failure) if !matches!(failure, CallFailure::Server(_)));
                if let Some(unreached) = self.unreached.take_if(|_| silent) {
                    unreached();
                }
                end(&outcome)
            }
        };
        self.over = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}

/// The status that ends the stream.
fn end(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Complete => Status::new(Code::Ok, ""),
        Outcome::Failed(failure) => {
            let status = failure.status();
            Status::new(Code::from_i32(status.code.into()), status.message)
        }
        Outcome::Aborted { .. } => Status::cancelled("the call was aborted"),
    }
}
