//! Tests of sums of gradients in small values, through a real element.

use pathcall_control::StoreLocation;
use pathcall_proto::types::FpArray;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::TestServer;
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL, Part};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::shadow_sums::element;

const FREE: &str = "127.0.0.1:0";
const VALUES: usize = 3_000;

async fn worker(server: &TestServer) -> Channel {
    Channel::connect(server.uri(), &PATHCALL).await.expect("a channel")
}

async fn sum(channel: &Channel, data: Vec<f64>) -> Result<Vec<f64>, Status> {
    let mut stub = RoundsClient::new(channel.clone());
    let reply =
        timeout(HANG, stub.add_small(Part { values: Some(FpArray { data }) })).await.expect("an answer in time")?;
    Ok(reply.into_inner().values.unwrap_or_default().data)
}

/// Values that are whole numbers of units: 63 of them are the largest value of one of two workers.
fn whole(turn: usize) -> Vec<f64> {
    (0..VALUES).map(|i| ((i * 7 + turn * 13) % 127) as f64 - 63.0).collect()
}

/// Makes sums of both workers, and compares them with the exact ones.
async fn exact_sums(workers: [&Channel; 2], count: usize) {
    for turn in 0..count {
        let (one, other) = (whole(turn), whole(turn + 1));
        let expected: Vec<f64> = one.iter().zip(&other).map(|(one, other)| one + other).collect();
        let (one, other) = tokio::join!(sum(workers[0], one), sum(workers[1], other));
        assert_eq!(one.expect("a sum"), expected, "turn {turn}");
        assert_eq!(other.expect("a sum"), expected, "turn {turn}");
    }
}

#[tokio::test]
async fn small_values_are_summed_exactly_also_with_replaced_worker() {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let layer = Layer::builder(&PATHCALL).controller(controller.url()).memory(8).build().await.expect("a server");
    let server = TestServer::start_with(layer, 0).await;
    let a = worker(&server).await;
    for _ in 0..2 {
        // The new worker has no scales, and all count.
        let b = worker(&server).await;
        exact_sums([&a, &b], 4).await;
    }
}

#[tokio::test]
async fn rounded_values_travel_with_later_sums() {
    let layer = Layer::builder(&PATHCALL).build().await.expect("a server");
    let server = TestServer::start_with(layer, 0).await;
    let (a, b) = (worker(&server).await, worker(&server).await);
    let gradient = || {
        let mut gradient = vec![0.01; VALUES];
        gradient[0] = 1.0;
        gradient
    };
    let mut total = vec![0.0; VALUES];
    for _ in 0..20 {
        let (one, other) = tokio::join!(sum(&a, gradient()), sum(&b, gradient()));
        let one = one.expect("a sum");
        assert_eq!(one, other.expect("a sum"));
        total.iter_mut().zip(one).for_each(|(total, sum)| *total += sum);
    }
    // Each worker keeps half a unit at most; the unit of the largest value is 1/32.
    let wrong = total[1..].iter().find(|total| (**total - 0.4).abs() > 2.0 / 64.0 + 1e-6);
    assert_eq!(wrong, None);
}

#[tokio::test]
async fn gradient_that_is_not_finite_is_refused() {
    let layer = Layer::builder(&PATHCALL).build().await.expect("a server");
    let server = TestServer::start_with(layer, 0).await;
    let (a, b) = (worker(&server).await, worker(&server).await);
    let refused = sum(&a, vec![1.0, f64::NAN]).await.expect_err("no gradient");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("index 1 holds NaN: gradients must be finite"), "{refused}");
    exact_sums([&a, &b], 1).await;
}
