//! Speaks to the controller: takes ownership of applications and registers their callers.
//!
//! Ownership is a stream of grants. When it breaks, it is asked for again with the same incarnation
//! until the controller is back; the application works on meanwhile.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::{Peer, Role, Security, Target};
use pathcall_proto::LAPSES_IN_MS;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{
    ApplicationGrant, EndpointGrant, JoinPoolRequest, PoolGrant, RegisterApplicationRequest, RegisterEndpointRequest,
    ReleaseEndpointRequest,
};
use tokio::sync::Semaphore;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::builder::BuildError;
use super::hosted::Hosted;
use crate::awake;

/// A controller that has not answered after this time is taken for unreachable.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Registrations of callers that it may leave unanswered at a time: whoever comes then works in software.
const UNANSWERED_MAX: usize = 4096;
/// One that is gone without a word is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Longest time that a server waits for the end of its predecessor's lease before it starts: longer than
/// any grace of a controller.
const LAPSE_MAX: Duration = Duration::from_secs(12);
/// How often it is asked again while a predecessor seems to be alive: that it has ended may be known after its successor
/// asks.
const ALIVE_MAX: u32 = 10;
/// Pauses between attempts to reach it: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// A connection to the controller, made when it is needed.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    address: Arc<str>,
    target: Target,
    client: ControllerClient<Channel>,
    unanswered: Arc<Semaphore>,
}

impl Controller {
    pub(super) fn new(address: &str, security: &Security) -> Result<Self, BuildError> {
        let target = security.target(address, Peer::new(Role::Controller))?.endpoint(|endpoint| {
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
        answered(self.registered(request)).await
    }

    /// The same, however long it takes: what is registered when nobody waits any more is to be released.
    pub(super) async fn registered(&self, request: RegisterEndpointRequest) -> Result<EndpointGrant, Status> {
        let Ok(_counted) = self.unanswered.try_acquire() else { return Err(unanswered()) };
        let mut client = self.client.clone();
        client.register_endpoint(request).await.map(tonic::Response::into_inner)
    }

    /// Reports that a caller has left.
    pub(super) async fn release(&self, request: ReleaseEndpointRequest) -> Result<(), Status> {
        let mut client = self.client.clone();
        answered(client.release_endpoint(request)).await.map(drop)
    }

    async fn own(
        &self,
        request: RegisterApplicationRequest,
    ) -> Result<(ApplicationGrant, Streaming<ApplicationGrant>), Status> {
        let mut client = self.client.clone();
        answered(async move {
            let mut stream = client.register_application(request).await?.into_inner();
            let grant = stream.message().await?;
            grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the controller ended the stream"))
        })
        .await
    }

    /// Joins a pool: the first grant, and those that follow.
    pub(super) async fn join_pool(
        &self,
        request: JoinPoolRequest,
    ) -> Result<(PoolGrant, Streaming<PoolGrant>), Status> {
        let mut client = self.client.clone();
        answered(async move {
            let mut stream = client.join_pool(request).await?.into_inner();
            let grant = stream.message().await?;
            grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the controller ended the stream"))
        })
        .await
    }

    /// The address of this host that the controller is reached from.
    pub(super) async fn reached_from(&self) -> io::Result<IpAddr> {
        let uri = self.target.uri();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut found = tokio::net::lookup_host((host, uri.port_u16().unwrap_or(80))).await?;
        let controller = found.next().ok_or(io::ErrorKind::NotFound)?;
        let any: IpAddr = match controller {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Connecting a UDP socket sends nothing: the system only chooses the way.
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.connect(controller)?;
        Ok(socket.local_addr()?.ip())
    }
}

async fn answered<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match awake::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(unanswered()),
    }
}

/// What is said of a controller that is silent.
pub(super) fn unanswered() -> Status {
    Status::unavailable(format!("no answer in {} s", ANSWER_TIMEOUT.as_secs()))
}

/// The ownership of one application.
#[derive(Debug)]
pub(super) struct Owner {
    controller: Controller,
    hosted: Arc<Hosted>,
    service_address: String,
}

impl Owner {
    pub(super) fn new(controller: Controller, hosted: Arc<Hosted>, service_address: String) -> Self {
        Self { controller, hosted, service_address }
    }

    /// Takes ownership, or finds that the controller can't be reached; the future that comes back
    /// keeps it from then on.
    pub(super) async fn register(self) -> Result<impl Future<Output = ()> + Send + 'static, BuildError> {
        let stream = match self.first_attempt().await {
            Ok(stream) => Some(stream),
            Err(error) if is_unreachable(&error) => {
                tracing::warn!(
                    application = self.hosted.application.name,
                    controller = &*self.controller.address,
                    "the controller can't be reached ({}): working in software",
                    error.message()
                );
                None
            }
            Err(error) => {
                return Err(BuildError::Refused {
                    app: self.hosted.application.name,
                    controller: self.controller.address.to_string(),
                    reason: error.message().into(),
                });
            }
        };
        Ok(self.keep(stream))
    }

    /// Takes ownership; while the lease of a predecessor that has died still holds the name, waits for its
    /// end. Whoever began without would not get the element: callers know an application by the id that
    /// it was started with. That a predecessor is gone the controller may hear a moment after its successor.
    async fn first_attempt(&self) -> Result<Streaming<ApplicationGrant>, Status> {
        let (mut patience, mut alive) = (LAPSE_MAX, 0);
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
            let Some(left) = lapses_in(&error).filter(|left| *left <= patience) else { return Err(error) };
            let (application, left_ms) = (self.hosted.application.name, left.as_millis());
            tracing::info!(application, left_ms, "waiting until the lease of the last owner is over");
            patience -= left;
            tokio::time::sleep(left).await;
        }
    }

    /// Follows the grants; when their stream breaks, asks for them again, for ever.
    async fn keep(self, mut stream: Option<Streaming<ApplicationGrant>>) {
        let application = self.hosted.application.name;
        let controller = &*self.controller.address;
        loop {
            if let Some(mut stream) = stream.take()
                && !self.follow(&mut stream).await
            {
                tracing::warn!(application, controller, "the controller is gone: new callers work in software");
            }
            let mut pause = PAUSE_MIN;
            let mut last_refusal = None;
            let terms = *self.hosted.terms.borrow();
            stream = loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                match self.attempt().await {
                    Ok(stream) => break Some(stream),
                    Err(error) if is_unreachable(&error) => {}
                    Err(error) => {
                        // Said once, not at each attempt.
                        if last_refusal.as_deref() != Some(error.message()) {
                            tracing::warn!(application, controller, "the controller refuses: {}", error.message());
                        }
                        last_refusal = Some(error.message().to_owned());
                    }
                }
            };
            tracing::info!(application, controller, "registered with the controller");
            if *self.hosted.terms.borrow() == terms {
                self.hosted.reached();
            }
        }
    }

    /// Follows the grants; true when they are to be asked for anew, false when they have ended.
    async fn follow(&self, stream: &mut Streaming<ApplicationGrant>) -> bool {
        loop {
            let again = self.hosted.silent_until();
            let resume = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                grant = stream.message() => match grant {
                    Ok(Some(grant)) => _ = self.hosted.granted(grant),
                    Ok(None) | Err(_) => return false,
                },
                () = self.hosted.ask_anew.notified() => return true,
                () = resume => return true,
            }
        }
    }

    async fn attempt(&self) -> Result<Streaming<ApplicationGrant>, Status> {
        let (grant, stream) = self.controller.own(self.request().await?).await?;
        if self.hosted.granted(grant) {
            return Ok(stream);
        }
        // It has had its first caller meanwhile, and goes by what that was told.
        let (grant, stream) = self.controller.own(self.request().await?).await?;
        if !self.hosted.granted(grant) {
            let application = self.hosted.application.name;
            tracing::warn!(application, "the controller has given its ids to others: working in software");
        }
        Ok(stream)
    }

    async fn request(&self) -> Result<RegisterApplicationRequest, Status> {
        let mut data_address = self.hosted.local_addr;
        if data_address.ip().is_unspecified() {
            let ip = self.controller.reached_from().await;
            data_address.set_ip(ip.map_err(|error| Status::unavailable(error.to_string()))?);
        }
        let application = &self.hosted.application;
        Ok(RegisterApplicationRequest {
            name: application.name.into(),
            filter_digest: application.digest,
            width: application.width().into(),
            rows: self.hosted.rows,
            data_address: data_address.to_string(),
            incarnation: self.hosted.incarnation,
            service_address: self.service_address.clone(),
            authenticate: self.hosted.authenticates(),
            held: self.hosted.held(),
            silent: self.hosted.silent_starts(),
        })
    }
}

/// How long the name is still leased to an owner that is gone, if that is why it is refused.
fn lapses_in(error: &Status) -> Option<Duration> {
    let millis = error.metadata().get(LAPSES_IN_MS)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

fn is_unreachable(error: &Status) -> bool {
    matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown)
}
