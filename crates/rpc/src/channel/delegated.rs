//! Calls of methods that servers may pass on: by the channel's node, to the server's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::driver::node::{Node, NodeConfig, Reply, Transport as Carrier};
use pathcall_proto::v1::node_reply::Transport as Said;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{NodeReply, NodeRequest};
use pathcall_wire::TokenKey;
use tokio::sync::OnceCell;
use tonic::body::Body;
use tonic::{Code, Status};

use super::Inner;
use super::transport::Transport;
use crate::deadline::Deadline;
use crate::delegate::envelope;
use crate::delegate::ongoing::Silence;
use crate::delegate::respond::respond;
use crate::headers;

/// The channel's node, and where the server's is.
#[derive(Debug, Default)]
pub(super) struct Delegating {
    /// Given by the user, or started at the first call.
    own: OnceCell<Node>,
    /// `None`: the server is to be asked.
    found: Arc<Mutex<Option<Found>>>,
    /// The node's key is the server's.
    signs: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
enum Found {
    At(SocketAddr),
    /// The server takes such calls by plain gRPC only.
    Plain,
    /// Messages to there and back do not pass: the server's layer makes the calls. Since when.
    Blocked(SocketAddr, Instant),
}

/// Path that no handler works on: whoever says so is reached.
const NO_METHOD: &str = "/pathcall.v1.Peer/Node";
/// A node that has not answered so often, each time in a call's time-out, can't be reached, or can't reach this one.
const TRIES: u32 = 2;
/// Pause before a node that was not reached is tried again, beside the calls.
const BLOCKED_PAUSE: Duration = Duration::from_secs(60);

impl Delegating {
    pub(super) fn by(given: Option<Node>) -> Self {
        Self { own: OnceCell::new_with(given), ..Self::default() }
    }

    /// Who calls whom; `None`: plain gRPC.
    async fn nodes(
        &self,
        transport: &Transport,
        method: &str,
        headers: &HeaderMap,
        once: bool,
    ) -> Result<Option<(&Node, SocketAddr)>, Status> {
        let found = *self.found();
        let address = match found {
            Some(Found::At(address)) if self.own.initialized() => address,
            // Done once only by the node: gRPC knows nothing of it.
            Some(Found::Blocked(address, _)) if once && self.own.initialized() => address,
            Some(Found::Plain | Found::Blocked(..)) => return Ok(None),
            _ => match ask(transport, method, headers).await {
                Ok(reply) => match self.take(reply).await? {
                    Some(address) => address,
                    None => return Ok(None),
                },
                Err(status) if status.code() == Code::Unimplemented => {
                    *self.found() = Some(Found::Plain);
                    return Ok(None);
                }
                Err(status) => return Err(status),
            },
        };
        Ok(self.own.get().map(|node| (node, address)))
    }

    /// Notes where the server's node is, and has one here; none when messages do not pass.
    async fn take(&self, reply: NodeReply) -> Result<Option<SocketAddr>, Status> {
        let Ok(address) = reply.address.parse::<SocketAddr>() else {
            return Err(Status::internal(format!("the server's node is at {:?}, which is no address", reply.address)));
        };
        let node = self.own.get_or_try_init(|| start(address, reply.transport())).await?.clone();
        self.sign(&node, &reply);
        // Goes on if the call that asked is cut off: the next one knows.
        let found = Arc::clone(&self.found);
        let reached = tokio::spawn(async move {
            let reached = reaches(&node, address).await;
            let now = if reached { Found::At(address) } else { Found::Blocked(address, Instant::now()) };
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            reached
        });
        if !reached.await.unwrap_or(false) {
            tracing::warn!(
                "calls go by gRPC: the server's node at {address} does not answer: can it be reached from here, and this host from \
                 there?"
            );
            return Ok(None);
        }
        Ok(Some(address))
    }

    /// Signs messages as the server wants it. A key that the user has given stays where the server says nothing of one.
    fn sign(&self, node: &Node, reply: &NodeReply) {
        let key = reply.token_key.map(|key| TokenKey::new(key.into()));
        if self.signs.swap(key.is_some(), Ordering::Relaxed) || key.is_some() {
            node.set_key(key);
        }
    }

    /// A node to try again, now and then.
    fn blocked(&self) -> Option<(Node, SocketAddr)> {
        let mut found = self.found();
        let Some(Found::Blocked(address, since)) = &mut *found else { return None };
        if since.elapsed() < BLOCKED_PAUSE {
            return None;
        }
        *since = Instant::now();
        Some((self.own.get()?.clone(), *address))
    }

    /// Messages pass again.
    fn unblocked(&self, there: SocketAddr) {
        let mut found = self.found();
        if matches!(&*found, Some(Found::Blocked(address, _)) if *address == there) {
            *found = Some(Found::At(there));
        }
    }

    /// A call to there has failed, and no server said so.
    fn unheard(&self, there: SocketAddr, silence: Silence) {
        let mut found = self.found();
        *found = match silence {
            // The server may have started anew, elsewhere: it is asked again.
            Silence::Requests => None,
            // Replies come from other servers than the first, too. They all reach that one.
            Silence::Replies => Some(Found::Blocked(there, Instant::now())),
        };
    }

    fn found(&self) -> MutexGuard<'_, Option<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the server where its node is, on behalf of a call.
async fn ask(transport: &Transport, method: &str, headers: &HeaderMap) -> Result<NodeReply, Status> {
    let request = headers::with(headers, NodeRequest { method: method.to_owned() });
    PeerClient::new(transport.channel()).node(request).await.map(tonic::Response::into_inner)
}

/// Whether a node answers. No handler is asked: what is done at most once can't be tried.
async fn reaches(node: &Node, there: SocketAddr) -> bool {
    for _ in 0..TRIES {
        let Ok(request) = envelope::seal(NO_METHOD, &HeaderMap::new(), &[]) else { return false };
        let Ok(mut call) = node.call(CallOptions::new(), [(there, request)]) else { return false };
        let outcome = loop {
            if let Reply::Ended(outcome) = call.receive().await {
                break outcome;
            }
        };
        if matches!(outcome, Outcome::Failed(CallFailure::Server(_)) | Outcome::Complete) {
            return true;
        }
    }
    false
}

/// A node that the server's can reach as that can be reached.
async fn start(server: SocketAddr, transport: Said) -> Result<Node, Status> {
    let carrier = match transport {
        Said::Flows => Carrier::Flows,
        Said::Tcp => Carrier::Tcp,
        Said::Quic | Said::Unspecified => {
            let what = "the server's node takes messages by QUIC: give the channel a node with certificates \
                        (Builder::node)";
            return Err(Status::failed_precondition(what));
        }
    };
    let unreachable = |error| Status::unavailable(format!("no way to the server's node at {server}: {error}"));
    let local = local_towards(server).map_err(unreachable)?;
    let config = NodeConfig::default().listen(SocketAddr::new(local, 0)).transport(carrier);
    Node::start(&config).await.map(|(node, _)| node).map_err(unreachable)
}

/// The address of this host that packets to there come from. Nothing is sent.
fn local_towards(there: SocketAddr) -> io::Result<IpAddr> {
    let any = if there.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

impl Inner {
    pub(super) async fn delegated(
        self: Arc<Self>,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let once = request.extensions().get::<CallOptions>().unwrap_or(&self.habits.options).once;
        match self.delegating.nodes(&self.transport, request.uri().path(), request.headers(), once).await? {
            Some((node, to)) => {
                self.counters.delegated.add();
                let inner = Arc::clone(&self);
                respond(node, to, &self.habits, request, deadline, move |silence| inner.delegating.unheard(to, silence))
                    .await
            }
            None => {
                if let Some((node, there)) = self.delegating.blocked() {
                    let inner = Arc::downgrade(&self);
                    let (method, headers) = (request.uri().path().to_owned(), request.headers().clone());
                    let transport = self.transport.clone();
                    tokio::spawn(async move {
                        // It may have another key by now.
                        let said = ask(&transport, &method, &headers).await;
                        if let (Ok(said), Some(inner)) = (said, inner.upgrade()) {
                            inner.delegating.sign(&node, &said);
                        }
                        if reaches(&node, there).await
                            && let Some(inner) = inner.upgrade()
                        {
                            inner.delegating.unblocked(there);
                        }
                    });
                }
                self.counters.plain.add();
                self.transport.call(request).await
            }
        }
    }
}
