//! Trait alias of the services around which the layer is put.

use bytes::Bytes;
use tonic::body::Body;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// gRPC services: tonic's `Routes`, or layers around them. Implemented for every HTTP service that can be cloned for
/// each request.
pub trait Services:
    Service<http::Request<Body>, Response = http::Response<Self::Reply>, Future: Send, Error: Send + Into<BoxError>>
    + Clone
    + Send
    + 'static
{
    /// Body type of its responses.
    type Reply: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> Services for S
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Future: Send, Error: Send + Into<BoxError>>
        + Clone
        + Send
        + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Reply = B;
}
