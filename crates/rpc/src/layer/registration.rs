//! Registration at the controller: ownership of applications, and their callers.
//!
//! Ownership is a stream of grants. When the stream breaks, the server requests it again with the same incarnation
//! until the controller answers; the application works on meanwhile.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::{ConnectTarget, ExpectedPeer, PartyRole, Security};
use pathcall_proto::LEASE_EXPIRES_IN_MS;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{
    ApplicationGrant, EndpointGrant, JoinPoolRequest, PoolGrant, RegisterApplicationRequest, RegisterEndpointRequest,
    ReleaseEndpointRequest,
};
use tokio::sync::Semaphore;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::builder::LayerError;
use super::owned_application::OwnedApplication;
use crate::process_timeout;

/// Time after which a controller that has not answered counts as unreachable.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of unanswered registrations of callers; further callers work in software.
const UNANSWERED_MAX: usize = 4096;
/// Keep-alive interval: the loss of the controller is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Maximum wait for the end of a predecessor's lease before the server starts: longer than the grace period of a
/// controller.
const LEASE_WAIT_MAX: Duration = Duration::from_secs(12);
/// Maximum number of retries while a predecessor seems to be alive: the controller may notice its end after its
/// successor's request.
const ALIVE_MAX: u32 = 10;
/// Pauses between attempts to connect: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// Connection to the controller, made when it is needed.
#[derive(Debug, Clone)]
pub(super) struct ControllerLink {
    address: Arc<str>,
    target: ConnectTarget,
    client: ControllerClient<Channel>,
    unanswered: Arc<Semaphore>,
}

impl ControllerLink {
    pub(super) fn new(address: &str, security: &Security) -> Result<Self, LayerError> {
        let target = security.target(address, ExpectedPeer::new(PartyRole::Controller))?.endpoint(|endpoint| {
            endpoint
                .connect_timeout(ANSWER_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
        });
        let client = ControllerClient::new(target.connect_lazy());
        let unanswered = Arc::new(Semaphore::new(UNANSWERED_MAX));
        Ok(Self { address: address.into(), target, client, unanswered })
    }

    /// Registers a caller with the element.
    pub(super) async fn register(&self, request: RegisterEndpointRequest) -> Result<EndpointGrant, Status> {
        with_timeout(self.register_untimed(request)).await
    }

    /// Registers a caller without a time limit. If no task waits for the answer any more, the registration must be
    /// released.
    pub(super) async fn register_untimed(&self, request: RegisterEndpointRequest) -> Result<EndpointGrant, Status> {
        let Ok(_counted) = self.unanswered.try_acquire() else { return Err(no_answer()) };
        let mut client = self.client.clone();
        client.register_endpoint(request).await.map(tonic::Response::into_inner)
    }

    /// Reports that a caller has left.
    pub(super) async fn release(&self, request: ReleaseEndpointRequest) -> Result<(), Status> {
        let mut client = self.client.clone();
        with_timeout(client.release_endpoint(request)).await.map(drop)
    }

    async fn register_application(
        &self,
        request: RegisterApplicationRequest,
    ) -> Result<(ApplicationGrant, Streaming<ApplicationGrant>), Status> {
        let mut client = self.client.clone();
        with_timeout(async move {
            let mut stream = client.register_application(request).await?.into_inner();
            let grant = stream.message().await?;
            grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the controller ended the stream"))
        })
        .await
    }

    /// Joins a pool. Returns the first grant and the stream of later ones.
    pub(super) async fn join_pool(
        &self,
        request: JoinPoolRequest,
    ) -> Result<(PoolGrant, Streaming<PoolGrant>), Status> {
        let mut client = self.client.clone();
        with_timeout(async move {
            let mut stream = client.join_pool(request).await?.into_inner();
            let grant = stream.message().await?;
            grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the controller ended the stream"))
        })
        .await
    }

    /// Address of this host from which the controller is reached.
    pub(super) async fn local_ip(&self) -> io::Result<IpAddr> {
        let uri = self.target.uri();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut found = tokio::net::lookup_host((host, uri.port_u16().unwrap_or(80))).await?;
        let controller = found.next().ok_or(io::ErrorKind::NotFound)?;
        let any: IpAddr = match controller {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Connecting a UDP socket sends nothing: the system only chooses the route.
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.connect(controller)?;
        Ok(socket.local_addr()?.ip())
    }
}

async fn with_timeout<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match process_timeout::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(no_answer()),
    }
}

/// Status for a controller that does not answer.
pub(super) fn no_answer() -> Status {
    Status::unavailable(format!("no answer in {} s", ANSWER_TIMEOUT.as_secs()))
}

/// Ownership of one application.
#[derive(Debug)]
pub(super) struct OwnerRegistration {
    controller: ControllerLink,
    owned: Arc<OwnedApplication>,
    service_address: String,
}

impl OwnerRegistration {
    pub(super) fn new(controller: ControllerLink, owned: Arc<OwnedApplication>, service_address: String) -> Self {
        Self { controller, owned, service_address }
    }

    /// Takes ownership, or finds that the controller is unreachable. The returned future keeps the ownership.
    pub(super) async fn register(self) -> Result<impl Future<Output = ()> + Send + 'static, LayerError> {
        let stream = match self.first_attempt().await {
            Ok(stream) => Some(stream),
            Err(error) if is_unreachable(&error) => {
                tracing::warn!(
                    application = self.owned.application.name,
                    controller = &*self.controller.address,
                    "cannot reach the controller ({}): working in software",
                    error.message()
                );
                None
            }
            Err(error) => {
                return Err(LayerError::Refused {
                    app: self.owned.application.name,
                    controller: self.controller.address.to_string(),
                    reason: error.message().into(),
                });
            }
        };
        Ok(self.keep_ownership(stream))
    }

    /// Takes ownership. If the lease of a failed predecessor still holds the name, waits for its end: without ownership
    /// at the start the application could not use the element later, because callers know it by the ids with which it
    /// starts. The controller may notice the failure of a predecessor a moment after its successor's request.
    async fn first_attempt(&self) -> Result<Streaming<ApplicationGrant>, Status> {
        let (mut wait_left, mut alive) = (LEASE_WAIT_MAX, 0);
        loop {
            let error = match self.attempt().await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if error.code() == Code::FailedPrecondition && alive < ALIVE_MAX {
                alive += 1;
                tokio::time::sleep(PAUSE_MIN).await;
                continue;
            }
            let Some(left) = lease_expires_in(&error).filter(|left| *left <= wait_left) else { return Err(error) };
            let (application, left_ms) = (self.owned.application.name, left.as_millis());
            tracing::info!(application, left_ms, "waiting until the lease of the previous owner expires");
            wait_left -= left;
            tokio::time::sleep(left).await;
        }
    }

    /// Follows the grants; when their stream breaks, requests it again, until dropped.
    async fn keep_ownership(self, mut stream: Option<Streaming<ApplicationGrant>>) {
        let application = self.owned.application.name;
        let controller = &*self.controller.address;
        loop {
            if let Some(mut stream) = stream.take()
                && !self.follow(&mut stream).await
            {
                tracing::warn!(
                    application,
                    controller,
                    "the connection to the controller is lost: new callers work in software"
                );
            }
            let mut pause = PAUSE_MIN;
            let mut last_refusal = None;
            let terms = *self.owned.terms.borrow();
            stream = loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                match self.attempt().await {
                    Ok(stream) => break Some(stream),
                    Err(error) if is_unreachable(&error) => {}
                    Err(error) => {
                        // Logged once, not at each attempt.
                        if last_refusal.as_deref() != Some(error.message()) {
                            tracing::warn!(
                                application,
                                controller,
                                "the controller refused the registration: {}",
                                error.message()
                            );
                        }
                        last_refusal = Some(error.message().to_owned());
                    }
                }
            };
            tracing::info!(application, controller, "registered with the controller");
            if *self.owned.terms.borrow() == terms {
                self.owned.on_controller_reached();
            }
        }
    }

    /// Follows the grants; true when they have to be requested again, false when the stream has ended.
    async fn follow(&self, stream: &mut Streaming<ApplicationGrant>) -> bool {
        loop {
            let again = self.owned.silent_until();
            let resume = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                grant = stream.message() => match grant {
                    Ok(Some(grant)) => _ = self.owned.granted(grant),
                    Ok(None) | Err(_) => return false,
                },
                () = self.owned.ask_anew.notified() => return true,
                () = resume => return true,
            }
        }
    }

    async fn attempt(&self) -> Result<Streaming<ApplicationGrant>, Status> {
        let (grant, stream) = self.controller.register_application(self.request().await?).await?;
        if self.owned.granted(grant) {
            return Ok(stream);
        }
        // The application has started meanwhile, with ids that its first caller knows.
        let (grant, stream) = self.controller.register_application(self.request().await?).await?;
        if !self.owned.granted(grant) {
            let application = self.owned.application.name;
            tracing::warn!(
                application,
                "the controller has assigned the application's ids to others: working in software"
            );
        }
        Ok(stream)
    }

    async fn request(&self) -> Result<RegisterApplicationRequest, Status> {
        let mut data_address = self.owned.local_addr;
        if data_address.ip().is_unspecified() {
            let ip = self.controller.local_ip().await;
            data_address.set_ip(ip.map_err(|error| Status::unavailable(error.to_string()))?);
        }
        let application = &self.owned.application;
        Ok(RegisterApplicationRequest {
            name: application.name.into(),
            filter_digest: application.digest,
            width: self.owned.width().into(),
            takes_narrow_rows: self.owned.takes_narrow_rows(),
            rows: self.owned.rows_to_request(),
            no_memory_reason: self.owned.no_memory_reason().into(),
            data_address: data_address.to_string(),
            incarnation: self.owned.incarnation,
            service_address: self.service_address.clone(),
            authenticate: self.owned.authenticates(),
            held: self.owned.held(),
            silent_elements: self.owned.silent_starts(),
            yielded_epoch: self.owned.yielded_epoch(),
        })
    }
}

/// Remaining lease of a failed owner on the name, if it is the reason of a refusal.
fn lease_expires_in(error: &Status) -> Option<Duration> {
    let millis = error.metadata().get(LEASE_EXPIRES_IN_MS)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

fn is_unreachable(error: &Status) -> bool {
    matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown)
}
