//! Service `Controller`: turns calls into messages for the engine, and grants into streams.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pathcall_auth::{Role, caller};
use pathcall_proto::v1::controller_server::Controller;
use pathcall_proto::v1::{
    ApplicationGrant, ElementGrant, EndpointGrant, JoinPoolRequest, LookupReply, LookupRequest, NodesRequest,
    PoolGrant, RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointReply,
    ReleaseEndpointRequest, StatusReply, StatusRequest,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::{Extensions, Request, Response, Status};

use crate::engine::{Latest, Message, read_counters};
use crate::nodes::{Listing, Nodes};
use crate::state::{CallId, shortened};

/// Longest wait for an element's counters.
const COUNTERS_MAX: Duration = Duration::from_millis(500);

/// The service. Clones serve the same controller.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// Weak, so that the engine ends when the handle lets it.
    engine: mpsc::WeakUnboundedSender<Message>,
    nodes: Weak<Nodes>,
    calls: Arc<AtomicU64>,
    /// What control addresses of elements begin with.
    scheme: &'static str,
}

type Reply<T> = Result<Response<T>, Status>;

impl Service {
    pub(crate) fn new(engine: mpsc::WeakUnboundedSender<Message>, nodes: Weak<Nodes>, scheme: &'static str) -> Self {
        Self { engine, nodes, calls: Arc::default(), scheme }
    }

    fn call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    fn send(&self, message: Message) -> Result<(), Status> {
        let engine = self.engine.upgrade().ok_or_else(stopped)?;
        engine.send(message).map_err(|_| stopped())
    }

    /// Asks for something that is answered once.
    async fn ask<T>(&self, message: impl FnOnce(CallId, oneshot::Sender<T>) -> Message) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        self.send(message(self.call(), answer))?;
        answered.await.map_err(|_| stopped())
    }

    /// Whether the caller may act for the application or the pool with this id.
    async fn check_id<T>(&self, request: &Request<T>, gaid: u32) -> Result<(), Status> {
        if !caller::is_known(request.extensions()) {
            return Ok(());
        }
        let name = self.ask(|_, answer| Message::NameOf(gaid, answer)).await?;
        // Of an id that is nobody's the state says so.
        name.map_or(Ok(()), |name| caller::check(request.extensions(), &name))
    }

    /// Registers something for as long as the stream that comes back.
    async fn register<T: Clone + Send + Sync + 'static>(
        &self,
        message: impl FnOnce(CallId, watch::Sender<Latest<T>>) -> Message,
    ) -> Reply<Grants<T>> {
        let (grants, mut latest) = watch::channel(None);
        // From here on the end of the stream is told, even if the caller goes before it has begun.
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
    type NodesStream = Listing;
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
                "control_address: expected one that begins with {scheme}://, as the controller's, got {:?}",
                shortened(address)
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
        let standing = self.ask(|_, answer| Message::Status(answer)).await?;
        let status = read_counters(standing, COUNTERS_MAX).await;
        let nodes = self.nodes.upgrade().map(|nodes| nodes.list()).unwrap_or_default();
        Ok(Response::new(StatusReply { nodes, ..status }))
    }

    async fn nodes(&self, request: Request<NodesRequest>) -> Reply<Listing> {
        let nodes = self.nodes.upgrade().ok_or_else(stopped)?;
        let NodesRequest { node, authenticate } = request.get_ref();
        if let Some(node) = node {
            may_be(request.extensions(), &[Role::Server])?;
            caller::check(request.extensions(), &node.name)?;
        } else if *authenticate {
            // Who has the key can send requests.
            may_be(request.extensions(), &[Role::Server, Role::Caller])?;
        }
        let NodesRequest { node, authenticate } = request.into_inner();
        nodes.join(node, authenticate).map(Response::new)
    }
}

/// Whether the caller may take part in calls that are passed on; others may only look who does.
fn may_be(extensions: &Extensions, roles: &[Role]) -> Result<(), Status> {
    match caller::identity(extensions) {
        Some(identity) if !roles.contains(&identity.role) => {
            Err(Status::permission_denied(format!("{identity} may not take part in calls that are passed on")))
        }
        _ => Ok(()),
    }
}

fn stopped() -> Status {
    Status::unavailable("the controller is stopping")
}

/// The stream that answers a registration: the latest grant, whenever there is another one. One
/// that is out of date before it was read is skipped.
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

/// Tells the engine when the stream ends, in whatever way.
#[derive(Debug)]
struct Registration {
    call: CallId,
    engine: mpsc::WeakUnboundedSender<Message>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            // An engine that has ended needs to know of no streams.
            let _ = engine.send(Message::Ended(self.call));
        }
    }
}
