//! Response of a stub's delegated call.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use pathcall_driver::node::Node;
use pathcall_endpoint::delegate::attempts::RetryBudget;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_proto::manifest::Delegated;
use tonic::Status;
use tonic::body::Body;

use super::attempts::{CallPlan, PlannedRequest};
use super::directory::Directory;
use super::ongoing_call::{LostDirection, OngoingCall, StreamEvent};
use super::trace::{SharedTraceSink, TraceReport, TraceRequest};
use crate::deadline::Deadline;
use crate::message::body::read_request;
use crate::message::frame;
use crate::status;

/// Largest request that is passed on, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Content type of all gRPC responses.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Default options of delegated calls, the receiver of their traces, and what calls learn of servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct DelegateDefaults {
    pub(crate) options: CallOptions,
    pub(crate) traces: Option<SharedTraceSink>,
    pub(crate) directory: Directory,
    pub(crate) retries: Arc<RetryBudget>,
}

/// Calls the node at `to` on behalf of a stub, and returns the response with the replies. `unreached` is called if the
/// call failed without a server reporting the failure.
pub(crate) async fn respond(
    method: &Delegated,
    (node, to): (&Node, SocketAddr),
    defaults: &DelegateDefaults,
    request: http::Request<Body>,
    deadline: Deadline,
    unreached: impl FnOnce(LostDirection) + Send + 'static,
) -> Result<http::Response<Body>, Status> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let body = read_request(path, body, REQUEST_BYTES_MAX).await?;
    let message =
        frame::read(&parts.headers, &body, frame::UNPACKED_MAX).map_err(|error| status::of_framed(path, error))?;
    let options = parts.extensions.get::<CallOptions>().copied().unwrap_or(defaults.options);
    let report = TraceReport::of(
        path,
        &parts.headers,
        parts.extensions.get::<TraceRequest>().cloned(),
        defaults.traces.as_ref(),
    );
    let left = deadline.left().into_iter().chain(options.deadline).min();
    let options = options.deadline(left).traced(options.traced || report.is_some());
    let request = PlannedRequest { to: to.into(), path: path.to_owned(), metadata: parts.headers, message };
    let plan = CallPlan {
        node: node.clone(),
        directory: defaults.directory.clone(),
        options,
        requests: vec![request],
        method: path.to_owned(),
        unary: method.unary,
        idempotent: method.idempotent,
        retries: Arc::clone(&defaults.retries),
    };
    let ongoing = OngoingCall::begin(plan, report)?;
    let replies =
        ReplyBody { ongoing, over: false, call: format!("{path} at {to}"), unreached: Some(Box::new(unreached)) };
    let mut response = http::Response::new(Body::new(replies));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    Ok(response)
}

/// Body of the response. Dropping it before its end aborts the call.
struct ReplyBody {
    ongoing: OngoingCall,
    over: bool,
    /// Method and server, for error messages.
    call: String,
    unreached: Option<Box<dyn FnOnce(LostDirection) + Send>>,
}

impl http_body::Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let status = match ready!(self.ongoing.poll_next(cx)) {
            StreamEvent::Item(item) => {
                let mut framed = frame::begin();
                framed.extend_from_slice(&item);
                match frame::close(framed) {
                    Ok(framed) => return Poll::Ready(Some(Ok(Frame::data(framed)))),
                    Err(error) => Status::out_of_range(error.to_string()),
                }
            }
            StreamEvent::Ended { status, lost: None } => status,
            StreamEvent::Ended { status, lost: Some(lost) } => {
                if let Some(unreached) = self.unreached.take() {
                    unreached(lost);
                }
                // The status does not name the call.
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

    use pathcall_driver::node::NodeConfig;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn request_gets_shorter_of_stub_and_channel_timeout() {
        let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        let (caller, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
        for (stubs, channels, expected) in [
            (Some(60 * MINUTE), Some(MINUTE), Some(MINUTE)),
            (Some(MINUTE), Some(60 * MINUTE), Some(MINUTE)),
            (None, Some(MINUTE), Some(MINUTE)),
            (Some(MINUTE), None, Some(MINUTE)),
            (None, None, None),
        ] {
            let options = CallOptions::default().deadline(channels);
            let defaults = DelegateDefaults { options, ..DelegateDefaults::default() };
            let method = Delegated { path: "/a.B/C", unary: false, idempotent: false };
            let body = frame::close(frame::begin()).expect("an empty message");
            let request = http::Request::post("/a.B/C").body(Body::new(http_body_util::Full::new(body)));
            let (request, deadline) = (request.expect("a request"), Deadline::after(stubs));
            let response = respond(&method, (&caller, server.address()), &defaults, request, deadline, |_| ()).await;
            let time = requests.receive().await.time();
            // The rest of the time has passed on the way.
            let right = match (time, expected) {
                (Some(time), Some(expected)) => time <= expected && time > expected / 2,
                (time, expected) => time == expected,
            };
            assert!(right, "{time:?} of {stubs:?} and {channels:?}");
            drop(response);
        }
    }
}
