//! `delegate-cores`: calls of a node whose shards have a processor each, compared with the same on one processor.
//!
//! ```text
//! processor 0:  callers ─▶ caller's shard 0 ─▶ server's shard 0 ─▶ …       each with a runtime of one thread
//! processor 1:  callers ─▶ caller's shard 1 ─▶ server's shard 1 ─▶ …
//! ```
//!
//! Callers and servers share the processors, so two of them can do twice as much at best.

use anyhow::{Context, Result};
use pathcall_driver::node::NodeConfig;
use pathcall_models::delegate::shapes::hops;
use tokio::runtime::{Builder, Handle, Runtime};

use super::plan::{Pattern, Servers, WorkPlan};
use super::variants::calls;
use super::variants::nodes::{self, Nodes};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::testbed::{ANSWER_CPU, CALLER_CPU, Party};

pub(super) const FIGURE: Figure =
    Figure { name: "delegate-cores", about: "calls of a node that uses two processors", kind: Kind::Measured, run };

/// Servers on the way of a call.
const HOPS: [usize; 2] = [1, 2];
/// Calls in progress at a time.
const AT_ONCE: usize = 64;
const CALLS: usize = 100_000;
const CALLS_QUICK: usize = 640;
/// Least ratio of the calls on two processors to those on one.
const RATIO: f64 = 1.7;

fn run(bench: &mut Bench) -> Result<()> {
    let count = bench.size(CALLS, CALLS_QUICK);
    let name = |n: usize| if n == 1 { "1 hop".to_owned() } else { format!("{n} hops") };
    let plan = WorkPlan::new(HOPS.map(|n| Pattern::new(name(n), hops(n))).into())?;
    let threads = [Party::local(CALLER_CPU)?, Party::local(ANSWER_CPU)?];
    let both = ShardedNodes::start(&threads, 2, &plan)?;
    let one = ShardedNodes::start(&threads[..1], 1, &plan)?;
    let unsharded = ShardedNodes::start(&threads, 1, &plan)?;
    let pool = WorkerPool::start(&plan)?;
    for (pattern, hops) in HOPS.into_iter().enumerate() {
        let row = |peer| Metric::new(format!("{}, {AT_ONCE} at once", name(hops)), peer, "calls/s", Better::Higher);
        let ours = || both.rate(&threads, pattern, count);
        bench.compare([row("1 processor, 1 shard").expect(RATIO)], ours, || one.rate(&threads[..1], pattern, count))?;
        bench.compare([row("2 processors, 1 shard")], ours, || unsharded.rate(&threads, pattern, count))?;
        bench.compare([row("2 processors, 1 shard, tasks on any")], ours, || pool.rate(pattern, count))?;
    }
    Ok(())
}

/// Caller and servers with shards on several threads.
struct ShardedNodes(Nodes);

impl ShardedNodes {
    fn start(threads: &[Party], shards: usize, plan: &WorkPlan) -> Result<Self> {
        let runtimes: Vec<Handle> =
            threads.iter().map(|thread| thread.run(|| async { Ok(Handle::current()) })).collect::<Result<_>>()?;
        let plan = plan.clone();
        threads[0].run(move || start(runtimes, shards, plan)).map(Self)
    }

    /// Calls per second, by callers on all threads.
    fn rate(&self, threads: &[Party], pattern: usize, count: usize) -> Result<[f64; 1]> {
        let share = threads.len();
        let jobs: Vec<_> = threads
            .iter()
            .map(|thread| {
                let nodes = self.0.clone();
                thread.begin(move || calls(nodes, pattern, count / share, AT_ONCE / share))
            })
            .collect();
        let mut longest = 0.0;
        for job in jobs {
            longest = job.wait()?.whole()?.elapsed.as_secs_f64().max(longest);
        }
        Ok([count as f64 / longest])
    }
}

/// Nodes of one shard on a runtime whose tasks run on any of two threads.
struct WorkerPool {
    nodes: Nodes,
    runtime: Runtime,
}

impl WorkerPool {
    fn start(plan: &WorkPlan) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().context("no runtime")?;
        let (handle, plan) = (runtime.handle().clone(), plan.clone());
        let nodes = runtime.block_on(start(vec![handle], 1, plan))?;
        Ok(Self { nodes, runtime })
    }

    fn rate(&self, pattern: usize, count: usize) -> Result<[f64; 1]> {
        let results = self.runtime.block_on(calls(self.nodes.clone(), pattern, count, AT_ONCE))?;
        Ok([count as f64 / results.whole()?.elapsed.as_secs_f64()])
    }
}

/// Starts the servers of the longest call, and a caller.
async fn start(runtimes: Vec<Handle>, shards: usize, plan: WorkPlan) -> Result<Nodes> {
    let (servers, config) = (Servers::default(), NodeConfig::default().shards(shards));
    let mut addresses = Vec::new();
    for _ in 0..HOPS[HOPS.len() - 1] {
        addresses.push(nodes::serve_on(&config, &runtimes, plan.clone(), servers.clone()).await?);
    }
    servers.set(addresses);
    Nodes::start_on(&config, &runtimes, plan, servers).await
}
