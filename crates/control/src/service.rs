//! Service `Controller`: converts calls to messages for the engine, and grants to streams.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pathcall_auth::{PartyRole, caller};
use pathcall_proto::v1::controller_server::Controller;
use pathcall_proto::v1::{
    ApplicationGrant, ElementGrant, EndpointGrant, FollowNodesRequest, JoinPoolRequest, LookupReply, LookupRequest,
    PoolGrant, RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointReply,
    ReleaseEndpointRequest, StatusReply, StatusRequest,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::{Extensions, Request, Response, Status};

use crate::engine::{Latest, Message, read_counters};
use crate::nodes::{DirectoryStream, NodeDirectory};
use crate::state::{ControlCallId, truncated};

/// Time limit for an element's counters.
const COUNTERS_MAX: Duration = Duration::from_millis(500);

/// Implementation of the service. Clones serve the same controller.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// Weak, so that the engine ends with the handle.
    engine: mpsc::WeakUnboundedSender<Message>,
    nodes: Weak<NodeDirectory>,
    calls: Arc<AtomicU64>,
    /// URL scheme of the elements' control addresses.
    scheme: &'static str,
}

type Reply<T> = Result<Response<T>, Status>;

impl Service {
    pub(crate) fn new(
        engine: mpsc::WeakUnboundedSender<Message>,
        nodes: Weak<NodeDirectory>,
        scheme: &'static str,
    ) -> Self {
        Self { engine, nodes, calls: Arc::default(), scheme }
    }

    fn call(&self) -> ControlCallId {
        ControlCallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    fn send(&self, message: Message) -> Result<(), Status> {
        let engine = self.engine.upgrade().ok_or_else(stopped)?;
        engine.send(message).map_err(|_| stopped())
    }

    /// Sends a message that has one answer.
    async fn ask<T>(&self, message: impl FnOnce(ControlCallId, oneshot::Sender<T>) -> Message) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(message(self.call(), answer))?;
        answered.await.map_err(|_| stopped())
    }

    /// Whether the caller has access to the application or pool with this id.
    async fn check_id<T>(&self, request: &Request<T>, gaid: u32) -> Result<(), Status> {
        if !caller::is_known(request.extensions()) {
            return Ok(());
        }
        let name = self.ask(|_, answer| Message::NameOf(gaid, answer)).await?;
        // The state refuses unknown ids.
        name.map_or(Ok(()), |name| caller::check(request.extensions(), &name))
    }

    /// Registers a peer for as long as the returned stream is open.
    async fn register<T: Clone + Send + Sync + 'static>(
        &self,
        message: impl FnOnce(ControlCallId, watch::Sender<Latest<T>>) -> Message,
    ) -> Reply<Grants<T>> {
        let (grants, mut latest) = watch::channel(None);
        // From here on the end of the stream is reported, even if the caller leaves before the stream begins.
        let registration = Registration { call: self.call(), engine: self.engine.clone() };
        self.send(message(registration.call, grants))?;
        if let Some(Err(refusal)) = latest.wait_for(Option::is_some).await.map_err(|_| stopped())?.as_ref() {
            return Err(refusal.clone());
        }
        Ok(Response::new(Grants { latest: WatchStream::new(latest), _registration: registration }))
    }
}

#[tonic::async_trait]
impl Controller for Service {
    type RegisterApplicationStream = Grants<ApplicationGrant>;
    type RegisterElementStream = Grants<ElementGrant>;
    type FollowNodesStream = DirectoryStream;
    type JoinPoolStream = Grants<PoolGrant>;

    async fn register_application(
        &self,
        request: Request<RegisterApplicationRequest>,
    ) -> Reply<Grants<ApplicationGrant>> {
        caller::check(request.extensions(), &request.get_ref().name)?;
        self.register(|call, grants| Message::RegisterApplication(call, request.into_inner(), grants)).await
    }

    async fn register_endpoint(&self, request: Request<RegisterEndpointRequest>) -> Reply<EndpointGrant> {
        self.check_id(&request, request.get_ref().gaid).await?;
        let answer = self.ask(|call, answer| Message::RegisterEndpoint(call, request.into_inner(), answer)).await?;
        answer.map(Response::new)
    }

    async fn release_endpoint(&self, request: Request<ReleaseEndpointRequest>) -> Reply<ReleaseEndpointReply> {
        self.check_id(&request, request.get_ref().gaid).await?;
        let answer = self.ask(|call, answer| Message::ReleaseEndpoint(call, request.into_inner(), answer)).await?;
        answer.map(|()| Response::new(ReleaseEndpointReply {}))
    }

    async fn register_element(&self, request: Request<RegisterElementRequest>) -> Reply<Grants<ElementGrant>> {
        let (address, scheme) = (&request.get_ref().control_address, self.scheme);
        if address.split_once("://").is_some_and(|(of_element, _)| of_element != scheme) {
            return Err(Status::invalid_argument(format!(
                "control_address: expected an address that begins with {scheme}://, as the controller's does, got {:?}",
                truncated(address)
            )));
        }
        self.register(|call, grants| Message::RegisterElement(call, request.into_inner(), grants)).await
    }

    async fn join_pool(&self, request: Request<JoinPoolRequest>) -> Reply<Grants<PoolGrant>> {
        caller::check(request.extensions(), &request.get_ref().name)?;
        self.register(|call, grants| Message::JoinPool(call, request.into_inner(), grants)).await
    }

    async fn lookup(&self, request: Request<LookupRequest>) -> Reply<LookupReply> {
        caller::check(request.extensions(), &request.get_ref().name)?;
        let answer = self.ask(|_, answer| Message::Lookup(request.into_inner().name, answer)).await?;
        answer.map(Response::new)
    }

    async fn status(&self, _: Request<StatusRequest>) -> Reply<StatusReply> {
        let registered = self.ask(|_, answer| Message::Status(answer)).await?;
        let status = read_counters(registered, COUNTERS_MAX).await;
        let nodes = self.nodes.upgrade().map(|nodes| nodes.list()).unwrap_or_default();
        Ok(Response::new(StatusReply { nodes, ..status }))
    }

    async fn follow_nodes(&self, request: Request<FollowNodesRequest>) -> Reply<DirectoryStream> {
        let nodes = self.nodes.upgrade().ok_or_else(stopped)?;
        let FollowNodesRequest { node, authenticate } = request.get_ref();
        if let Some(node) = node {
            check_role(request.extensions(), &[PartyRole::Server])?;
            caller::check(request.extensions(), &node.name)?;
        } else if *authenticate {
            // A party with the key can send requests.
            check_role(request.extensions(), &[PartyRole::Server, PartyRole::Caller])?;
        }
        let FollowNodesRequest { node, authenticate } = request.into_inner();
        nodes.join(node, authenticate).map(Response::new)
    }
}

/// Whether the caller may take part in delegated calls; other roles may only read the directory.
fn check_role(extensions: &Extensions, roles: &[PartyRole]) -> Result<(), Status> {
    match caller::identity(extensions) {
        Some(identity) if !roles.contains(&identity.role) => {
            Err(Status::permission_denied(format!("{identity} may not take part in delegated calls")))
        }
        _ => Ok(()),
    }
}

fn stopped() -> Status {
    Status::unavailable("the controller is stopping")
}

/// Stream of a registration: the latest grant, and each later one. Grants that are outdated before they are read are
/// skipped.
pub(crate) struct Grants<T> {
    latest: WatchStream<Latest<T>>,
    _registration: Registration,
}

impl<T: Clone + Send + Sync + 'static> Stream for Grants<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.latest).poll_next(cx)) {
                Some(Some(grant)) => return Poll::Ready(Some(grant)),
                Some(None) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Reports the end of a registration's stream to the engine.
#[derive(Debug)]
struct Registration {
    call: ControlCallId,
    engine: mpsc::WeakUnboundedSender<Message>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            // An engine that has ended does not need the report.
            let _ = engine.send(Message::Ended(self.call));
        }
    }
}
