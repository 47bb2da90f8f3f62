//! Tests of nodes that busy-poll: results, cancellation, waiting after the poll, and the end of the node.

use std::net::UdpSocket;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};
use pathcall_test_support::HANG;
use tokio::time::timeout;

use crate::node::{Node, NodeCall, NodeConfig, NodeReply, Transport};

/// Node that polls until the test ends.
fn polling() -> NodeConfig {
    NodeConfig::default().busy_poll(HANG * 2)
}

/// Server that delegates a request to the address in it, or replies; `stay`: it waits for the end of the call.
async fn serve(config: &NodeConfig) -> Node {
    let (node, requests) = Node::start(config).await.expect("starts");
    tokio::spawn(async move {
        loop {
            let request = requests.receive().await;
            tokio::spawn(async move {
                let text = String::from_utf8(request.payload().to_vec()).expect("text");
                match text.split_once(' ') {
                    Some((to, rest)) => {
                        let to = to.parse().expect("an address");
                        request.delegate(to, Bytes::copy_from_slice(rest.as_bytes())).expect("in progress");
                    }
                    None if text == "stay" => {
                        request.reply_now(Bytes::new()).expect("in progress");
                        return request.aborted().await;
                    }
                    None => request.reply(text.into()).await.expect("in progress"),
                }
                request.finish().expect("in progress");
            });
        }
    });
    node
}

fn begin(caller: &Node, to: &Node, request: String) -> NodeCall {
    caller.call(CallOptions::default(), [(to.address(), request.into())]).expect("below the limit")
}

async fn reply_and_end(mut call: NodeCall) -> (Bytes, NodeReply) {
    let NodeReply::Item(item) = timeout(HANG, call.receive()).await.expect("in time") else { panic!("no reply") };
    (item, timeout(HANG, call.receive()).await.expect("in time"))
}

/// Calls through two servers, one after the other and many at once.
async fn calls_through(config: &NodeConfig) {
    let (caller, _requests) = Node::start(config).await.expect("starts");
    let (a, b) = (serve(config).await, serve(config).await);
    let call = |number: u32| {
        let call = begin(&caller, &a, format!("{} {number}", b.address()));
        async move {
            let end = NodeReply::Ended(CallOutcome::Complete);
            assert_eq!(reply_and_end(call).await, (number.to_string().into(), end));
        }
    };
    for number in 0..50 {
        call(number).await;
    }
    let calls: Vec<_> = (0..50).map(call).collect();
    for call in calls {
        call.await;
    }
}

#[tokio::test]
async fn polling_nodes_on_one_thread_complete_calls() {
    for transport in [Transport::Flows, Transport::Tcp] {
        calls_through(&polling().transport(transport)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_nodes_on_several_threads_complete_calls() {
    for transport in [Transport::Flows, Transport::Tcp] {
        calls_through(&polling().transport(transport)).await;
    }
}

#[tokio::test]
async fn dropped_call_stops_polling_servers() {
    let (caller, _requests) = Node::start(&polling()).await.expect("starts");
    let (a, b) = (serve(&polling()).await, serve(&polling()).await);
    let mut call = begin(&caller, &a, format!("{} stay", b.address()));
    assert!(matches!(timeout(HANG, call.receive()).await, Ok(NodeReply::Item(_))));
    drop(call);
    let began = Clock::now();
    while b.stats().worker.aborted == 0 {
        assert!(began.elapsed() < HANG, "{:?}", b.stats());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn node_waits_again_after_its_poll() {
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    for transport in [Transport::Flows, Transport::Tcp] {
        let config = NodeConfig::default().transport(transport.clone()).busy_poll(Duration::from_millis(1));
        let (caller, _requests) = Node::start(&config).await.expect("starts");
        let server = serve(&config).await;
        let began = Clock::now();
        loop {
            // Waiting nodes answer, too.
            reply_and_end(begin(&caller, &server, "x".into())).await;
            let before = used();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let after = used();
            let used_ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
            // A poll without an end takes all the time, in every attempt; a disturbance does not.
            if used_ns < 10_000_000 {
                break;
            }
            assert!(began.elapsed() < HANG, "{transport:?}: {used_ns} ns of processor time");
        }
    }
}

#[tokio::test]
async fn dropped_node_ends_its_poll() {
    let (caller, _) = Node::start(&polling()).await.expect("starts");
    let (server, requests) = Node::start(&polling()).await.expect("starts");
    let call = begin(&caller, &server, "x".into());
    drop(timeout(HANG, requests.receive()).await.expect("in time"));
    let address = server.address();
    drop((call, server, requests));
    // The address is free when the node's task, which has the socket, has ended.
    let began = Clock::now();
    while UdpSocket::bind(address).is_err() {
        assert!(began.elapsed() < HANG);
        tokio::task::yield_now().await;
    }
}

#[test]
fn runtime_of_polling_node_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let nodes = runtime.block_on(async {
        let (caller, _) = Node::start(&polling()).await.expect("starts");
        let server = serve(&polling()).await;
        reply_and_end(begin(&caller, &server, "x".into())).await;
        [caller, server]
    });
    drop(runtime);
    drop(nodes);
}
