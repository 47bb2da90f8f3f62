//! Trips of each path of a context.

use std::sync::Arc;

use crate::model::{Application, RequestType, Trip};
use crate::path::{KindId, PathId};

/// Trips of each path.
#[derive(Debug)]
pub(super) struct PathTrips {
    by_path: Vec<Arc<[Trip]>>,
    /// Trips by request type, for the fallback on the CPUs.
    by_kind: Vec<Arc<[Trip]>>,
}

impl PathTrips {
    pub(super) fn new(application: &Application) -> Self {
        let flows = |request: &RequestType| -> Vec<Arc<[Trip]>> {
            request.dataflows.iter().map(|flow| flow.trips.clone().into()).collect()
        };
        let by_kind: Vec<_> = application.requests.iter().map(flows).collect();
        Self { by_kind: by_kind.iter().map(|flows| Arc::clone(&flows[0])).collect(), by_path: by_kind.concat() }
    }

    /// Trips by path.
    pub(super) fn by_path(&self) -> &[Arc<[Trip]>] {
        &self.by_path
    }

    fn of(&self, kind: KindId, path: Option<PathId>) -> &[Trip] {
        match path {
            Some(path) => &self.by_path[usize::from(path.0)],
            None => &self.by_kind[usize::from(kind.0)],
        }
    }

    pub(super) fn trip(&self, kind: KindId, path: Option<PathId>, trip: u8) -> &Trip {
        &self.of(kind, path)[usize::from(trip)]
    }

    pub(super) fn trips(&self, kind: KindId, path: Option<PathId>) -> usize {
        self.of(kind, path).len()
    }
}
