//! gRPC's own hedging as a peer: plain gRPC servers, and the client of `kv` that follows gRPC's hedging policy (gRFC A6).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apps_load::{LoadPlan, open_loop};
use kv::cluster::WorkerConfig;
use kv::plain::PlainClient;
use kv::{Client, Cluster, ReadMix, Store};
use tokio::runtime::Runtime;

use super::stores::of_gets;

/// Name in figures.
pub(super) const HEDGING: &str = "gRPC's hedging policy, plain gRPC";
/// The policy's `hedgingDelay`, as for the scheme `hedging`.
const HEDGING_DELAY: Duration = Duration::from_millis(10);

/// Client of plain servers with a hedging policy.
pub(super) struct HedgedClient {
    plain: PlainClient,
    _cluster: Cluster,
}

impl HedgedClient {
    /// Starts a plain server on each store, and the client.
    pub(super) fn start(runtime: &Runtime, stores: &[Store], work: &WorkerConfig) -> Result<Self> {
        runtime.block_on(async {
            let cluster = Cluster::plain(stores, work).await?;
            Ok(Self { plain: PlainClient::connect(cluster.urls()).await?, _cluster: cluster })
        })
    }

    /// 99th percentile and median of GETs in milliseconds, and hedges for each call.
    pub(super) fn run(&self, runtime: &Runtime, mix: &ReadMix, plan: LoadPlan) -> Result<[f64; 3]> {
        let client = Client::Plain(self.plain.hedging(HEDGING_DELAY));
        let run = runtime.block_on(open_loop(plan, |nth| {
            let (client, read) = (client.clone(), mix.read(nth));
            async move { client.read(nth, read).await.map(|_| read.kind) }
        }));
        if let Some(why) = &run.why {
            ensure!(run.failed == 0, "{} calls failed: {why}", run.failed);
        }
        let sent = client.sent().context("a hedging client counts its requests")?;
        Ok([of_gets(&run, 0.99), of_gets(&run, 0.5), sent.extra as f64 / sent.calls.max(1) as f64])
    }
}
