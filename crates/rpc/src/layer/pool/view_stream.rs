//! Stream by which a caller follows its pool.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pathcall_proto::v1::{EndpointGrant, PoolGrant, PoolView, RegisterEndpointRequest, ReleaseEndpointRequest};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use super::super::registration::{ANSWER_TIMEOUT, ControllerLink, no_answer};
use super::{CurrentGrant, lock};
use crate::process_timeout;

/// Maximum number of streams to callers: the maximum number of a pool's callers.
const STREAMS_MAX: usize = 16_384;

/// Maximum number of reports of a caller's leave.
const RELEASES_MAX: u32 = 5;
/// Pause between such reports; doubled each time.
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

/// Stream of the pool's table, now and after each change. It ends when this server's endpoint changes or the server
/// shuts down.
pub(crate) struct PoolViewStream {
    /// Id of the caller's endpoint.
    endpoint: u32,
    /// Endpoint of the server, and the pool.
    identity: (u32, Option<u32>),
    granted: WatchStream<Option<CurrentGrant>>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    _registration: FollowerRegistration,
}

/// Caller that follows the pool.
pub(crate) struct Follower {
    /// Address of its frames.
    pub(crate) udp: SocketAddr,
    pub(crate) incarnation: u32,
    /// Rack of the caller; empty if it names none.
    pub(crate) rack: String,
}

/// Callers that follow here, by address and incarnation, with the number of their streams: a caller may reconnect
/// before the end of its last stream is noticed.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Arc<Mutex<HashMap<(SocketAddr, u32), usize>>>);

impl Followers {
    /// Adds a stream; `None` if there are too many.
    fn enter(&self, caller: (SocketAddr, u32)) -> Option<()> {
        let mut streams = lock(&self.0);
        (streams.values().sum::<usize>() < STREAMS_MAX).then(|| *streams.entry(caller).or_default() += 1)
    }

    fn leave(&self, caller: (SocketAddr, u32)) {
        let mut streams = lock(&self.0);
        if let Some(count) = streams.get_mut(&caller) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&caller);
            }
        }
    }

    fn has(&self, caller: (SocketAddr, u32)) -> bool {
        lock(&self.0).contains_key(&caller)
    }
}

/// Registration of a caller by this server, until the last of its streams is dropped.
struct FollowerRegistration {
    followers: Followers,
    caller: (SocketAddr, u32),
    controller: ControllerLink,
    request: RegisterEndpointRequest,
    /// Registration that the controller has not answered yet.
    registering: Option<JoinHandle<Result<EndpointGrant, Status>>>,
    /// Id of the caller's endpoint, once known.
    endpoint: Option<u32>,
}

impl FollowerRegistration {
    /// Registers the caller with the element through the controller. If the caller leaves or the answer takes too long,
    /// the registration is released later.
    async fn register(&mut self) -> Result<u32, Status> {
        let (controller, request) = (self.controller.clone(), self.request.clone());
        let registering =
            self.registering.insert(tokio::spawn(async move { controller.register_untimed(request).await }));
        let Ok(answer) = process_timeout::timeout(ANSWER_TIMEOUT, registering).await else { return Err(no_answer()) };
        self.registering = None;
        let EndpointGrant { endpoint, .. } = answer.map_err(|error| Status::internal(error.to_string()))??;
        self.endpoint = Some(endpoint);
        Ok(endpoint)
    }
}

impl PoolViewStream {
    /// Registers a caller.
    pub(super) async fn begin(
        granted: watch::Receiver<Option<CurrentGrant>>,
        controller: ControllerLink,
        followers: Followers,
        mut closed: watch::Receiver<bool>,
        follower: Follower,
    ) -> Result<Self, Status> {
        let Follower { udp, incarnation, rack } = follower;
        let now = granted.borrow().clone().filter(|_| !*closed.borrow());
        let Some(CurrentGrant { grant, .. }) = now else {
            return Err(Status::failed_precondition("this server is currently not in a pool"));
        };
        let Some(table) = &grant.pool else {
            return Err(Status::failed_precondition("this server has an invalid pool"));
        };
        let request = RegisterEndpointRequest {
            gaid: table.gaid,
            incarnation,
            data_address: udp.to_string(),
            flows: 0,
            server: grant.endpoint,
            endpoint: 0,
            rack,
        };
        let caller = (udp, incarnation);
        // Before the registration: a release for the end of another stream then sees that the caller is back.
        let full = || Status::resource_exhausted(format!("this server has {STREAMS_MAX} callers of its pool already"));
        followers.enter(caller).ok_or_else(full)?;
        let (registering, endpoint) = (None, None);
        let mut registration = FollowerRegistration { followers, caller, controller, request, registering, endpoint };
        // Not UNAVAILABLE: this server is reachable.
        let refused =
            |error: Status| Status::failed_precondition(format!("the controller refused: {}", error.message()));
        let endpoint = registration.register().await.map_err(refused)?;
        Ok(Self {
            endpoint,
            identity: identity(&grant),
            granted: WatchStream::new(granted),
            closed: Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() }),
            _registration: registration,
        })
    }
}

fn identity(grant: &PoolGrant) -> (u32, Option<u32>) {
    (grant.endpoint, grant.pool.as_ref().map(|table| table.gaid))
}

impl Stream for PoolViewStream {
    type Item = Result<PoolView, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let granted = ready!(Pin::new(&mut self.granted).poll_next(cx)).flatten();
        let (endpoint, same) = (self.endpoint, granted.filter(|granted| identity(&granted.grant) == self.identity));
        let view = |CurrentGrant { grant, outdated }| PoolView { endpoint, pool: grant.pool.clone(), outdated };
        Poll::Ready(same.map(view).map(Ok))
    }
}

impl Drop for FollowerRegistration {
    fn drop(&mut self) {
        self.followers.leave(self.caller);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (registering, endpoint) = (self.registering.take(), self.endpoint);
        let (followers, caller, controller) = (self.followers.clone(), self.caller, self.controller.clone());
        let request = self.request.clone();
        runtime.spawn(async move {
            let endpoint = match registering {
                Some(registering) => registering.await.ok().and_then(Result::ok).map(|grant| grant.endpoint),
                None => endpoint,
            };
            let Some(endpoint) = endpoint else { return };
            let release = ReleaseEndpointRequest { gaid: request.gaid, endpoint, server: request.server };
            let mut pause = RELEASE_PAUSE;
            for _ in 0..RELEASES_MAX {
                if followers.has(caller) {
                    return;
                }
                // If no report succeeds, the caller is forgotten together with this server.
                if controller.release(release).await.is_ok() {
                    // The caller came back meanwhile: register it again.
                    if followers.has(caller) {
                        let _ = controller.register(request).await;
                    }
                    return;
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        });
    }
}
