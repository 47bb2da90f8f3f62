//! Calls of methods that servers may pass on: by the channel's node, to the server's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use pathcall_endpoint::driver::node::{Node, NodeConfig, Transport as Carrier};
use pathcall_proto::v1::node_reply::Transport as Said;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{NodeReply, NodeRequest};
use tokio::sync::OnceCell;
use tonic::body::Body;
use tonic::{Code, Status};

use super::Inner;
use super::transport::Transport;
use crate::deadline::Deadline;
use crate::delegate::respond::respond;
use crate::headers;

/// The channel's node, and where the server's is.
#[derive(Debug, Default)]
pub(super) struct Delegating {
    /// Given by the user, or started at the first call.
    own: OnceCell<Node>,
    /// `None`: the server is to be asked.
    found: Mutex<Option<Found>>,
}

#[derive(Debug, Clone, Copy)]
enum Found {
    At(SocketAddr),
    /// The server takes such calls by plain gRPC only.
    Plain,
}

impl Delegating {
    pub(super) fn by(given: Option<Node>) -> Self {
        Self { own: OnceCell::new_with(given), found: Mutex::default() }
    }

    /// Who calls whom; `None`: plain gRPC.
    async fn nodes(&self, transport: &Transport, headers: &HeaderMap) -> Result<Option<(&Node, SocketAddr)>, Status> {
        let found = *self.found();
        let address = match found {
            Some(Found::At(address)) if self.own.initialized() => address,
            Some(Found::Plain) => return Ok(None),
            _ => match PeerClient::new(transport.channel()).node(headers::with(headers, NodeRequest {})).await {
                Ok(reply) => self.take(reply.into_inner()).await?,
                Err(status) if status.code() == Code::Unimplemented => {
                    *self.found() = Some(Found::Plain);
                    return Ok(None);
                }
                Err(status) => return Err(status),
            },
        };
        Ok(self.own.get().map(|node| (node, address)))
    }

    /// Notes where the server's node is, and has one here.
    async fn take(&self, reply: NodeReply) -> Result<SocketAddr, Status> {
        let Ok(address) = reply.address.parse::<SocketAddr>() else {
            return Err(Status::internal(format!("the server's node is at {:?}, which is no address", reply.address)));
        };
        self.own.get_or_try_init(|| start(address, reply.transport())).await?;
        *self.found() = Some(Found::At(address));
        Ok(address)
    }

    /// The server may have started anew, elsewhere: it is asked again.
    fn forget(&self) {
        *self.found() = None;
    }

    fn found(&self) -> MutexGuard<'_, Option<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        match self.delegating.nodes(&self.transport, request.headers()).await? {
            Some((node, to)) => {
                self.counters.delegated.add();
                let inner = Arc::clone(&self);
                respond(node, to, &self.habits, request, deadline, move || inner.delegating.forget()).await
            }
            None => {
                self.counters.plain.add();
                self.transport.call(request).await
            }
        }
    }
}
