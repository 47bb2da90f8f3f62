//! Tests of workers that join again between two sums: values of two steps are never added to each other.

use std::net::SocketAddr;

use pathcall_proto::types::FpArray;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, until};
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL, Part};
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::cuttable_link::CuttableLink;
use super::joining::members;

async fn server_at(address: SocketAddr) -> TestServer {
    TestServer::start_at(Layer::builder(&PATHCALL).build().await.expect("a layer"), address).await
}

async fn channel_to(uri: impl Into<String>) -> Channel {
    Channel::connect(uri.into(), &PATHCALL).await.expect("a channel")
}

async fn sum(worker: &Channel, value: f64) -> Result<f64, Status> {
    let part = Part { values: Some(FpArray { data: vec![value] }) };
    let mut stub = RoundsClient::new(worker.clone());
    let reply = timeout(HANG, stub.add(part)).await.expect("an answer in time")?.into_inner();
    Ok(reply.values.expect("a sum").data[0])
}

/// Sum of two workers.
async fn exact_sum(workers: [&Channel; 2]) {
    let (one, other) = tokio::join!(sum(workers[0], 1.0), sum(workers[1], 2.0));
    assert_eq!((one.expect("a sum"), other.expect("a sum")), (3.0, 3.0));
}

#[tokio::test]
async fn workers_of_restarted_server_fail_once_before_their_next_sum() {
    let address = loopback::own();
    let first = server_at(address).await;
    let (one, other) = (channel_to(first.uri()).await, channel_to(first.uri()).await);
    exact_sum([&one, &other]).await;
    first.stop().await;
    let _second = server_at(address).await;
    for worker in [&one, &other] {
        // UNAVAILABLE: the worker has not yet seen that the connection is lost.
        let error = sum(worker, 7.0).await.expect_err("another worker may be at another step");
        assert!(matches!(error.code(), Code::Aborted | Code::Unavailable), "{error}");
    }
    exact_sum([&one, &other]).await;
}

#[tokio::test]
async fn worker_that_missed_a_step_fails_once_before_its_next_sum() {
    let server = server_at(loopback::own()).await;
    let link = CuttableLink::to(server.address).await;
    let (one, other, third) =
        (channel_to(&link.url).await, channel_to(server.uri()).await, channel_to(server.uri()).await);
    exact_sum([&one, &other]).await;
    link.break_connections();
    let replaced = async {
        // Refused until the server has seen that the first worker has left.
        loop {
            match sum(&third, 1.0).await {
                Err(full) if full.code() == Code::ResourceExhausted => tokio::task::yield_now().await,
                outcome => break outcome.expect("a sum"),
            }
        }
    };
    let (of_third, of_other) = tokio::join!(timeout(HANG, replaced), sum(&other, 2.0));
    assert_eq!((of_third.expect("a place in time"), of_other.expect("a sum")), (3.0, 3.0));
    third.close().await.expect("nothing is left");
    let error = sum(&one, 7.0).await.expect_err("the other worker is at a later step");
    assert!(matches!(error.code(), Code::Aborted | Code::Unavailable), "{error}");
    exact_sum([&one, &other]).await;
}

#[tokio::test]
async fn worker_that_missed_no_step_goes_on() {
    let server = server_at(loopback::own()).await;
    let link = CuttableLink::to(server.address).await;
    let (one, other) = (channel_to(&link.url).await, channel_to(server.uri()).await);
    exact_sum([&one, &other]).await;
    link.break_connections();
    until(|| members(&server.pathcall, "T-SHADOW") == 1).await;
    let again = async {
        loop {
            match sum(&one, 1.0).await {
                // The worker has not yet seen that the connection is lost. Its values have no effect.
                Err(lost) if lost.code() == Code::Unavailable => tokio::task::yield_now().await,
                outcome => break outcome.expect("a sum"),
            }
        }
    };
    let (of_one, of_other) = tokio::join!(timeout(HANG, again), sum(&other, 2.0));
    assert_eq!((of_one.expect("a sum in time"), of_other.expect("a sum")), (3.0, 3.0));
}
