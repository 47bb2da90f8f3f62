//! Membership of a caller in an application: its join, the stream that holds it, and the updates of its grant.

mod resume;
mod updates;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pathcall_endpoint::map::server::{Joined, Member, Permissions};
use pathcall_endpoint::map::{CallError, CommittedFrame};
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::{
    AppliedFrame, EndpointGrant, JoinGrant, JoinRequest, RegisterEndpointRequest, ReleaseEndpointRequest,
};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;
use tonic::Status;

use super::Inner;
use super::owned_application::{ActiveApplication, MEMBERS_MAX, OwnedApplication};
use super::registration::{ANSWER_TIMEOUT, ControllerLink, no_answer};
use super::sessions::{CallerSession, SessionId};
use crate::process_timeout::{self, TimeBudget};
use crate::status;
use resume::end_with_owner;
use updates::MembershipUpdates;

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
        let resumed = self.request.resumed_endpoint;
        let id = if resumed == 0 { rand::random() } else { self.check_secret(owned, &active)? };
        // An element does not know permissions: a caller that may not call all methods is not registered with it.
        let all = inner.catalogue.methods_of(owned.application.name);
        let all_methods = all.into_iter().all(|method| self.admitted.iter().any(|one| one.path == method.path));
        let controller = inner.controller.as_ref().filter(|_| all_methods && self.address.is_some());
        let registered = self.register(&mut membership, controller, &active, owned).await;
        // A caller that resumes keeps its id.
        let registered = registered.filter(|grant| resumed == 0 || grant.endpoint == resumed);
        let endpoint = match resumed {
            0 => registered.as_ref().map_or_else(|| owned.own_id(), |grant| grant.endpoint),
            resumed => resumed,
        };
        let member = self.member(endpoint, registered.as_ref(), &active);
        let hold = |membership: &mut Membership| {
            let release = ReleaseEndpointRequest { gaid: active.gaid, endpoint, server: 0 };
            membership.registered = controller.map(|controller| (controller.clone(), release));
            membership.member = Some((active.clone(), endpoint));
        };
        let caller = (endpoint, self.request.incarnation);
        let session = CallerSession::new(caller, active.clone(), &self.admitted, all_methods);
        let (joined, change) = if resumed == 0 {
            hold(&mut membership);
            (self.enter(owned, &active, member, session.permissions(), id).await?, None)
        } else {
            // Another attempt of the same caller may have been faster, and holds the membership then.
            let resumed = self.resume(owned, &active, member, session.permissions(), id).await?;
            hold(&mut membership);
            resumed
        };
        let session = owned.sessions.begin(id, session);
        membership.session = Some(id);
        let admitted = self.admitted.iter().map(|method| method.path.to_owned()).collect();
        let grant = JoinGrant {
            session: id.to_vec(),
            admitted_methods: admitted,
            admission_ms: u64::try_from(inner.admitted_for.as_millis()).unwrap_or(u64::MAX),
            resumable: owned.is_stored(),
            state_id: owned.state_id(),
            ..self.grant(owned, &active, member, joined)
        };
        let first = grant.clone();
        let grant = match change {
            Some(change) => JoinGrant {
                committed_generation: change.committed,
                applied_frames: applied_frames(change.applied),
                ..grant
            },
            None => grant,
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
            first,
            known: active.terms,
            terms,
        };
        let mut follow = JoinSet::new();
        follow.spawn(following.run(tell));
        follow.spawn(session.watch(inner.admitted_for, end_sender.clone()));
        follow.spawn(end_with_owner(owned.ended.subscribe(), end_sender));
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
        let request = self.request_for(active, self.address?, self.request.resumed_endpoint);
        let registered = membership.register(controller?, request).await;
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
        secret: SessionId,
    ) -> Result<Joined, Status> {
        let mut budget = TimeBudget::new(WORKER_TIMEOUT);
        let next_chunk = (self.request.summed_state == owned.state_id()).then_some(self.request.next_chunk);
        loop {
            let mut left = std::pin::pin!(owned.left.notified());
            left.as_mut().enable();
            let error = match active.handle.join(member, may, self.address, secret, next_chunk).await {
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

/// Frames for a grant.
fn applied_frames(applied: Vec<CommittedFrame>) -> Vec<AppliedFrame> {
    let frame = |CommittedFrame { flow, seq, overflowed_lanes }| AppliedFrame { flow, seq, overflowed_lanes };
    applied.into_iter().map(frame).collect()
}
