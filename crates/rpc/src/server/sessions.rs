//! Sessions of the callers that have joined an application: by one, a caller is believed what it says beside its frames.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use pathcall_endpoint::map::server::Permissions;
use pathcall_proto::manifest::{Kind, Method};
use tokio::sync::mpsc;
use tonic::Status;

use crate::{awake, headers};

/// Secret that names a session: whoever has it is the caller that it was granted to.
pub(super) type SessionId = [u8; 16];

/// Sessions of one application.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, Arc<Session>>>);

/// Admission of one caller.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) endpoint: u32,
    pub(super) incarnation: u32,
    /// Methods that it may call, by path, and when the services said so last.
    admitted: Mutex<BTreeMap<&'static str, (&'static Method, Instant)>>,
}

impl Sessions {
    /// Begins the session of a caller that may call these methods.
    pub(super) fn begin(
        &self,
        endpoint: u32,
        incarnation: u32,
        admitted: &[&'static Method],
    ) -> (SessionId, Arc<Session>) {
        let (id, now) = (rand::random(), Instant::now());
        let admitted = admitted.iter().map(|method| (method.path, (*method, now)));
        let session = Arc::new(Session { endpoint, incarnation, admitted: Mutex::new(admitted.collect()) });
        self.lock().insert(id, Arc::clone(&session));
        (id, session)
    }

    pub(super) fn end(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    /// The session that a caller names in a message.
    pub(super) fn find(&self, id: &[u8]) -> Result<Arc<Session>, Status> {
        let session = <&SessionId>::try_from(id).ok().and_then(|id| self.lock().get(id).cloned());
        session.ok_or_else(|| Status::failed_precondition("the caller has not joined, or is let go"))
    }

    /// Whether a call's metadata names one; it is taken out, as it is nobody's business beyond.
    pub(super) fn take(&self, headers: &mut HeaderMap) -> bool {
        let named = headers.remove(headers::SESSION);
        let id = named.and_then(|named| headers::session_of(&named));
        id.is_some_and(|id| self.lock().contains_key(&id))
    }

    /// Held only for a moment, by code that does not panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Notes that the services let it call a method; what it may do with the map now.
    pub(super) fn admit(&self, method: &'static Method) -> Permissions {
        let mut admitted = self.lock();
        admitted.insert(method.path, (method, Instant::now()));
        admitted.values().map(|(method, _)| permissions(method)).fold(Permissions::NONE, Permissions::and)
    }

    /// Lets the caller go when the services have not been asked for twice the time that an admission is for.
    pub(super) async fn watch(self: Arc<Self>, admitted_for: Duration, end: mpsc::Sender<Status>) {
        loop {
            // Time in which this process stands still is nobody's fault.
            let _ = awake::timeout(admitted_for, std::future::pending::<()>()).await;
            if let Some(path) = self.lapsed(2 * admitted_for) {
                let what = format!("{path}: the services were not asked again whether they let the caller in");
                // Without a stream to end it is gone already.
                let _ = end.send(Status::unauthenticated(what)).await;
                return;
            }
        }
    }

    /// A method whose admission is older than this.
    fn lapsed(&self, limit: Duration) -> Option<&'static str> {
        self.lock().values().find(|(_, at)| at.elapsed() > limit).map(|(method, _)| method.path)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, (&'static Method, Instant)>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a caller of a method does with the map by frames.
pub(super) fn permissions(method: &Method) -> Permissions {
    match method.kind {
        Kind::Sum { .. } => Permissions::ALL,
        Kind::Add { get: false, .. } => Permissions::ADD,
        Kind::Add { get: true, .. } => Permissions::ADD.and(Permissions::GET),
        Kind::Count { .. } => Permissions::COUNT,
        Kind::Clear => Permissions::CLEAR,
        Kind::Query => Permissions::NONE,
    }
}
