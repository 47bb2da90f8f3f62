//! What a member is told after it has joined.

use std::sync::{Arc, Weak};
use std::time::Duration;

use pathcall_endpoint::map::server::Member;
use pathcall_endpoint::map::{Applied, Renewal};
use pathcall_proto::v1::{AppliedFrame, EndpointGrant, JoinGrant, ReleaseEndpointRequest};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tonic::Status;

use super::super::Inner;
use super::super::hosted::{Hosted, Serving, Stranger};
use super::Caller;

/// Pauses before the controller is asked again about a member that it did not know: the first, and the longest.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Tells a member of new terms, as long as it is one.
pub(super) struct Following {
    pub(super) caller: Caller,
    pub(super) inner: Weak<Inner>,
    pub(super) hosted: Arc<Hosted>,
    /// Set when the controller was not there for it, or said no.
    pub(super) stranger: Option<Stranger>,
    pub(super) member: Member,
    pub(super) first: JoinGrant,
    /// Number of the terms that it knows.
    pub(super) known: u64,
    pub(super) terms: watch::Receiver<u64>,
}

impl Following {
    pub(super) async fn run(mut self, tell: mpsc::Sender<JoinGrant>) {
        loop {
            if !self.changed().await {
                return;
            }
            let serving = self.hosted.serving();
            self.known = serving.terms;
            let Some(grant) = self.renewed(&serving).await else { continue };
            if tell.send(grant).await.is_err() {
                return;
            }
        }
    }

    /// Waits for new terms; false when there will be none. If the controller does not know the member it is asked about
    /// it meanwhile: once it does, all go on under another epoch.
    async fn changed(&mut self) -> bool {
        let (known, mut pause) = (self.known, ASK_AGAIN.0);
        loop {
            let changed = self.terms.wait_for(|terms| *terms != known);
            if self.stranger.is_none() {
                return changed.await.is_ok();
            }
            if let Ok(changed) = timeout(pause, changed).await.map(|terms| terms.is_ok()) {
                return changed;
            }
            pause = (pause * 2).min(ASK_AGAIN.1);
            let serving = self.hosted.serving();
            if serving.memory.is_some() && matches!(self.register(&serving).await, Some(Ok(_))) {
                self.hosted.reached();
            }
        }
    }

    /// What to tell; nothing when the terms have changed again meanwhile.
    async fn renewed(&mut self, serving: &Serving) -> Option<JoinGrant> {
        let answer = if serving.memory.is_some() { self.register(serving).await } else { None };
        let registered = answer.and_then(|answer| self.heard(answer));
        // A caller counts its flows from the first of its slots: fewer than it has are of no use.
        let registered = registered.filter(|grant| grant.flows >= self.member.flows);
        let member = self.caller.member(self.member.endpoint, registered.as_ref(), serving);
        let Renewal { epoch, element, slot_base, era, committed, applied } = serving.handle.rejoin(member).await?;
        let memory = serving.memory.as_ref().filter(|_| element);
        let applied = applied.into_iter().map(|Applied { flow, seq, left_out }| AppliedFrame { flow, seq, left_out });
        Some(JoinGrant {
            epoch,
            slot_base,
            era: era.number(),
            element_address: memory.map(|memory| memory.element.to_string()).unwrap_or_default(),
            committed,
            applied: applied.collect(),
            ..self.first.clone()
        })
    }

    /// What the controller says of the member; one that it does not let in is a stranger.
    fn heard(&mut self, answer: Result<EndpointGrant, Status>) -> Option<EndpointGrant> {
        match answer {
            Ok(grant) => {
                self.stranger = None;
                Some(grant)
            }
            Err(error) => {
                if self.stranger.is_none() {
                    self.caller.works_in_software(&self.hosted, &error);
                    self.stranger = Some(self.hosted.stranger());
                }
                None
            }
        }
    }

    /// Has the controller let the element know this member by the id that it goes by; nothing when that can't be.
    async fn register(&self, serving: &Serving) -> Option<Result<EndpointGrant, Status>> {
        let controller = self.inner.upgrade()?.controller.clone()?;
        let request = self.caller.request_for(serving, self.caller.address?, self.member.endpoint);
        for _ in 0..2 {
            let grant = match controller.register(request.clone()).await {
                Ok(grant) if grant.endpoint != request.endpoint => grant,
                answer => return Some(answer),
            };
            // The controller knows it by an id that it never heard of, as the answer came too late. If it is given
            // another one after that, too, somebody else has its own.
            let release = ReleaseEndpointRequest { gaid: serving.gaid, endpoint: grant.endpoint, server: 0 };
            if let Err(error) = controller.release(release).await {
                return Some(Err(error));
            }
        }
        let application = self.hosted.application.name;
        tracing::warn!(application, "a caller works in software: the controller has given its id to another");
        None
    }
}
