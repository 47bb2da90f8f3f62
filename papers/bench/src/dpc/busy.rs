//! `delegate-busy`: one hop between two nodes that poll their sockets, compared with two that wait for the system, and
//! with the bar. Each node has a thread of its own.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use pathcall_driver::node::{Node, NodeConfig, NodeReply, NodeRequests};
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::percentiles;

pub(super) const FIGURE: Figure =
    Figure { name: "delegate-busy", about: "one hop between nodes that poll their sockets", kind: Kind::Measured, run };

const CALLS: usize = 20_000;
const CALLS_QUICK: usize = 200;
/// Time for which a node polls after a message.
const BUSY_POLL: Duration = Duration::from_millis(2);
/// Longest median, microseconds.
const BAR: f64 = 15.0;

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let metric = |quantile, peer| Metric::new(format!("one hop, {quantile}"), peer, "us", Better::Lower);
    bench.compare(
        [metric("p50", "waiting"), metric("p99", "waiting"), metric("p50", "15 us").expect(1.0)],
        || latencies(BUSY_POLL, calls).map(|[p50, p99]| [p50, p99, p50]),
        || latencies(Duration::ZERO, calls).map(|[p50, p99]| [p50, p99, BAR]),
    )
}

/// Median and 99th percentile of sequential calls, microseconds.
fn latencies(busy_poll: Duration, calls: usize) -> Result<[f64; 2]> {
    let config = NodeConfig::default().busy_poll(busy_poll);
    let (started, address) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let of_server = config.clone();
    let server = thread::spawn(move || {
        runtime()?.block_on(async {
            let (node, requests) = Node::start(&of_server).await?;
            started.send(node.address())?;
            tokio::select! {
                ended = answer(requests) => ended,
                // Ends when the client has ended, too.
                _ = stopped => Ok(()),
            }
        })
    });
    let at = address.recv().context("the server has not started")?;
    let measured = runtime()?.block_on(async {
        let (node, _requests) = Node::start(&config).await?;
        let mut latencies = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            let mut call = node.call(CallOptions::default(), [(at, Bytes::from_static(&[7; 100]))])?;
            loop {
                match call.receive().await {
                    NodeReply::Item(_) => {}
                    NodeReply::Ended(CallOutcome::Complete) => break,
                    NodeReply::Ended(outcome) => bail!("a call ended: {outcome:?}"),
                }
            }
            latencies.push(began.elapsed());
        }
        percentiles(latencies)
    });
    drop(stop);
    server.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
    measured
}

/// Answers requests until an error.
async fn answer(requests: NodeRequests) -> Result<()> {
    loop {
        let request = requests.receive().await;
        request.reply_now(request.payload().clone())?;
        request.finish()?;
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
