//! Real nodes in one process; one node is killed while clients write and read.

use std::time::{Duration, Instant};

use chain::cluster::Cluster;
use chain::linearizability::{Operation, OperationKind, is_linearizable};
use chain::pb::chain_client::ChainClient;
use chain::pb::update::Effect;
use chain::pb::{self, Entry, PassRequest, Update};
use tonic::Code;

const LEASE: Duration = Duration::from_secs(1);
const RETRY_TIME: Duration = Duration::from_secs(40);
const CLIENTS: usize = 3;
const OPERATIONS: usize = 30;

/// Kills node `victim` of three during the operations, and checks the history of all clients.
async fn kill(victim: u32) {
    let mut cluster = Cluster::start(3, LEASE).await.expect("a chain");
    let (done, mut progress) = tokio::sync::watch::channel(0);
    let began = Instant::now();
    let now = move || u64::try_from(began.elapsed().as_nanos()).expect("soon");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let (mut client, done) = (cluster.client(RETRY_TIME).expect("a client"), done.clone());
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for i in 0..OPERATIONS {
                    let what = format!("<{id}.{i}>");
                    let kind = if i % 3 == 2 { OperationKind::Get } else { OperationKind::Append(what.clone()) };
                    let began = now();
                    let value = match kind {
                        OperationKind::Get => client.read("key").await.map(Option::unwrap_or_default),
                        _ => client.write("key", Effect::Append(what)).await,
                    };
                    let ended = Some((now(), value.expect("two remaining nodes")));
                    seen.push(Operation { kind, began, ended });
                    done.send_modify(|done| *done += 1);
                }
                (seen, client.repeats())
            })
        })
        .collect();
    progress.wait_for(|done| *done >= CLIENTS * OPERATIONS / 3).await.expect("clients run");
    cluster.kill(victim);
    let (mut history, mut repeats) = (Vec::new(), 0);
    for client in clients {
        let (seen, repeated) = client.await.expect("the client ends");
        history.extend(seen);
        repeats += repeated;
    }
    assert!(is_linearizable(&history), "{history:#?}");
    assert!(repeats > 0, "no client repeated a call after node {victim} was killed");
    // Each append is in the value once.
    let value = cluster.client(RETRY_TIME).expect("a client").read("key").await.expect("two nodes").expect("a value");
    let appends = history.iter().filter(|operation| operation.kind != OperationKind::Get).count();
    assert_eq!(value.matches('<').count(), appends, "{value}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_head_leaves_history_linearizable() {
    kill(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_middle_node_leaves_history_linearizable() {
    kill(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_tail_leaves_history_linearizable() {
    kill(2).await;
}

#[tokio::test]
async fn nested_calls_give_same_values() {
    let cluster = Cluster::start(4, LEASE).await.expect("a chain");
    let mut client = cluster.client(RETRY_TIME).expect("a client");
    for (i, nested) in [false, true, false, true].into_iter().enumerate() {
        client.nest(nested);
        let expected = "x".repeat(i + 1);
        assert_eq!(client.write("k", Effect::Append("x".to_owned())).await.expect("written"), expected);
        assert_eq!(client.read("k").await.expect("read"), Some(expected));
    }
    assert_eq!(client.write("k", Effect::Put("y".to_owned())).await.expect("written"), "y");
    assert_eq!(client.read("other").await.expect("read"), None);
}

#[tokio::test]
async fn update_with_lost_predecessors_is_rejected() {
    let cluster = Cluster::start(2, LEASE).await.expect("a chain");
    let mut client = cluster.client(RETRY_TIME).expect("a client");
    client.write("k", Effect::Append("x".to_owned())).await.expect("written");
    let url = cluster.members()[1].url.clone();
    let mut tail = ChainClient::new(pathcall::Channel::connect(url, &pb::PATHCALL).await.expect("a node"));
    for repeat in [false, true] {
        let update = Update { client: 1, seq: 1, key: "k".to_owned(), effect: Some(Effect::Put("forged".to_owned())) };
        let entry = Some(Entry { number: 1_000, update: Some(update) });
        let request = PassRequest { view: 1, entry, nested: false, repeat };
        let status = tail.pass(request).await.expect("a stream").get_mut().message().await.expect_err("refused");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    assert_eq!(client.read("k").await.expect("read"), Some("x".to_owned()));
}
