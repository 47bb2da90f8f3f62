//! Tests of sums for the server's handler (parameter server): in software, and through a real element.

use std::time::Duration;

use pathcall_control::{Handle, StoreLocation};
use pathcall_proto::types::FpArray;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{FOR_EVER, TestServer};
use pathcall_test_support::store::controller;
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL, StepReply, StepRequest};
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::shadow_sums::element;

const FREE: &str = "127.0.0.1:0";
/// Rows of the element.
const ROWS: u32 = 8;

/// Server with two workers.
struct Setup {
    server: TestServer,
    workers: [Channel; 2],
    /// Element and controller, if any.
    _element: Option<(pathcall_element::Handle, Handle)>,
}

impl Setup {
    async fn new(by_element: bool) -> Self {
        let mut builder = Layer::builder(&PATHCALL);
        let mut kept = None;
        if by_element {
            let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
            builder = builder.controller(controller.url()).memory(ROWS);
            kept = Some((element(&controller, [FREE.parse().unwrap(); 2]).await, controller));
        }
        let server = TestServer::start_with(builder.build().await.expect("a server"), 0).await;
        let worker = || async { Channel::connect(server.uri(), &PATHCALL).await.expect("a channel") };
        let workers = [worker().await, worker().await];
        Self { server, workers, _element: kept }
    }

    /// Makes a step of both workers with these values.
    async fn step(&self, values: &[f64], command: &str) -> [Result<StepReply, Status>; 2] {
        let [a, b] = self.workers.each_ref().map(|worker| step(worker, values, command, HANG));
        let (a, b) = timeout(2 * HANG, async { tokio::join!(a, b) }).await.expect("both are answered");
        [a, b]
    }

    /// Makes a step, and checks that both workers get half of the sum, from one call of the handler.
    async fn check(&self, values: &[f64]) {
        let before = self.server.seen.calls();
        for reply in self.step(values, "").await {
            let reply = reply.expect("a step");
            assert_eq!(reply.parameters, Some(FpArray { data: values.to_vec() }));
            assert_eq!(reply.step, before + 1);
        }
        assert_eq!(self.server.seen.calls(), before + 1);
    }

    fn rounds_element(&self) -> u64 {
        let stats = self.server.pathcall.stats();
        stats.iter().find(|stats| stats.name == "T-STEP").map_or(0, |stats| stats.map.rounds_element)
    }
}

async fn step(worker: &Channel, values: &[f64], command: &str, limit: Duration) -> Result<StepReply, Status> {
    let gradient = Some(FpArray { data: values.to_vec() });
    let mut request = Request::new(StepRequest { gradient, command: command.to_owned() });
    request.set_timeout(limit);
    RoundsClient::new(worker.clone()).step(request).await.map(tonic::Response::into_inner)
}

fn values(len: usize) -> Vec<f64> {
    (0..len).map(|i| ((i % 1_000) as f64 - 300.0) / 100.0).collect()
}

#[tokio::test]
async fn handler_gets_each_sum_once_and_its_array_reaches_all_workers() {
    for by_element in [false, true] {
        let setup = Setup::new(by_element).await;
        for len in [1, 256, 257, 1_500] {
            setup.check(&values(len)).await;
        }
        if by_element {
            let summed = async {
                while setup.rounds_element() == 0 {
                    setup.check(&values(1_500)).await;
                }
            };
            timeout(HANG, summed).await.expect("the element sums");
        }
    }
}

#[tokio::test]
async fn array_with_more_chunks_than_rows_is_answered_in_replies() {
    let setup = Setup::new(true).await;
    for len in [5_000, 300, 20_000] {
        setup.check(&values(len)).await;
    }
}

#[tokio::test]
async fn concurrent_steps_have_a_call_each() {
    let setup = Setup::new(false).await;
    setup.check(&values(10)).await;
    let all = (1..=20).map(|len| {
        let [a, b] = setup.workers.clone();
        // Both workers begin the steps in the same order.
        let both = async move {
            let values = values(300 * len);
            let (a, b) = tokio::join!(step(&a, &values, "", HANG), step(&b, &values, "", HANG));
            for reply in [a, b] {
                assert_eq!(reply.expect("a step").parameters, Some(FpArray { data: values.clone() }));
            }
        };
        tokio::spawn(both)
    });
    for task in all.collect::<Vec<_>>() {
        timeout(HANG, task).await.expect("in time").expect("right values");
    }
    assert_eq!(setup.server.seen.calls(), 21);
}

#[tokio::test]
async fn results_of_64_bits_reach_all_workers() {
    for by_element in [false, true] {
        let setup = Setup::new(by_element).await;
        for reply in setup.step(&values(600), "large").await {
            let expected = values(600).iter().map(|value| 2.0 * value * 1e9).collect::<Vec<_>>();
            let got = reply.expect("a step").parameters.expect("parameters").data;
            assert!(got.iter().zip(&expected).all(|(got, expected)| (got - expected).abs() < 0.01), "{got:?}");
        }
        setup.check(&values(600)).await;
    }
}

#[tokio::test]
async fn error_of_handler_reaches_all_workers_which_stay_in_step() {
    for by_element in [false, true] {
        let setup = Setup::new(by_element).await;
        for (len, command, code, text) in [
            (300, "fail", Code::ResourceExhausted, "as asked"),
            (300, "short", Code::Internal, "has 299 values, but the sum has 300"),
            (5_000, "fail", Code::ResourceExhausted, "as asked"),
        ] {
            for reply in setup.step(&values(len), command).await {
                let status = reply.expect_err("the handler fails");
                assert_eq!(status.code(), code, "{status}");
                assert!(status.message().contains(text), "{status}");
            }
            setup.check(&values(len)).await;
        }
        for worker in &setup.workers {
            let joins: u64 = worker.stats().applications.iter().map(|application| application.joins).sum();
            assert_eq!(joins, 1, "no worker had to join again");
        }
    }
}

#[tokio::test]
async fn cancelled_step_fails_for_all_and_is_repeated() {
    for by_element in [false, true] {
        let setup = Setup::new(by_element).await;
        setup.check(&values(600)).await;
        let [a, b] = &setup.workers;
        let values = values(600);
        let stuck = async {
            setup.server.seen.stuck.notified().await;
            // The sum is reached: one worker gives up.
        };
        let a_step = step(a, &values, FOR_EVER, HANG);
        let b_step = step(b, &values, FOR_EVER, HANG);
        let cancelled = async {
            tokio::select! {
                reply = a_step => panic!("{reply:?}, although the handler runs"),
                () = stuck => {}
            }
        };
        let ((), failed) = timeout(2 * HANG, async { tokio::join!(cancelled, b_step) }).await.expect("both end");
        assert_eq!(failed.expect_err("the step failed").code(), Code::Aborted);
        setup.check(&values).await;
        setup.check(&values).await;
    }
}
