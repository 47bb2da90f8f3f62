//! Sessions of the callers that have joined an application. A session identifies its caller in gRPC requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use pathcall_endpoint::map::server::Permissions;
use pathcall_proto::manifest::{Kind, Method};
use tokio::sync::mpsc;
use tonic::Status;

use super::owned_application::ActiveApplication;
use crate::{headers, process_timeout};

/// Secret of a session: a request with it comes from the caller that joined.
pub(super) type SessionId = [u8; 16];

/// Sessions of one application.
#[derive(Debug, Default)]
pub(super) struct CallerSessions(Mutex<HashMap<SessionId, Arc<CallerSession>>>);

/// Session of one caller, with its admissions.
#[derive(Debug)]
pub(super) struct CallerSession {
    pub(super) endpoint: u32,
    pub(super) incarnation: u32,
    active: ActiveApplication,
    /// Whether the caller may call all methods. Such a caller uses the element, which does not know permissions; its
    /// session ends if it loses one.
    all_methods: bool,
    /// Methods that the caller may call, by path, with the time of the last admission.
    admitted: Mutex<Admitted>,
}

type Admitted = BTreeMap<&'static str, (&'static Method, Instant)>;

impl CallerSessions {
    /// Begins a session with this secret.
    pub(super) fn begin(&self, id: SessionId, session: CallerSession) -> Arc<CallerSession> {
        let session = Arc::new(session);
        self.lock().insert(id, Arc::clone(&session));
        session
    }

    pub(super) fn end(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    /// Session of a request.
    pub(super) fn find(&self, id: &[u8]) -> Result<Arc<CallerSession>, Status> {
        let session = <&SessionId>::try_from(id).ok().and_then(|id| self.lock().get(id).cloned());
        session.ok_or_else(|| Status::failed_precondition("the caller has not joined, or its membership has ended"))
    }

    /// Whether a call's metadata has a valid session. Removes it from the metadata.
    pub(super) fn take(&self, headers: &mut HeaderMap) -> bool {
        let named = headers.remove(headers::SESSION);
        let id = named.and_then(|named| headers::decode_session(&named));
        id.is_some_and(|id| self.lock().contains_key(&id))
    }

    /// Held briefly, by code that does not panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<CallerSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerSession {
    /// Session of a caller that may call these methods; `all_methods` if these are all.
    pub(super) fn new(
        (endpoint, incarnation): (u32, u32),
        active: ActiveApplication,
        admitted: &[&'static Method],
        all_methods: bool,
    ) -> Self {
        let now = Instant::now();
        let admitted = admitted.iter().map(|method| (method.path, (*method, now))).collect();
        Self { endpoint, incarnation, active, all_methods, admitted: Mutex::new(admitted) }
    }

    /// Records that the services have admitted a call of a method.
    pub(super) fn admit(&self, method: &'static Method) {
        let mut admitted = self.lock();
        admitted.insert(method.path, (method, Instant::now()));
        self.permit(&admitted);
    }

    /// Operations on the map that the caller may do by frames.
    pub(super) fn permissions(&self) -> Permissions {
        self.permissions_for(&self.lock())
    }

    /// Ends the session when an admission has not been renewed for twice its validity. If the caller may call other
    /// methods and does not use the element, only that method is removed.
    pub(super) async fn watch(self: Arc<Self>, admitted_for: Duration, end: mpsc::Sender<Status>) {
        let limit = 2 * admitted_for;
        loop {
            let oldest = self.lock().values().map(|(_, at)| at.elapsed()).max().unwrap_or(limit);
            if let Some(left) = limit.checked_sub(oldest).filter(|left| !left.is_zero()) {
                // Time in which this process is stopped does not count.
                let _ = process_timeout::timeout(left.max(CHECK_INTERVAL_MIN), std::future::pending::<()>()).await;
                continue;
            }
            let Some(path) = self.expire(limit) else { continue };
            let what = format!("{path}: the caller's admission was not renewed in time");
            // Its frames are refused, even if it does not read its stream.
            self.active.handle.set_permissions(self.endpoint, self.incarnation, Permissions::NONE);
            self.active.handle.leave(self.endpoint);
            // The send fails if the caller's stream has already ended.
            let _ = end.send(Status::unauthenticated(what)).await;
            return;
        }
    }

    /// Removes methods whose admissions are older than `limit`; returns one of them if the session has to end.
    fn expire(&self, limit: Duration) -> Option<&'static str> {
        let mut admitted = self.lock();
        let expired = admitted.values().find(|(_, at)| at.elapsed() >= limit).map(|(method, _)| method.path);
        admitted.retain(|_, (_, at)| at.elapsed() < limit);
        if self.all_methods || admitted.is_empty() {
            return expired.or(Some("no method"));
        }
        self.permit(&admitted);
        None
    }

    /// Called under the lock, so that the later of two changes wins.
    fn permit(&self, admitted: &Admitted) {
        self.active.handle.set_permissions(self.endpoint, self.incarnation, self.permissions_for(admitted));
    }

    fn permissions_for(&self, admitted: &Admitted) -> Permissions {
        let each = admitted.values().map(|(method, _)| permissions_of(method));
        if self.all_methods { Permissions::ALL } else { each.fold(Permissions::NONE, Permissions::union) }
    }

    fn lock(&self) -> MutexGuard<'_, Admitted> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Minimum pause between checks for expired admissions.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Map operations by frames that a method needs. A caller that takes locks also releases those that its call no longer
/// needs.
fn permissions_of(method: &Method) -> Permissions {
    match method.kind {
        Kind::Sum { .. } => Permissions::ALL,
        Kind::Add { get: false, .. } => Permissions::ADD,
        Kind::Add { get: true, .. } => Permissions::ADD.union(Permissions::GET),
        Kind::Count { threshold: 1, .. } => Permissions::COUNT.union(Permissions::CLEAR),
        Kind::Count { .. } => Permissions::COUNT,
        Kind::Clear => Permissions::CLEAR,
        Kind::Query => Permissions::GET,
        Kind::Modify => Permissions::NONE,
    }
}
