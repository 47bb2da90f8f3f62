//! Guards of calls in progress, for callers that drop a call: a cancelled sum is reported to the server, and its session
//! ends; locks are released.
//!
//! The values of a cancelled sum may be part of the sum of the other callers. The caller's next sum would then belong to
//! another step than theirs: it would be OK, but wrong. So all callers start again; this one joins when the server has
//! the report.

use std::sync::Arc;
use std::time::Duration;

use pathcall_endpoint::map::{CallError, Key, Operation, Output};
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::CancelSumRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tokio::runtime::Handle;

use super::{ChannelApplication, MapSession, lock};
use crate::channel::Inner;
use crate::channel::transport::Transport;
use crate::process_timeout;

/// Time limit for the report; after it the server counts as failed, and the session ends.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Guard of an awaited sum: cancels the sum if it is dropped before it is [disarmed](Self::disarm).
pub(in crate::channel) struct SumCancelGuard(Option<Sum>);

struct Sum {
    channel: Arc<Inner>,
    app: &'static str,
    session: Arc<MapSession>,
}

impl SumCancelGuard {
    /// Guard of a call of this method. Only sums need one; other calls can be dropped.
    pub(in crate::channel) fn new(channel: &Arc<Inner>, method: &Method, session: &Arc<MapSession>) -> Self {
        let sum = || Sum { channel: Arc::clone(channel), app: method.app, session: Arc::clone(session) };
        Self(matches!(method.kind, Kind::Sum { .. }).then(sum))
    }

    /// Disarms the guard: the call has returned.
    pub(in crate::channel) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for SumCancelGuard {
    fn drop(&mut self) {
        let (Some(Sum { channel, app, session }), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        // Other calls wait until the server has the report.
        if let Some(application) = channel.applications.get(app) {
            application.cancel_sum(session, channel.transport.clone(), &runtime);
        }
    }
}

impl ChannelApplication {
    fn cancel_sum(&self, session: Arc<MapSession>, transport: Transport, runtime: &Handle) {
        if session.is_over() {
            return;
        }
        session.over.send_replace(Some(CallError::SumAbandoned.to_string().into()));
        let request = CancelSumRequest {
            application: self.application.name.into(),
            filter_digest: self.application.digest,
            endpoint: session.endpoint,
            incarnation: session.incarnation,
            session: session.secret().into(),
        };
        let before = lock(&self.cancelling).take();
        let told = runtime.spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let mut server = PeerClient::new(transport.channel());
            // If the request fails, the connection is lost, and the server removes this caller.
            let _ = process_timeout::timeout(TIMEOUT, server.cancel_sum(request)).await;
            session.watcher.abort();
        });
        *lock(&self.cancelling) = Some(told);
    }

    /// Waits until the server has the report of cancelled sums.
    pub(super) async fn wait_for_cancellation(&self) {
        let told = lock(&self.cancelling).take();
        if let Some(told) = told {
            let _ = told.await;
        }
    }
}

/// Guard of locks that were granted to a call whose handler still runs. If the caller drops the call, the guard
/// releases the locks.
pub(in crate::channel) struct LockReleaseGuard {
    session: Arc<MapSession>,
    release: Option<Operation>,
}

impl LockReleaseGuard {
    /// Guard of these locks; `None` if they were not granted.
    pub(in crate::channel) fn new(session: &Arc<MapSession>, keys: Vec<Key>, output: &Output) -> Option<Self> {
        let Output::Locked { tokens, .. } = output else { return None };
        let release = Some(Operation::Clear { keys, tokens: tokens.clone() });
        Some(Self { session: Arc::clone(session), release })
    }

    /// Disarms the guard: the handler has returned.
    pub(in crate::channel) fn disarm(mut self) {
        self.release = None;
    }
}

impl Drop for LockReleaseGuard {
    fn drop(&mut self) {
        if let (Some(release), Ok(runtime)) = (self.release.take(), Handle::try_current()) {
            let session = Arc::clone(&self.session);
            // Locks that cannot be released end with their lease.
            runtime.spawn(async move { session.handle.call(release).await });
        }
    }
}
