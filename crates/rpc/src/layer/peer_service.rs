//! Service `pathcall.v1.Peer`, by which callers join the applications of this server.
//!
//! A caller is a member as long as it reads the stream of its join. When the stream is dropped, because the caller
//! ended it or its connection broke, the membership ends (`membership`).
//!
//! The server applies calls with ids in one step and remembers their ids. They do not use the element.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_auth::caller;
use pathcall_driver::node::Transport;
use pathcall_driver::server::IdempotentApply;
use pathcall_endpoint::map::server::idempotency::{
    ApplyOutcome, CALL_ID_BYTES_MAX, CALL_IDS_MAX, CallAttempt, EARLIER_PENDING_MAX,
};
use pathcall_endpoint::map::{Key, Modify};
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::peer_server::Peer;
use pathcall_proto::v1::{
    AdmitReply, AdmitRequest, ApplyCallReply, ApplyCallRequest, CancelSumReply, CancelSumRequest, CarryFramesRequest,
    FollowPoolRequest, JoinRequest, LookupNodeReply, LookupNodeRequest, NumberKeysReply, NumberKeysRequest,
    OpenJournalReply, OpenJournalRequest, Pair, lookup_node_reply,
};
use pathcall_wire::OpType;
use tonic::{Code, Request, Response, Status, Streaming};

use super::carried_frames::{self, CarriedStream};
use super::membership::{GrantStream, JoiningCaller};
use super::owned_application::OwnedApplication;
use super::pool::{Follower, PoolViewStream};
use super::{Admission, CallerCredentials, Inner};
use crate::status;

/// Maximum number of methods in one request.
const METHODS_MAX: usize = 64;

/// Implementation of the service.
#[derive(Debug, Clone)]
pub(super) struct PeerService {
    pub(super) inner: Arc<Inner>,
    pub(super) admission: Admission,
}

#[tonic::async_trait]
impl Peer for PeerService {
    type JoinStream = GrantStream;
    type CarryFramesStream = CarriedStream;
    type FollowPoolStream = PoolViewStream;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<GrantStream>, Status> {
        let Some(remote) = request.remote_addr() else {
            return Err(Status::failed_precondition(
                "the caller's address is unknown: callers must connect over TCP, and the layer must be on \
                 the server, not on a service",
            ));
        };
        let is_local = remote.ip().is_loopback() || request.local_addr().is_some_and(|own| own.ip() == remote.ip());
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
        if !is_local {
            owned.on_remote_caller();
        }
        let caller = JoiningCaller { address, request, admitted };
        caller.join(&self.inner, owned).await.map(Response::new)
    }

    async fn admit(&self, request: Request<AdmitRequest>) -> Result<Response<AdmitReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let owned = self.owned(&request.application)?;
        let Ok(session) = owned.sessions.find(&request.session) else {
            return Ok(Response::new(AdmitReply { session_unknown: true, ..AdmitReply::default() }));
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
            None => Ok(Response::new(AdmitReply { admitted_methods: admitted, session_unknown: false })),
        }
    }

    async fn cancel_sum(&self, request: Request<CancelSumRequest>) -> Result<Response<CancelSumReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let CancelSumRequest { application, filter_digest, session, .. } = request.into_inner();
        let owned = self.application(&application, filter_digest)?;
        let session = owned.sessions.find(&session)?;
        if let Some(active) = owned.active() {
            active.handle.abandon_sum(session.endpoint, session.incarnation);
        }
        Ok(Response::new(CancelSumReply {}))
    }

    async fn number_keys(&self, request: Request<NumberKeysRequest>) -> Result<Response<NumberKeysReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let NumberKeysRequest { application, filter_digest, server_incarnation, keys, session } = request.into_inner();
        let owned = self.application(&application, filter_digest)?;
        if owned.state_id() != server_incarnation {
            return Err(Status::unavailable(format!("the server of {application} has restarted")));
        }
        owned.sessions.find(&session)?;
        let numbers = owned.key_numbers.number(owned.application.name, &keys)?;
        let handle = owned.ensure_active().handle;
        handle.persisted(()).await.map_err(|error| status::of_join(&error))?;
        Ok(Response::new(NumberKeysReply { numbers }))
    }

    async fn open_journal(&self, request: Request<OpenJournalRequest>) -> Result<Response<OpenJournalReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let OpenJournalRequest { application, filter_digest, method } = request;
        let method = self.method(&application, &method)?;
        self.check_admission(method, credentials).await?;
        let owned = self.application(&application, filter_digest)?;
        // Random: a caller that knows the number may write to the journal.
        let journal = rand::random_range(1..=u64::MAX);
        let handle = owned.ensure_active().handle;
        handle.open_journal(journal).await.map_err(|error| status::of_join(&error))?;
        Ok(Response::new(OpenJournalReply { journal, server_incarnation: owned.state_id() }))
    }

    async fn apply_call(&self, request: Request<ApplyCallRequest>) -> Result<Response<ApplyCallReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().application)?;
        let (credentials, request) = (CallerCredentials::of(&request), request.into_inner());
        let owned = self.application(&request.application, request.filter_digest)?;
        let method = self.method(&request.application, &request.method)?;
        if !matches!(method.kind, Kind::Add { .. }) {
            return Err(Status::invalid_argument(format!("{}: only calls that add may have an id", method.path)));
        }
        self.check_admission(method, credentials).await?;
        let call = idempotent_call(request)?;
        if owned.application.threshold > 0 {
            return Err(Status::invalid_argument("calls of sums over all callers cannot have ids"));
        }
        let handle = owned.ensure_active().handle;
        let outcome = handle.apply(&call).await.map_err(|error| status::of_join(&error))?;
        Ok(Response::new(ApplyCallReply {
            already_applied: outcome == ApplyOutcome::AlreadyApplied,
            server_incarnation: owned.state_id(),
        }))
    }

    /// Answers with the address of the node for delegated calls. Only callers whose named method the services' checks
    /// admit get the key.
    async fn lookup_node(&self, request: Request<LookupNodeRequest>) -> Result<Response<LookupNodeReply>, Status> {
        let Some(handlers) = &self.inner.handlers else {
            return Err(Status::unimplemented("this server has no delegated methods"));
        };
        let transport = match handlers.config().transport {
            Transport::Flows => lookup_node_reply::Transport::Flows,
            Transport::Tcp => lookup_node_reply::Transport::Tcp,
            #[cfg(feature = "quic")]
            Transport::Quic(_) => lookup_node_reply::Transport::Quic,
            _ => return Err(Status::unimplemented("the transport of this server's node is unknown to callers")),
        };
        let token_key = handlers.key();
        if token_key.is_some() {
            self.inner.check_key_transport(&request)?;
            let (credentials, LookupNodeRequest { method }) = (CallerCredentials::of(&request), request.into_inner());
            if self.inner.catalogue.delegated(&method).is_none() {
                return Err(Status::invalid_argument(format!("{method:?} is not a delegated method")));
            }
            self.admission.admit_to_layers(&method, credentials.clone()).await?;
            handlers.guard().check(credentials.headers)?;
        }
        let (address, token_key) = (handlers.address().to_string(), token_key.map(|key| key.words().into()));
        Ok(Response::new(LookupNodeReply { address, transport: transport.into(), token_key }))
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
        let FollowPoolRequest { udp_port, incarnation, method, rack } = request;
        let Some(port) = u16::try_from(udp_port).ok().filter(|port| *port > 0) else {
            return Err(Status::invalid_argument(format!("{udp_port} is not a UDP port")));
        };
        let Some(method) = self.inner.catalogue.cloned(&method) else {
            let method = status::truncated(&method);
            return Err(Status::invalid_argument(format!("{method:?} is not a method of this server's pool")));
        };
        // Each request is checked itself: a missing service is found then.
        self.admission.admit_to_layers(method.path, credentials).await?;
        let udp = SocketAddr::new(remote.ip().to_canonical(), port);
        pool.follow(Follower { udp, incarnation, rack }).await.map(Response::new)
    }

    async fn carry_frames(
        &self,
        request: Request<Streaming<CarryFramesRequest>>,
    ) -> Result<Response<CarriedStream>, Status> {
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

/// Validates a call with an id.
fn idempotent_call(request: ApplyCallRequest) -> Result<IdempotentApply, Status> {
    let ApplyCallRequest { journal, call_id: id, completed_ids: completed, pairs, op, para, .. } = request;
    let earlier_pending = request.earlier_pending_attempts;
    let invalid = |what: &str| Status::invalid_argument(format!("invalid call with an id: {what}"));
    if id.len() > CALL_ID_BYTES_MAX || completed.len() > CALL_IDS_MAX || earlier_pending.len() > EARLIER_PENDING_MAX {
        return Err(invalid("its id is too long, or it lists too many other ids"));
    }
    let op = u8::try_from(op).ok().and_then(|op| OpType::parse(op).ok()).ok_or_else(|| invalid("unknown operator"))?;
    let read = |Pair { key, value }| Some((Key::from_bytes(&key)?, value));
    let pairs: Vec<(Key, i64)> = pairs.into_iter().map(read).collect::<Option<_>>().ok_or_else(|| invalid("no key"))?;
    let keys: BTreeSet<&Key> = pairs.iter().map(|(key, _)| key).collect();
    if keys.len() < pairs.len() {
        return Err(invalid("it has a key twice"));
    }
    let attempt = CallAttempt { number: request.attempt, pending_from: request.pending_from, earlier_pending };
    Ok(IdempotentApply { journal, attempt, id, completed, pairs, modify: Modify { op, para } })
}
