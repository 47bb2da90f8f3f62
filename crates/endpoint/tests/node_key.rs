//! Nodes with a key: by flows and by TCP, who lacks it gets nothing done, and is counted.

use std::time::Instant as Clock;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, Outcome};
use pathcall_endpoint::driver::node::{Node, NodeConfig, Reply, Requests, Transport};
use pathcall_test_support::HANG;
use pathcall_wire::TokenKey;
use tokio::net::UdpSocket;
use tokio::time::timeout;

const KEY: TokenKey = TokenKey::new([1, 2]);

async fn node(transport: Transport, key: Option<TokenKey>) -> (Node, Requests) {
    Node::start(&NodeConfig::default().transport(transport).key(key)).await.expect("starts")
}

/// A server that finishes its requests, and says nothing.
async fn serve(transport: Transport, key: Option<TokenKey>) -> Node {
    let (node, requests) = node(transport, key).await;
    tokio::spawn(async move {
        loop {
            requests.receive().await.finish().expect("wanted");
        }
    });
    node
}

async fn outcome(caller: &Node, server: &Node) -> Outcome {
    let call = caller.call(CallOptions::default(), [(server.address(), Bytes::from_static(b"request"))]);
    let mut call = call.expect("room");
    loop {
        if let Reply::Ended(outcome) = timeout(HANG, call.receive()).await.expect("in time") {
            return outcome;
        }
    }
}

/// Waits until a node has dropped so many frames, or ended so many connections.
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
    let (friend, _requests) = node(transport.clone(), Some(KEY)).await;
    assert_eq!(outcome(&friend, &server).await, Outcome::Complete);
    // It calls itself, too.
    assert_eq!(outcome(&server, &server).await, Outcome::Complete);
    let done = server.stats().worker.requests;
    let mut refused = server.stats().messages.unauthenticated;
    assert_eq!(refused, 0);
    for key in [None, Some(TokenKey::new([1, 3]))] {
        let (stranger, _requests) = node(transport.clone(), key).await;
        assert!(matches!(outcome(&stranger, &server).await, Outcome::Failed(_)), "{key:?}");
        refused = refuses(&server, refused).await;
        assert_eq!(server.stats().worker.requests, done, "{key:?}");
        // Neither does it do anything for who has one.
        assert!(matches!(outcome(&friend, &stranger).await, Outcome::Failed(_)), "{key:?}");
        refuses(&stranger, 0).await;
        assert_eq!(stranger.stats().worker.requests, 0, "{key:?}");
    }
}

#[tokio::test]
async fn node_with_a_key_works_for_nobody_without_it_by_flows() {
    only_who_has_the_key(Transport::Flows).await;
}

#[tokio::test]
async fn node_with_a_key_works_for_nobody_without_it_by_tcp() {
    only_who_has_the_key(Transport::Tcp).await;
}

async fn key_changes(transport: Transport) {
    let (caller, _requests) = node(transport.clone(), None).await;
    let server = serve(transport, None).await;
    // Each is the caller's last, too, and the way of the one before is still open.
    for key in [None, Some(KEY), Some(TokenKey::new([3, 4])), None] {
        server.set_key(key);
        caller.set_key(key);
        assert_eq!((server.key(), caller.key()), (key, key));
        // What went by a way that closes just then may be lost.
        let began = Clock::now();
        while outcome(&caller, &server).await != Outcome::Complete {
            assert!(began.elapsed() < HANG, "{key:?}: {:?}", server.stats());
        }
    }
}

#[tokio::test]
async fn key_is_changed_while_a_node_runs_by_flows() {
    key_changes(Transport::Flows).await;
}

#[tokio::test]
async fn key_is_changed_while_a_node_runs_by_tcp() {
    key_changes(Transport::Tcp).await;
}

#[tokio::test]
async fn datagrams_made_by_hand_get_no_answer() {
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
    // What it says to one with the key comes after anything that it would have said to the stranger.
    let (friend, _requests) = node(Transport::Flows, Some(KEY)).await;
    assert_eq!(outcome(&friend, &server).await, Outcome::Complete);
    assert!(stranger.try_recv(&mut part).is_err(), "it was answered");
}
