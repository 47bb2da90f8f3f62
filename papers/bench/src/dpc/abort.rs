//! `delegate-abort`: calls of another caller while a large call is cancelled, and how long its servers take to stop.
//!
//! A call passes n requests on to one server, whose handlers wait for ever; then its caller cancels it. The other caller
//! makes one call after the other through the same two servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use pathcall_driver::node::{Node, NodeCall, NodeConfig, NodeReply, NodeRequest, NodeRequests};
use pathcall_endpoint::delegate::caller::{CallOptions, CallOutcome};
use tokio::sync::watch;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{percentiles, runtime};

pub(super) const FIGURE: Figure = Figure {
    name: "delegate-abort",
    about: "another caller's calls while a call of many requests is cancelled, and the time until its servers have stopped",
    kind: Kind::Measured,
    run,
};

const SIZES: [usize; 4] = [1_000, 10_000, 30_000, 100_000];
const SIZES_QUICK: [usize; 1] = [100];
/// Most requests of one call here; the usual limit is lower.
const REQUESTS_MAX: u32 = 1 << 18;
/// Pause between two rounds of pings of the large call, each of which has a ping for every request.
const PING_PERIOD: Duration = Duration::from_secs(2);
/// Longest 99th percentile of the other caller's calls, microseconds.
const P99_MAX: f64 = 20_000.0;
/// Calls of the other caller in one turn, at least.
const CALLS_MIN: usize = 300;
/// The time for each request of a larger call may be this multiple of the smallest call's.
const LINEAR: f64 = 1.5;

fn run(bench: &mut Bench) -> Result<()> {
    let runtime = runtime()?;
    let cancelled = |size| runtime.block_on(async { Hosts::start().await?.cancelled(size).await });
    let quiet = |size| runtime.block_on(async { Hosts::start().await?.quiet(size).await });
    let sizes: &[usize] = bench.size(&SIZES, &SIZES_QUICK);
    for &size in sizes {
        let case = format!("{size} requests");
        let p99 = |peer| Metric::new(format!("{case}, p99 of the other caller"), peer, "us", Better::Lower);
        bench.compare(
            [p99("nothing cancelled"), p99("20 ms").expect(1.0)],
            || cancelled(size).map(|turn| [turn.p99; 2]),
            || quiet(size).map(|p99| [p99, P99_MAX]),
        )?;
        let stop = Metric::new(
            format!("{case}, time to stop, each"),
            format!("{} requests, each", sizes[0]),
            "us",
            Better::Lower,
        );
        let stopped = |size| cancelled(size).map(|turn| [turn.stop_each]);
        bench.compare([stop.expect(LINEAR)], || stopped(size), || stopped(sizes[0]))?;
    }
    Ok(())
}

/// Two servers, the caller of the large call, and the other caller.
struct Hosts {
    large: Node,
    other: Node,
    front: SocketAddr,
    held: Arc<Held>,
}

/// Handlers that wait for ever.
#[derive(Debug, Default)]
struct Held {
    count: AtomicUsize,
    /// Notified when the count changes.
    changed: watch::Sender<()>,
}

impl Held {
    fn add(&self, add: isize) {
        self.count.fetch_add(add.cast_unsigned(), Ordering::AcqRel);
        self.changed.send_replace(());
    }

    async fn wait_for(&self, count: usize) -> Result<()> {
        self.changed.subscribe().wait_for(|()| self.count.load(Ordering::Acquire) == count).await?;
        Ok(())
    }
}

/// Result of a cancelled call.
struct CancelledTurn {
    /// 99th percentile of the other caller's calls, microseconds.
    p99: f64,
    /// Time from the cancellation until no handler runs, for each request, microseconds.
    stop_each: f64,
}

impl Hosts {
    async fn start() -> Result<Self> {
        let config = NodeConfig::default().requests_max(REQUESTS_MAX);
        let held = Arc::<Held>::default();
        let (back, at_back) = Node::start(&config).await?;
        tokio::spawn(serve(at_back, back.address(), Arc::clone(&held)));
        let (front, at_front) = Node::start(&config).await?;
        tokio::spawn(serve(at_front, back.address(), Arc::clone(&held)));
        let ((large, _), (other, _)) = (Node::start(&config).await?, Node::start(&config).await?);
        Ok(Self { large, other, front: front.address(), held })
    }

    /// Makes the large call, and waits until all its handlers run.
    async fn begin(&self, size: usize) -> Result<NodeCall> {
        let options = CallOptions::new().ping_period(PING_PERIOD).timeout(CallOptions::TIMEOUT_MAX);
        let fan = Bytes::copy_from_slice(&(size as u32).to_be_bytes());
        let call = self.large.call(options, [(self.front, fan)])?;
        self.held.wait_for(size).await?;
        Ok(call)
    }

    /// Calls of the other caller while the large call is in progress.
    async fn quiet(&self, size: usize) -> Result<f64> {
        let call = self.begin(size).await?;
        let mut latencies = Vec::new();
        while latencies.len() < CALLS_MIN {
            latencies.push(self.small_call().await?);
        }
        drop(call);
        self.held.wait_for(0).await?;
        percentiles(latencies).map(|[_, p99]| p99)
    }

    /// Calls of the other caller from the cancellation of the large call on.
    async fn cancelled(&self, size: usize) -> Result<CancelledTurn> {
        let call = self.begin(size).await?;
        let (began, held) = (Instant::now(), Arc::clone(&self.held));
        drop(call);
        let stops = tokio::spawn(async move {
            held.wait_for(0).await?;
            Ok::<_, anyhow::Error>(began.elapsed())
        });
        let mut latencies = Vec::new();
        while latencies.len() < CALLS_MIN || !stops.is_finished() {
            latencies.push(self.small_call().await?);
        }
        let stop_each = stops.await??.as_secs_f64() * 1e6 / size as f64;
        let [_, p99] = percentiles(latencies)?;
        Ok(CancelledTurn { p99, stop_each })
    }

    async fn small_call(&self) -> Result<Duration> {
        let began = Instant::now();
        let mut call = self.other.call(CallOptions::default(), [(self.front, Bytes::from_static(b"small"))])?;
        let mut replies = 0;
        loop {
            match call.receive().await {
                NodeReply::Item(_) => replies += 1,
                NodeReply::Ended(CallOutcome::Complete) => break,
                NodeReply::Ended(outcome) => bail!("a call ended: {outcome:?}"),
            }
        }
        ensure!(replies == 1, "{replies} replies, not one");
        Ok(began.elapsed())
    }
}

/// Serves requests: a number of requests to pass on, one to hold, or one to answer.
async fn serve(requests: NodeRequests, back: SocketAddr, held: Arc<Held>) -> Result<()> {
    loop {
        let request = requests.receive().await;
        match &request.payload()[..] {
            b"small" => request.delegate(back, Bytes::from_static(b"answer"))?,
            b"answer" => request.reply_now(Bytes::from_static(b"answer"))?,
            b"hold" => {
                tokio::spawn(hold(request, Arc::clone(&held)));
                continue;
            }
            count => {
                for _ in 0..u32::from_be_bytes(count.try_into()?) {
                    request.delegate(back, Bytes::from_static(b"hold"))?;
                }
            }
        }
        request.finish()?;
    }
}

/// Handler that waits until its call is cancelled.
async fn hold(request: NodeRequest, held: Arc<Held>) {
    held.add(1);
    request.aborted().await;
    held.add(-1);
}
