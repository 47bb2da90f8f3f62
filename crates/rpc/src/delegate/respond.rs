//! A stub's stream of replies, made of a call.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_endpoint::driver::node::Node;
use tonic::Status;
use tonic::body::Body;

use super::envelope;
use super::ongoing::{Next, Ongoing, Silence};
use super::trace::{Ask, Report, Sink};
use crate::deadline::Deadline;
use crate::message::frame;
use crate::status;

/// Longest request that is passed on, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// What all responses of gRPC are.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// How calls are made, unless a request says otherwise; and where their traces go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Habits {
    pub(crate) options: CallOptions,
    pub(crate) traces: Option<Sink>,
}

/// Calls the node at `to` on behalf of a stub, and gives it what is replied. `unreached` hears of a call that
/// failed, and not because a server said so.
pub(crate) async fn respond(
    node: &Node,
    to: SocketAddr,
    habits: &Habits,
    request: http::Request<Body>,
    deadline: Deadline,
    unreached: impl FnOnce(Silence) + Send + 'static,
) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let body = Limited::new(body, REQUEST_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast::<Status>() {
        Ok(status) => *status,
        Err(error) => Status::out_of_range(format!("{path}: a request of at most {REQUEST_BYTES_MAX} bytes: {error}")),
    })?;
    let message = frame::read(&parts.headers, &body.to_bytes(), frame::UNPACKED_MAX)
        .map_err(|error| status::of_framed(path, error))?;
    let sealed = envelope::seal(path, &parts.headers, &message);
    let sealed = sealed.map_err(|error| Status::invalid_argument(format!("{path}: {error}")))?;
    let options = parts.extensions.get::<CallOptions>().copied().unwrap_or(habits.options);
    let report = Report::of(path, &parts.headers, parts.extensions.get::<Ask>().cloned(), habits.traces.as_ref());
    let left = deadline.left().into_iter().chain(options.deadline).min();
    let options = options.deadline(left).traced(options.traced || report.is_some());
    let call = node.call(options, [(to, sealed)]);
    let call = call.map_err(|error| Status::resource_exhausted(format!("{path}: {error}")))?;
    let ongoing = Ongoing::new(call, &options, report);
    let replies =
        Replies { ongoing, over: false, call: format!("{path} at {to}"), unreached: Some(Box::new(unreached)) };
    let mut response = http::Response::new(Body::new(replies));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    Ok(response)
}

/// The body of a response. Dropped before its end, the call is aborted.
struct Replies {
    ongoing: Ongoing,
    over: bool,
    /// Method and server.
    call: String,
    unreached: Option<Box<dyn FnOnce(Silence) + Send>>,
}

impl http_body::Body for Replies {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let status = match ready!(self.ongoing.poll_next(cx)) {
            Next::Item(item) => {
                let mut framed = frame::begin();
                framed.extend_from_slice(&item);
                match frame::close(framed) {
                    Ok(framed) => return Poll::Ready(Some(Ok(Frame::data(framed)))),
                    Err(error) => Status::out_of_range(error.to_string()),
                }
            }
            Next::Ended { status, silence: None } => status,
            Next::Ended { status, silence: Some(silence) } => {
                if let Some(unreached) = self.unreached.take() {
                    unreached(silence);
                }
                // Nobody else says whose call it was.
                Status::new(status.code(), format!("{}: {}", self.call, status.message()))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pathcall_endpoint::driver::node::NodeConfig;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn request_has_the_shorter_of_its_stubs_and_its_channels_times() {
        let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        let (caller, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        for (stubs, channels, expected) in [
            (Some(60 * MINUTE), Some(MINUTE), Some(MINUTE)),
            (Some(MINUTE), Some(60 * MINUTE), Some(MINUTE)),
            (None, Some(MINUTE), Some(MINUTE)),
            (Some(MINUTE), None, Some(MINUTE)),
            (None, None, None),
        ] {
            let habits = Habits { options: CallOptions::default().deadline(channels), traces: None };
            let body = frame::close(frame::begin()).expect("an empty message");
            let request = http::Request::post("/a.B/C").body(Body::new(http_body_util::Full::new(body)));
            let (request, deadline) = (request.expect("a request"), Deadline::after(stubs));
            let response = respond(&caller, server.address(), &habits, request, deadline, |_| ()).await;
            let time = requests.receive().await.time();
            // The rest of it has passed on the way.
            let right = match (time, expected) {
                (Some(time), Some(expected)) => time <= expected && time > expected / 2,
                (time, expected) => time == expected,
            };
            assert!(right, "{time:?} of {stubs:?} and {channels:?}");
            drop(response);
        }
    }
}
