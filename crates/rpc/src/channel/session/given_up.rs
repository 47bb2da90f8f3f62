//! Sums that their caller gives up: the server is told, and the session is over.
//!
//! The values of such a call may be in the sum that other callers get. The next sum of this caller would then be of another
//! step than theirs: OK, and wrong. So all callers begin anew; this one joins when the server knows.

use std::sync::Arc;
use std::time::Duration;

use pathcall_endpoint::map::CallError;
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::GiveUpRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tokio::runtime::Handle;

use super::{Session, Slot, lock};
use crate::awake;
use crate::channel::Inner;
use crate::channel::transport::Transport;

/// A server that has not answered after this time is taken for gone, and the session with it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Guard of a sum that is awaited: dropped before it is [disarmed](Self::disarm), it gives the sum up.
pub(in crate::channel) struct GiveUpGuard(Option<Sum>);

struct Sum {
    channel: Arc<Inner>,
    app: &'static str,
    session: Arc<Session>,
}

impl GiveUpGuard {
    /// A call of this method; anything else than a sum can be dropped.
    pub(in crate::channel) fn new(channel: &Arc<Inner>, method: &Method, session: &Arc<Session>) -> Self {
        let sum = || Sum { channel: Arc::clone(channel), app: method.app, session: Arc::clone(session) };
        Self(matches!(method.kind, Kind::Sum { .. }).then(sum))
    }

    /// The sum has come, or will not.
    pub(in crate::channel) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for GiveUpGuard {
    fn drop(&mut self) {
        let (Some(Sum { channel, app, session }), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        // Calls that come meanwhile wait until the server knows.
        if let Some(slot) = channel.slots.get(app) {
            slot.give_up(session, channel.transport.clone(), &runtime);
        }
    }
}

impl Slot {
    fn give_up(&self, session: Arc<Session>, transport: Transport, runtime: &Handle) {
        if session.is_over() {
            return;
        }
        session.over.send_replace(Some(CallError::GivenUp.to_string().into()));
        let request = GiveUpRequest {
            application: self.application.name.into(),
            filter_digest: self.application.digest,
            endpoint: session.endpoint,
            incarnation: session.incarnation,
            session: session.secret().into(),
        };
        let before = lock(&self.giving_up).take();
        let told = runtime.spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let mut server = PeerClient::new(transport.channel());
            // Who does not hear it has lost the connection, and so this caller.
            let _ = awake::timeout(TIMEOUT, server.give_up(request)).await;
            session.watcher.abort();
        });
        *lock(&self.giving_up) = Some(told);
    }

    /// Waits until the server knows what was given up.
    pub(super) async fn given_up(&self) {
        let told = lock(&self.giving_up).take();
        if let Some(told) = told {
            let _ = told.await;
        }
    }
}
