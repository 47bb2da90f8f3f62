//! What a server is put around.

use bytes::Bytes;
use tonic::body::Body;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Services of gRPC, as tonic's `Routes`, and layers around them: whatever answers requests over HTTP, and can be
/// cloned for each.
///
/// Nobody implements it: all that is so has it.
pub trait Services:
    Service<http::Request<Body>, Response = http::Response<Self::Reply>, Future: Send, Error: Send + Into<BoxError>>
    + Clone
    + Send
    + 'static
{
    /// Of what it answers.
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
