//! Delegated calls of a channel: from its node to the server's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use pathcall_driver::node::{Node, NodeConfig, NodeReply, Transport as Carrier};
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_proto::manifest::Delegated;
use pathcall_proto::v1::lookup_node_reply::Transport as NodeTransport;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{LookupNodeReply, LookupNodeRequest};
use pathcall_wire::TokenKey;
use tokio::sync::OnceCell;
use tonic::body::Body;
use tonic::{Code, Status};

use super::Inner;
use super::transport::Transport;
use crate::deadline::Deadline;
use crate::delegate::envelope;
use crate::delegate::ongoing_call::LostDirection;
use crate::delegate::respond::respond;
use crate::headers;

/// Node of the channel, and address of the server's node.
#[derive(Debug, Default)]
pub(super) struct DelegateNode {
    /// Given by the user, or started at the first call.
    own: OnceCell<Node>,
    /// `None` if the server has to be asked.
    found: Arc<Mutex<Option<ServerNode>>>,
    /// Whether the node's key is the server's.
    signs: AtomicBool,
    /// Polling time of a node that is started.
    busy_poll: Duration,
}

#[derive(Debug, Clone, Copy)]
enum ServerNode {
    Reachable(SocketAddr),
    /// The server accepts delegated calls by plain gRPC only.
    PlainGrpc,
    /// Messages to or from this address are blocked since this time: the server's layer makes the calls.
    Blocked(SocketAddr, Instant),
}

/// Path without a handler: a node that answers "unimplemented" is reachable.
const PROBE_PATH: &str = "/pathcall.v1.Peer/LookupNode";
/// Number of probes, each with a call's timeout, after which a node counts as unreachable.
const PROBES: u32 = 2;
/// Pause before an unreachable node is probed again, in the background.
const PROBE_PAUSE: Duration = Duration::from_secs(60);

impl DelegateNode {
    pub(super) fn by(given: Option<Node>, busy_poll: Duration) -> Self {
        Self { own: OnceCell::new_with(given), busy_poll, ..Self::default() }
    }

    /// The channel's node and the server's address; `None` for plain gRPC.
    async fn nodes(
        &self,
        transport: &Transport,
        method: &str,
        headers: &HeaderMap,
        once: bool,
    ) -> Result<Option<(&Node, SocketAddr)>, Status> {
        let found = *self.found();
        let address = match found {
            Some(ServerNode::Reachable(address)) if self.own.initialized() => address,
            // Only the node can make an exactly-once call; gRPC cannot.
            Some(ServerNode::Blocked(address, _)) if once && self.own.initialized() => address,
            Some(ServerNode::PlainGrpc | ServerNode::Blocked(..)) => return Ok(None),
            _ => match query_node(transport, method, headers).await {
                Ok(reply) => match self.use_reply(reply).await? {
                    (address, reached) if reached || once => address,
                    _ => return Ok(None),
                },
                Err(status) if status.code() == Code::Unimplemented => {
                    *self.found() = Some(ServerNode::PlainGrpc);
                    return Ok(None);
                }
                Err(status) => return Err(status),
            },
        };
        Ok(self.own.get().map(|node| (node, address)))
    }

    /// Records the address of the server's node and starts a node here. Returns the address, and whether messages pass.
    async fn use_reply(&self, reply: LookupNodeReply) -> Result<(SocketAddr, bool), Status> {
        let Ok(address) = reply.address.parse::<SocketAddr>() else {
            return Err(Status::internal(format!("the server's node has the invalid address {:?}", reply.address)));
        };
        let node = self.own.get_or_try_init(|| start(address, reply.transport(), self.busy_poll)).await?.clone();
        self.sign(&node, &reply);
        // The probe continues if the call that started it is dropped, so the next call has its result.
        let found = Arc::clone(&self.found);
        let reached = tokio::spawn(async move {
            let reached = is_reachable(&node, address).await;
            let now =
                if reached { ServerNode::Reachable(address) } else { ServerNode::Blocked(address, Instant::now()) };
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            reached
        });
        let reached = reached.await.unwrap_or(false);
        if !reached {
            tracing::warn!(
                "delegated calls use gRPC: the server's node at {address} does not answer: are both hosts reachable \
                 from each other over UDP or TCP?"
            );
        }
        Ok((address, reached))
    }

    /// Sets the key of messages as the server requires. If the server names no key, a key that the user has set stays.
    fn sign(&self, node: &Node, reply: &LookupNodeReply) {
        let key = reply.token_key.map(|key| TokenKey::new(key.into()));
        if self.signs.swap(key.is_some(), Ordering::Relaxed) || key.is_some() {
            node.set_key(key);
        }
    }

    /// Node and address to probe again, if the pause is over.
    fn probe_due(&self) -> Option<(Node, SocketAddr)> {
        let mut found = self.found();
        let Some(ServerNode::Blocked(address, since)) = &mut *found else { return None };
        if since.elapsed() < PROBE_PAUSE {
            return None;
        }
        *since = Instant::now();
        Some((self.own.get()?.clone(), *address))
    }

    /// Records that messages pass again.
    fn mark_reachable(&self, there: SocketAddr) {
        let mut found = self.found();
        if matches!(&*found, Some(ServerNode::Blocked(address, _)) if *address == there) {
            *found = Some(ServerNode::Reachable(there));
        }
    }

    /// Records that a call to this address failed without a server reporting the failure.
    fn mark_lost(&self, there: SocketAddr, lost: LostDirection) {
        let mut found = self.found();
        *found = match lost {
            // The server may have restarted at another address: ask again.
            LostDirection::Requests => None,
            // Replies also come from other servers, all of which reach the first one.
            LostDirection::Replies => Some(ServerNode::Blocked(there, Instant::now())),
        };
    }

    fn found(&self) -> MutexGuard<'_, Option<ServerNode>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the server for the address of its node, with the metadata of a call.
async fn query_node(transport: &Transport, method: &str, headers: &HeaderMap) -> Result<LookupNodeReply, Status> {
    let request = headers::request_with(headers, LookupNodeRequest { method: method.to_owned() });
    PeerClient::new(transport.channel()).lookup_node(request).await.map(tonic::Response::into_inner)
}

/// Whether a node answers. The probe calls no handler, because a call takes effect at most once.
async fn is_reachable(node: &Node, there: SocketAddr) -> bool {
    for _ in 0..PROBES {
        let Ok(request) = envelope::encode(PROBE_PATH, &HeaderMap::new(), &[], &[]) else { return false };
        let Ok(mut call) = node.call(CallOptions::new(), [(there, request)]) else { return false };
        let outcome = loop {
            if let NodeReply::Ended(outcome) = call.receive().await {
                break outcome;
            }
        };
        if matches!(outcome, CallOutcome::Failed(CallFailure::Server(_)) | CallOutcome::Complete) {
            return true;
        }
    }
    false
}

/// Starts a node on an address that the server's node can reach.
async fn start(server: SocketAddr, transport: NodeTransport, busy_poll: Duration) -> Result<Node, Status> {
    let carrier = match transport {
        NodeTransport::Flows => Carrier::Flows,
        NodeTransport::Tcp => Carrier::Tcp,
        NodeTransport::Quic | NodeTransport::Unspecified => {
            let what = "the server's node takes messages by QUIC: give the channel a node with certificates \
                        (Builder::node)";
            return Err(Status::failed_precondition(what));
        }
    };
    let unreachable =
        |error| Status::unavailable(format!("cannot open a socket for the server's node at {server}: {error}"));
    let local = local_towards(server).map_err(unreachable)?;
    let config = NodeConfig::default().listen(SocketAddr::new(local, 0)).transport(carrier).busy_poll(busy_poll);
    Node::start(&config).await.map(|(node, _)| node).map_err(unreachable)
}

/// Local address of packets to `there`. Sends no packet.
fn local_towards(there: SocketAddr) -> io::Result<IpAddr> {
    let any = if there.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

impl Inner {
    pub(super) async fn delegated(
        self: Arc<Self>,
        method: &'static Delegated,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let once = request.extensions().get::<CallOptions>().unwrap_or(&self.defaults.options).once;
        match self.delegate_node.nodes(&self.transport, request.uri().path(), request.headers(), once).await? {
            Some((node, to)) => {
                self.counters.delegated.add();
                let inner = Arc::clone(&self);
                respond(method, (node, to), &self.defaults, request, deadline, move |lost| {
                    inner.delegate_node.mark_lost(to, lost)
                })
                .await
            }
            None if once => Err(Status::failed_precondition(
                "the server has no handlers of delegated calls, so it cannot execute this call exactly once: add them \
                 to its layer (`Builder::handlers`), or call without `CallOptions::once`",
            )),
            None => {
                if let Some((node, there)) = self.delegate_node.probe_due() {
                    let inner = Arc::downgrade(&self);
                    let (method, headers) = (request.uri().path().to_owned(), request.headers().clone());
                    let transport = self.transport.clone();
                    tokio::spawn(async move {
                        // The server may have another key now.
                        let reply = query_node(&transport, &method, &headers).await;
                        if let (Ok(reply), Some(inner)) = (reply, inner.upgrade()) {
                            inner.delegate_node.sign(&node, &reply);
                        }
                        if is_reachable(&node, there).await
                            && let Some(inner) = inner.upgrade()
                        {
                            inner.delegate_node.mark_reachable(there);
                        }
                    });
                }
                self.counters.plain.add();
                self.transport.call(request).await
            }
        }
    }
}
