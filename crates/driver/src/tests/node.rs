//! Tests of nodes with delegated calls, by flows and by TCP: hops, items, failures, and no leftover state.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use crate::node::{Node, NodeCall, NodeConfig, NodeReply, NodeRequest, Transport};
use bytes::Bytes;
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, CallOutcome};
use pathcall_endpoint::delegate::worker::ExecutionError;
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;

/// Server that executes the script in its requests: `reply …`, `to ADDRESS: …`, several separated by `;`.
async fn serve(transport: Transport) -> Node {
    let config = NodeConfig::default().transport(transport);
    let (node, requests) = Node::start(&config).await.expect("starts");
    tokio::spawn(async move {
        loop {
            let request = requests.receive().await;
            tokio::spawn(work(request));
        }
    });
    node
}

pub(super) async fn work(request: NodeRequest) {
    let text = String::from_utf8(request.payload().to_vec()).expect("text");
    for (place, commands) in text.split(';').enumerate() {
        if let Some(item) = commands.strip_prefix("reply ") {
            request.reply(Bytes::copy_from_slice(item.as_bytes())).await.expect("in progress");
        } else if let Some(count) = commands.strip_prefix("count ") {
            for i in 0..count.parse::<u32>().expect("a number") {
                if request.reply(Bytes::from(i.to_string())).await.is_err() {
                    return;
                }
            }
        } else if let Some((to, then)) = commands.strip_prefix("to ").and_then(|to| to.split_once(": ")) {
            let to = to.parse().expect("an address");
            request.delegate(to, Bytes::from(then.replace('|', ";"))).expect("in progress");
        } else {
            match commands {
                "fail" => return request.fail(&Status::new(Status::ABORTED, "as requested")),
                "panic" => panic!("as requested"),
                "forget" => return,
                "stay" => return request.aborted().await,
                "" if place == 0 => {}
                other => panic!("{other}?"),
            }
        }
    }
    request.finish().expect("in progress");
}

async fn caller(transport: Transport) -> Node {
    Node::start(&NodeConfig::default().transport(transport)).await.expect("starts").0
}

/// Receives all items of a call, and its outcome.
pub(super) async fn collect_replies(mut call: NodeCall) -> (Vec<String>, CallOutcome) {
    let mut items = Vec::new();
    loop {
        match timeout(HANG, call.receive()).await.expect("in time") {
            NodeReply::Item(item) => items.push(String::from_utf8(item.to_vec()).expect("text")),
            NodeReply::Ended(outcome) => return (items, outcome),
        }
    }
}

pub(super) fn begin(caller: &Node, to: &Node, commands: impl Into<String>) -> NodeCall {
    caller.call(CallOptions::default(), [(to.address(), Bytes::from(commands.into()))]).expect("below the limit")
}

#[tokio::test]
async fn call_with_more_open_requests_than_allowed_fails() {
    let (caller, _) = Node::start(&NodeConfig::default().requests_max(4)).await.expect("starts");
    let server = serve(Transport::Flows).await;
    let call = begin(&caller, &server, vec![format!("to {}: stay", server.address()); 6].join(";"));
    assert_eq!(collect_replies(call).await.1, CallOutcome::Failed(CallFailure::TooLarge(4)));
}

async fn several_hops(transport: Transport) {
    let (caller, a, b, c) = (
        caller(transport.clone()).await,
        serve(transport.clone()).await,
        serve(transport.clone()).await,
        serve(transport).await,
    );
    let commands = format!("to {}: to {}: reply far;reply near;reply nearer", b.address(), c.address());
    let (mut items, outcome) = collect_replies(begin(&caller, &a, commands)).await;
    items.sort();
    assert_eq!((items, outcome), (vec!["far".into(), "near".into(), "nearer".into()], CallOutcome::Complete));
    // A call without replies.
    assert_eq!(collect_replies(begin(&caller, &a, "")).await, (vec![], CallOutcome::Complete));
    let long = "x".repeat(3_000_000);
    assert_eq!(collect_replies(begin(&caller, &a, format!("reply {long}"))).await, (vec![long], CallOutcome::Complete));
}

#[tokio::test]
async fn call_passes_several_hops_by_flows() {
    several_hops(Transport::Flows).await;
}

#[tokio::test]
async fn call_passes_several_hops_by_tcp() {
    several_hops(Transport::Tcp).await;
}

#[tokio::test]
async fn items_arrive_in_order_with_flow_control() {
    let (caller, server) = (caller(Transport::Flows).await, serve(Transport::Flows).await);
    let call = begin(&caller, &server, "count 5000");
    let (items, outcome) = collect_replies(call).await;
    assert_eq!(outcome, CallOutcome::Complete);
    assert!(items.into_iter().eq((0..5000).map(|i| i.to_string())));
}

/// A call of `caller`, and its request with many replies that wait for a grant.
async fn waiting_node(caller: &Node) -> (NodeCall, Arc<NodeRequest>) {
    let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let call = begin(caller, &server, "");
    let request = Arc::new(timeout(HANG, requests.receive()).await.expect("in time"));
    (0..60).for_each(|_| request.reply_now(Bytes::from_static(b"item")).expect("in progress"));
    (call, request)
}

fn reply(request: &Arc<NodeRequest>) -> tokio::task::JoinHandle<Result<(), ExecutionError>> {
    let request = Arc::clone(request);
    tokio::spawn(async move { request.reply(Bytes::from_static(b"item")).await })
}

#[tokio::test]
async fn several_tasks_reply_concurrently() {
    let caller = caller(Transport::Flows).await;
    let (call, request) = waiting_node(&caller).await;
    let replies: Vec<_> = (0..100).map(|_| reply(&request)).collect();
    let taking = tokio::spawn(collect_replies(call));
    for reply in replies {
        assert_eq!(timeout(HANG, reply).await.expect("in time").expect("no panic"), Ok(()));
    }
    request.finish().expect("in progress");
    let (items, outcome) = taking.await.expect("no panic");
    assert_eq!((items.len(), outcome), (160, CallOutcome::Complete));
}

#[tokio::test]
async fn end_of_request_wakes_all_waiting_replies() {
    let caller = caller(Transport::Flows).await;
    for end in ["dropped", "failed", "finished"] {
        let (call, request) = waiting_node(&caller).await;
        let replies: Vec<_> = (0..10).map(|_| reply(&request)).collect();
        // Each task has run, on this thread, until it waits.
        tokio::task::yield_now().await;
        assert!(replies.iter().all(|reply| !reply.is_finished()), "{end}");
        let mut call = Some(call);
        match end {
            "dropped" => call = None,
            "failed" => request.fail(&Status::new(Status::ABORTED, "as requested")),
            _ => request.finish().expect("in progress"),
        }
        for reply in replies {
            let told = timeout(HANG, reply).await.unwrap_or_else(|_| panic!("{end}: in time"));
            assert_eq!(told.expect("no panic"), Err(ExecutionError::Ended), "{end}");
        }
        drop(call);
    }
}

#[tokio::test]
async fn exactly_once_replies_do_not_wait() {
    let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let caller = caller(Transport::Flows).await;
    let options = CallOptions::default().once(true);
    let call = caller.call(options, [(server.address(), Bytes::new())]).expect("below the limit");
    let request = timeout(HANG, requests.receive()).await.expect("in time");
    for _ in 0..100 {
        let replied = timeout(HANG, request.reply(Bytes::from_static(b"item"))).await;
        assert_eq!(replied.expect("nothing leaves before it is sealed"), Ok(()));
    }
    request.prepare().expect("in progress").release();
    let (items, outcome) = collect_replies(call).await;
    assert_eq!((items.len(), outcome), (100, CallOutcome::Complete));
}

#[tokio::test]
async fn failed_or_dropped_handler_fails_the_call() {
    let (caller, a, b) = (caller(Transport::Flows).await, serve(Transport::Flows).await, serve(Transport::Flows).await);
    for (commands, code) in [("fail", Status::ABORTED), ("panic", Status::INTERNAL), ("forget", Status::UNAVAILABLE)] {
        let commands = format!("reply first;to {}: {commands}", b.address());
        let (_, outcome) = collect_replies(begin(&caller, &a, commands)).await;
        let CallOutcome::Failed(CallFailure::Server(status)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(status.code, code, "{status:?}");
    }
}

#[tokio::test]
async fn dropped_call_stops_its_servers() {
    let (caller, a, b) = (caller(Transport::Flows).await, serve(Transport::Flows).await, serve(Transport::Flows).await);
    let mut call = begin(&caller, &a, format!("to {}: stay;reply here;stay", b.address()));
    // An item leaves when the next one is there, or after the flush time.
    assert!(matches!(timeout(HANG, call.receive()).await, Ok(NodeReply::Item(_))));
    drop(call);
    let began = Clock::now();
    while a.stats().worker.aborted + b.stats().worker.aborted < 2 {
        assert!(began.elapsed() < HANG, "{:?} {:?}", a.stats(), b.stats());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn call_to_closed_port_fails() {
    let (caller, gone) = (caller(Transport::Tcp).await, serve(Transport::Tcp).await);
    let unused_address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let call = caller
        .call(CallOptions::default(), [(unused_address, Bytes::from_static(b"reply x"))])
        .expect("below the limit");
    assert_eq!(collect_replies(call).await, (vec![], CallOutcome::Failed(CallFailure::Unreachable(unused_address))));
    drop(gone);
    let flows = self::caller(Transport::Flows).await;
    let call = flows
        .call(CallOptions::default(), [(unused_address, Bytes::from_static(b"reply x"))])
        .expect("below the limit");
    let (_, outcome) = collect_replies(call).await;
    assert!(matches!(outcome, CallOutcome::Failed(_)), "{outcome:?}");
}

#[tokio::test]
async fn ended_calls_leave_no_state() {
    let (caller, server) = (caller(Transport::Flows).await, serve(Transport::Flows).await);
    let calls: Vec<_> = (0..200).map(|i| begin(&caller, &server, format!("reply {i}"))).collect();
    for call in calls {
        assert_eq!(collect_replies(call).await.1, CallOutcome::Complete);
    }
    assert!(caller.is_empty());
    let began = Clock::now();
    while !server.is_empty() {
        assert!(began.elapsed() < HANG);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn unspecified_address_is_refused() {
    let config = NodeConfig::default().listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let refused = Node::start(&config).await.expect_err("refused");
    assert!(refused.to_string().contains("0.0.0.0"), "{refused}");
}

#[tokio::test]
async fn idle_node_uses_no_processor_time() {
    // The node runs on this runtime's only thread.
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    for transport in [Transport::Flows, Transport::Tcp] {
        let _node = serve(transport.clone()).await;
        let began = Clock::now();
        loop {
            let before = used();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let after = used();
            let used_ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
            // Time that a standing machine charges to the thread is not work, and is not charged in every attempt.
            if used_ns < 3_000_000 {
                break;
            }
            assert!(began.elapsed() < HANG, "{transport:?}: {used_ns} ns of processor time");
        }
    }
}

#[tokio::test]
async fn dropped_retryable_call_leaves_no_state() {
    let caller = caller(Transport::Tcp).await;
    let unused_address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let options = CallOptions::default().once(true).timeout(Duration::from_millis(100));
    let mut call = caller.call(options, [(unused_address, Bytes::new())]).expect("below the limit");
    let failed = NodeReply::Ended(CallOutcome::Failed(CallFailure::Unreachable(unused_address)));
    assert_eq!(timeout(HANG, call.receive()).await.expect("in time"), failed);
    call.retry().expect("a failed call");
    assert_eq!(timeout(HANG, call.receive()).await.expect("in time"), failed);
    assert!(!caller.is_empty(), "it could be made again");
    drop(call);
    let began = Clock::now();
    while !caller.is_empty() {
        assert!(began.elapsed() < HANG);
        tokio::task::yield_now().await;
    }
}

/// Bytes that a slow network transfers within [`TICK`].
const SLOW: usize = 8 << 10;
const TICK: Duration = Duration::from_millis(5);

/// Forwards connections to `to`, slowly in that direction.
async fn slow_network(listener: tokio::net::TcpListener, to: SocketAddr) {
    while let Ok((from, _)) = listener.accept().await {
        let Ok(to) = tokio::net::TcpStream::connect(to).await else { return };
        let ((mut from, mut back), (mut answers, mut on)) = (from.into_split(), to.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(TICK);
            let mut bytes = vec![0; SLOW];
            loop {
                tick.tick().await;
                match tokio::io::AsyncReadExt::read(&mut from, &mut bytes).await {
                    Ok(0) | Err(_) => return,
                    Ok(len) => {
                        if tokio::io::AsyncWriteExt::write_all(&mut on, &bytes[..len]).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }
}

#[tokio::test]
async fn long_delegated_request_may_exceed_timeout() {
    let (reached, listen) = (loopback::own(), loopback::own());
    let listener = tokio::net::TcpListener::bind(reached).await.expect("a port");
    let (transport, reached) = (Transport::Tcp, Some(reached));
    let config = NodeConfig::default().listen(listen).transport(transport).advertised(reached);
    let (far, requests) = Node::start(&config).await.expect("starts");
    tokio::spawn(slow_network(listener, listen));
    tokio::spawn(async move { work(requests.receive().await).await });

    let (caller, near) = (caller(Transport::Tcp).await, serve(Transport::Tcp).await);
    let (ping_period, limit) = (Duration::from_millis(60), Duration::from_millis(300));
    let options = CallOptions::default().ping_period(ping_period).timeout(limit);
    let long = "x".repeat(300 * SLOW);
    let commands = format!("to {}: reply {long}", far.address());
    let began = Clock::now();
    let call = caller.call(options, [(near.address(), Bytes::from(commands))]).expect("below the limit");
    let (items, outcome) = collect_replies(call).await;
    assert_eq!(outcome, CallOutcome::Complete, "after {:?}", began.elapsed());
    assert!(items == [long] && began.elapsed() > limit * 4, "{:?}", began.elapsed());
}
