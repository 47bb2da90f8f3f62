//! The stream by which a caller follows its pool.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pathcall_proto::v1::{PoolGrant, PoolView, RegisterEndpointRequest, ReleaseEndpointRequest};
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use super::super::registration::Controller;
use super::Granted;

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

/// A caller that this server vouches for, until it is dropped.
struct Place {
    controller: Controller,
    release: ReleaseEndpointRequest,
}

impl Views {
    /// Registers a caller.
    pub(super) async fn begin(
        granted: watch::Receiver<Option<Granted>>,
        controller: Controller,
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
        let registered = controller.register(request).await;
        // Not UNAVAILABLE: this server is there.
        let refused = |error: Status| Status::failed_precondition(format!("the controller says: {}", error.message()));
        let endpoint = registered.map_err(refused)?.endpoint;
        let release = ReleaseEndpointRequest { gaid: table.gaid, endpoint, server: grant.endpoint };
        Ok(Self {
            endpoint,
            known: known(&grant),
            granted: WatchStream::new(granted),
            closed: Box::pin(async move { closed.wait_for(|closed| *closed).await.map(drop).unwrap_or_default() }),
            _place: Place { controller, release },
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
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (controller, release) = (self.controller.clone(), self.release);
        runtime.spawn(async move {
            let mut pause = RELEASE_PAUSE;
            for _ in 0..RELEASES_MAX {
                // If none gets through, the caller is forgotten with this server.
                if controller.release(release).await.is_ok() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        });
    }
}
