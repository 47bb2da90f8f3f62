//! Unit tests of a peer's line.

use std::net::Ipv4Addr;

use pathcall_test_support::HANG;

use super::*;

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn a_message_leaves_though_a_connection_comes_behind_it() {
    let (told, mut arrived) = mpsc::unbounded_channel();
    // A test that is over hears nothing.
    let sink: Sink = Arc::new(move |event| drop(told.send(event)));
    let node = Streams::tcp(1, FREE, None, Arc::new(|_| {})).await.expect("a free port");
    let peer = Streams::tcp(2, FREE, None, sink).await.expect("a free port");
    let to = peer.local_addr();
    let second = dial(&node, to).await.expect("it listens");
    // Both are in line before the peer's task sees either.
    node.line_up(to, Outgoing::Message(Bytes::from_static(b"message"), Bytes::new()));
    node.line_up(to, Outgoing::Use(second));
    loop {
        match timeout(HANG, arrived.recv()).await.expect("in time").expect("an event") {
            Event::Underway { .. } => {}
            Event::Arrived { message, .. } => return assert_eq!(message, "message"),
            other => panic!("{other:?}"),
        }
    }
}
