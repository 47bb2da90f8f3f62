//! Tests of sums with clear policy *shadow*: through a real element, one that fails, and with replaced workers.

use std::net::SocketAddr;

use pathcall_control::{Handle, StoreLocation};
use pathcall_proto::types::FpArray;
use pathcall_proto::v1::StatusRequest;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::TestServer;
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL, Part};
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;

const FREE: &str = "127.0.0.1:0";
/// Rows of the element: fewer than an array has chunks.
const ROWS: u32 = 8;
const VALUES: usize = 5_000;

pub(crate) async fn element(controller: &Handle, [data, control]: [SocketAddr; 2]) -> pathcall_element::Handle {
    let config = pathcall_element::Config::default().data(data).control(control).controller(Some(controller.url()));
    let element = pathcall_element::run(config).await.expect("an element");
    // An application that starts without the element has another number of rows.
    let known = async {
        let mut client = ControllerClient::connect(controller.url()).await.expect("a controller");
        while client.status(StatusRequest {}).await.expect("its status").into_inner().elements.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, known).await.expect("the controller knows it");
    element
}

async fn server(controller: &Handle) -> TestServer {
    let builder = Layer::builder(&PATHCALL).controller(controller.url()).memory(ROWS);
    TestServer::start_with(builder.build().await.expect("a server"), 0).await
}

async fn worker(server: &TestServer) -> Channel {
    Channel::connect(server.uri(), &PATHCALL).await.expect("a channel")
}

/// Sums this many arrays of both workers one after the other, and checks each sum.
async fn rounds(workers: [&Channel; 2], count: usize, value: fn(usize) -> f64) {
    let sums = |channel: &Channel| {
        let mut stub = RoundsClient::new(channel.clone());
        async move {
            for round in 0..count {
                let data: Vec<f64> = (0..VALUES).map(|i| value(i + round)).collect();
                let twice = data.iter().map(|value| 2.0 * value).collect();
                let total = stub.add(Part { values: Some(FpArray { data }) }).await.expect("a sum").into_inner();
                assert_eq!(total.values, Some(FpArray { data: twice }), "round {round}");
            }
        }
    };
    let both = async { tokio::join!(sums(workers[0]), sums(workers[1])) };
    timeout(HANG, both).await.expect("all sums in time");
}

fn small(i: usize) -> f64 {
    (i % 1_000) as f64
}

/// Some lanes exceed 32 bits when two are added.
fn large(i: usize) -> f64 {
    if i.is_multiple_of(997) { f64::from(i32::MAX) } else { 1.0 }
}

#[tokio::test]
async fn element_answers_and_server_gets_overflows_only() {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let server = server(&controller).await;
    let (a, b) = (worker(&server).await, worker(&server).await);
    let map = || server.pathcall.stats()[0].map;
    let heard = || (map().rounds_element, map().rounds_software, map().lane_bytes_received);
    let by_element = async {
        loop {
            let before = heard();
            rounds([&a, &b], 10, small).await;
            // A stalled element counts as failed, and the server takes over for a while.
            if heard() == before {
                break;
            }
        }
    };
    timeout(HANG, by_element).await.unwrap_or_else(|_| panic!("{:?}", map()));
    let before = map();
    rounds([&a, &b], 3, large).await;
    assert!(map().rounds_software > before.rounds_software && map().rounds_element == 0, "{:?}", map());
}

#[tokio::test]
async fn replaced_worker_continues_sums() {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let server = server(&controller).await;
    let a = worker(&server).await;
    for _ in 0..3 {
        let b = worker(&server).await;
        rounds([&a, &b], 5, small).await;
    }
    // Both workers are replaced at once.
    drop(a);
    let (a, b) = (worker(&server).await, worker(&server).await);
    rounds([&a, &b], 5, small).await;
    until_by_element(&server, [&a, &b]).await;
}

/// Worker that joins again after five arrays.
async fn short_lived_channel(server: &TestServer) -> Channel {
    let builder = Channel::builder(server.uri(), &PATHCALL).expect("an address");
    builder.flows(1).flow_frames(100).connect().await.expect("a channel")
}

#[tokio::test]
async fn exhausted_workers_continue_sums() {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let server = server(&controller).await;
    let (a, b) = (short_lived_channel(&server).await, short_lived_channel(&server).await);
    rounds([&a, &b], 8, small).await;
    let again = |channel: &Channel| channel.stats().applications.iter().any(|application| application.joins > 1);
    assert!(again(&a) && again(&b));
}

#[tokio::test]
async fn sums_survive_element_restarts() {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let addresses = [loopback::own(), loopback::own()];
    let first = element(&controller, addresses).await;
    let server = server(&controller).await;
    let (a, b) = (worker(&server).await, worker(&server).await);
    rounds([&a, &b], 5, small).await;
    first.shutdown().await;
    rounds([&a, &b], 5, small).await;
    let _second = element(&controller, addresses).await;
    let before = server.pathcall.stats()[0].map;
    assert!(before.rounds_software > 0, "{before:?}");
    until_by_element(&server, [&a, &b]).await;
}

/// Repeats rounds until the element alone does one.
async fn until_by_element(server: &TestServer, workers: [&Channel; 2]) {
    let by_element = async {
        loop {
            let before = server.pathcall.stats()[0].map.rounds_software;
            rounds(workers, 2, small).await;
            if server.pathcall.stats()[0].map.rounds_software == before {
                return;
            }
        }
    };
    timeout(HANG, by_element).await.expect("the element is in use again");
}
