//! Service `pathcall.v1.Peer`, by which callers join the applications of this server.
//!
//! A caller is a member as long as it reads the stream of its join. When the stream is dropped, because the caller
//! ended it or its connection broke, the membership ends. `membership` then releases the member's registration; until
//! then `membership_updates` notifies the member of new terms. `node` gives the address of the node for delegated
//! calls.

mod membership;
mod membership_updates;
mod node;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::caller;
use pathcall_endpoint::map::CallError;
use pathcall_endpoint::map::server::{Joined, Member, Permissions};
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::peer_server::Peer;
use pathcall_proto::v1::{
    AdmitReply, AdmitRequest, ApplyReply, ApplyRequest, CarryRequest, EndpointGrant, FollowPoolRequest, GiveUpReply,
    GiveUpRequest, JoinGrant, JoinRequest, NameReply, NameRequest, OpenBookReply, OpenBookRequest,
    RegisterEndpointRequest, ReleaseEndpointRequest,
};
use pathcall_proto::v1::{NodeReply, NodeRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::{Code, Request, Response, Status, Streaming};

use super::carried_frames::{self, CarriedStream};
use super::idempotency;
use super::owned_application::{ActiveApplication, MEMBERS_MAX, OwnedApplication};
use super::pool::PoolViewStream;
use super::registration::ControllerLink;
use super::sessions::CallerSession;
use super::{Admission, CallerCredentials, Inner};
use crate::process_timeout::TimeBudget;
use crate::status;
use membership::{GrantStream, Membership};
use membership_updates::MembershipUpdates;

/// Maximum number of flows of a caller.
const FLOWS_MAX: u32 = 64;
/// Maximum number of methods in one request.
const METHODS_MAX: usize = 64;
/// Time for which a join waits for the membership of a worker when all are taken: a worker that has just failed may
/// still be leaving.
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

/// Implementation of the service.
#[derive(Debug, Clone)]
pub(super) struct PeerService {
    pub(super) inner: Arc<Inner>,
    pub(super) admission: Admission,
}

#[tonic::async_trait]
impl Peer for PeerService {
    type JoinStream = GrantStream;
    type CarryStream = CarriedStream;
    type FollowPoolStream = PoolViewStream;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<GrantStream>, Status> {
        let Some(remote) = request.remote_addr() else {
            return Err(Status::failed_precondition(
                "the caller's address is unknown: callers must connect over TCP, and the layer must be on \
                 the server, not on a service",
            ));
        };
        caller::check(request.extensions(), &request.get_ref().application)?;
        let check_key_transport = self.inner.check_key_transport(&request);
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let owned = self.application(&request.application, request.filter_digest)?;
        if owned.authenticates() {
            check_key_transport?;
        }
        let Ok(port) = u16::try_from(request.udp_port) else {
            return Err(Status::invalid_argument(format!("{} is not a UDP port", request.udp_port)));
        };
        let address = (port != 0).then(|| SocketAddr::new(remote.ip().to_canonical(), port));
        let admitted = self.admitted(&request.application, &request.method, credentials).await?;
        let caller = JoiningCaller { address, request, admitted };
        caller.join(&self.inner, owned).await.map(Response::new)
    }

    async fn admit(&self, request: Request<AdmitRequest>) -> Result<Response<AdmitReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let owned = self.owned(&request.application)?;
        let Ok(session) = owned.sessions.find(&request.session) else {
            return Ok(Response::new(AdmitReply { let_go: true, ..AdmitReply::default() }));
        };
        let (mut admitted, mut refused) = (Vec::new(), None);
        for path in request.methods.iter().take(METHODS_MAX) {
            let method = self.method(&request.application, path)?;
            match self.check_admission(method, credentials.clone()).await {
                Ok(()) => {
                    session.admit(method);
                    admitted.push(method.path.to_owned());
                }
                Err(status) => drop(refused.get_or_insert(status)),
            }
        }
        match refused.filter(|_| admitted.is_empty()) {
            Some(status) => Err(status),
            None => Ok(Response::new(AdmitReply { admitted, let_go: false })),
        }
    }

    async fn give_up(&self, request: Request<GiveUpRequest>) -> Result<Response<GiveUpReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let GiveUpRequest { application, filter_digest, session, .. } = request.into_inner();
        let owned = self.application(&application, filter_digest)?;
        let session = owned.sessions.find(&session)?;
        if let Some(active) = owned.active() {
            active.handle.abandon_sum(session.endpoint, session.incarnation);
        }
        Ok(Response::new(GiveUpReply {}))
    }

    async fn name(&self, request: Request<NameRequest>) -> Result<Response<NameReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let NameRequest { application, filter_digest, server_incarnation, keys, session } = request.into_inner();
        let owned = self.application(&application, filter_digest)?;
        if owned.incarnation != server_incarnation {
            return Err(Status::unavailable(format!("the server of {application} has restarted")));
        }
        owned.sessions.find(&session)?;
        let numbers = owned.key_numbers.number(owned.application.name, &keys)?;
        Ok(Response::new(NameReply { numbers }))
    }

    async fn open_book(&self, request: Request<OpenBookRequest>) -> Result<Response<OpenBookReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let OpenBookRequest { application, filter_digest, method } = request;
        let method = self.method(&application, &method)?;
        self.check_admission(method, credentials).await?;
        idempotency::open(self.application(&application, filter_digest)?).await.map(Response::new)
    }

    async fn apply(&self, request: Request<ApplyRequest>) -> Result<Response<ApplyReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let owned = self.application(&request.application, request.filter_digest)?;
        let method = self.method(&request.application, &request.method)?;
        if !matches!(method.kind, Kind::Add { .. }) {
            return Err(Status::invalid_argument(format!("{}: only calls that add may have an id", method.path)));
        }
        self.check_admission(method, credentials).await?;
        idempotency::apply(owned, request).await.map(Response::new)
    }

    async fn node(&self, request: Request<NodeRequest>) -> Result<Response<NodeReply>, Status> {
        self.node_reply(request).await.map(Response::new)
    }

    async fn follow_pool(&self, request: Request<FollowPoolRequest>) -> Result<Response<PoolViewStream>, Status> {
        let Some(pool) = &self.inner.pool else {
            return Err(Status::unimplemented("this server has no pool: it has no cloned methods or no controller"));
        };
        let Some(remote) = request.remote_addr() else {
            return Err(Status::failed_precondition("the caller's address is unknown: callers must connect over TCP"));
        };
        caller::check(request.extensions(), pool.name())?;
        if pool.authenticates() {
            self.inner.check_key_transport(&request)?;
        }
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let FollowPoolRequest { udp_port, incarnation, method } = request;
        let Some(port) = u16::try_from(udp_port).ok().filter(|port| *port > 0) else {
            return Err(Status::invalid_argument(format!("{udp_port} is not a UDP port")));
        };
        let Some(method) = self.inner.catalogue.cloned(&method) else {
            let method = status::truncated(&method);
            return Err(Status::invalid_argument(format!("{method:?} is not a method of this server's pool")));
        };
        // Each request is checked itself: a missing service is found then.
        self.admission.admit_to_layers(method.path, credentials).await?;
        pool.follow(SocketAddr::new(remote.ip().to_canonical(), port), incarnation).await.map(Response::new)
    }

    async fn carry(&self, request: Request<Streaming<CarryRequest>>) -> Result<Response<CarriedStream>, Status> {
        carried_frames::carry(&self.inner, request).await
    }
}

impl PeerService {
    fn owned(&self, name: &str) -> Result<&Arc<OwnedApplication>, Status> {
        self.inner.applications.get(name).ok_or_else(|| unknown_application(name))
    }

    fn application(&self, name: &str, filter_digest: u64) -> Result<&Arc<OwnedApplication>, Status> {
        let owned = self.owned(name)?;
        if owned.application.digest != filter_digest {
            return Err(Status::failed_precondition(format!(
                "client and server were built from different filters of {name}"
            )));
        }
        Ok(owned)
    }

    /// Method that a caller names.
    fn method(&self, application: &str, path: &str) -> Result<&'static Method, Status> {
        let method = self.inner.catalogue.method(path).filter(|method| method.app == application);
        method.ok_or_else(|| {
            let (path, application) = (status::truncated(path), status::truncated(application));
            Status::invalid_argument(format!("{path:?} is not a method of {application}"))
        })
    }

    /// Passes a call of a method with a filter through the services' checks.
    async fn check_admission(&self, method: &Method, credentials: CallerCredentials) -> Result<(), Status> {
        let admitted = self.admission.admit(method.path, credentials).await;
        admitted.map_err(|status| match status.code() {
            Code::Unimplemented => Status::failed_precondition(format!(
                "{}: no service of this server has the method: add the service, since its checks admit callers",
                method.path
            )),
            _ => status,
        })
    }

    /// Methods of the application that the services permit to the caller of one call, including that call's method.
    async fn admitted(
        &self,
        application: &str,
        path: &str,
        credentials: CallerCredentials,
    ) -> Result<Vec<&'static Method>, Status> {
        let called = self.method(application, path)?;
        self.check_admission(called, credentials.clone()).await?;
        let mut admitted = vec![called];
        for method in self.inner.catalogue.methods_of(application).filter(|method| method.path != called.path) {
            match self.admission.admit(method.path, credentials.clone()).await {
                Ok(()) => admitted.push(method),
                Err(status) => tracing::info!(
                    application,
                    method = method.path,
                    "a caller cannot use the element, because it may not call this method: {}",
                    status.message()
                ),
            }
        }
        Ok(admitted)
    }
}

/// Status for an application that this server does not have.
pub(super) fn unknown_application(application: &str) -> Status {
    Status::failed_precondition(format!(
        "this server does not have the application {:?}: connect to the one that owns its map",
        status::truncated(application)
    ))
}

/// Caller that joins.
struct JoiningCaller {
    /// UDP address of its frames; `None` when they are carried.
    address: Option<SocketAddr>,
    request: JoinRequest,
    /// Methods that it may call.
    admitted: Vec<&'static Method>,
}

impl JoiningCaller {
    async fn join(&self, inner: &Arc<Inner>, owned: &Arc<OwnedApplication>) -> Result<GrantStream, Status> {
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
            admitted,
            admitted_ms: u64::try_from(inner.admitted_for.as_millis()).unwrap_or(u64::MAX),
            ..self.grant(owned, &active, member, joined)
        };
        let (tell, grants) = mpsc::channel(1);
        let (let_go, end) = mpsc::channel(1);
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
        follow.spawn(session.watch(inner.admitted_for, let_go));
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
            lease_ms: u64::try_from(owned.lease.as_millis()).unwrap_or(u64::MAX),
            era: joined.era.number(),
            committed: 0,
            applied: Vec::new(),
            token_key: active.key.map(|key| key.words().into()),
            ..JoinGrant::default()
        }
    }
}
