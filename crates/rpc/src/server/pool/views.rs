//! The stream by which a caller follows its pool.

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

use super::super::registration::{ANSWER_TIMEOUT, Controller, unanswered};
use super::{Granted, lock};
use crate::awake;

/// Streams by which callers follow one server: as many as a pool may have callers.
const STREAMS_MAX: usize = 16_384;

/// A caller's leave is reported so often at most.
const RELEASES_MAX: u32 = 5;
/// Pause between such reports; doubled each time.
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

/// The pool as it is now, and whenever it has changed; it ends when this server is another endpoint or is to end.
pub(crate) struct Views {
    /// The caller's own endpoint.
    endpoint: u32,
    /// The server's, and the pool.
    known: (u32, Option<u32>),
    granted: WatchStream<Option<Granted>>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: Place,
}

/// Callers that follow here, each by its address and incarnation, and by how many streams: one may come again before it is
/// known that its last stream is over.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Arc<Mutex<HashMap<(SocketAddr, u32), usize>>>);

impl Followers {
    /// Counts a stream in; `None`: there are too many.
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

/// A caller that this server vouches for, until the last of its streams is dropped, however far it got.
struct Place {
    followers: Followers,
    caller: (SocketAddr, u32),
    controller: Controller,
    request: RegisterEndpointRequest,
    /// What the controller has not answered yet.
    registering: Option<JoinHandle<Result<EndpointGrant, Status>>>,
    /// What it is known by, once it is.
    endpoint: Option<u32>,
}

impl Place {
    /// Asks the controller to let the element know the caller. Should nobody wait for the answer, because the caller is
    /// gone or it takes too long, what it gives is given back with the place.
    async fn register(&mut self) -> Result<u32, Status> {
        let (controller, request) = (self.controller.clone(), self.request.clone());
        let registering = self.registering.insert(tokio::spawn(async move { controller.registered(request).await }));
        let Ok(answer) = awake::timeout(ANSWER_TIMEOUT, registering).await else { return Err(unanswered()) };
        self.registering = None;
        let EndpointGrant { endpoint, .. } = answer.map_err(|error| Status::internal(error.to_string()))??;
        self.endpoint = Some(endpoint);
        Ok(endpoint)
    }
}

impl Views {
    /// Registers a caller.
    pub(super) async fn begin(
        granted: watch::Receiver<Option<Granted>>,
        controller: Controller,
        followers: Followers,
        mut closed: watch::Receiver<bool>,
        udp: SocketAddr,
        incarnation: u32,
    ) -> Result<Self, Status> {
        let now = granted.borrow().clone().filter(|_| !*closed.borrow());
        let Some(Granted { grant, .. }) = now else {
            return Err(Status::failed_precondition("this server is in no pool now"));
        };
        let Some(table) = &grant.pool else { return Err(Status::failed_precondition("this server's pool is none")) };
        let request = RegisterEndpointRequest {
            gaid: table.gaid,
            incarnation,
            data_address: udp.to_string(),
            flows: 0,
            server: grant.endpoint,
            endpoint: 0,
        };
        let caller = (udp, incarnation);
        // Before it is registered: whoever releases it for the end of another stream sees that it is back.
        let full = || Status::resource_exhausted(format!("this server has {STREAMS_MAX} callers of its pool already"));
        followers.enter(caller).ok_or_else(full)?;
        let (registering, endpoint) = (None, None);
        let mut place = Place { followers, caller, controller, request, registering, endpoint };
        // Not UNAVAILABLE: this server is there.
        let refused = |error: Status| Status::failed_precondition(format!("the controller says: {}", error.message()));
        let endpoint = place.register().await.map_err(refused)?;
        Ok(Self {
            endpoint,
            known: known(&grant),
            granted: WatchStream::new(granted),
            closed: Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() }),
            _place: place,
        })
    }
}

fn known(grant: &PoolGrant) -> (u32, Option<u32>) {
    (grant.endpoint, grant.pool.as_ref().map(|table| table.gaid))
}

impl Stream for Views {
    type Item = Result<PoolView, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let granted = ready!(Pin::new(&mut self.granted).poll_next(cx)).flatten();
        let (endpoint, same) = (self.endpoint, granted.filter(|granted| known(&granted.grant) == self.known));
        let view = |Granted { grant, outdated }| PoolView { endpoint, pool: grant.pool.clone(), outdated };
        Poll::Ready(same.map(view).map(Ok))
    }
}

impl Drop for Place {
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
                // If none gets through, the caller is forgotten with this server.
                if controller.release(release).await.is_ok() {
                    // It came back meanwhile: nobody else says so to the controller.
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
