//! gRPC connection of a channel, and the address of its server, to which map frames go as well.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use pathcall_auth::{ConnectTarget, ConnectionEvent};
use pathcall_proto::v1::LookupNodeRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::transport::{Channel, Error, Uri};
use tonic::{Code, Status};
use tower::ServiceExt;

use crate::{headers, process_timeout, status};

/// Time limit for the answer of a server that is tested.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Connection that is made again when it breaks.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    channel: Channel,
    uri: Uri,
    peer: PeerAddress,
    /// Number of connection attempts.
    connections: Arc<watch::Sender<u64>>,
    /// Whether the server closed the last plaintext connection before the HTTP/2 handshake.
    closed_early: Arc<AtomicBool>,
    /// Whether UDP was blocked at the last attempt.
    udp_blocked: Arc<AtomicBool>,
}

/// Address of the last connection.
#[derive(Debug, Clone, Default)]
struct PeerAddress(Arc<Mutex<Option<SocketAddr>>>);

impl Transport {
    /// Connects now.
    pub(super) async fn connect(target: &ConnectTarget) -> Result<Self, Error> {
        let (with, note) = Self::new(target);
        Ok(with(target.connect_observed(note).await?))
    }

    /// Connects at the first call.
    pub(super) fn lazy(target: &ConnectTarget) -> Self {
        let (with, note) = Self::new(target);
        with(target.connect_lazy_observed(note))
    }

    /// Parts of a transport without its channel, and a callback that records connection attempts and their addresses.
    fn new(
        target: &ConnectTarget,
    ) -> (impl FnOnce(Channel) -> Self + use<>, impl Fn(ConnectionEvent) + Clone + Send + Sync + use<>) {
        let (uri, peer, udp_blocked) = (target.uri().clone(), PeerAddress::default(), Arc::default());
        let (connections, closed_early) = (Arc::new(watch::Sender::new(0)), Arc::new(AtomicBool::new(false)));
        let notes = (peer.clone(), Arc::clone(&connections), Arc::clone(&closed_early));
        let note = move |observe| match observe {
            ConnectionEvent::Begun => notes.1.send_modify(|count| *count += 1),
            ConnectionEvent::Connected(address) => notes.0.note(address),
            ConnectionEvent::Answered(begun) => notes.2.store(!begun, Ordering::Relaxed),
        };
        (move |channel| Self { channel, uri, peer, connections, closed_early, udp_blocked }, note)
    }

    /// Makes a plain gRPC call. It clones the channel and uses the clone once, so that no clone stays ready, which
    /// would hold a permit.
    pub(super) async fn call(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        let called = self.channel.clone().oneshot(request).await;
        called.map_err(|error| self.explain(status::of_transport(error)))
    }

    /// Status of a failed call. If the connection ended before the HTTP/2 handshake, tonic reports one of four statuses
    /// that do not say so; this one does.
    pub(super) fn explain(&self, failed: Status) -> Status {
        let broken = matches!(failed.code(), Code::Unknown | Code::Cancelled | Code::Unavailable | Code::Internal);
        if broken && self.closed_early.load(Ordering::Relaxed) {
            return Status::unavailable(format!(
                "{} closed the connection before HTTP/2 started: if the server uses TLS, give its address as https://",
                self.uri
            ));
        }
        failed
    }

    /// Channel for clients of generated services.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// IP address of the server, if a connection was made.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer.last().map(|addr| addr.ip())
    }

    /// Waits until a new connection is attempted. A stream that is still open then belongs to a server that accepts no
    /// more requests on its connection: the server is shutting down and waits for the end of the stream.
    pub(super) fn new_connection(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut connections = self.connections.subscribe();
        async move {
            // The sender lives as long as the connection can be made again.
            if connections.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the server answers a request, with any status.
    pub(super) async fn answers(&self, headers: &HeaderMap) -> bool {
        let mut server = PeerClient::new(self.channel());
        match process_timeout::timeout(
            ANSWER_TIMEOUT,
            server.lookup_node(headers::request_with(headers, LookupNodeRequest::default())),
        )
        .await
        {
            Ok(Ok(_)) => true,
            Ok(Err(status)) => !matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled),
            Err(_) => false,
        }
    }

    /// Records whether UDP is blocked.
    pub(super) fn note_udp(&self, blocked: bool) {
        self.udp_blocked.store(blocked, Ordering::Relaxed);
    }

    /// Whether UDP was blocked at the last attempt.
    pub(super) fn udp_blocked(&self) -> bool {
        self.udp_blocked.load(Ordering::Relaxed)
    }

    /// Unspecified address of the address family of the server.
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

impl PeerAddress {
    fn last(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, addr: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }
}
