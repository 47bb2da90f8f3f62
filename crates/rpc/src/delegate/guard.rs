//! Checks of delegated requests before their handlers: layers of the tonic server around these, and their interceptor.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use crate::server::{Admission, Credentials};

/// Interceptor of handlers.
pub(super) type Check = Arc<dyn Fn(Request<()>) -> Result<Request<()>, Status> + Send + Sync>;

/// The check that an interceptor makes.
pub(super) fn check(interceptor: impl Interceptor + Clone + Send + Sync + 'static) -> Check {
    Arc::new(move |request| interceptor.clone().call(request))
}

/// Checks of the requests of one node.
pub(crate) struct Guard {
    layers: watch::Sender<Layers>,
    check: Option<Check>,
}

/// Layers of a tonic server.
#[derive(Debug, Clone)]
enum Layers {
    /// There is no such server.
    None,
    /// A server is built, and its layer is yet to be: requests wait for it.
    Awaited,
    By(Admission),
}

impl Guard {
    pub(super) fn new(check: Option<Check>) -> Self {
        Self { layers: watch::Sender::new(Layers::None), check }
    }

    /// Has requests wait for the layers of the server that the handlers are given to.
    pub(crate) fn await_layers(&self) {
        self.layers.send_if_modified(|layers| {
            let first = matches!(layers, Layers::None);
            if first {
                *layers = Layers::Awaited;
            }
            first
        });
    }

    /// Has these layers look at requests from now on.
    pub(crate) fn set_layers(&self, admission: Admission) {
        self.layers.send_replace(Layers::By(admission));
    }

    /// Has layers and interceptor look at a request: its metadata as they leave it, and what they have added.
    pub(super) async fn admit(&self, path: &str, metadata: HeaderMap) -> Result<(MetadataMap, Extensions), Status> {
        let mut layers = self.layers.subscribe();
        let known = layers.wait_for(|layers| !matches!(layers, Layers::Awaited)).await.map(|layers| layers.clone());
        if let Ok(Layers::By(admission)) = known {
            let credentials = Credentials { headers: metadata.clone(), extensions: Extensions::new() };
            admission.admit_to_layers(path, credentials).await?;
        }
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
