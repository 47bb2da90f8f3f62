//! Sum that the server's handler gets: frames with the array, and one request with the other fields.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_endpoint::map::{Lanes, Operation, Output};
use pathcall_proto::manifest::Method;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::session::{ChannelApplication, MapSession, SumCancelGuard};
use crate::assemble::{self, HandlerOutcome};
use crate::deadline::Deadline;
use crate::headers::{SUM, SUM_IN_REPLY, SumPlace};
use crate::message::typed::TypedValues;
use crate::request::MapAnswer;

impl Inner {
    /// Makes the sum; `message` has the other fields of the request.
    pub(super) async fn handled_sum(
        self: &Arc<Self>,
        method: &Method,
        (application, session): (&ChannelApplication, &Arc<MapSession>),
        (operation, lanes): (Operation, usize),
        (parts, message): (http::request::Parts, Bytes),
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let (begun, first) = oneshot::channel();
        let sum = async {
            let guard = SumCancelGuard::new(self, method, session);
            let begun = |first| {
                // Without a receiver the call ends anyway.
                let _ = begun.send(first);
            };
            let output = session.call(method, operation, begun).await;
            guard.disarm();
            if output.is_ok() {
                application.mark_server_state(method, session);
            }
            output
        };
        let handled = async {
            let ended = |_| Status::internal(format!("{}: the sum has not begun", method.path));
            let first = first.await.map_err(ended)?;
            let mut parts = parts;
            parts.headers.insert(SUM, SumPlace { first, lanes }.to_header());
            self.handler(method, session, parts, &message, deadline).await
        };
        let (mut sum, mut handled) = (pin!(sum), pin!(handled));
        // An error of the sum concerns all workers; an error of the handler leaves them in step.
        let (output, handled) = tokio::select! {
            output = &mut sum => (output?, handled.await?),
            handled = &mut handled => (sum.await?, handled?),
        };
        let Output::Sums(sums) = output else {
            return Err(Status::internal(format!("{}: the call has no sum", method.path)));
        };
        reply(method, handled, sums)
    }
}

/// Reply of the handler, whose array is in the message or came by frames.
fn reply(method: &Method, handled: HandlerOutcome, sums: Lanes) -> Result<http::Response<Body>, Status> {
    match handled {
        HandlerOutcome::Done { mut headers, message, trailers } if headers.contains_key(SUM_IN_REPLY) => {
            headers.remove(SUM_IN_REPLY);
            assemble::unchanged_reply(method, headers, &message, trailers)
        }
        handled => assemble::reply(method, Some(handled), &MapAnswer::of(TypedValues::Lanes(sums))),
    }
}
