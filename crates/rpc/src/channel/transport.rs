//! The gRPC connection beneath a channel, and where it leads: map frames go to the same host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use pathcall_auth::{Seen, Target};
use pathcall_proto::v1::NodeRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::transport::{Channel, Error, Uri};
use tonic::{Code, Status};
use tower::ServiceExt;

use crate::{awake, headers, status};

/// A server that has not answered after this time is taken for one that does not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that is made again when it breaks.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    channel: Channel,
    uri: Uri,
    peer: Peer,
    /// Connections that were asked for.
    connections: Arc<watch::Sender<u64>>,
    /// The last server that was connected to in plaintext ended the connection before it began.
    not_begun: Arc<AtomicBool>,
    /// UDP did not get through when it was last tried.
    udp_blocked: Arc<AtomicBool>,
}

/// The address that the connection was last made to.
#[derive(Debug, Clone, Default)]
struct Peer(Arc<Mutex<Option<SocketAddr>>>);

impl Transport {
    /// Connects now.
    pub(super) async fn connect(target: &Target) -> Result<Self, Error> {
        let (with, note) = Self::new(target);
        Ok(with(target.connect_seen(note).await?))
    }

    /// Connects at the first call.
    pub(super) fn lazy(target: &Target) -> Self {
        let (with, note) = Self::new(target);
        with(target.connect_lazy_seen(note))
    }

    /// What there is of a transport before its channel, and what notes its connections, and where they lead.
    fn new(target: &Target) -> (impl FnOnce(Channel) -> Self + use<>, impl Fn(Seen) + Clone + Send + Sync + use<>) {
        let (uri, peer, udp_blocked) = (target.uri().clone(), Peer::default(), Arc::default());
        let (connections, not_begun) = (Arc::new(watch::Sender::new(0)), Arc::new(AtomicBool::new(false)));
        let notes = (peer.clone(), Arc::clone(&connections), Arc::clone(&not_begun));
        let note = move |seen| match seen {
            Seen::Begun => notes.1.send_modify(|count| *count += 1),
            Seen::Connected(address) => notes.0.note(address),
            Seen::Answered(begun) => notes.2.store(!begun, Ordering::Relaxed),
        };
        (move |channel| Self { channel, uri, peer, connections, not_begun, udp_blocked }, note)
    }

    /// A plain gRPC call. The channel is cloned for it and used once, so that it is never left
    /// ready, which would hold a permit.
    pub(super) async fn call(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        let called = self.channel.clone().oneshot(request).await;
        called.map_err(|error| self.why(status::of_transport(error)))
    }

    /// Why a call failed: of a connection that ended before the server began, tonic says one of four things, none of them that.
    pub(super) fn why(&self, failed: Status) -> Status {
        let broken = matches!(failed.code(), Code::Unknown | Code::Cancelled | Code::Unavailable | Code::Internal);
        if broken && self.not_begun.load(Ordering::Relaxed) {
            return Status::unavailable(format!(
                "{} ended the connection before it began: if it speaks TLS, its address is https://",
                self.uri
            ));
        }
        failed
    }

    /// For clients of generated services.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The server's IP address, if a connection was made.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer.last().map(|addr| addr.ip())
    }

    /// Waits until another connection is asked for than there is now. A stream that still lives then is one of a server that
    /// takes no requests by its connection any more: it shuts down, and waits for the stream's end.
    pub(super) fn another(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut connections = self.connections.subscribe();
        async move {
            // The sender lives as long as the connection can be made again.
            if connections.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the server answers a request, whatever it says.
    pub(super) async fn answers(&self, headers: &HeaderMap) -> bool {
        let mut server = PeerClient::new(self.channel());
        match awake::timeout(ANSWER_TIMEOUT, server.node(headers::with(headers, NodeRequest::default()))).await {
            Ok(Ok(_)) => true,
            Ok(Err(status)) => !matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled),
            Err(_) => false,
        }
    }

    /// Notes whether UDP gets through.
    pub(super) fn note_udp(&self, blocked: bool) {
        self.udp_blocked.store(blocked, Ordering::Relaxed);
    }

    /// Whether UDP did not get through when it was last tried.
    pub(super) fn udp_blocked(&self) -> bool {
        self.udp_blocked.load(Ordering::Relaxed)
    }

    /// The unspecified address of the family that the server is, or will be, reached in.
    pub(super) async fn any_address(&self) -> io::Result<IpAddr> {
        let ip = match self.peer() {
            Some(ip) => ip,
            None => {
                let host = self.uri.host().unwrap_or_default();
                let mut found = tokio::net::lookup_host((host.trim_matches(['[', ']']), 0)).await?;
                found.next().map(|addr| addr.ip()).ok_or(io::ErrorKind::NotFound)?
            }
        };
        Ok(match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}

impl Peer {
    fn last(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, addr: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }
}
