//! Tests of the limits of extra requests: hedge budgets, dear calls, and pushback of failed answers.

use std::time::{Duration, Instant};

use pathcall_endpoint::clone::{CloneOptions, Hedge, HedgeAfter, MESSAGE_MAX};
use pathcall_proto::manifest::{Cloned, HedgeBudgetConfig, Manifest};
use pathcall_rpc::channel::stats::{ClonePolicy, MethodPolicy, PolicyReason};
use pathcall_rpc::{COST, Channel};
use pathcall_test_support::HANG;
use pathcall_test_support::service::note;
use pathcall_test_support::store::{PoolServer, STORE, TestPool, calls};
use pathcall_test_support::stubs::store_client::StoreClient;
use tokio::time::timeout;
use tonic::{Code, Request};

use crate::cloned::sent_to_two;

#[tokio::test]
async fn hedge_budgets_of_methods_are_separate() {
    let pool = TestPool::start(3).await;
    let frugal = |method: &Cloned| {
        let share = if method.path.ends_with("/Get") { 0.0 } else { 1.0 };
        Cloned { budget: HedgeBudgetConfig { share, ..method.budget }, ..*method }
    };
    let methods: Vec<_> = STORE.cloned.iter().map(frugal).collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: methods.leak(), ..STORE }));
    let channel = Channel::builder(pool.members[0].uri(), manifest).unwrap().cloned(sent_to_two());
    let channel = channel.connect().await.unwrap();
    let client = StoreClient::new(channel.clone());
    let spent = async {
        while channel.stats().pool.refused.budget == 0 {
            calls(&client, 100).await;
        }
    };
    timeout(HANG, spent).await.expect("one method spends what it has");
    let (mut client, before) = (client, channel.stats().pool);
    for _ in 0..50 {
        client.shortest(note("call")).await.unwrap();
    }
    let after = channel.stats().pool;
    assert_eq!((after.second_requests - before.second_requests, after.refused), (50, before.refused));
}

#[tokio::test]
async fn hedge_budget_is_kept() {
    let pool = TestPool::start(3).await;
    let frugal: Vec<_> = STORE
        .cloned
        .iter()
        .map(|method| Cloned { budget: HedgeBudgetConfig { share: 0.05, ..method.budget }, ..*method })
        .collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: frugal.leak(), ..STORE }));
    let channel = Channel::builder(pool.members[0].uri(), manifest).unwrap().cloned(sent_to_two());
    let channel = channel.connect().await.unwrap();
    let began = Instant::now();
    let client = StoreClient::new(channel.clone());
    let mut made = 0.0;
    let spent = async {
        // The budget also grows with time, so a slow machine needs more calls to spend it.
        while made < 3000.0 || channel.stats().pool.refused.budget == 0 {
            calls(&client, 100).await;
            made += 100.0;
        }
    };
    timeout(HANG, spent).await.expect("the budget is spent");
    let stats = channel.stats().pool;
    let extra = stats.extra();
    // Budget: its share of the calls, its initial amount, and its growth with time.
    let allowed = 0.05 * made + 500.0 + 100.0 * began.elapsed().as_secs_f64() + 1.0;
    assert!((extra as f64) <= allowed, "{extra} of {allowed}: {stats:?}");
    let done: u64 = pool.members.iter().map(PoolServer::gets).sum();
    assert!(done as f64 <= made + allowed, "{done} for {made}");
}

#[tokio::test]
async fn dear_calls_have_fewer_extra_requests() {
    let pool = TestPool::start(3).await;
    let budget = HedgeBudgetConfig { share: 0.0, burst: 20.0, per_second: 0.0 };
    let methods: Vec<_> = STORE.cloned.iter().map(|method| Cloned { budget, cost: 2, ..*method }).collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: methods.leak(), ..STORE }));
    let channel = Channel::builder(pool.members[0].uri(), manifest).unwrap().cloned(sent_to_two());
    let channel = channel.connect().await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    let dear = |cost: &str| {
        let mut request = Request::new(note("call"));
        request.metadata_mut().insert(COST, cost.parse().unwrap());
        request
    };
    let by_frames = async {
        while channel.stats().pool.answered == 0 {
            client.get(dear("1000")).await.unwrap();
        }
    };
    timeout(HANG, by_frames).await.expect("frames are delivered");
    assert!(channel.stats().pool.refused.dear > 0, "{:?}", channel.stats().pool);
    client.get(dear("14")).await.unwrap();
    for _ in 0..20 {
        client.get(note("call")).await.unwrap();
    }
    // Repeats after a time-out, on a stalled machine, take from the budget as well.
    let stats = channel.stats().pool;
    let paid = stats.extra();
    assert!((1..=4).contains(&paid) && stats.refused.budget > 0, "{stats:?}");
    let refused = client.get(dear("no")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

/// Options for a hedge only after a failed answer.
fn hedged_late() -> CloneOptions {
    let hedge = Hedge { after: HedgeAfter::Delay(HANG), max_attempts: 2 };
    CloneOptions { clone: false, hedge: Some(hedge), ..CloneOptions::default() }
}

#[tokio::test]
async fn final_pushback_ends_the_call() {
    let pool = TestPool::start(3).await;
    let channel = Channel::builder(pool.members[0].uri(), &STORE).unwrap().cloned(hedged_late());
    let channel = channel.connect().await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    let pushed = async {
        while channel.stats().pool.refused.pushback < 10 {
            let status = client.get(note("push -1")).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Aborted, "later"));
        }
    };
    timeout(HANG, pushed).await.expect("failed answers come by frames");
    assert_eq!(channel.stats().pool.after_failed, 0, "{:?}", channel.stats().pool);
}

#[tokio::test]
async fn hedge_waits_for_the_pushback() {
    const PUSHBACK: Duration = Duration::from_millis(300);
    let pool = TestPool::start(3).await;
    let channel = Channel::builder(pool.members[0].uri(), &STORE).unwrap().cloned(hedged_late());
    let channel = channel.connect().await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    let hedged = async {
        while channel.stats().pool.after_failed == 0 {
            let began = Instant::now();
            assert_eq!(client.get(note("push 300")).await.unwrap_err().code(), Code::Aborted);
            assert!(channel.stats().pool.after_failed == 0 || began.elapsed() >= PUSHBACK, "{:?}", began.elapsed());
        }
    };
    timeout(HANG, hedged).await.expect("another server is asked");
}

#[tokio::test]
async fn final_pushback_ends_a_call_by_grpc() {
    let pool = TestPool::start(3).await;
    let mut client = pool.client().await;
    let long = "x".repeat(2 * MESSAGE_MAX);
    let gets = || pool.members.iter().map(PoolServer::gets).sum::<u64>();
    for (pushback, asked) in [("-1", 1), ("1", 3)] {
        let before = gets();
        let status = client.tried(note(&format!("push {pushback} {long}"))).await.unwrap_err();
        assert_eq!((status.code(), gets() - before), (Code::Aborted, asked), "{pushback}");
    }
}

#[tokio::test]
async fn policy_of_an_automatic_method_is_reported() {
    let pool = TestPool::start(3).await;
    let automatic = |method: &Cloned| Cloned { automatic: method.path.ends_with("/Get"), ..*method };
    let methods: Vec<_> = STORE.cloned.iter().map(automatic).collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: methods.leak(), ..STORE }));
    let channel = Channel::builder(pool.members[0].uri(), manifest).unwrap().connect().await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    client.shortest(note("call")).await.unwrap();
    assert!(channel.stats().policies.is_empty(), "no automatic call");
    calls(&client, 50).await;
    let [MethodPolicy { method, stats }] = channel.stats().policies[..] else { panic!("{:?}", channel.stats()) };
    assert!(method.ends_with("/Get") && stats.periods.iter().sum::<u64>() == 1, "{method}: {stats:?}");
    assert_eq!((stats.policy, stats.reason), (ClonePolicy::Hedged, PolicyReason::FewCalls));
}
