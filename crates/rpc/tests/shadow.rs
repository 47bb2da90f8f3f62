//! Sums of clear policy *shadow*: through a real element, one that fails, and of workers that are replaced.

use std::net::SocketAddr;

use pathcall_control::{Handle, Place};
use pathcall_proto::types::FpArray;
use pathcall_proto::v1::StatusRequest;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_rpc::{Channel, Server};
use pathcall_test_support::service::Running;
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL, Part};
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;

const FREE: &str = "127.0.0.1:0";
/// Of the element: fewer than an array has chunks.
const ROWS: u32 = 8;
const VALUES: usize = 5_000;

pub(crate) async fn element(controller: &Handle, [data, control]: [SocketAddr; 2]) -> pathcall_element::Handle {
    let config = pathcall_element::Config::default().data(data).control(control).controller(Some(controller.url()));
    let element = pathcall_element::run(config).await.expect("an element");
    // An application that begins without it counts its rows otherwise.
    let known = async {
        let mut client = ControllerClient::connect(controller.url()).await.expect("a controller");
        while client.status(StatusRequest {}).await.expect("its status").into_inner().elements.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, known).await.expect("the controller knows it");
    element
}

async fn server(controller: &Handle) -> Running {
    let builder = Server::builder(&PATHCALL).controller(controller.url()).memory(ROWS);
    Running::start_with(builder.build().await.expect("a server"), 0).await
}

async fn worker(server: &Running) -> Channel {
    Channel::connect(server.uri(), &PATHCALL).await.expect("a channel")
}

/// Both workers' sums of so many arrays, one after the other; each is as it should be.
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

/// Beyond 32 bits, when two are added, here and there.
fn great(i: usize) -> f64 {
    if i.is_multiple_of(997) { f64::from(i32::MAX) } else { 1.0 }
}

#[tokio::test]
async fn the_element_answers_and_the_server_hears_nothing_but_what_overflows() {
    let controller = controller(FREE.parse().unwrap(), Place::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let server = server(&controller).await;
    let (a, b) = (worker(&server).await, worker(&server).await);
    let map = || server.pathcall.stats()[0].map;
    let heard = || (map().rounds_element, map().rounds_software, map().lane_bytes_received);
    let by_element = async {
        loop {
            let before = heard();
            rounds([&a, &b], 10, small).await;
            // An element that stands still is taken for silent: the server does its work for a while.
            if heard() == before {
                break;
            }
        }
    };
    timeout(HANG, by_element).await.unwrap_or_else(|_| panic!("{:?}", map()));
    let before = map();
    rounds([&a, &b], 3, great).await;
    assert!(map().rounds_software > before.rounds_software && map().rounds_element == 0, "{:?}", map());
}

#[tokio::test]
async fn a_worker_is_replaced_and_the_others_go_on() {
    let controller = controller(FREE.parse().unwrap(), Place::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let server = server(&controller).await;
    let a = worker(&server).await;
    for _ in 0..3 {
        let b = worker(&server).await;
        rounds([&a, &b], 5, small).await;
    }
    // Both at once.
    drop(a);
    let (a, b) = (worker(&server).await, worker(&server).await);
    rounds([&a, &b], 5, small).await;
    until_by_element(&server, [&a, &b]).await;
}

/// A worker that joins anew after five arrays.
async fn short(server: &Running) -> Channel {
    let builder = Channel::builder(server.uri(), &PATHCALL).expect("an address");
    builder.flows(1).flow_frames(100).connect().await.expect("a channel")
}

#[tokio::test]
async fn workers_whose_numbers_run_out_go_on_where_they_were() {
    let controller = controller(FREE.parse().unwrap(), Place::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let server = server(&controller).await;
    let (a, b) = (short(&server).await, short(&server).await);
    rounds([&a, &b], 8, small).await;
    let again = |channel: &Channel| channel.stats().applications.iter().all(|application| application.joins > 1);
    assert!(again(&a) && again(&b));
}

#[tokio::test]
async fn sums_survive_the_element() {
    let controller = controller(FREE.parse().unwrap(), Place::Memory).await;
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

/// Until there is a round that the server does not hear of.
async fn until_by_element(server: &Running, workers: [&Channel; 2]) {
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
