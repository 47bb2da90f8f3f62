//! A caller's place, and the stream that it is held by.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pathcall_proto::v1::{EndpointGrant, JoinGrant, RegisterEndpointRequest, ReleaseEndpointRequest};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;
use tonic::Status;

use super::super::hosted::{Hosted, Serving};
use super::super::registration::{ANSWER_TIMEOUT, Controller, unanswered};
use super::super::sessions::SessionId;
use crate::awake;

/// A caller's place in an application; it is given back when it is dropped, however far it got.
#[derive(Debug)]
pub(super) struct Place {
    hosted: Arc<Hosted>,
    /// What the controller has not answered yet.
    registering: Option<Registering>,
    pub(super) registered: Option<(Controller, ReleaseEndpointRequest)>,
    pub(super) member: Option<(Serving, u32)>,
    pub(super) session: Option<SessionId>,
}

/// A registration on its way.
#[derive(Debug)]
struct Registering {
    controller: Controller,
    gaid: u32,
    answer: JoinHandle<Result<EndpointGrant, Status>>,
}

impl Place {
    pub(super) fn take(hosted: &Arc<Hosted>) -> Option<Self> {
        let hosted = hosted.enter().then(|| Arc::clone(hosted))?;
        Some(Self { hosted, registering: None, registered: None, member: None, session: None })
    }

    /// Asks the controller to let the element know the caller. Should nobody wait for the answer, because the caller is
    /// gone or it takes too long, what it gives is given back with the place.
    pub(super) async fn register(
        &mut self,
        controller: &Controller,
        request: RegisterEndpointRequest,
    ) -> Result<EndpointGrant, Status> {
        let (controller, gaid) = (controller.clone(), request.gaid);
        let asking = controller.clone();
        let answer = tokio::spawn(async move { asking.registered(request).await });
        let registering = self.registering.insert(Registering { controller, gaid, answer });
        let Ok(answer) = awake::timeout(ANSWER_TIMEOUT, &mut registering.answer).await else {
            return Err(unanswered());
        };
        self.registering = None;
        answer.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
    }
}

impl Registering {
    /// Gives back what comes of it.
    async fn undo(self) {
        if let Ok(Ok(EndpointGrant { endpoint, .. })) = self.answer.await {
            // If this fails the controller's lease on the endpoint runs out.
            let _ = self.controller.release(ReleaseEndpointRequest { gaid: self.gaid, endpoint, server: 0 }).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.hosted.sessions.end(session);
        }
        if let Some((serving, endpoint)) = &self.member {
            serving.handle.leave(*endpoint);
        }
        self.hosted.leave();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if let Some(registering) = self.registering.take() {
            runtime.spawn(registering.undo());
        }
        if let Some((controller, release)) = self.registered.take() {
            let member = self.member.take();
            runtime.spawn(async move {
                // If this fails the controller's lease on the endpoint runs out.
                let _ = controller.release(release).await;
                // Only now: the element lets in nothing more that it could take a lock with.
                if let Some((serving, endpoint)) = member {
                    serving.handle.gone(endpoint);
                }
            });
        }
    }
}

/// The stream that a caller holds: its grant, and one more at each change of terms, until the server
/// closes, or lets the caller go.
pub(in crate::server) struct Membership {
    pub(super) grant: Option<JoinGrant>,
    pub(super) grants: mpsc::Receiver<JoinGrant>,
    /// Why the caller is let go, if it is.
    pub(super) end: mpsc::Receiver<Status>,
    pub(super) closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) _follow: JoinSet<()>,
    pub(super) _place: Place,
}

impl Stream for Membership {
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
            // Nothing will follow; the stream stays until the server closes.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
