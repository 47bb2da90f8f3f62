//! Membership of a caller in an application: its join, the stream that holds it, and the updates of its grant.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use pathcall_endpoint::map::server::{Joined, Member, Permissions};
use pathcall_endpoint::map::{CallError, CommittedFrame, EpochChange};
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::{
    AppliedFrame, EndpointGrant, JoinGrant, JoinRequest, RegisterEndpointRequest, ReleaseEndpointRequest,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;
use tonic::Status;

use super::Inner;
use super::owned_application::{ActiveApplication, MEMBERS_MAX, OwnedApplication, UnregisteredMember};
use super::registration::{ANSWER_TIMEOUT, ControllerLink, no_answer};
use super::sessions::{CallerSession, SessionId};
use crate::process_timeout::{self, TimeBudget};
use crate::status;

/// Maximum number of flows of a caller.
const FLOWS_MAX: u32 = 64;
/// Time for which a join waits for the membership of a worker when all are taken: a worker that has just failed may
/// still be leaving.
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses before an unregistered member is registered again: the first, and the longest.
const REGISTER_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Caller that joins.
pub(super) struct JoiningCaller {
    /// UDP address of its frames; `None` when they are carried.
    pub(super) address: Option<SocketAddr>,
    pub(super) request: JoinRequest,
    /// Methods that it may call.
    pub(super) admitted: Vec<&'static Method>,
}

impl JoiningCaller {
    pub(super) async fn join(&self, inner: &Arc<Inner>, owned: &Arc<OwnedApplication>) -> Result<GrantStream, Status> {
        let mut closed = inner.closed.subscribe();
        if *closed.borrow_and_update() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        let Some(mut membership) = Membership::reserve(owned) else {
            let name = owned.application.name;
            return Err(Status::resource_exhausted(format!("{name} has {MEMBERS_MAX} callers already")));
        };
        let terms = owned.terms.subscribe();
        let active = owned.ensure_active();
        // An element does not know permissions: a caller that may not call all methods is not registered with it.
        let all = inner.catalogue.methods_of(owned.application.name);
        let all_methods = all.into_iter().all(|method| self.admitted.iter().any(|one| one.path == method.path));
        let controller = inner.controller.as_ref().filter(|_| all_methods && self.address.is_some());
        let registered = self.register(&mut membership, controller, &active, owned).await;
        let endpoint = registered.as_ref().map_or_else(|| owned.own_id(), |grant| grant.endpoint);
        let release = ReleaseEndpointRequest { gaid: active.gaid, endpoint, server: 0 };
        membership.registered = controller.map(|controller| (controller.clone(), release));
        let member = self.member(endpoint, registered.as_ref(), &active);
        membership.member = Some((active.clone(), endpoint));
        let caller = (endpoint, self.request.incarnation);
        let session = CallerSession::new(caller, active.clone(), &self.admitted, all_methods);
        let joined = self.enter(owned, &active, member, session.permissions()).await?;
        let (id, session) = owned.sessions.begin(session);
        membership.session = Some(id);
        let admitted = self.admitted.iter().map(|method| method.path.to_owned()).collect();
        let grant = JoinGrant {
            session: id.to_vec(),
            admitted_methods: admitted,
            admission_ms: u64::try_from(inner.admitted_for.as_millis()).unwrap_or(u64::MAX),
            ..self.grant(owned, &active, member, joined)
        };
        let (tell, grants) = mpsc::channel(1);
        let (end_sender, end) = mpsc::channel(1);
        let following = MembershipUpdates {
            caller: JoiningCaller {
                address: self.address.filter(|_| all_methods),
                request: self.request.clone(),
                admitted: Vec::new(),
            },
            inner: Arc::downgrade(inner),
            owned: Arc::clone(owned),
            unregistered: (controller.is_some() && registered.is_none()).then(|| owned.unregistered()),
            member,
            first: grant.clone(),
            known: active.terms,
            terms,
        };
        let mut follow = JoinSet::new();
        follow.spawn(following.run(tell));
        follow.spawn(session.watch(inner.admitted_for, end_sender));
        let closed = Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() });
        Ok(GrantStream { grant: Some(grant), grants, end, closed, _follow: follow, _membership: membership })
    }

    /// Member entry of the caller. Without a slot in its repeat filter the element cannot process the caller's frames.
    fn member(&self, endpoint: u32, registered: Option<&EndpointGrant>, active: &ActiveApplication) -> Member {
        let EndpointGrant { slot_base, flows, .. } = registered.cloned().unwrap_or_default();
        let element = active.memory.is_some() && flows > 0;
        let flows = if element { flows } else { self.flows() };
        let incarnation = self.request.incarnation;
        Member { endpoint, incarnation, element, slot_base, flows, terms: active.terms }
    }

    fn flows(&self) -> u32 {
        self.request.flows.clamp(1, FLOWS_MAX)
    }

    /// Registers the caller with the element through the controller. If this fails, the caller does not use the element
    /// until the controller can register it.
    async fn register(
        &self,
        membership: &mut Membership,
        controller: Option<&ControllerLink>,
        active: &ActiveApplication,
        owned: &OwnedApplication,
    ) -> Option<EndpointGrant> {
        // Also without memory: if memory is granted later, the caller keeps its id.
        let registered = membership.register(controller?, self.request_for(active, self.address?, 0)).await;
        registered.inspect_err(|error| self.works_in_software(owned, error)).ok()
    }

    fn works_in_software(&self, owned: &OwnedApplication, error: &Status) {
        let (application, said) = (owned.application.name, error.message());
        tracing::warn!(application, "a caller works in software: the controller refused it: {said}");
    }

    async fn enter(
        &self,
        owned: &OwnedApplication,
        active: &ActiveApplication,
        member: Member,
        may: Permissions,
    ) -> Result<Joined, Status> {
        let mut budget = TimeBudget::new(WORKER_TIMEOUT);
        loop {
            let mut left = std::pin::pin!(owned.left.notified());
            left.as_mut().enable();
            let error = match active.handle.join(member, may, self.address).await {
                Ok(joined) => return Ok(joined),
                Err(error) => error,
            };
            let full = matches!(error, CallError::WorkersFull { .. });
            if !full || budget.wait(left).await.is_err() {
                return Err(status::of_join(&error));
            }
        }
    }

    /// `endpoint`: id that the caller already has; 0 for none.
    fn request_for(&self, active: &ActiveApplication, address: SocketAddr, endpoint: u32) -> RegisterEndpointRequest {
        RegisterEndpointRequest {
            gaid: active.gaid,
            incarnation: self.request.incarnation,
            data_address: address.to_string(),
            flows: self.flows(),
            server: 0,
            endpoint,
            rack: String::new(),
        }
    }

    fn grant(&self, owned: &OwnedApplication, active: &ActiveApplication, member: Member, joined: Joined) -> JoinGrant {
        let element = active.memory.as_ref().filter(|_| joined.element);
        JoinGrant {
            gaid: active.gaid,
            epoch: active.epoch,
            endpoint: member.endpoint,
            slot_base: member.slot_base,
            flows: member.flows,
            server: active.endpoint,
            server_incarnation: owned.incarnation,
            server_udp_port: owned.local_addr.port().into(),
            element_address: element.map(|memory| memory.element.to_string()).unwrap_or_default(),
            width: joined.width.into(),
            rows: joined.rows,
            worker: joined.worker.into(),
            start_chunk: joined.start_chunk,
            lock_lease_ms: u64::try_from(owned.lease.as_millis()).unwrap_or(u64::MAX),
            lock_era: joined.era.number(),
            committed_generation: 0,
            applied_frames: Vec::new(),
            token_key: active.key.map(|key| key.words().into()),
            ..JoinGrant::default()
        }
    }
}

/// Membership of a caller in an application. Dropping it releases everything that the caller has got so far.
#[derive(Debug)]
struct Membership {
    owned: Arc<OwnedApplication>,
    /// Registration that the controller has not answered yet.
    pending: Option<PendingRegistration>,
    registered: Option<(ControllerLink, ReleaseEndpointRequest)>,
    member: Option<(ActiveApplication, u32)>,
    session: Option<SessionId>,
}

/// Registration in progress.
#[derive(Debug)]
struct PendingRegistration {
    controller: ControllerLink,
    gaid: u32,
    answer: JoinHandle<Result<EndpointGrant, Status>>,
}

impl Membership {
    fn reserve(owned: &Arc<OwnedApplication>) -> Option<Self> {
        let owned = owned.enter().then(|| Arc::clone(owned))?;
        Some(Self { owned, pending: None, registered: None, member: None, session: None })
    }

    /// Registers the caller with the element through the controller. If the caller leaves or the answer takes too long,
    /// the registration is released later.
    async fn register(
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
pub(super) struct GrantStream {
    grant: Option<JoinGrant>,
    grants: mpsc::Receiver<JoinGrant>,
    /// Reason of the server for ending the membership.
    end: mpsc::Receiver<Status>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    _follow: JoinSet<()>,
    _membership: Membership,
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

/// Task that notifies a member of new terms.
struct MembershipUpdates {
    caller: JoiningCaller,
    inner: Weak<Inner>,
    owned: Arc<OwnedApplication>,
    /// Set while the member is not registered: the controller was unreachable or refused.
    unregistered: Option<UnregisteredMember>,
    member: Member,
    first: JoinGrant,
    /// Number of the terms that the member has.
    known: u64,
    terms: watch::Receiver<u64>,
}

impl MembershipUpdates {
    async fn run(mut self, grants: mpsc::Sender<JoinGrant>) {
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
        let EpochChange { epoch, element, slot_base, era, committed, applied } =
            active.handle.take_epoch_change(member)?;
        let memory = active.memory.as_ref().filter(|_| element);
        let applied = applied.into_iter().map(|CommittedFrame { flow, seq, overflowed_lanes }| AppliedFrame {
            flow,
            seq,
            overflowed_lanes,
        });
        Some(JoinGrant {
            epoch,
            slot_base,
            lock_era: era.number(),
            element_address: memory.map(|memory| memory.element.to_string()).unwrap_or_default(),
            committed_generation: committed,
            applied_frames: applied.collect(),
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
