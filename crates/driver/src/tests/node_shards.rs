//! Tests of nodes with several shards: calls, aborts, records, loads and keys.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};
use pathcall_endpoint::delegate::shards::{SHARDS_MAX, shard_of_call};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::TokenKey;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use super::node::{begin, collect_replies, work};
use crate::node::{
    Node, NodeCall, NodeConfig, NodeReply, NodeRequest, RecordHistory, ServerEvent, ServerObserver, Transport,
};

pub(super) fn sharded(shards: usize) -> NodeConfig {
    NodeConfig::default().shards(shards)
}

pub(super) async fn caller(shards: usize) -> Node {
    Node::start(&sharded(shards)).await.expect("starts").0
}

/// Server that executes the script in its requests, and counts the requests of each shard.
pub(super) async fn serve(config: &NodeConfig) -> (Node, Arc<[AtomicUsize]>) {
    let (node, requests) = Node::start(config).await.expect("starts");
    let counts: Arc<[AtomicUsize]> = (0..config.shards).map(|_| AtomicUsize::new(0)).collect();
    for (shard, requests) in requests.by_shard().into_iter().enumerate() {
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            loop {
                let request = requests.receive().await;
                counts[shard].fetch_add(1, Ordering::Relaxed);
                tokio::spawn(work(request));
            }
        });
    }
    (node, counts)
}

/// Waits until `done` returns true.
pub(super) async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let began = Clock::now();
    while !done() {
        assert!(began.elapsed() < HANG, "{what}");
        tokio::task::yield_now().await;
    }
}

async fn calls_over(caller: &Node, a: &NodeConfig, b: &NodeConfig) {
    let ((a, at_a), (b, at_b)) = (serve(a).await, serve(b).await);
    let script = |i: u32| format!("to {}: reply far {i}|reply farther {i};reply near {i}", b.address());
    for _ in 0..2 {
        let calls: Vec<_> = (0..100).map(|i| begin(caller, &a, script(i))).collect();
        for (i, call) in calls.into_iter().enumerate() {
            let (mut items, outcome) = collect_replies(call).await;
            items.sort();
            assert_eq!(outcome, CallOutcome::Complete);
            assert_eq!(items, [format!("far {i}"), format!("farther {i}"), format!("near {i}")]);
        }
    }
    for (node, counts) in [(&a, at_a), (&b, at_b)] {
        let counts: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts.iter().sum::<usize>(), 200);
        assert!(counts.iter().all(|count| *count >= 20), "{counts:?}");
        assert_eq!(node.stats().worker.requests, 200);
    }
    assert_eq!(caller.stats().caller.complete, 200);
    assert!(caller.is_empty());
}

#[tokio::test]
async fn sharded_nodes_delegate_to_each_other() {
    calls_over(&caller(3).await, &sharded(2), &sharded(3)).await;
    calls_over(&caller(2).await, &sharded(2), &sharded(2).busy_poll(Duration::from_millis(1))).await;
}

#[tokio::test]
async fn sharded_and_plain_nodes_delegate_to_each_other() {
    calls_over(&caller(1).await, &sharded(2), &sharded(1)).await;
    calls_over(&caller(2).await, &sharded(1), &sharded(3)).await;
}

#[tokio::test]
async fn whole_receiver_gets_requests_of_all_shards() {
    let (server, requests) = Node::start(&sharded(3)).await.expect("starts");
    let caller = caller(1).await;
    let calls: Vec<_> = (0..60).map(|i| begin(&caller, &server, format!("reply {i}"))).collect();
    // Several tasks receive at once.
    let requests = Arc::new(requests);
    for _ in 0..2 {
        let requests = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                work(requests.receive().await).await;
            }
        });
    }
    for call in calls {
        assert_eq!(collect_replies(call).await.1, CallOutcome::Complete);
    }
}

#[test]
fn calls_stay_on_the_thread_of_their_shard() {
    let runtimes: [Runtime; 2] = std::array::from_fn(|_| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    });
    let handles: Vec<Handle> = runtimes.iter().map(|runtime| runtime.handle().clone()).collect();
    let start = async || Node::start_on(&sharded(2), &handles).await.expect("starts");
    let ((server, requests), (caller, _)) = runtimes[0].block_on(async { (start().await, start().await) });
    for (requests, runtime) in requests.by_shard().into_iter().zip(&runtimes) {
        runtime.spawn(async move {
            loop {
                requests.receive().await.finish().expect("in progress");
            }
        });
    }
    for (shard, runtime) in runtimes.iter().enumerate() {
        let (caller, server) = (caller.clone(), server.clone());
        let calls = async move {
            for turn in 0..50 {
                let call = begin(&caller, &server, "");
                // The first call tells the thread its shard.
                assert!(turn == 0 || shard_of_call(call.id(), 2) == shard, "{turn}");
                assert_eq!(collect_replies(call).await.1, CallOutcome::Complete);
            }
        };
        runtime.block_on(runtime.spawn(calls)).expect("no panic");
    }
}

#[tokio::test]
async fn senders_learn_the_shards_of_a_node() {
    let (caller, (server, _)) = (caller(1).await, serve(&sharded(3)).await);
    let mut before = 0;
    // Each batch makes calls of all shards.
    let began = Clock::now();
    loop {
        let calls: Vec<_> = (0..50).map(|i| begin(&caller, &server, format!("reply {i}"))).collect();
        for call in calls {
            assert_eq!(collect_replies(call).await.1, CallOutcome::Complete);
        }
        let handed_over = server.stats().handed_over;
        if handed_over == before {
            break;
        }
        assert!(handed_over > 0 && began.elapsed() < HANG, "{handed_over}");
        before = handed_over;
    }
}

#[tokio::test]
async fn dropped_calls_stop_their_servers() {
    let (caller, (a, _), (b, _)) = (caller(2).await, serve(&sharded(2)).await, serve(&sharded(3)).await);
    let script = format!("to {}: stay;reply here;stay", b.address());
    let mut calls: Vec<_> = (0..20).map(|_| begin(&caller, &a, script.clone())).collect();
    for call in &mut calls {
        assert!(matches!(timeout(HANG, call.receive()).await, Ok(NodeReply::Item(_))));
    }
    drop(calls);
    eventually("all stop", || a.stats().worker.aborted + b.stats().worker.aborted == 40).await;
}

fn once(caller: &Node, to: &Node) -> NodeCall {
    let options = CallOptions::default().once(true).ping_period(Duration::from_millis(20));
    let options = options.timeout(Duration::from_millis(200));
    caller.call(options, [(to.address(), Bytes::from_static(b"work"))]).expect("below the limit")
}

#[tokio::test]
async fn records_are_found_after_a_restart_with_other_shards() {
    let listen = loopback::own();
    let (server, requests, _) =
        Node::resume(&sharded(2).listen(listen), RecordHistory::default()).await.expect("starts");
    let caller = caller(2).await;
    let mut calls: Vec<_> = (0..12).map(|_| once(&caller, &server)).collect();
    let mut history = RecordHistory::default();
    for _ in 0..calls.len() {
        let request = timeout(HANG, requests.receive()).await.expect("in time");
        request.reply(Bytes::from_static(b"done")).await.expect("in progress");
        let prepared = request.prepare().expect("in progress");
        history.records.push(prepared.record().expect("an exactly-once request").clone());
        // The process dies before the messages leave.
    }
    drop((server, requests));
    for call in &mut calls {
        let failed = timeout(HANG, call.receive()).await.expect("in time");
        assert!(matches!(failed, NodeReply::Ended(CallOutcome::Failed(_))), "{failed:?}");
    }
    let config = sharded(3).listen(listen);
    let (server, requests, _) = Node::resume(&config, history).await.expect("starts");
    for mut call in calls {
        let began = Clock::now();
        loop {
            // The session to the process before may still swallow a message.
            call.retry().expect("a failed call");
            let mut items = Vec::new();
            let outcome = loop {
                match timeout(HANG, call.receive()).await.expect("in time") {
                    NodeReply::Item(item) => items.push(item),
                    NodeReply::Ended(outcome) => break outcome,
                }
            };
            if outcome == CallOutcome::Complete {
                assert_eq!(items, ["done"]);
                break;
            }
            assert!(began.elapsed() < HANG, "{outcome:?}");
        }
    }
    assert!(requests.try_receive().is_none(), "a recorded request runs again");
    assert_eq!(server.stats().worker.requests, 0);
}

/// Loads that a server reported.
#[derive(Default)]
struct Loads(Mutex<Vec<(SocketAddr, u32)>>);

impl ServerObserver for Loads {
    fn on_server_event(&self, event: ServerEvent) {
        if let ServerEvent::Load(server, load) = event {
            self.0.lock().expect("no panic").push((server, load));
        }
    }
}

#[tokio::test]
async fn load_reports_count_the_requests_of_all_shards() {
    let (server, requests) = Node::start(&sharded(2)).await.expect("starts");
    let (caller, loads) = (caller(1).await, Arc::new(Loads::default()));
    caller.add_observer(Arc::downgrade(&loads));
    let mut held: Vec<(NodeCall, NodeRequest)> = Vec::new();
    // Each shard has fewer than 16.
    for _ in 0..24 {
        let call = begin(&caller, &server, "");
        held.push((call, timeout(HANG, requests.receive()).await.expect("in time")));
        // A node gets one report in a millisecond.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let reported = || loads.0.lock().expect("no panic").clone();
    eventually("the load is reported", || reported().iter().any(|(_, load)| *load == 16)).await;
    assert!(reported().iter().all(|(from, _)| *from == server.address()), "{:?}", reported());
}

#[tokio::test]
async fn key_protects_all_shards() {
    let key = TokenKey::new([5, 6]);
    let (server, _) = serve(&sharded(2)).await;
    let (member, stranger) = (caller(2).await, caller(2).await);
    server.set_key(Some(key));
    member.set_key(Some(key));
    assert_eq!(server.key(), Some(key));
    for _ in 0..8 {
        assert_eq!(collect_replies(begin(&member, &server, "reply x")).await.1, CallOutcome::Complete);
    }
    let options = CallOptions::default().ping_period(Duration::from_millis(20)).timeout(Duration::from_millis(100));
    for _ in 0..4 {
        let call = stranger.call(options, [(server.address(), Bytes::new())]).expect("below the limit");
        assert!(matches!(collect_replies(call).await.1, CallOutcome::Failed(_)));
    }
    assert_eq!(server.stats().worker.requests, 8);
}

#[tokio::test]
async fn node_without_handle_runs_until_its_requests_end() {
    let (server, requests) = Node::start(&sharded(2)).await.expect("starts");
    let caller = caller(1).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        let call = begin(&caller, &server, "");
        held.push((call, timeout(HANG, requests.receive()).await.expect("in time")));
    }
    let weak = server.downgrade();
    drop((server, requests));
    for (call, request) in held {
        assert!(weak.upgrade().is_some());
        request.reply_now(Bytes::from_static(b"late")).expect("in progress");
        request.finish().expect("in progress");
        drop(request);
        assert_eq!(collect_replies(call).await, (vec!["late".to_owned()], CallOutcome::Complete));
    }
    eventually("the node ends", || weak.upgrade().is_none()).await;
}

#[tokio::test]
async fn invalid_numbers_of_shards_are_refused() {
    let last_port = SocketAddr::from(([127, 0, 0, 1], u16::MAX));
    for (config, reason) in [
        (sharded(0), "0 shards: a node has 1 to 64"),
        (sharded(SHARDS_MAX + 1), "65 shards: a node has 1 to 64"),
        (sharded(2).transport(Transport::Tcp), "2 shards by Tcp: only a node by UDP has several"),
        (sharded(2).listen(last_port), "no port for shard 1 of the node at 127.0.0.1:65535: use a smaller port"),
    ] {
        let refused = Node::start(&config).await.expect_err("refused");
        assert_eq!(refused.to_string(), reason);
    }
    let taken = loopback::own();
    let _other = UdpSocket::bind(SocketAddr::new(taken.ip(), taken.port() + 1)).expect("free");
    let refused = Node::start(&sharded(2).listen(taken)).await.expect_err("the port of shard 1 is taken");
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
}
