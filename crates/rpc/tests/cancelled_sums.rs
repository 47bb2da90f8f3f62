//! Tests of cancelled sums: no caller gets a sum of two steps, and all can start again.

use std::time::Duration;

use pathcall_control::StoreLocation;
use pathcall_proto::types::FpArray;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestServer, gradient};
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL as ROUNDS, Part};
use pathcall_test_support::stubs::training_client::TrainingClient;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::shadow_sums::element;

/// Request with this timeout.
fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// Worker of one of the two applications: with clear policy *copy*, and with *shadow*.
#[derive(Clone)]
enum Worker {
    Copy(TrainingClient<Channel>),
    Shadow(RoundsClient<Channel>),
}

impl Worker {
    fn new(channel: &Channel, shadow: bool) -> Self {
        match shadow {
            true => Self::Shadow(RoundsClient::new(channel.clone())),
            false => Self::Copy(TrainingClient::new(channel.clone())),
        }
    }

    /// Sum of one value, with a time limit.
    async fn sum(&self, value: f64, limit: Duration) -> Result<f64, Status> {
        let sums = match self.clone() {
            Self::Copy(mut stub) => {
                let sums = stub.update(within(limit, gradient(&[value]))).await;
                sums.map(|sums| sums.into_inner().tensor.expect("a sum").data)
            }
            Self::Shadow(mut stub) => {
                let part = Part { values: Some(FpArray { data: vec![value] }) };
                let sums = stub.add(within(limit, part)).await;
                sums.map(|sums| sums.into_inner().values.expect("a sum").data)
            }
        };
        sums.map(|sums| sums[0])
    }
}

async fn servers(shadow: bool, by_element: bool) -> (Vec<Box<dyn std::any::Any>>, TestServer) {
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    let mut builder = Layer::builder(if shadow { &ROUNDS } else { &PATHCALL });
    if by_element {
        let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
        builder = builder.controller(controller.url());
        kept.push(Box::new(element(&controller, ["127.0.0.1:0".parse().unwrap(); 2]).await));
        kept.push(Box::new(controller));
    }
    (kept, TestServer::start_with(builder.build().await.unwrap(), 0).await)
}

#[tokio::test]
async fn cancelled_sum_never_mixes_steps() {
    for (shadow, by_element) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_kept, server) = servers(shadow, by_element).await;
        let manifest = if shadow { &ROUNDS } else { &PATHCALL };
        let channels = [
            Channel::connect(server.uri(), manifest).await.unwrap(),
            Channel::connect(server.uri(), manifest).await.unwrap(),
        ];
        let [a, b] = channels.each_ref().map(|channel| Worker::new(channel, shadow));
        let case = format!("shadow: {shadow}, by the element: {by_element}");
        // Both callers are at the same step.
        let both = async { tokio::join!(a.sum(7.0, HANG), b.sum(8.0, HANG)) };
        let (of_a, of_b) = timeout(2 * HANG, both).await.expect("both are there");
        assert_eq!((of_a.unwrap(), of_b.unwrap()), (15.0, 15.0), "{case}");

        let late = a.sum(100.0, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{case}: {late}");
        let again = tokio::spawn({
            let a = a.clone();
            async move { a.sum(100.0, HANG).await }
        });
        // Caller b may contribute to the abandoned sum. Then it gets an error that tells it to restart. Afterwards both
        // callers get the sum of this step.
        let refused = match b.sum(1.0, HANG).await {
            Ok(sum) => {
                assert_eq!(sum, 101.0, "{case}");
                b.sum(2.0, HANG).await.unwrap_err()
            }
            Err(refused) => refused,
        };
        assert_eq!(refused.code(), Code::Aborted, "{case}: {refused}");
        assert!(refused.message().contains("abandoned a sum"), "{case}: {refused}");
        assert_eq!(b.sum(1.0, HANG).await.unwrap(), 101.0, "{case}");
        assert_eq!(again.await.unwrap().unwrap(), 101.0, "{case}");
        for channel in channels {
            timeout(HANG, channel.close()).await.expect("it ends").expect("nothing is left");
        }
    }
}

#[tokio::test]
async fn caller_of_cancelled_sum_closes_at_once() {
    let (_kept, server) = servers(false, false).await;
    let channel = Channel::connect(server.uri(), &PATHCALL).await.unwrap();
    let late = Worker::new(&channel, false).sum(100.0, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    // Closing does not wait for other callers, which would take longer than the time limit.
    timeout(HANG, channel.close()).await.expect("it ends").expect("nothing is left");
}
