//! Checks of delegated requests before their handlers: layers of the tonic server around these, and their interceptor.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use crate::headers;
use crate::server::{Admission, Credentials};

/// Interceptor of handlers.
pub(super) type Check = Arc<dyn Fn(Request<()>) -> Result<Request<()>, Status> + Send + Sync>;

/// The check that an interceptor makes.
pub(super) fn check(interceptor: impl Interceptor + Clone + Send + Sync + 'static) -> Check {
    Arc::new(move |request| interceptor.clone().call(request))
}

/// Checks of the requests of one node.
pub(crate) struct Guard {
    /// Of the tonic servers that the handlers are given to, as soon as these have Pathcall's layer.
    layers: RwLock<Arc<[Admission]>>,
    check: Option<Check>,
    /// Says of a request that the layers have looked at it as it came by gRPC: known to this process alone.
    mark: HeaderValue,
}

impl Guard {
    pub(super) fn new(check: Option<Check>) -> Self {
        let secret: [u8; 16] = rand::random();
        let mark = headers::of_session(&secret).unwrap_or_else(|| HeaderValue::from_static(""));
        Self { layers: RwLock::new(Arc::new([])), check, mark }
    }

    /// Marks a request of the server's own layer, which has looked at it.
    pub(crate) fn mark(&self, metadata: &mut HeaderMap) {
        metadata.insert(headers::ADMITTED, self.mark.clone());
    }

    /// Has these layers of a tonic server that the handlers are given to look at requests from now on.
    pub(crate) fn add_layers(&self, admission: Admission) {
        let mut layers = self.layers.write().unwrap_or_else(PoisonError::into_inner);
        *layers = layers.iter().cloned().chain([admission]).collect();
    }

    /// Has layers and interceptor look at a request: its metadata as the interceptor leaves it, and what that has added.
    pub(super) async fn admit(&self, path: &str, mut metadata: HeaderMap) -> Result<(MetadataMap, Extensions), Status> {
        let marked = metadata.remove(headers::ADMITTED).is_some_and(|mark| mark == self.mark);
        let layers = Arc::clone(&self.layers.read().unwrap_or_else(PoisonError::into_inner));
        for admission in layers.iter().filter(|_| !marked) {
            let credentials = Credentials { headers: metadata.clone(), extensions: Extensions::new() };
            admission.admit_to_layers(path, credentials).await?;
        }
        self.check(metadata)
    }

    /// Has the interceptor look at a request.
    pub(crate) fn check(&self, metadata: HeaderMap) -> Result<(MetadataMap, Extensions), Status> {
        let metadata = MetadataMap::from_headers(metadata);
        let Some(check) = &self.check else { return Ok((metadata, Extensions::new())) };
        let (metadata, extensions, ()) = check(Request::from_parts(metadata, Extensions::new(), ()))?.into_parts();
        Ok((metadata, extensions))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("layers", &self.layers).finish_non_exhaustive()
    }
}
