//! Relay between a caller and its server that passes TCP always, and UDP unless it is blocked.
//!
//! ```text
//! caller 127.0.0.1 ══ TCP ══ 127.0.0.2 ══ TCP ══ server 127.0.0.1
//!        127.0.0.1:c ── UDP ── 127.0.0.2:(server's port) 127.0.0.2:c ── UDP ── 127.0.0.1:(server's port)
//! ```
//!
//! The server and an element see the relay as the caller: they send their frames to 127.0.0.2:c.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::stubs::PATHCALL;
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::JoinRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_rpc::Channel;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use crate::service::{TestServer, join};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WALL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Longer than any frame.
const DATAGRAM: usize = 1 << 16;

/// Directions in which UDP is blocked.
#[derive(Debug, Default)]
pub struct BlockedDirections {
    pub to_server: AtomicBool,
    pub to_caller: AtomicBool,
}

impl BlockedDirections {
    pub fn set(&self, to_server: bool, to_caller: bool) {
        self.to_server.store(to_server, Ordering::SeqCst);
        self.to_caller.store(to_caller, Ordering::SeqCst);
    }
}

pub struct UdpBlocker {
    uri: String,
    pub blocked: Arc<BlockedDirections>,
}

impl UdpBlocker {
    /// Starts the relay in front of a running server.
    pub async fn before(server: &TestServer) -> Self {
        let listener = TcpListener::bind((WALL, 0)).await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let (blocked, address) = (Arc::<BlockedDirections>::default(), server.address);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(connect(caller, address));
            }
        });
        for port in ports(server).await {
            let front = Arc::new(UdpSocket::bind((WALL, port)).await.unwrap());
            tokio::spawn(relay(front, port, Arc::clone(&blocked)));
        }
        Self { uri, blocked }
    }

    /// Channel through the relay.
    pub async fn channel(&self) -> Channel {
        let builder = Channel::builder(self.uri.clone(), &PATHCALL).unwrap();
        // Memory shared with an element would bypass the relay.
        builder.local_address(HOME).shared_memory(false).connect().await.unwrap()
    }
}

/// UDP ports for map frames of the server's applications, as announced to callers that join.
async fn ports(server: &TestServer) -> Vec<u16> {
    let methods = PATHCALL.methods.iter().map(|method| (method.app, method));
    let one_of_each: BTreeMap<&str, &Method> = methods.collect();
    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let mut ports = Vec::new();
    for method in one_of_each.into_values() {
        let request = JoinRequest { udp_port: 0, ..join(method.path) };
        let mut stream = peer.join(request).await.unwrap().into_inner();
        let grant = stream.message().await.unwrap().unwrap();
        ports.push(u16::try_from(grant.server_udp_port).unwrap());
    }
    ports
}

async fn connect(mut caller: TcpStream, server: SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(WALL, 0)).unwrap();
    if let Ok(mut server) = socket.connect(server).await {
        let _ = (caller.set_nodelay(true), server.set_nodelay(true));
        // An error of one connection closes both.
        let _ = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
    }
}

/// Relays datagrams of callers to one application.
async fn relay(front: Arc<UdpSocket>, port: u16, blocked: Arc<BlockedDirections>) {
    let mut backs = HashMap::new();
    let mut datagram = vec![0; DATAGRAM];
    while let Ok((len, caller)) = front.recv_from(&mut datagram).await {
        let back = match backs.entry(caller) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let back = Arc::new(UdpSocket::bind((WALL, caller.port())).await.unwrap());
                tokio::spawn(give_back(Arc::clone(&back), Arc::clone(&front), caller, Arc::clone(&blocked)));
                new.insert(back)
            }
        };
        if !blocked.to_server.load(Ordering::SeqCst) {
            // A datagram that can't be sent is lost.
            let _ = back.send_to(&datagram[..len], (HOME, port)).await;
        }
    }
}

/// Relays datagrams of server and element to one caller.
async fn give_back(back: Arc<UdpSocket>, front: Arc<UdpSocket>, caller: SocketAddr, blocked: Arc<BlockedDirections>) {
    let mut datagram = vec![0; DATAGRAM];
    while let Ok((len, _)) = back.recv_from(&mut datagram).await {
        if !blocked.to_caller.load(Ordering::SeqCst) {
            let _ = front.send_to(&datagram[..len], caller).await;
        }
    }
}
