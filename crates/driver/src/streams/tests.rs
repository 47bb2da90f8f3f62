//! Unit tests of a peer's queue.

use std::net::Ipv4Addr;

use pathcall_test_support::HANG;

use super::*;

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn message_queued_before_reconnect_is_sent() {
    let (last_progress, mut arrived) = mpsc::unbounded_channel();
    // The receiver is gone when the test is over.
    let sink: EventSink = Arc::new(move |event| drop(last_progress.send(event)));
    let node = Streams::tcp(1, FREE, None, Arc::new(|_| {})).await.expect("a free port");
    let peer = Streams::tcp(2, FREE, None, sink).await.expect("a free port");
    let to = peer.local_addr();
    let second = dial(&node, to).await.expect("it listens");
    // Both commands are queued before the peer's task runs.
    node.enqueue(to, Outgoing::Message(Bytes::from_static(b"message"), Bytes::new()));
    node.enqueue(to, Outgoing::Connection(second));
    loop {
        match timeout(HANG, arrived.recv()).await.expect("in time").expect("an event") {
            Event::Progress { .. } => {}
            Event::Arrived { message, .. } => return assert_eq!(message, "message"),
            other => panic!("{other:?}"),
        }
    }
}
