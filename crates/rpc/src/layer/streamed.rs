//! Streamed calls that the layer executes: of plain gRPC clients, and direct ones of channels.

use std::sync::Arc;

use bytes::Bytes;
use pathcall_proto::manifest::Method;
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt;

use super::service::FilteredRequest;
use super::{Admission, CallerCredentials, Inner, Services};
use crate::request::{MapAnswer, Request};
use crate::streams::{self, Begun, StreamFuture, StreamedMethod};

/// Streamed call in the layer.
struct LayerStream<S> {
    inner: Arc<Inner>,
    method: &'static Method,
    kind: FilteredRequest,
    services: std::sync::Mutex<S>,
}

impl Inner {
    /// Executes a streamed call. Its caller is admitted once, before the first message.
    pub(super) async fn streamed<S: Services>(
        self: Arc<Self>,
        method: &'static Method,
        request: http::Request<Body>,
        admission: Admission,
        (kind, services): (FilteredRequest, S),
    ) -> Result<http::Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        if kind == FilteredRequest::Plain {
            self.check_plain_caller(method, &parts)?;
        }
        admission.admit(method.path, CallerCredentials::of_parts(&parts)).await?;
        let call = LayerStream { inner: self, method, kind, services: std::sync::Mutex::new(services) };
        streams::call(method, http::Request::from_parts(parts, body), Arc::new(call)).await
    }
}

impl<S: Services> StreamedMethod for LayerStream<S> {
    fn operate(
        self: Arc<Self>,
        request: Request,
        len: usize,
        begun: Begun,
    ) -> StreamFuture<(MapAnswer, Option<Bytes>)> {
        // Calls of the owner begin when they are polled.
        drop(begun);
        Box::pin(async move {
            self.inner.owned(self.method)?.count_whole(len, self.kind == FilteredRequest::Plain);
            let answer = self.inner.operate(self.method, request.typed).await?;
            Ok((answer, request.handler))
        })
    }

    fn call_handler(self: Arc<Self>, request: http::Request<Body>) -> StreamFuture<http::Response<Body>> {
        let services = self.services.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Box::pin(async move {
            let response = services.oneshot(request).await;
            response.map(|response| response.map(Body::new)).map_err(|error| Status::from_error(error.into()))
        })
    }
}
