//! Sums that a caller gives up: nobody gets a sum of two steps, and all may begin anew.

use std::time::Duration;

use pathcall_control::Place;
use pathcall_proto::types::FpArray;
use pathcall_rpc::{Channel, Server};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{Running, gradient};
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL as ROUNDS, Part};
use pathcall_test_support::stubs::training_client::TrainingClient;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::shadow::element;

/// A request that is to be answered within this time.
fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// A worker of one of the two applications: with clear policy *copy*, and with *shadow*.
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

    /// A sum of one value, within this time.
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

async fn servers(shadow: bool, by_element: bool) -> (Vec<Box<dyn std::any::Any>>, Running) {
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    let mut builder = Server::builder(if shadow { &ROUNDS } else { &PATHCALL });
    if by_element {
        let controller = controller("127.0.0.1:0".parse().unwrap(), Place::Memory).await;
        builder = builder.controller(controller.url());
        kept.push(Box::new(element(&controller, ["127.0.0.1:0".parse().unwrap(); 2]).await));
        kept.push(Box::new(controller));
    }
    (kept, Running::start_with(builder.build().await.unwrap(), 0).await)
}

#[tokio::test]
async fn a_sum_that_was_given_up_is_never_another_steps() {
    for (shadow, by_element) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_kept, server) = servers(shadow, by_element).await;
        let manifest = if shadow { &ROUNDS } else { &PATHCALL };
        let channels = [
            Channel::connect(server.uri(), manifest).await.unwrap(),
            Channel::connect(server.uri(), manifest).await.unwrap(),
        ];
        let [a, b] = channels.each_ref().map(|channel| Worker::new(channel, shadow));
        let case = format!("shadow: {shadow}, by the element: {by_element}");
        // Both are in step.
        let both = async { tokio::join!(a.sum(7.0, HANG), b.sum(8.0, HANG)) };
        let (of_a, of_b) = timeout(2 * HANG, both).await.expect("both are there");
        assert_eq!((of_a.unwrap(), of_b.unwrap()), (15.0, 15.0), "{case}");

        let late = a.sum(100.0, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{case}: {late}");
        let again = tokio::spawn({
            let a = a.clone();
            async move { a.sum(100.0, HANG).await }
        });
        // The other one may be in time for the sum that was given up. It learns before another step that it has to begin
        // anew, too, and why; then both have this step's.
        let refused = match b.sum(1.0, HANG).await {
            Ok(sum) => {
                assert_eq!(sum, 101.0, "{case}");
                b.sum(2.0, HANG).await.unwrap_err()
            }
            Err(refused) => refused,
        };
        assert_eq!(refused.code(), Code::Aborted, "{case}: {refused}");
        assert!(refused.message().contains("gave up a sum"), "{case}: {refused}");
        assert_eq!(b.sum(1.0, HANG).await.unwrap(), 101.0, "{case}");
        assert_eq!(again.await.unwrap().unwrap(), 101.0, "{case}");
        for channel in channels {
            timeout(HANG, channel.close()).await.expect("it ends").expect("nothing is left");
        }
    }
}

#[tokio::test]
async fn a_caller_that_gave_a_sum_up_closes_at_once() {
    let (_kept, server) = servers(false, false).await;
    let channel = Channel::connect(server.uri(), &PATHCALL).await.unwrap();
    let late = Worker::new(&channel, false).sum(100.0, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    // It waits for nobody: what it would wait for takes longer than this test may.
    timeout(HANG, channel.close()).await.expect("it ends").expect("nothing is left");
}
