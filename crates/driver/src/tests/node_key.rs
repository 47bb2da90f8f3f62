//! Tests of nodes with a key, by flows and by TCP: peers without the key have no effect, and are counted.

use std::time::Instant as Clock;

use crate::node::{Node, NodeConfig, NodeReply, NodeRequests, Transport};
use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};
use pathcall_test_support::HANG;
use pathcall_wire::TokenKey;
use tokio::net::UdpSocket;
use tokio::time::timeout;

const KEY: TokenKey = TokenKey::new([1, 2]);

async fn node(transport: Transport, key: Option<TokenKey>) -> (Node, NodeRequests) {
    Node::start(&NodeConfig::default().transport(transport).key(key)).await.expect("starts")
}

/// Server that finishes its requests without replies.
async fn serve(transport: Transport, key: Option<TokenKey>) -> Node {
    let (node, requests) = node(transport, key).await;
    tokio::spawn(async move {
        loop {
            requests.receive().await.finish().expect("in progress");
        }
    });
    node
}

async fn outcome(caller: &Node, server: &Node) -> CallOutcome {
    let call = caller.call(CallOptions::default(), [(server.address(), Bytes::from_static(b"request"))]);
    let mut call = call.expect("below the limit");
    loop {
        if let NodeReply::Ended(outcome) = timeout(HANG, call.receive()).await.expect("in time") {
            return outcome;
        }
    }
}

/// Waits until a node has dropped more than `more_than` frames or connections.
async fn refuses(node: &Node, more_than: u64) -> u64 {
    let began = Clock::now();
    loop {
        let refused = node.stats().messages.unauthenticated;
        if refused > more_than {
            return refused;
        }
        assert!(began.elapsed() < HANG, "{:?}", node.stats());
        tokio::task::yield_now().await;
    }
}

async fn only_who_has_the_key(transport: Transport) {
    let server = serve(transport.clone(), Some(KEY)).await;
    let (member, _requests) = node(transport.clone(), Some(KEY)).await;
    assert_eq!(outcome(&member, &server).await, CallOutcome::Complete);
    // The node calls itself, too.
    assert_eq!(outcome(&server, &server).await, CallOutcome::Complete);
    let done = server.stats().worker.requests;
    let mut refused = server.stats().messages.unauthenticated;
    assert_eq!(refused, 0);
    for key in [None, Some(TokenKey::new([1, 3]))] {
        let (stranger, _requests) = node(transport.clone(), key).await;
        assert!(matches!(outcome(&stranger, &server).await, CallOutcome::Failed(_)), "{key:?}");
        refused = refuses(&server, refused).await;
        assert_eq!(server.stats().worker.requests, done, "{key:?}");
        // A node with another key does not process requests either.
        assert!(matches!(outcome(&member, &stranger).await, CallOutcome::Failed(_)), "{key:?}");
        refuses(&stranger, 0).await;
        assert_eq!(stranger.stats().worker.requests, 0, "{key:?}");
    }
}

#[tokio::test]
async fn node_with_key_refuses_others_by_flows() {
    only_who_has_the_key(Transport::Flows).await;
}

#[tokio::test]
async fn node_with_key_refuses_others_by_tcp() {
    only_who_has_the_key(Transport::Tcp).await;
}

async fn key_changes(transport: Transport) {
    let (caller, _requests) = node(transport.clone(), None).await;
    let server = serve(transport, None).await;
    // The key is the caller's last as well, and the connection of the key before is still open.
    for key in [None, Some(KEY), Some(TokenKey::new([3, 4])), None] {
        server.set_key(key);
        caller.set_key(key);
        assert_eq!((server.key(), caller.key()), (key, key));
        // Messages on a connection that is closing may be lost.
        let began = Clock::now();
        while outcome(&caller, &server).await != CallOutcome::Complete {
            assert!(began.elapsed() < HANG, "{key:?}: {:?}", server.stats());
        }
    }
}

#[tokio::test]
async fn key_change_of_running_node_works_by_flows() {
    key_changes(Transport::Flows).await;
}

#[tokio::test]
async fn key_change_of_running_node_works_by_tcp() {
    key_changes(Transport::Tcp).await;
}

#[tokio::test]
async fn forged_datagrams_get_no_answer() {
    use pathcall_wire::messages::{GreetingRepr, MessageKind, PartRepr};
    let server = serve(Transport::Flows, Some(KEY)).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let hello = GreetingRepr::new(MessageKind::Hello, 7, 8, 0).bytes();
    let mut part = [0; 64];
    PartRepr::new(9, 1, 1, 0, 36).emit(&mut part);
    for (count, frame) in [&hello[..], &part, b"noise", &[hello.as_slice(), &[0; 8]].concat()].iter().enumerate() {
        stranger.send_to(frame, server.address()).await.expect("sent");
        refuses(&server, count as u64).await;
    }
    // An answer to the node with the key would come after any answer to the stranger.
    let (member, _requests) = node(Transport::Flows, Some(KEY)).await;
    assert_eq!(outcome(&member, &server).await, CallOutcome::Complete);
    assert!(stranger.try_recv(&mut part).is_err(), "it was answered");
}
