//! Services whose calls the network answers: no handler exists. A server needs them, because a service's checks admit
//! its callers: the call of a check ends with the error of reading its message.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Package `many`: the applications of `netrpc-table7`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Many;

/// Package `shadows`: sums with the clear policy *shadow*.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shadows;

/// Full name of a service.
pub(crate) trait ServiceName: Send + Sync + 'static {
    const NAME: &'static str;
}

impl ServiceName for Many {
    const NAME: &'static str = "many.Many";
}

impl ServiceName for Shadows {
    const NAME: &'static str = "shadows.Shadows";
}

/// Service without handlers.
pub(crate) struct ByNetwork<N>(PhantomData<N>);

impl<N> Default for ByNetwork<N> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<N> Clone for ByNetwork<N> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<N: ServiceName> NamedService for ByNetwork<N> {
    const NAME: &'static str = N::NAME;
}

impl<N> Service<http::Request<Body>> for ByNetwork<N> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<(), ()>::default();
            Ok(tonic::server::Grpc::new(codec).unary(NoHandler, request).await)
        })
    }
}

/// Handler that a call reaches only by mistake.
struct NoHandler;

impl Service<Request<()>> for NoHandler {
    type Response = Response<()>;
    type Error = Status;
    type Future = Ready<Result<Response<()>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Err(Status::internal("a call that the network answers has reached the service")))
    }
}
