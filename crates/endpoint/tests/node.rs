//! Nodes of delegated calls, by flows and by TCP: hops, items, failures, and that nothing stays.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use pathcall_endpoint::delegate::Status;
use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions, Outcome};
use pathcall_endpoint::delegate::worker::WorkError;
use pathcall_endpoint::driver::node::{Call, Node, NodeConfig, Reply, Request, Transport};
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;

/// A server that does what its requests say: `reply …`, `to ADDRESS: …`, several by `;`.
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

async fn work(request: Request) {
    let text = String::from_utf8(request.payload().to_vec()).expect("text");
    for (place, what) in text.split(';').enumerate() {
        if let Some(item) = what.strip_prefix("reply ") {
            request.reply(Bytes::copy_from_slice(item.as_bytes())).await.expect("wanted");
        } else if let Some(count) = what.strip_prefix("count ") {
            for i in 0..count.parse::<u32>().expect("a number") {
                if request.reply(Bytes::from(i.to_string())).await.is_err() {
                    return;
                }
            }
        } else if let Some((to, then)) = what.strip_prefix("to ").and_then(|to| to.split_once(": ")) {
            let to = to.parse().expect("an address");
            request.delegate(to, Bytes::from(then.replace('|', ";"))).expect("wanted");
        } else {
            match what {
                "fail" => return request.fail(&Status::new(Status::ABORTED, "as told")),
                "panic" => panic!("as told"),
                "forget" => return,
                "stay" => return request.aborted().await,
                "" if place == 0 => {}
                other => panic!("{other}?"),
            }
        }
    }
    request.finish().expect("wanted");
}

async fn caller(transport: Transport) -> Node {
    Node::start(&NodeConfig::default().transport(transport)).await.expect("starts").0
}

/// All items of a call, and its end.
async fn all(mut call: Call) -> (Vec<String>, Outcome) {
    let mut items = Vec::new();
    loop {
        match timeout(HANG, call.receive()).await.expect("in time") {
            Reply::Item(item) => items.push(String::from_utf8(item.to_vec()).expect("text")),
            Reply::Ended(outcome) => return (items, outcome),
        }
    }
}

fn begin(caller: &Node, to: &Node, what: impl Into<String>) -> Call {
    caller.call(CallOptions::default(), [(to.address(), Bytes::from(what.into()))]).expect("room")
}

async fn several_hops(transport: Transport) {
    let (caller, a, b, c) = (
        caller(transport.clone()).await,
        serve(transport.clone()).await,
        serve(transport.clone()).await,
        serve(transport).await,
    );
    let what = format!("to {}: to {}: reply far;reply near;reply nearer", b.address(), c.address());
    let (mut items, outcome) = all(begin(&caller, &a, what)).await;
    items.sort();
    assert_eq!((items, outcome), (vec!["far".into(), "near".into(), "nearer".into()], Outcome::Complete));
    // Without any reply, too.
    assert_eq!(all(begin(&caller, &a, "")).await, (vec![], Outcome::Complete));
    let long = "x".repeat(3_000_000);
    assert_eq!(all(begin(&caller, &a, format!("reply {long}"))).await, (vec![long], Outcome::Complete));
}

#[tokio::test]
async fn a_call_goes_several_hops_by_flows() {
    several_hops(Transport::Flows).await;
}

#[tokio::test]
async fn a_call_goes_several_hops_by_tcp() {
    several_hops(Transport::Tcp).await;
}

#[tokio::test]
async fn items_of_one_server_come_in_order_and_wait_for_who_takes_them() {
    let (caller, server) = (caller(Transport::Flows).await, serve(Transport::Flows).await);
    let call = begin(&caller, &server, "count 5000");
    let (items, outcome) = all(call).await;
    assert_eq!(outcome, Outcome::Complete);
    assert!(items.into_iter().eq((0..5000).map(|i| i.to_string())));
}

/// A call of `caller` and its request, which many replies wait for a grant of already.
async fn one_that_waits(caller: &Node) -> (Call, Arc<Request>) {
    let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let call = begin(caller, &server, "");
    let request = Arc::new(timeout(HANG, requests.receive()).await.expect("in time"));
    (0..60).for_each(|_| request.reply_now(Bytes::from_static(b"item")).expect("wanted"));
    (call, request)
}

fn reply(request: &Arc<Request>) -> tokio::task::JoinHandle<Result<(), WorkError>> {
    let request = Arc::clone(request);
    tokio::spawn(async move { request.reply(Bytes::from_static(b"item")).await })
}

#[tokio::test]
async fn several_tasks_reply_at_once() {
    let caller = caller(Transport::Flows).await;
    let (call, request) = one_that_waits(&caller).await;
    let replies: Vec<_> = (0..100).map(|_| reply(&request)).collect();
    let taking = tokio::spawn(all(call));
    for reply in replies {
        assert_eq!(timeout(HANG, reply).await.expect("in time").expect("no panic"), Ok(()));
    }
    request.finish().expect("wanted");
    let (items, outcome) = taking.await.expect("no panic");
    assert_eq!((items.len(), outcome), (160, Outcome::Complete));
}

#[tokio::test]
async fn all_who_wait_hear_that_a_request_is_over() {
    let caller = caller(Transport::Flows).await;
    for end in ["dropped", "failed", "finished"] {
        let (call, request) = one_that_waits(&caller).await;
        let replies: Vec<_> = (0..10).map(|_| reply(&request)).collect();
        // Each has run, on this thread, until it waits.
        tokio::task::yield_now().await;
        assert!(replies.iter().all(|reply| !reply.is_finished()), "{end}");
        let mut call = Some(call);
        match end {
            "dropped" => call = None,
            "failed" => request.fail(&Status::new(Status::ABORTED, "as told")),
            _ => request.finish().expect("wanted"),
        }
        for reply in replies {
            let told = timeout(HANG, reply).await.unwrap_or_else(|_| panic!("{end}: in time"));
            assert_eq!(told.expect("no panic"), Err(WorkError::Gone), "{end}");
        }
        drop(call);
    }
}

#[tokio::test]
async fn replies_to_what_is_done_once_wait_for_nobody() {
    let (server, requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let caller = caller(Transport::Flows).await;
    let options = CallOptions::default().once(true);
    let call = caller.call(options, [(server.address(), Bytes::new())]).expect("room");
    let request = timeout(HANG, requests.receive()).await.expect("in time");
    for _ in 0..100 {
        let replied = timeout(HANG, request.reply(Bytes::from_static(b"item"))).await;
        assert_eq!(replied.expect("nothing leaves before it is sealed"), Ok(()));
    }
    request.seal().expect("wanted").release();
    let (items, outcome) = all(call).await;
    assert_eq!((items.len(), outcome), (100, Outcome::Complete));
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_or_forgets_never_looks_complete() {
    let (caller, a, b) = (caller(Transport::Flows).await, serve(Transport::Flows).await, serve(Transport::Flows).await);
    for (what, code) in [("fail", Status::ABORTED), ("panic", Status::INTERNAL), ("forget", Status::INTERNAL)] {
        let what = format!("reply first;to {}: {what}", b.address());
        let (_, outcome) = all(begin(&caller, &a, what)).await;
        let Outcome::Failed(CallFailure::Server(status)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(status.code, code, "{status:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_stops_its_servers() {
    let (caller, a, b) = (caller(Transport::Flows).await, serve(Transport::Flows).await, serve(Transport::Flows).await);
    let mut call = begin(&caller, &a, format!("to {}: stay;reply here;stay", b.address()));
    // One item leaves when the next is there, or after a while.
    assert!(matches!(timeout(HANG, call.receive()).await, Ok(Reply::Item(_))));
    drop(call);
    let began = Clock::now();
    while a.stats().worker.aborted + b.stats().worker.aborted < 2 {
        assert!(began.elapsed() < HANG, "{:?} {:?}", a.stats(), b.stats());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_to_nobody_fails() {
    let (caller, gone) = (caller(Transport::Tcp).await, serve(Transport::Tcp).await);
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let call = caller.call(CallOptions::default(), [(nowhere, Bytes::from_static(b"reply x"))]).expect("room");
    assert_eq!(all(call).await, (vec![], Outcome::Failed(CallFailure::Unreachable(nowhere))));
    drop(gone);
    let flows = self::caller(Transport::Flows).await;
    let call = flows.call(CallOptions::default(), [(nowhere, Bytes::from_static(b"reply x"))]).expect("room");
    let (_, outcome) = all(call).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
}

#[tokio::test]
async fn nothing_stays_of_calls_that_are_over() {
    let (caller, server) = (caller(Transport::Flows).await, serve(Transport::Flows).await);
    let calls: Vec<_> = (0..200).map(|i| begin(&caller, &server, format!("reply {i}"))).collect();
    for call in calls {
        assert_eq!(all(call).await.1, Outcome::Complete);
    }
    assert!(caller.is_empty());
    let began = Clock::now();
    while !server.is_empty() {
        assert!(began.elapsed() < HANG);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_address_that_nobody_reaches_is_refused() {
    let config = NodeConfig::default().listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let refused = Node::start(&config).await.expect_err("refused");
    assert!(refused.to_string().contains("0.0.0.0"), "{refused}");
}

#[tokio::test]
async fn a_node_that_has_nothing_to_do_does_nothing() {
    // This runtime's only thread runs the node, too.
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    for transport in [Transport::Flows, Transport::Tcp] {
        let _node = serve(transport.clone()).await;
        let began = Clock::now();
        loop {
            let before = used();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let after = used();
            let used_ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
            // What a machine that stands still meanwhile charges to a thread is no work: it is not charged each time.
            if used_ns < 3_000_000 {
                break;
            }
            assert!(began.elapsed() < HANG, "{transport:?}: {used_ns} ns of processor time");
        }
    }
}

#[tokio::test]
async fn a_call_that_may_be_made_again_leaves_nothing_when_it_is_dropped() {
    let caller = caller(Transport::Tcp).await;
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let options = CallOptions::default().once(true).timeout(Duration::from_millis(100));
    let mut call = caller.call(options, [(nowhere, Bytes::new())]).expect("room");
    let failed = Reply::Ended(Outcome::Failed(CallFailure::Unreachable(nowhere)));
    assert_eq!(timeout(HANG, call.receive()).await.expect("in time"), failed);
    call.retry().expect("it failed");
    assert_eq!(timeout(HANG, call.receive()).await.expect("in time"), failed);
    assert!(!caller.is_empty(), "it could be made again");
    drop(call);
    let began = Clock::now();
    while !caller.is_empty() {
        assert!(began.elapsed() < HANG);
        tokio::task::yield_now().await;
    }
}

/// Bytes that a slow network takes on within [`TICK`].
const SLOW: usize = 8 << 10;
const TICK: Duration = Duration::from_millis(5);

/// Takes connections on to `to`, slowly where they go there.
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
async fn a_long_request_that_is_passed_on_may_take_longer_than_the_time_out() {
    let (reached, listen) = (loopback::own(), loopback::own());
    let listener = tokio::net::TcpListener::bind(reached).await.expect("a port");
    let (transport, reached) = (Transport::Tcp, Some(reached));
    let config = NodeConfig::default().listen(listen).transport(transport).reached(reached);
    let (far, requests) = Node::start(&config).await.expect("starts");
    tokio::spawn(slow_network(listener, listen));
    tokio::spawn(async move { work(requests.receive().await).await });

    let (caller, near) = (caller(Transport::Tcp).await, serve(Transport::Tcp).await);
    let (ping_period, limit) = (Duration::from_millis(60), Duration::from_millis(300));
    let options = CallOptions::default().ping_period(ping_period).timeout(limit);
    let long = "x".repeat(300 * SLOW);
    let what = format!("to {}: reply {long}", far.address());
    let began = Clock::now();
    let call = caller.call(options, [(near.address(), Bytes::from(what))]).expect("room");
    let (items, outcome) = all(call).await;
    assert_eq!(outcome, Outcome::Complete, "after {:?}", began.elapsed());
    assert!(items == [long] && began.elapsed() > limit * 4, "{:?}", began.elapsed());
}
