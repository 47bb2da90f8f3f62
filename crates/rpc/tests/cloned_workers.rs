//! Calls that a server of a pool works on at once, and those that wait.

use pathcall_control::Place;
use pathcall_proto::manifest::{Cloned, Manifest};
use pathcall_rpc::Channel;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{note, until, within};
use pathcall_test_support::store::{Member, Pool, STORE, calls, controller};
use pathcall_test_support::stubs::store_client::StoreClient;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

#[tokio::test]
async fn workers_are_as_many_as_the_option_says_and_others_wait() {
    let pool = Pool::start(1).await;
    let client = pool.client().await;
    calls(&client, 1).await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let mut client = client.clone();
        tasks.spawn(async move { client.get(note("held")).await.unwrap() });
    }
    let server = &pool.members[0];
    let held = until(|| server.gets() >= 5 && server.pathcall.pool_stats().unwrap().waiting == 2);
    timeout(HANG, held).await.expect("four are at work, and two wait");
    server.kept.gate.send_replace(true);
    timeout(HANG, tasks.join_all()).await.expect("all are answered");
}

#[tokio::test]
async fn all_calls_are_begun_where_nobody_says_how_many_workers_there_are() {
    const CALLS: u64 = 400;
    let controller = controller("127.0.0.1:0".parse().unwrap(), Place::Memory).await;
    let methods: Vec<_> = STORE.cloned.iter().map(|method| Cloned { workers: 0, ..*method }).collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: methods.leak(), ..STORE }));
    let member = Member::start_of(manifest, &controller.url(), None, |options| options).await;
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
async fn calls_whose_time_is_over_before_a_worker_is_free_are_counted() {
    let controller = controller("127.0.0.1:0".parse().unwrap(), Place::Memory).await;
    let member = Member::start(&controller.url(), |options| options.workers(1)).await;
    until(|| member.servers() == 1).await;
    let client = StoreClient::new(Channel::connect(member.uri(), &STORE).await.unwrap());
    let mut first = client.clone();
    let first = tokio::spawn(async move { first.get(note("held")).await });
    timeout(HANG, member.kept.began.notified()).await.expect("it is worked on");
    // On a machine that stands still a request may not even be sent in time.
    let queued = || member.pathcall.pool_stats().unwrap().waiting > 0;
    while !queued() {
        let status = client.clone().get(within(50, note("late"))).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
    member.kept.gate.send_replace(true);
    timeout(HANG, first).await.expect("it ends").unwrap().unwrap();
    until(|| member.pathcall.pool_stats().unwrap().late > 0).await;
}
