//! Checks of delegated requests before their handlers run: the layers of the tonic server around them, and their
//! interceptor.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use crate::headers;
use crate::layer::{Admission, CallerCredentials};

/// Interceptor of the handlers.
pub(super) type InterceptorFn = Arc<dyn Fn(Request<()>) -> Result<Request<()>, Status> + Send + Sync>;

/// Function that calls this interceptor.
pub(super) fn check(interceptor: impl Interceptor + Clone + Send + Sync + 'static) -> InterceptorFn {
    Arc::new(move |request| interceptor.clone().call(request))
}

/// Checks of the requests of one node.
pub(crate) struct HandlerGuard {
    /// Checks of the tonic servers that serve these handlers and have Pathcall's layer.
    layers: RwLock<Arc<[Admission]>>,
    check: Option<InterceptorFn>,
    /// Secret of this process that marks requests which the layers have already checked when they arrived by gRPC.
    mark: HeaderValue,
}

impl HandlerGuard {
    pub(super) fn new(check: Option<InterceptorFn>) -> Self {
        let secret: [u8; 16] = rand::random();
        let mark = headers::encode_session(&secret).unwrap_or_else(|| HeaderValue::from_static(""));
        Self { layers: RwLock::new(Arc::new([])), check, mark }
    }

    /// Marks a request that the server's own layer has checked.
    pub(crate) fn mark(&self, metadata: &mut HeaderMap) {
        metadata.insert(headers::ADMITTED, self.mark.clone());
    }

    /// Adds the layers of a tonic server to the checks of later requests.
    pub(crate) fn add_layers(&self, admission: Admission) {
        let mut layers = self.layers.write().unwrap_or_else(PoisonError::into_inner);
        *layers = layers.iter().cloned().chain([admission]).collect();
    }

    /// Passes a request through layers and interceptor. Returns the metadata and the extensions as the interceptor
    /// leaves them.
    pub(super) async fn admit(&self, path: &str, mut metadata: HeaderMap) -> Result<(MetadataMap, Extensions), Status> {
        let marked = metadata.remove(headers::ADMITTED).is_some_and(|mark| mark == self.mark);
        let layers = Arc::clone(&self.layers.read().unwrap_or_else(PoisonError::into_inner));
        for admission in layers.iter().filter(|_| !marked) {
            let credentials = CallerCredentials { headers: metadata.clone(), extensions: Extensions::new() };
            admission.admit_to_layers(path, credentials).await?;
        }
        self.check(metadata)
    }

    /// Passes a request through the interceptor.
    pub(crate) fn check(&self, metadata: HeaderMap) -> Result<(MetadataMap, Extensions), Status> {
        let metadata = MetadataMap::from_headers(metadata);
        let Some(check) = &self.check else { return Ok((metadata, Extensions::new())) };
        let (metadata, extensions, ()) = check(Request::from_parts(metadata, Extensions::new(), ()))?.into_parts();
        Ok((metadata, extensions))
    }
}

impl fmt::Debug for HandlerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerGuard").field("layers", &self.layers).finish_non_exhaustive()
    }
}
