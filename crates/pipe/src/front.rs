//! Front of a pipe: a gRPC server of the pipe's method for unmodified stubs. It makes the delegated call.

use std::convert::Infallible;
use std::error::Error as _;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_rpc::delegate::{CallFailure, Client, Directory, EncodedMessage, EncodedMethod, Node};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, http};
use tonic::server::{Grpc, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::MESSAGE_BYTES_MAX;
use crate::codec::EncodedCodec;
use crate::plan::Pipe;
use crate::sidecar::{of_step, prefix, target};

/// Front of a pipe. Clones share its node.
#[derive(Debug, Clone)]
pub struct PipeFront {
    pipe: Arc<Pipe>,
    client: Client,
    directory: Directory,
}

impl PipeFront {
    /// Front that calls through this node and finds the sidecars in this directory.
    #[must_use]
    pub fn new(pipe: Arc<Pipe>, node: Node, directory: Directory) -> Self {
        Self { pipe, client: Client::new(node, directory.clone()), directory }
    }

    /// Serves callers, in plaintext, until `stopped`. Calls of other methods get UNIMPLEMENTED.
    ///
    /// # Errors
    /// No more connections can be accepted.
    pub fn serve(
        self,
        listener: TcpListener,
        stopped: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<(), tonic::transport::Error> {
        Box::pin(async move {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let service = tower::service_fn(move |request| self.clone().respond(request));
            Server::builder().serve_with_incoming_shutdown(service, incoming, stopped).await
        })
    }

    /// Answers the encoded request of one call.
    ///
    /// # Errors
    /// The status of the step that failed.
    pub async fn call(&self, request: Request<Bytes>) -> Result<Bytes, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let request = Request::from_parts(metadata, extensions, self.pipe.first_hop(&message)?);
        let (path, idempotent) = (self.pipe.sidecar_path(0), self.pipe.is_idempotent());
        let method = EncodedMethod { path: &path, unary: true, idempotent };
        let replies = self.client.call_bytes(target(&self.pipe, 0), method, request);
        let mut replies = replies.map_err(|status| of_step(&self.pipe, 0, &status))?;
        let reply = replies.message_bytes().await.map_err(|status| self.named(status))?;
        reply.map(|EncodedMessage(reply)| reply).ok_or_else(|| Status::internal("the last step has not replied"))
    }

    async fn respond(self, request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        if request.uri().path() != self.pipe.path() {
            let status = Status::unimplemented(format!("this server has only the method {}", self.pipe.path()));
            return Ok(status.into_http());
        }
        let mut grpc = Grpc::new(EncodedCodec).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(grpc.unary(FrontService(self), request).await)
    }

    /// Status of a failed call. If a server was silent, it names the steps of that server.
    fn named(&self, status: Status) -> Status {
        let failure = status.source().and_then(|source| source.downcast_ref::<CallFailure>());
        let Some(server) = failure.and_then(CallFailure::server) else { return status };
        let nodes = self.directory.nodes();
        let steps = self.pipe.step_names().enumerate().filter(|(step, _)| {
            let prefix = prefix(&self.pipe, *step);
            let mut of_step = nodes.iter().filter(|(name, _)| name.starts_with(&prefix)).peekable();
            // A node that has stopped may be no longer in the directory.
            of_step.peek().is_none() || of_step.any(|(_, at)| *at == server)
        });
        let steps: Vec<&str> = steps.map(|(_, name)| name).collect();
        match &steps[..] {
            [] => status,
            steps => Status::new(status.code(), format!("step {}: {}", steps.join(" or "), status.message())),
        }
    }
}

/// Front as tonic's unary service.
struct FrontService(PipeFront);

impl UnaryService<Bytes> for FrontService {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let front = self.0.clone();
        Box::pin(async move { front.call(request).await.map(Response::new) })
    }
}
