//! `delegate-replicas`: calls to a service of three replicas, of which one is killed while calls are in progress,
//! compared with tonic's load balancing over the same three servers, alone and with a loop that repeats failed calls.
//!
//! Each replica has a runtime of its own, and a handler that takes a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pathcall::delegate::{Client, DelegatedCall, Directory, Handlers, Node, NodeConfig, NodeTarget, RpcMethod};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use super::variants::stubs::{Item, Items, Plain, PlainClient, PlainServer, Step};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{FREE, percentiles, runtime, serve_plain_at};

pub(super) const FIGURE: Figure = Figure {
    name: "delegate-replicas",
    about: "calls to a service of three replicas, of which one is killed",
    kind: Kind::Measured,
    run,
};

const REPLICAS: usize = 3;
const CALLS: usize = 20_000;
const CALLS_QUICK: usize = 600;
const AT_ONCE: usize = 64;
/// Time that a handler takes.
const WORK: Duration = Duration::from_millis(1);
/// Attempts of a call, as in ours.
const ATTEMPTS: usize = 3;

/// Idempotent unary method.
enum Ask {}

impl RpcMethod for Ask {
    type Request = Step;
    type Response = Item;
    const PATH: &'static str = "/shapes.Plain/Ask";
    const IDEMPOTENT: bool = true;
}

fn run(bench: &mut Bench) -> Result<()> {
    let (runtime, calls) = (runtime()?, bench.size(CALLS, CALLS_QUICK));
    for (peer, attempts) in [("tonic, balanced", 1), ("tonic, balanced and repeated", ATTEMPTS)] {
        let metric = |what: String, unit, better| Metric::new(what, peer, unit, better);
        let metrics = [
            metric(format!("complete of {calls}"), "calls", Better::Higher).expect(1.0),
            metric("p50".to_owned(), "us", Better::Lower),
            metric("p99".to_owned(), "us", Better::Lower),
        ];
        let ours = || runtime.block_on(async { outcome(Ours::start().await?, calls).await });
        let theirs = || runtime.block_on(async { outcome(Balanced::start(attempts).await?, calls).await });
        bench.compare(metrics, ours, theirs)?;
    }
    Ok(())
}

/// Client of a service whose last replica can be killed.
trait Service: Send + Sync + 'static {
    fn call(&self) -> impl Future<Output = Result<(), Status>> + Send;
    /// Runtime of the replica to kill.
    fn victim(&mut self) -> Option<Runtime>;
}

/// Makes the calls, and kills a replica after a third of them: complete calls, and quantiles in microseconds.
async fn outcome(mut service: impl Service, calls: usize) -> Result<[f64; 3]> {
    let (victim, begun, third) = (service.victim(), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let service = Arc::new(service);
    let mut callers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (service, begun, third) = (Arc::clone(&service), Arc::clone(&begun), Arc::clone(&third));
        callers.spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return latencies;
                }
                if number == calls / 3 {
                    third.notify_one();
                }
                let began = Instant::now();
                if service.call().await.is_ok() {
                    latencies.push(began.elapsed());
                }
            }
        });
    }
    third.notified().await;
    victim.context("a replica")?.shutdown_background();
    let latencies: Vec<Duration> = callers.join_all().await.into_iter().flatten().collect();
    let complete = latencies.len() as f64;
    let [p50, p99] = percentiles(latencies)?;
    Ok([complete, p50, p99])
}

fn runtimes() -> Result<Vec<Runtime>> {
    let one = |_| Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?);
    (0..REPLICAS).map(one).collect()
}

/// Service of delegated calls.
struct Ours {
    client: Client,
    replicas: Vec<Runtime>,
}

impl Ours {
    async fn start() -> Result<Self> {
        let (replicas, mut addresses) = (runtimes()?, Vec::new());
        for (number, runtime) in replicas.iter().enumerate() {
            let serving = runtime.spawn(async {
                let answer = async |step: Step, call: DelegatedCall<Item>| {
                    tokio::time::sleep(WORK).await;
                    call.reply(Item { place: step.place }).await
                };
                let running = Handlers::new().handle::<Ask, _, _>(answer).start().await?;
                let address = running.address();
                // It serves as long as its runtime.
                tokio::spawn(async move {
                    let _running = running;
                    std::future::pending::<()>().await;
                });
                Ok::<_, anyhow::Error>(address)
            });
            addresses.push((format!("service/{number}"), serving.await??));
        }
        let (node, _) = Node::start(&NodeConfig::default()).await?;
        Ok(Self { client: Client::new(node, Directory::of(addresses)), replicas })
    }
}

impl Service for Ours {
    async fn call(&self) -> Result<(), Status> {
        let call = self.client.call::<Item>().request::<Ask>(NodeTarget::service("service"), &Step::default())?;
        call.reply().await.map(drop)
    }

    fn victim(&mut self) -> Option<Runtime> {
        self.replicas.pop()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // A runtime can't be dropped in another one.
        self.replicas.drain(..).for_each(Runtime::shutdown_background);
    }
}

/// Service behind tonic's load balancing.
struct Balanced {
    stub: PlainClient<Channel>,
    attempts: usize,
    replicas: Vec<Runtime>,
}

/// Service that returns its requests.
#[derive(Clone)]
pub(super) struct Answer {
    /// Time that a call takes.
    pub(super) work: Option<Duration>,
}

#[tonic::async_trait]
impl Plain for Answer {
    async fn ask(&self, request: Request<Step>) -> Result<Response<Item>, Status> {
        if let Some(work) = self.work {
            tokio::time::sleep(work).await;
        }
        Ok(Response::new(Item { place: request.into_inner().place }))
    }

    async fn nest(&self, _: Request<Step>) -> Result<Response<Items>, Status> {
        Err(Status::unimplemented("nest"))
    }
}

impl Balanced {
    async fn start(attempts: usize) -> Result<Self> {
        let (replicas, mut endpoints) = (runtimes()?, Vec::new());
        for runtime in &replicas {
            let url = runtime.spawn(serve_plain_at(FREE, PlainServer::new(Answer { work: Some(WORK) }))).await??;
            endpoints.push(Endpoint::from_shared(url)?);
        }
        let stub = PlainClient::new(Channel::balance_list(endpoints.into_iter()));
        Ok(Self { stub, attempts, replicas })
    }
}

impl Service for Balanced {
    async fn call(&self) -> Result<(), Status> {
        for _ in 1..self.attempts {
            match self.stub.clone().ask(Step::default()).await {
                Err(status) if status.code() == Code::Unavailable => {}
                done => return done.map(drop),
            }
        }
        self.stub.clone().ask(Step::default()).await.map(drop)
    }

    fn victim(&mut self) -> Option<Runtime> {
        self.replicas.pop()
    }
}

impl Drop for Balanced {
    fn drop(&mut self) {
        self.replicas.drain(..).for_each(Runtime::shutdown_background);
    }
}
