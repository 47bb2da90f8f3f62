//! Membership of a caller in an application, and the stream that holds it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pathcall_proto::v1::{EndpointGrant, JoinGrant, RegisterEndpointRequest, ReleaseEndpointRequest};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;
use tonic::Status;

use super::super::owned_application::{ActiveApplication, OwnedApplication};
use super::super::registration::{ANSWER_TIMEOUT, ControllerLink, no_answer};
use super::super::sessions::SessionId;
use crate::process_timeout;

/// Membership of a caller in an application. Dropping it releases everything that the caller has got so far.
#[derive(Debug)]
pub(super) struct Membership {
    owned: Arc<OwnedApplication>,
    /// Registration that the controller has not answered yet.
    pending: Option<PendingRegistration>,
    pub(super) registered: Option<(ControllerLink, ReleaseEndpointRequest)>,
    pub(super) member: Option<(ActiveApplication, u32)>,
    pub(super) session: Option<SessionId>,
}

/// Registration in progress.
#[derive(Debug)]
struct PendingRegistration {
    controller: ControllerLink,
    gaid: u32,
    answer: JoinHandle<Result<EndpointGrant, Status>>,
}

impl Membership {
    pub(super) fn reserve(owned: &Arc<OwnedApplication>) -> Option<Self> {
        let owned = owned.enter().then(|| Arc::clone(owned))?;
        Some(Self { owned, pending: None, registered: None, member: None, session: None })
    }

    /// Registers the caller with the element through the controller. If the caller leaves or the answer takes too long,
    /// the registration is released later.
    pub(super) async fn register(
        &mut self,
        controller: &ControllerLink,
        request: RegisterEndpointRequest,
    ) -> Result<EndpointGrant, Status> {
        let (controller, gaid) = (controller.clone(), request.gaid);
        let asking = controller.clone();
        let answer = tokio::spawn(async move { asking.register_untimed(request).await });
        let pending = self.pending.insert(PendingRegistration { controller, gaid, answer });
        let Ok(answer) = process_timeout::timeout(ANSWER_TIMEOUT, &mut pending.answer).await else {
            return Err(no_answer());
        };
        self.pending = None;
        answer.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
    }
}

impl PendingRegistration {
    /// Waits for the answer and releases the registration.
    async fn release(self) {
        if let Ok(Ok(EndpointGrant { endpoint, .. })) = self.answer.await {
            // If this fails, the controller's lease on the endpoint expires.
            let _ = self.controller.release(ReleaseEndpointRequest { gaid: self.gaid, endpoint, server: 0 }).await;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.owned.sessions.end(session);
        }
        if let Some((active, endpoint)) = &self.member {
            active.handle.leave(*endpoint);
        }
        self.owned.leave();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if let Some(pending) = self.pending.take() {
            runtime.spawn(pending.release());
        }
        if let Some((controller, release)) = self.registered.take() {
            let member = self.member.take();
            runtime.spawn(async move {
                // If this fails, the controller's lease on the endpoint expires.
                let _ = controller.release(release).await;
                // Not before the release: until then the element may accept frames with which it takes a lock.
                if let Some((active, endpoint)) = member {
                    active.handle.confirm_expelled(endpoint);
                }
            });
        }
    }
}

/// Stream of a caller's membership: its grant, and another one at each change of terms, until the server closes or ends
/// the membership.
pub(in crate::layer) struct GrantStream {
    pub(super) grant: Option<JoinGrant>,
    pub(super) grants: mpsc::Receiver<JoinGrant>,
    /// Reason of the server for ending the membership.
    pub(super) end: mpsc::Receiver<Status>,
    pub(super) closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) _follow: JoinSet<()>,
    pub(super) _membership: Membership,
}

impl Stream for GrantStream {
    type Item = Result<JoinGrant, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(grant) = self.grant.take() {
            return Poll::Ready(Some(Ok(grant)));
        }
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(reason)) = self.end.poll_recv(cx) {
            return Poll::Ready(Some(Err(reason)));
        }
        match self.grants.poll_recv(cx) {
            Poll::Ready(Some(grant)) => Poll::Ready(Some(Ok(grant))),
            // No more grants; the stream stays open until the server closes.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
