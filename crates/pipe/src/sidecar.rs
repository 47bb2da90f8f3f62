//! Sidecar of a step: receives the messages of a hop, calls the local service, and passes its reply on.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_rpc::PUSHBACK;
use pathcall_rpc::delegate::{DelegatedCall, Directory, EncodedMessage, Handlers, NodeTarget};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Extensions, Request, Status};

use crate::MESSAGE_BYTES_MAX;
use crate::codec::EncodedCodec;
use crate::plan::{HopAfter, Pipe};

/// Adds the handler of a step to `handlers`. `service` is the channel to the step's service on this host.
///
/// The caller's metadata goes to the service, and the service has the time that is left until the caller's deadline.
/// Metadata of the service's reply does not travel.
///
/// # Errors
/// INVALID_ARGUMENT when the pipe has no step with this name.
pub fn add_step(handlers: Handlers, pipe: &Arc<Pipe>, step: &str, service: Channel) -> Result<Handlers, Status> {
    let index = pipe.step(step)?;
    let grpc = Grpc::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let served = Arc::new(ServedStep { pipe: Arc::clone(pipe), step: index, grpc });
    Ok(handlers.handle_bytes(pipe.sidecar_path(index), move |message, call| {
        let served = Arc::clone(&served);
        async move { served.handle(message, &call).await }
    }))
}

/// Name in the directory of a node that serves a step. Several nodes may serve one step, each with its own `member`,
/// for example its host's name; each call goes to one of them.
#[must_use]
pub fn node_name(pipe: &Pipe, step: usize, member: &str) -> String {
    format!("{}{member}", prefix(pipe, step))
}

/// Directory with the addresses of sidecars, by steps.
#[must_use]
pub fn directory(pipe: &Pipe, sidecars: &[(usize, SocketAddr)]) -> Directory {
    Directory::of(sidecars.iter().enumerate().map(|(n, (step, at))| (node_name(pipe, *step, &n.to_string()), *at)))
}

/// Prefix of the names of the nodes that serve a step.
pub(crate) fn prefix(pipe: &Pipe, step: usize) -> String {
    format!("{}/", pipe.sidecar_path(step))
}

/// One of the nodes that serve a step.
pub(crate) fn target(pipe: &Pipe, step: usize) -> NodeTarget {
    NodeTarget::service(pipe.sidecar_path(step))
}

struct ServedStep {
    pipe: Arc<Pipe>,
    step: usize,
    grpc: Grpc<Channel>,
}

impl ServedStep {
    async fn handle(&self, message: Bytes, call: &DelegatedCall<EncodedMessage>) -> Result<(), Status> {
        let arrived = self.pipe.arrive(self.step, message)?;
        let reply = self.call_service(self.pipe.request(&arrived), call).await?;
        match self.pipe.answered(arrived, &reply)? {
            HopAfter::Reply(reply) => call.reply_bytes(EncodedMessage(reply)).await,
            HopAfter::Step(next, message) => {
                let passed = call.delegate_bytes(target(&self.pipe, next), &self.pipe.sidecar_path(next), &message);
                passed.map_err(|status| of_step(&self.pipe, next, &status))
            }
        }
    }

    async fn call_service(&self, request: Bytes, call: &DelegatedCall<EncodedMessage>) -> Result<Bytes, Status> {
        let mut request = Request::from_parts(call.metadata().clone(), Extensions::new(), request);
        if let Some(left) = call.time_left() {
            request.set_timeout(left);
        }
        let failed = |status: Status| match call.time_left() {
            // At the deadline, tonic's client reports CANCELLED.
            Some(left) if left.is_zero() => {
                of_step(&self.pipe, self.step, &Status::deadline_exceeded("the call exceeded its deadline"))
            }
            _ => of_step(&self.pipe, self.step, &status),
        };
        let path = self.pipe.service_path(self.step).clone();
        let mut grpc = self.grpc.clone();
        let ready = grpc.ready().await;
        ready.map_err(|error| failed(Status::new(Code::Unavailable, format!("the service: {error}"))))?;
        let response = grpc.unary(request, path, EncodedCodec).await.map_err(failed)?;
        Ok(response.into_inner())
    }
}

/// Status of a step: with the step's name before its message.
pub(crate) fn of_step(pipe: &Pipe, step: usize, status: &Status) -> Status {
    let name = pipe.step_names().nth(step).unwrap_or_default();
    let message = format!("step {name}: {}", status.message());
    let mut metadata = MetadataMap::new();
    if let Some(pushback) = status.metadata().get(PUSHBACK) {
        metadata.insert(PUSHBACK, pushback.clone());
    }
    let details = Bytes::copy_from_slice(status.details());
    Status::with_details_and_metadata(status.code(), message, details, metadata)
}
