//! Lets callers into the applications of this server: `pathcall.v1.Peer`.
//!
//! A caller is a member as long as it reads the stream that it joined by. When the stream is
//! dropped, because the caller ended it or its connection broke, it has left. `place` gives back what it had then;
//! `following` tells it of new terms until then. `node` says where calls go that may be passed on.

mod following;
mod node;
mod place;

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

use super::books;
use super::carry::{self, Carried};
use super::hosted::{Hosted, MEMBERS_MAX, Serving};
use super::pool::Views;
use super::registration::Controller;
use super::sessions::Session;
use super::{Admission, Credentials, Inner};
use crate::awake::Patience;
use crate::status;
use following::Following;
use place::{Membership, Place};

/// Flows that one caller gets.
const FLOWS_MAX: u32 = 64;
/// Methods that one request asks for at most.
const METHODS_MAX: usize = 64;
/// When all places for workers are taken, one that has just died may still be on its way out:
/// its place is waited for so long.
const PLACE_TIMEOUT: Duration = Duration::from_secs(2);

/// The service.
#[derive(Debug, Clone)]
pub(super) struct PeerService {
    pub(super) inner: Arc<Inner>,
    pub(super) admission: Admission,
}

#[tonic::async_trait]
impl Peer for PeerService {
    type JoinStream = Membership;
    type CarryStream = Carried;
    type FollowPoolStream = Views;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<Membership>, Status> {
        let Some(remote) = request.remote_addr() else {
            return Err(Status::failed_precondition(
                "the caller's address is not known here: callers join over TCP, and the layer belongs on the server",
            ));
        };
        caller::check(request.extensions(), &request.get_ref().application)?;
        let keys_may_go = self.inner.keys_may_go(&request);
        let (credentials, request) = (Credentials::of(&request), request.into_inner());
        let hosted = self.application(&request.application, request.filter_digest)?;
        if hosted.authenticates() {
            keys_may_go?;
        }
        let Ok(port) = u16::try_from(request.udp_port) else {
            return Err(Status::invalid_argument(format!("{} is not a UDP port", request.udp_port)));
        };
        let address = (port != 0).then(|| SocketAddr::new(remote.ip().to_canonical(), port));
        let admitted = self.admitted(&request.application, &request.method, credentials).await?;
        let caller = Caller { address, request, admitted };
        caller.join(&self.inner, hosted).await.map(Response::new)
    }

    async fn admit(&self, request: Request<AdmitRequest>) -> Result<Response<AdmitReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (Credentials::of(&request), request.into_inner());
        let hosted = self.hosted(&request.application)?;
        let Ok(session) = hosted.sessions.find(&request.session) else {
            return Ok(Response::new(AdmitReply { let_go: true, ..AdmitReply::default() }));
        };
        let (mut admitted, mut refused) = (Vec::new(), None);
        for path in request.methods.iter().take(METHODS_MAX) {
            let method = self.method(&request.application, path)?;
            match self.let_in(method, credentials.clone()).await {
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
        let hosted = self.application(&application, filter_digest)?;
        let session = hosted.sessions.find(&session)?;
        if let Some(serving) = hosted.running() {
            serving.handle.give_up(session.endpoint, session.incarnation);
        }
        Ok(Response::new(GiveUpReply {}))
    }

    async fn name(&self, request: Request<NameRequest>) -> Result<Response<NameReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let NameRequest { application, filter_digest, server_incarnation, keys, session } = request.into_inner();
        let hosted = self.application(&application, filter_digest)?;
        if hosted.incarnation != server_incarnation {
            return Err(Status::unavailable(format!("the server of {application} has started anew")));
        }
        hosted.sessions.find(&session)?;
        let numbers = hosted.names.number(hosted.application.name, &keys)?;
        Ok(Response::new(NameReply { numbers }))
    }

    async fn open_book(&self, request: Request<OpenBookRequest>) -> Result<Response<OpenBookReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (Credentials::of(&request), request.into_inner());
        let OpenBookRequest { application, filter_digest, method } = request;
        let method = self.method(&application, &method)?;
        self.let_in(method, credentials).await?;
        books::open(self.application(&application, filter_digest)?).await.map(Response::new)
    }

    async fn apply(&self, request: Request<ApplyRequest>) -> Result<Response<ApplyReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (Credentials::of(&request), request.into_inner());
        let hosted = self.application(&request.application, request.filter_digest)?;
        let method = self.method(&request.application, &request.method)?;
        if !matches!(method.kind, Kind::Add { .. }) {
            return Err(Status::invalid_argument(format!("{}: only calls that add may have an id", method.path)));
        }
        self.let_in(method, credentials).await?;
        books::apply(hosted, request).await.map(Response::new)
    }

    async fn node(&self, request: Request<NodeRequest>) -> Result<Response<NodeReply>, Status> {
        self.node_reply(request).await.map(Response::new)
    }

    async fn follow_pool(&self, request: Request<FollowPoolRequest>) -> Result<Response<Views>, Status> {
        let Some(pool) = &self.inner.pool else {
            return Err(Status::unimplemented("this server is in no pool: it has no cloned methods, or no controller"));
        };
        let Some(remote) = request.remote_addr() else {
            return Err(Status::failed_precondition("the caller's address is not known here: callers follow over TCP"));
        };
        caller::check(request.extensions(), pool.name())?;
        if pool.authenticates() {
            self.inner.keys_may_go(&request)?;
        }
        let (credentials, request) = (Credentials::of(&request), request.into_inner());
        let FollowPoolRequest { udp_port, incarnation, method } = request;
        let Some(port) = u16::try_from(udp_port).ok().filter(|port| *port > 0) else {
            return Err(Status::invalid_argument(format!("{udp_port} is not a UDP port")));
        };
        let Some(method) = self.inner.catalogue.cloned(&method) else {
            let method = status::shortened(&method);
            return Err(Status::invalid_argument(format!("{method:?} is no method that this server's pool answers")));
        };
        // Each request is looked at itself: whether its service is here is seen then.
        self.admission.admit_to_layers(method.path, credentials).await?;
        pool.follow(SocketAddr::new(remote.ip().to_canonical(), port), incarnation).await.map(Response::new)
    }

    async fn carry(&self, request: Request<Streaming<CarryRequest>>) -> Result<Response<Carried>, Status> {
        carry::carry(&self.inner, request).await
    }
}

impl PeerService {
    fn hosted(&self, name: &str) -> Result<&Arc<Hosted>, Status> {
        self.inner.applications.get(name).ok_or_else(|| lacks(name))
    }

    fn application(&self, name: &str, filter_digest: u64) -> Result<&Arc<Hosted>, Status> {
        let hosted = self.hosted(name)?;
        if hosted.application.digest != filter_digest {
            return Err(Status::failed_precondition(format!(
                "client and server were built from different filters of {name}"
            )));
        }
        Ok(hosted)
    }

    /// The method that a caller names.
    fn method(&self, application: &str, path: &str) -> Result<&'static Method, Status> {
        let method = self.inner.catalogue.method(path).filter(|method| method.app == application);
        method.ok_or_else(|| {
            let (path, application) = (status::shortened(path), status::shortened(application));
            Status::invalid_argument(format!("{path:?} is no method of {application}"))
        })
    }

    /// Has the services' checks look at a call of a method with a filter.
    async fn let_in(&self, method: &Method, credentials: Credentials) -> Result<(), Status> {
        let admitted = self.admission.admit(method.path, credentials).await;
        admitted.map_err(|status| match status.code() {
            Code::Unimplemented => Status::failed_precondition(format!(
                "{}: no service of this server has the method: add it, its checks let callers in",
                method.path
            )),
            _ => status,
        })
    }

    /// The application's methods that the services let the caller of one call, that one among them.
    async fn admitted(
        &self,
        application: &str,
        path: &str,
        credentials: Credentials,
    ) -> Result<Vec<&'static Method>, Status> {
        let called = self.method(application, path)?;
        self.let_in(called, credentials.clone()).await?;
        let mut admitted = vec![called];
        for method in self.inner.catalogue.methods_of(application).filter(|method| method.path != called.path) {
            match self.admission.admit(method.path, credentials.clone()).await {
                Ok(()) => admitted.push(method),
                Err(status) => tracing::info!(
                    application,
                    method = method.path,
                    "a caller works past the element: it may not call this method: {}",
                    status.message()
                ),
            }
        }
        Ok(admitted)
    }
}

/// What is said of an application that another server has, or none.
pub(super) fn lacks(application: &str) -> Status {
    Status::failed_precondition(format!(
        "this server does not have the application {:?}: connect to the one that owns its map",
        status::shortened(application)
    ))
}

/// Who wants to join.
struct Caller {
    /// Where its frames come from and go to; none when they are carried.
    address: Option<SocketAddr>,
    request: JoinRequest,
    /// Methods that it may call.
    admitted: Vec<&'static Method>,
}

impl Caller {
    async fn join(&self, inner: &Arc<Inner>, hosted: &Arc<Hosted>) -> Result<Membership, Status> {
        let mut closed = inner.closed.subscribe();
        if *closed.borrow_and_update() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        let Some(mut place) = Place::take(hosted) else {
            let name = hosted.application.name;
            return Err(Status::resource_exhausted(format!("{name} has {MEMBERS_MAX} callers already")));
        };
        let terms = hosted.terms.subscribe();
        let serving = hosted.serving();
        // An element does not know what a caller may do: it is not told of one that may not do everything.
        let all = inner.catalogue.methods_of(hosted.application.name);
        let everything = all.into_iter().all(|method| self.admitted.iter().any(|one| one.path == method.path));
        let controller = inner.controller.as_ref().filter(|_| everything && self.address.is_some());
        let registered = self.register(&mut place, controller, &serving, hosted).await;
        let endpoint = registered.as_ref().map_or_else(|| hosted.own_id(), |grant| grant.endpoint);
        let release = ReleaseEndpointRequest { gaid: serving.gaid, endpoint, server: 0 };
        place.registered = controller.map(|controller| (controller.clone(), release));
        let member = self.member(endpoint, registered.as_ref(), &serving);
        place.member = Some((serving.clone(), endpoint));
        let caller = (endpoint, self.request.incarnation);
        let session = Session::new(caller, serving.clone(), &self.admitted, everything);
        let joined = self.enter(hosted, &serving, member, session.may()).await?;
        let (id, session) = hosted.sessions.begin(session);
        place.session = Some(id);
        let admitted = self.admitted.iter().map(|method| method.path.to_owned()).collect();
        let grant = JoinGrant {
            session: id.to_vec(),
            admitted,
            admitted_ms: u64::try_from(inner.admitted_for.as_millis()).unwrap_or(u64::MAX),
            ..self.grant(hosted, &serving, member, joined)
        };
        let (tell, grants) = mpsc::channel(1);
        let (let_go, end) = mpsc::channel(1);
        let following = Following {
            caller: Caller {
                address: self.address.filter(|_| everything),
                request: self.request.clone(),
                admitted: Vec::new(),
            },
            inner: Arc::downgrade(inner),
            hosted: Arc::clone(hosted),
            stranger: (controller.is_some() && registered.is_none()).then(|| hosted.stranger()),
            member,
            first: grant.clone(),
            known: serving.terms,
            terms,
        };
        let mut follow = JoinSet::new();
        follow.spawn(following.run(tell));
        follow.spawn(session.watch(inner.admitted_for, let_go));
        let closed = Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() });
        Ok(Membership { grant: Some(grant), grants, end, closed, _follow: follow, _place: place })
    }

    /// What the element knows of the caller. Without a slot in its repeat filter it can't take this
    /// caller's frames.
    fn member(&self, endpoint: u32, registered: Option<&EndpointGrant>, serving: &Serving) -> Member {
        let EndpointGrant { slot_base, flows, .. } = registered.cloned().unwrap_or_default();
        let element = serving.memory.is_some() && flows > 0;
        let flows = if element { flows } else { self.flows() };
        let incarnation = self.request.incarnation;
        Member { endpoint, incarnation, element, slot_base, flows, terms: serving.terms }
    }

    fn flows(&self) -> u32 {
        self.request.flows.clamp(1, FLOWS_MAX)
    }

    /// Asks the controller to let the element know this caller. When it can't, the caller works
    /// past the element until the controller can.
    async fn register(
        &self,
        place: &mut Place,
        controller: Option<&Controller>,
        serving: &Serving,
        hosted: &Hosted,
    ) -> Option<EndpointGrant> {
        // Also without memory: should there be some one day, the caller is known by the same id.
        let registered = place.register(controller?, self.request_for(serving, self.address?, 0)).await;
        registered.inspect_err(|error| self.works_in_software(hosted, error)).ok()
    }

    fn works_in_software(&self, hosted: &Hosted, error: &Status) {
        let (application, said) = (hosted.application.name, error.message());
        tracing::warn!(application, "a caller works in software: the controller said: {said}");
    }

    async fn enter(
        &self,
        hosted: &Hosted,
        serving: &Serving,
        member: Member,
        may: Permissions,
    ) -> Result<Joined, Status> {
        let mut patience = Patience::new(PLACE_TIMEOUT);
        loop {
            let mut left = std::pin::pin!(hosted.left.notified());
            left.as_mut().enable();
            let error = match serving.handle.join(member, may, self.address).await {
                Ok(joined) => return Ok(joined),
                Err(error) => error,
            };
            let full = matches!(error, CallError::WorkersFull { .. });
            if !full || patience.wait(left).await.is_err() {
                return Err(status::of_join(&error));
            }
        }
    }

    /// `endpoint`: what the caller goes by already; 0: nothing.
    fn request_for(&self, serving: &Serving, address: SocketAddr, endpoint: u32) -> RegisterEndpointRequest {
        RegisterEndpointRequest {
            gaid: serving.gaid,
            incarnation: self.request.incarnation,
            data_address: address.to_string(),
            flows: self.flows(),
            server: 0,
            endpoint,
        }
    }

    fn grant(&self, hosted: &Hosted, serving: &Serving, member: Member, joined: Joined) -> JoinGrant {
        let element = serving.memory.as_ref().filter(|_| joined.element);
        JoinGrant {
            gaid: serving.gaid,
            epoch: serving.epoch,
            endpoint: member.endpoint,
            slot_base: member.slot_base,
            flows: member.flows,
            server: serving.endpoint,
            server_incarnation: hosted.incarnation,
            server_udp_port: hosted.local_addr.port().into(),
            element_address: element.map(|memory| memory.element.to_string()).unwrap_or_default(),
            width: joined.width.into(),
            rows: joined.rows,
            worker: joined.worker.into(),
            start_chunk: joined.start_chunk,
            lease_ms: u64::try_from(hosted.lease.as_millis()).unwrap_or(u64::MAX),
            era: joined.era.number(),
            committed: 0,
            applied: Vec::new(),
            token_key: serving.key.map(|key| key.words().into()),
            ..JoinGrant::default()
        }
    }
}
