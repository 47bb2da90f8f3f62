//! Tests of the number of calls that a server of a pool works on at once, and of waiting calls.

use pathcall_control::StoreLocation;
use pathcall_proto::manifest::{Cloned, Manifest};
use pathcall_rpc::Channel;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{note, until, within};
use pathcall_test_support::store::{PoolServer, STORE, TestPool, calls, controller};
use pathcall_test_support::stubs::store_client::StoreClient;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

#[tokio::test]
async fn option_limits_workers_and_others_wait() {
    let pool = TestPool::start(1).await;
    let client = pool.client().await;
    calls(&client, 1).await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let mut client = client.clone();
        tasks.spawn(async move { client.get(note("held")).await.unwrap() });
    }
    let server = &pool.members[0];
    let held = until(|| server.gets() >= 5 && server.pathcall.pool_stats().unwrap().waiting == 2);
    timeout(HANG, held).await.expect("four calls are in progress, and two wait");
    server.kept.gate.send_replace(true);
    timeout(HANG, tasks.join_all()).await.expect("all are answered");
}

#[tokio::test]
async fn calls_start_at_once_without_worker_limit() {
    const CALLS: u64 = 400;
    let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
    let methods: Vec<_> = STORE.cloned.iter().map(|method| Cloned { workers: 0, ..*method }).collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: methods.leak(), ..STORE }));
    let member = PoolServer::start_of(manifest, &controller.url(), None, |options| options).await;
    until(|| member.servers() == 1).await;
    let client = StoreClient::new(Channel::connect(member.uri(), manifest).await.unwrap());
    let mut tasks = JoinSet::new();
    for call in 0..CALLS {
        let mut client = client.clone();
        tasks.spawn(async move { client.get(note(&format!("held {call}"))).await.unwrap() });
    }
    until(|| member.gets() == CALLS).await;
    member.kept.gate.send_replace(true);
    timeout(HANG, tasks.join_all()).await.expect("all are answered");
    assert_eq!(member.pathcall.pool_stats().unwrap().late, 0);
}

#[tokio::test]
async fn calls_expired_in_queue_are_counted() {
    let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
    let member = PoolServer::start(&controller.url(), |options| options.workers(1)).await;
    until(|| member.servers() == 1).await;
    let client = StoreClient::new(Channel::connect(member.uri(), &STORE).await.unwrap());
    let mut first = client.clone();
    let first = tokio::spawn(async move { first.get(note("held")).await });
    timeout(HANG, member.kept.began.notified()).await.expect("the handler begins");
    // On a stalled machine a request may not be sent in time.
    let queued = || member.pathcall.pool_stats().unwrap().waiting > 0;
    while !queued() {
        let status = client.clone().get(within(50, note("late"))).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
    member.kept.gate.send_replace(true);
    timeout(HANG, first).await.expect("it ends").unwrap().unwrap();
    until(|| member.pathcall.pool_stats().unwrap().late > 0).await;
}
