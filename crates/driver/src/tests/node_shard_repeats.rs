//! Tests of messages that reach a shard of a node which does not handle them: repeats, late requests, and those of
//! strangers.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant as Clock;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::CallOutcome;
use pathcall_endpoint::delegate::shards::shard_of_call;
use pathcall_endpoint::messages::{Config, Messages};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{
    ContextId, DelegateFlags, DelegateRequest, DelegateResponse, NodeId, Ping, PingSubject, ResponseGrant, ResponseId,
    ShardPorts,
};
use tokio::time::timeout;

use super::node::{begin, collect_replies};
use super::node_shards::{caller, eventually, serve, sharded};
use crate::node::Node;

/// Node of the message transport alone, driven by the test.
struct Stranger {
    socket: UdpSocket,
    messages: Messages,
    origin: Clock,
}

impl Stranger {
    fn new(node: NodeId) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_nonblocking(true).expect("a socket");
        // The port may be one that was used before: its sessions must not have the same numbers.
        static STRANGERS: AtomicU64 = AtomicU64::new(0);
        let seed = [STRANGERS.fetch_add(1, Ordering::Relaxed), 1];
        let messages = Messages::new(Config::new(node.bits(), seed));
        Self { socket, messages, origin: Clock::now() }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    /// Sends a message, and waits until it is acknowledged.
    async fn send(&mut self, to: SocketAddr, message: &[u8]) {
        let now = |origin: Clock| Instant(origin.elapsed().as_nanos() as u64);
        self.messages.send(now(self.origin), to, message, &Bytes::new());
        let mut frame = [0; 2048];
        let Self { socket, messages, origin } = self;
        eventually("acknowledged", || {
            let mut out = |to, frame: &[u8]| drop(socket.send_to(frame, to));
            while let Ok((len, from)) = socket.recv_from(&mut frame) {
                messages.handle(now(*origin), from, &frame[..len], false, &mut out);
            }
            messages.poll(now(*origin), &mut out);
            messages.is_idle()
        })
        .await;
    }
}

/// Request of a call, for replies to a stranger.
fn request(call: ContextId, from: &Stranger, flags: u16) -> DelegateRequest {
    DelegateRequest {
        flags,
        call,
        request: call.request(1).inherited(0),
        depth: 0,
        gc: 12,
        credit: 3,
        ended: 0,
        deadline: u32::MAX,
        age: 0,
        reply: from.address(),
        sender: call.node(),
        manifest: None,
    }
}

/// Address of a shard of a node with consecutive ports.
fn shard_address(node: &Node, shard: usize) -> SocketAddr {
    SocketAddr::new(node.address().ip(), node.address().port() + shard as u16)
}

#[tokio::test]
async fn request_that_reaches_several_shards_runs_once() {
    let (server, requests) = Node::start(&sharded(3).listen(loopback::own())).await.expect("starts");
    let id = NodeId::new(77);
    for number in 1..=10 {
        let call = ContextId::new(id, number);
        for flags in [0, DelegateFlags::ONCE] {
            let repeats = server.stats().worker.repeats;
            let call = ContextId::new(id, call.number() + u32::from(flags) * 100);
            // The same request from sockets with different addresses, to each shard.
            for shard in 0..3 {
                let mut sender = Stranger::new(id);
                let message = request(call, &sender, flags).encode();
                sender.send(shard_address(&server, shard), &message).await;
            }
            let received = timeout(HANG, requests.receive()).await.expect("in time");
            assert_eq!(received.call(), call);
            eventually("all arrive", || server.stats().worker.repeats == repeats + 2).await;
            assert!(requests.try_receive().is_none(), "it would run twice");
        }
    }
    assert_eq!(server.stats().worker.requests, 20);
}

#[tokio::test]
async fn late_request_of_a_call_aborted_at_another_shard_is_not_begun() {
    let (server, requests) = Node::start(&sharded(2).listen(loopback::own())).await.expect("starts");
    let id = NodeId::new(78);
    for number in 1..=10 {
        let call = ContextId::new(id, number);
        let shard = shard_of_call(call, 2);
        let mut sender = Stranger::new(id);
        let head = request(call, &sender, 0);
        let ping = Ping { call, subject: PingSubject::Request(head.request), abort: true, round: 1, first: 1 };
        sender.send(shard_address(&server, 1 - shard), &ping.encode()).await;
        // Messages between shards keep no order.
        eventually("handed over", || server.stats().handed_over >= u64::from(number)).await;
        sender.send(shard_address(&server, shard), &head.encode()).await;
        eventually("late", || server.stats().worker.late == u64::from(number)).await;
    }
    assert!(requests.try_receive().is_none());
}

#[tokio::test]
async fn messages_of_strangers_have_no_effect() {
    let (server, _) = serve(&sharded(2).listen(loopback::own())).await;
    let mut stranger = Stranger::new(NodeId::new(79));
    let calls: Vec<_> = (1..=8).map(|number| ContextId::new(NodeId::new(80), number)).collect();
    for call in &calls {
        let context = ContextId::new(server.id(), 1 << 31 | 1);
        let grant = ResponseGrant { call: *call, context, responses: 9 };
        let id = ResponseId::Numbered(context, 1);
        let response = DelegateResponse { call: *call, id, null: false, again: None, manifest: None };
        // A request of a call that is not the sender's.
        let request = DelegateRequest { sender: call.node(), ..request(*call, &stranger, 0) };
        for shard in 0..2 {
            let to = shard_address(&server, shard);
            stranger.send(to, &grant.encode()).await;
            stranger.send(to, &response.encode()).await;
            stranger.send(to, &request.encode()).await;
            stranger.send(to, &grant.encode()[..9]).await;
            stranger.send(to, b"noise").await;
            // Shards of another node.
            let ports = [server.address().port().to_be_bytes(), [0, 9]].concat();
            stranger.send(to, &[&ShardPorts::encode_head()[..], &ports].concat()).await;
        }
    }
    let count = calls.len() as u64 * 2;
    eventually("all are counted", || {
        let stats = server.stats();
        stats.worker.refused == count * 4 && stats.caller.ignored == count
    })
    .await;
    assert!(server.is_empty(), "{:?}", server.stats());
    for caller in [caller(1).await, caller(2).await] {
        let call = begin(&caller, &server, "reply still here");
        assert_eq!(collect_replies(call).await, (vec!["still here".to_owned()], CallOutcome::Complete));
    }
}
