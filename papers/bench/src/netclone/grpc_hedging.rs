//! gRPC's own hedging as a peer: plain gRPC servers, and a client that follows gRPC's hedging policy (gRFC A6), because
//! tonic has none. A call goes to a random server, and after the policy's delay to another one as well. The first good
//! answer counts, and the other attempt is cancelled.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{LoadPlan, Random, open_loop};
use kv::cluster::WorkerConfig;
use kv::pb::Object;
use kv::{Client, Cluster, ReadMix, Store};
use tokio::runtime::Runtime;
use tonic::Status;

use super::stores::of_gets;

/// Name in figures.
pub(super) const HEDGING: &str = "gRPC's hedging policy, plain gRPC";
/// The policy: `maxAttempts` is 2, and this is `hedgingDelay`, as for the scheme `hedging`.
const HEDGING_DELAY: Duration = Duration::from_millis(10);

/// Client of plain servers with a hedging policy.
pub(super) struct HedgedClient {
    client: Client,
    servers: u64,
    _cluster: Cluster,
}

impl HedgedClient {
    /// Starts a plain server on each store, and the client.
    pub(super) fn start(runtime: &Runtime, stores: &[Store], work: &WorkerConfig) -> Result<Self> {
        runtime.block_on(async {
            let cluster = Cluster::plain(stores, work).await?;
            Ok(Self { client: cluster.client(None).await?, servers: stores.len() as u64, _cluster: cluster })
        })
    }

    /// 99th percentile and median of GETs in milliseconds, and hedges for each call.
    pub(super) fn run(&self, runtime: &Runtime, mix: &ReadMix, plan: LoadPlan) -> Result<[f64; 3]> {
        let (calls, hedges) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let run = runtime.block_on(open_loop(plan, |nth| {
            let (client, read, hedges) = (self.client.clone(), mix.read(nth), Arc::clone(&hedges));
            let other = self.other_server(nth);
            calls.fetch_add(1, Ordering::Relaxed);
            async move {
                let first = async { client.read(nth, read).await };
                let second = async {
                    tokio::time::sleep(HEDGING_DELAY).await;
                    hedges.fetch_add(1, Ordering::Relaxed);
                    client.read(other, read).await
                };
                first_good(first, second).await.map(|_| read.kind)
            }
        }));
        if let Some(why) = &run.why {
            ensure!(run.failed == 0, "{} calls failed: {why}", run.failed);
        }
        let [calls, hedges] = [calls, hedges].map(|count| count.load(Ordering::Relaxed) as f64);
        Ok([of_gets(&run, 0.99), of_gets(&run, 0.5), hedges / calls.max(1.0)])
    }

    /// Number by which the client chooses another server than by `nth`.
    fn other_server(&self, nth: u64) -> u64 {
        let server = |nth| Random::new(nth).below(self.servers);
        (1..).map(|k| nth ^ (k << 48)).find(|other| server(*other) != server(nth)).unwrap_or(nth)
    }
}

/// First good answer of two attempts, or the later error.
async fn first_good(
    first: impl Future<Output = Result<Vec<Object>, Status>>,
    second: impl Future<Output = Result<Vec<Object>, Status>>,
) -> Result<Vec<Object>, Status> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    tokio::select! {
        answer = &mut first => match answer {
            Ok(answer) => Ok(answer),
            Err(_) => second.await,
        },
        answer = &mut second => match answer {
            Ok(answer) => Ok(answer),
            Err(_) => first.await,
        },
    }
}
