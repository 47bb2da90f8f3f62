//! Admission of callers by the checks of the services themselves.
//!
//! ```text
//! Join, Admit, a query, a delegated request ─► request with the method's path and the caller's metadata
//!      ─► layers ─► interceptor ─┬─ refuses: its status is the answer
//!                                └─ admits ─► reading the message fails with a mark: admitted, and no handler has run
//! ```
//!
//! A handler of a stream runs before the first message is read. So the request of a streamed method has an encoding that
//! no service knows: the mark. tonic refuses it behind the interceptors, and names it in the status.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TE};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::ServiceExt;

use super::Services;
use crate::headers;

/// Maximum size of a refusal's body that is read for its trailers, bytes.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

type AdmissionFuture = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Status>> + Send>>;

/// Checks of the services of a server: their layers and interceptors.
#[derive(Clone)]
pub(crate) struct Admission {
    ask: Arc<dyn Fn(http::Request<Body>) -> AdmissionFuture + Send + Sync>,
    /// Details of the status with which reading the message fails; random, so that no service returns them.
    mark: [u8; 16],
    /// Paths of streamed methods with a filter.
    streamed: Arc<[&'static str]>,
}

/// Metadata of a caller, and extensions of its connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallerCredentials {
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
}

impl CallerCredentials {
    /// Credentials of a request's caller.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Self {
        Self { headers: request.metadata().as_ref().clone(), extensions: request.extensions().clone() }
    }

    pub(crate) fn of_parts(parts: &http::request::Parts) -> Self {
        Self { headers: parts.headers.clone(), extensions: parts.extensions.clone() }
    }

    /// Request of the method with this path.
    fn request(self, path: &str, body: Body) -> Result<http::Request<Body>, Status> {
        let uri =
            Uri::try_from(path).map_err(|_| Status::invalid_argument(format!("invalid method path: {path:?}")))?;
        let mut request = http::Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (http::Method::POST, uri);
        *request.version_mut() = Version::HTTP_2;
        (*request.headers_mut(), *request.extensions_mut()) = (self.headers, self.extensions);
        let headers = request.headers_mut();
        for own in headers::INTERNAL {
            headers.remove(own);
        }
        for message_header in ["grpc-timeout", "grpc-encoding", CONTENT_LENGTH.as_str()] {
            headers.remove(message_header);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        Ok(request)
    }
}

impl Admission {
    /// Checks of these services.
    pub(crate) fn by<S: Services>(services: S) -> Self {
        // The services are cloned for each request, which is fast. They need not be `Sync`.
        let services = Mutex::new(services);
        let ask = move |request| -> AdmissionFuture {
            let services = services.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Box::pin(async move {
                let status = services.oneshot(request).await;
                status.map(|response| response.map(Body::new)).map_err(|error| Status::from_error(error.into()))
            })
        };
        Self { ask: Arc::new(ask), mark: rand::random(), streamed: Arc::default() }
    }

    /// The checks, with these paths of streamed methods.
    pub(crate) fn with_streams(self, paths: impl Iterator<Item = &'static str>) -> Self {
        Self { streamed: paths.collect(), ..self }
    }

    /// Passes a call of the method with this path through the checks. No handler runs.
    ///
    /// # Errors
    /// The status of the check that refuses.
    pub(crate) async fn admit(&self, path: &str, credentials: CallerCredentials) -> Result<(), Status> {
        let mut request = credentials.request(path, Body::new(Unreadable { mark: self.mark, read: false }))?;
        let streamed = self.streamed.contains(&path);
        let encoding = u128::from_be_bytes(self.mark).to_string();
        if streamed && let Ok(encoding) = HeaderValue::from_str(&encoding) {
            request.headers_mut().insert("grpc-encoding", encoding);
        }
        let response = (self.ask)(request).await?;
        let status = status_of(response).await;
        let refused = streamed && status.code() == Code::Unimplemented && status.message().contains(&encoding);
        if refused || status.code() == Code::Aborted && status.details() == self.mark {
            Ok(())
        } else {
            Err(refusal(path, status))
        }
    }

    /// Passes a call of a delegated method through the layers: no service has the method, because its handlers work on
    /// requests in frames.
    pub(crate) async fn admit_to_layers(&self, path: &str, credentials: CallerCredentials) -> Result<(), Status> {
        match self.admit(path, credentials).await {
            Err(status) if status.code() == Code::Unimplemented => Ok(()),
            outcome => outcome,
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

/// Status of a refusal. A layer that answers OK has not asked the service (for example a cache), which is a refusal,
/// too.
fn refusal(path: &str, status: Status) -> Status {
    match status.code() {
        Code::Ok => Status::permission_denied(format!("{path}: a layer answered OK instead of the service")),
        _ => status,
    }
}

/// Status of a response, from its headers or trailers.
async fn status_of(response: http::Response<Body>) -> Status {
    let (parts, body) = response.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        return status;
    }
    let trailers = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.ok().and_then(|body| body.trailers().cloned());
    let status = trailers.and_then(|trailers| Status::from_header_map(&trailers));
    status.unwrap_or_else(|| Status::new(code_of(parts.status), format!("the service answered HTTP {}", parts.status)))
}

/// gRPC code for an HTTP status (almost as gRPC's *HTTP to gRPC status code mapping*).
fn code_of(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        // Not UNIMPLEMENTED, which means that there is no such service: a layer hides something.
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// Message body that fails when it is read.
struct Unreadable {
    mark: [u8; 16],
    read: bool,
}

impl http_body::Body for Unreadable {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if std::mem::replace(&mut self.read, true) {
            return Poll::Ready(None);
        }
        let what = "this request only runs the service's checks";
        Poll::Ready(Some(Err(Status::with_details(Code::Aborted, what, Bytes::copy_from_slice(&self.mark)))))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    async fn asked<F>(answer: impl Fn(http::Request<Body>) -> F + Clone + Send + 'static) -> Result<(), Status>
    where
        F: Future<Output = http::Response<Body>> + Send + 'static,
    {
        let services = tower::service_fn(move |request| {
            let answer = answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        Admission::by(services).admit("/a.B/C", CallerCredentials::default()).await
    }

    #[tokio::test]
    async fn service_that_reads_message_admits() {
        let reads = async |request: http::Request<Body>| {
            assert_eq!(request.uri().path(), "/a.B/C");
            let read = request.into_body().collect().await;
            read.expect_err("no message").into_http()
        };
        asked(move |request| Box::pin(reads(request)) as Pin<Box<dyn Future<Output = _> + Send>>)
            .await
            .expect("admitted");
    }

    #[tokio::test]
    async fn other_answers_are_refusals() {
        let http = |code: StatusCode| {
            move |_| {
                std::future::ready({
                    let mut response = http::Response::new(Body::empty());
                    *response.status_mut() = code;
                    response
                })
            }
        };
        let grpc = |status: Status| move |_| std::future::ready(status.clone().into_http());
        for (status, expected) in [
            (asked(grpc(Status::unauthenticated("no"))).await, Code::Unauthenticated),
            (asked(grpc(Status::ok("cached"))).await, Code::PermissionDenied),
            (asked(grpc(Status::with_details(Code::Aborted, "", Bytes::from_static(&[7; 16])))).await, Code::Aborted),
            (asked(http(StatusCode::UNAUTHORIZED)).await, Code::Unauthenticated),
            (asked(http(StatusCode::FORBIDDEN)).await, Code::PermissionDenied),
            (asked(http(StatusCode::NOT_FOUND)).await, Code::NotFound),
            (asked(http(StatusCode::OK)).await, Code::Unknown),
        ] {
            assert_eq!(status.expect_err("refused").code(), expected);
        }
    }
}
