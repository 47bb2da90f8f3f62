//! Sessions of the callers that have joined an application: by one, a caller is believed what it says beside its frames.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use pathcall_endpoint::map::server::Permissions;
use pathcall_proto::manifest::{Kind, Method};
use tokio::sync::mpsc;
use tonic::Status;

use super::hosted::Serving;
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
    serving: Serving,
    /// Whether it works by the element, which does not know what it may do: it may do everything, or is let go.
    everything: bool,
    /// Methods that it may call, by path, and when the services said so last.
    admitted: Mutex<Admitted>,
}

type Admitted = BTreeMap<&'static str, (&'static Method, Instant)>;

impl Sessions {
    /// Begins a session.
    pub(super) fn begin(&self, session: Session) -> (SessionId, Arc<Session>) {
        let (id, session) = (rand::random(), Arc::new(session));
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
    /// Of a caller that may call these methods, and work by the element if these are all.
    pub(super) fn new(
        (endpoint, incarnation): (u32, u32),
        serving: Serving,
        admitted: &[&'static Method],
        everything: bool,
    ) -> Self {
        let now = Instant::now();
        let admitted = admitted.iter().map(|method| (method.path, (*method, now))).collect();
        Self { endpoint, incarnation, serving, everything, admitted: Mutex::new(admitted) }
    }

    /// Notes that the services let it call a method.
    pub(super) fn admit(&self, method: &'static Method) {
        let mut admitted = self.lock();
        admitted.insert(method.path, (method, Instant::now()));
        self.permit(&admitted);
    }

    /// What the caller may do with the map by frames.
    pub(super) fn may(&self) -> Permissions {
        self.may_by(&self.lock())
    }

    /// Lets the caller go when the services have not let it in again for twice the time that an admission is for: of a
    /// single method, if it may call others, and works past the element.
    pub(super) async fn watch(self: Arc<Self>, admitted_for: Duration, end: mpsc::Sender<Status>) {
        let limit = 2 * admitted_for;
        loop {
            let oldest = self.lock().values().map(|(_, at)| at.elapsed()).max().unwrap_or(limit);
            if let Some(left) = limit.checked_sub(oldest).filter(|left| !left.is_zero()) {
                // Time in which this process stands still is nobody's fault.
                let _ = awake::timeout(left.max(LOOK_MIN), std::future::pending::<()>()).await;
                continue;
            }
            let Some(path) = self.lapse(limit) else { continue };
            let what = format!("{path}: the services were not asked again whether they let the caller in");
            // Its frames count no more, whether it reads its stream or not.
            self.serving.handle.permit(self.endpoint, self.incarnation, Permissions::NONE);
            self.serving.handle.leave(self.endpoint);
            // Without a stream to end it is gone already.
            let _ = end.send(Status::unauthenticated(what)).await;
            return;
        }
    }

    /// Takes out methods whose admissions are older than this; one of them, if that is the end of the session.
    fn lapse(&self, limit: Duration) -> Option<&'static str> {
        let mut admitted = self.lock();
        let lapsed = admitted.values().find(|(_, at)| at.elapsed() >= limit).map(|(method, _)| method.path);
        admitted.retain(|_, (_, at)| at.elapsed() < limit);
        if self.everything || admitted.is_empty() {
            return lapsed.or(Some("no method"));
        }
        self.permit(&admitted);
        None
    }

    /// Under the lock, so that of two changes the later one holds.
    fn permit(&self, admitted: &Admitted) {
        self.serving.handle.permit(self.endpoint, self.incarnation, self.may_by(admitted));
    }

    fn may_by(&self, admitted: &Admitted) -> Permissions {
        let each = admitted.values().map(|(method, _)| permissions(method));
        if self.everything { Permissions::ALL } else { each.fold(Permissions::NONE, Permissions::and) }
    }

    fn lock(&self) -> MutexGuard<'_, Admitted> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shortest pause between two looks at what has lapsed.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// What a caller of a method does with the map by frames. Who takes locks gives those back that its call does not want any
/// more.
fn permissions(method: &Method) -> Permissions {
    match method.kind {
        Kind::Sum { .. } => Permissions::ALL,
        Kind::Add { get: false, .. } => Permissions::ADD,
        Kind::Add { get: true, .. } => Permissions::ADD.and(Permissions::GET),
        Kind::Count { threshold: 1, .. } => Permissions::COUNT.and(Permissions::CLEAR),
        Kind::Count { .. } => Permissions::COUNT,
        Kind::Clear => Permissions::CLEAR,
        Kind::Query => Permissions::NONE,
    }
}
