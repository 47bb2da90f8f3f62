//! Updates of a member's grant: a new one at each change of terms.

use std::sync::{Arc, Weak};

use pathcall_endpoint::map::EpochChange;
use pathcall_endpoint::map::server::Member;
use pathcall_proto::v1::{EndpointGrant, JoinGrant, ReleaseEndpointRequest};
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::super::Inner;
use super::super::owned_application::{ActiveApplication, OwnedApplication, UnregisteredMember};
use super::{JoiningCaller, REGISTER_PAUSE, applied_frames};

/// Task that notifies a member of new terms.
pub(super) struct MembershipUpdates {
    pub(super) caller: JoiningCaller,
    pub(super) inner: Weak<Inner>,
    pub(super) owned: Arc<OwnedApplication>,
    /// Set while the member is not registered: the controller was unreachable or refused.
    pub(super) unregistered: Option<UnregisteredMember>,
    pub(super) member: Member,
    pub(super) first: JoinGrant,
    /// Number of the terms that the member has.
    pub(super) known: u64,
    pub(super) terms: watch::Receiver<u64>,
}

impl MembershipUpdates {
    pub(super) async fn run(mut self, grants: mpsc::Sender<JoinGrant>) {
        loop {
            if !self.changed().await {
                return;
            }
            let active = self.owned.ensure_active();
            self.known = active.terms;
            let Some(grant) = self.new_grant(&active).await else { continue };
            if grants.send(grant).await.is_err() {
                return;
            }
        }
    }

    /// Waits for new terms; false when there will be none. Meanwhile tries to register an unregistered member: then all
    /// members continue under another epoch.
    async fn changed(&mut self) -> bool {
        let (known, mut pause) = (self.known, REGISTER_PAUSE.0);
        loop {
            let changed = self.terms.wait_for(|terms| *terms != known);
            if self.unregistered.is_none() {
                return changed.await.is_ok();
            }
            if let Ok(changed) = tokio::time::timeout(pause, changed).await.map(|terms| terms.is_ok()) {
                return changed;
            }
            pause = (pause * 2).min(REGISTER_PAUSE.1);
            let active = self.owned.ensure_active();
            if active.memory.is_some() && matches!(self.register(&active).await, Some(Ok(_))) {
                self.owned.on_controller_reached();
            }
        }
    }

    /// New grant of the member; `None` if the terms have changed again.
    async fn new_grant(&mut self, active: &ActiveApplication) -> Option<JoinGrant> {
        let answer = if active.memory.is_some() { self.register(active).await } else { None };
        let registered = answer.and_then(|answer| self.note_registration(answer));
        // A caller counts its flows from its first slot: fewer slots than flows cannot be used.
        let registered = registered.filter(|grant| grant.flows >= self.member.flows);
        let member = self.caller.member(self.member.endpoint, registered.as_ref(), active);
        let change: EpochChange = active.handle.take_epoch_change(member).await?;
        let memory = active.memory.as_ref().filter(|_| change.element);
        Some(JoinGrant {
            epoch: change.epoch,
            slot_base: change.slot_base,
            rows: change.rows,
            lock_era: change.era.number(),
            element_address: memory.map(|memory| memory.element.to_string()).unwrap_or_default(),
            committed_generation: change.committed,
            applied_frames: applied_frames(change.applied),
            ..self.first.clone()
        })
    }

    /// Processes the controller's answer; a refused member is unregistered.
    fn note_registration(&mut self, answer: Result<EndpointGrant, Status>) -> Option<EndpointGrant> {
        match answer {
            Ok(grant) => {
                self.unregistered = None;
                Some(grant)
            }
            Err(error) => {
                if self.unregistered.is_none() {
                    self.caller.works_in_software(&self.owned, &error);
                    self.unregistered = Some(self.owned.unregistered());
                }
                None
            }
        }
    }

    /// Registers the member with the element under its id; `None` if this is not possible.
    async fn register(&self, active: &ActiveApplication) -> Option<Result<EndpointGrant, Status>> {
        let controller = self.inner.upgrade()?.controller.clone()?;
        let request = self.caller.request_for(active, self.caller.address?, self.member.endpoint);
        for _ in 0..2 {
            let grant = match controller.register(request.clone()).await {
                Ok(grant) if grant.endpoint != request.endpoint => grant,
                answer => return Some(answer),
            };
            // The controller has registered the member under another id, which was never used because the answer came
            // too late. If it does so again after the release, another endpoint has the member's id.
            let release = ReleaseEndpointRequest { gaid: active.gaid, endpoint: grant.endpoint, server: 0 };
            if let Err(error) = controller.release(release).await {
                return Some(Err(error));
            }
        }
        let application = self.owned.application.name;
        tracing::warn!(application, "a caller works in software: the controller has assigned its id to another caller");
        None
    }
}
