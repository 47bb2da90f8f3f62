//! A sum that its caller has given up: the server is told, and the session is over.
//!
//! Its values count in the sum, or may, so another caller may have that; the next sum of this one would meet another of
//! the others, and all would be OK and wrong. So all begin anew, this one not before the server knows.

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

/// A sum on its way. Dropped before it is [there](Self::arrived), it is given up.
pub(in crate::channel) struct Awaited(Option<Sum>);

struct Sum {
    channel: Arc<Inner>,
    app: &'static str,
    session: Arc<Session>,
}

impl Awaited {
    /// A call of this method; anything else than a sum can be dropped.
    pub(in crate::channel) fn new(channel: &Arc<Inner>, method: &Method, session: &Arc<Session>) -> Self {
        let sum = || Sum { channel: Arc::clone(channel), app: method.app, session: Arc::clone(session) };
        Self(matches!(method.kind, Kind::Sum { .. }).then(sum))
    }

    /// The sum has come, or will not.
    pub(in crate::channel) fn arrived(mut self) {
        self.0 = None;
    }
}

impl Drop for Awaited {
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
