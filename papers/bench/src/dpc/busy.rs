//! `delegate-busy`: calls through one, two and ten servers whose nodes poll, compared with nested calls on the same
//! transport with the same polling, and with nodes that wait.
//!
//! Each of two processors has one thread with one runtime. The servers are on both in turn, the caller is on the first:
//! each request goes to the other thread.

use std::time::Duration;

use anyhow::Result;
use pathcall_driver::node::NodeConfig;
use pathcall_models::delegate::shapes::hops;

use super::plan::{Pattern, Servers, WorkPlan};
use super::variants::nested::{self, NestedCaller};
use super::variants::nodes::{self, Nodes};
use super::variants::{CallVariant, calls};
use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{FREE, percentiles};
use crate::testbed::Party;

pub(super) const FIGURE: Figure =
    Figure { name: "delegate-busy", about: "calls over several servers whose nodes poll", kind: Kind::Measured, run };

/// Hops, with the expected ratio to nested calls (DPC Fig. 6.1).
const HOPS: [(usize, Option<f64>); 3] = [(1, None), (2, Some(0.82)), (10, Some(0.58))];
const SERVERS: usize = 10;
const CALLS: usize = 5_000;
const CALLS_QUICK: usize = 20;
/// Time for which a node polls after a message.
const BUSY_POLL: Duration = Duration::from_millis(1);
/// Longest median of one hop, microseconds.
const BAR: f64 = 15.0;

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let name = |n: usize| if n == 1 { "1 hop".to_owned() } else { format!("{n} hops") };
    let plan = WorkPlan::new(HOPS.map(|(n, _)| Pattern::new(name(n), hops(n))).into())?;
    let threads = [Party::local(0)?, Party::local(1)?];
    let polling = delegated(&threads, &plan, BUSY_POLL)?;
    let waiting = delegated(&threads, &plan, Duration::ZERO)?;
    let nested = nested(&threads, &plan, BUSY_POLL)?;
    for (pattern, (hops, expected)) in HOPS.into_iter().enumerate() {
        let case = name(hops);
        let row = |quantile, peer| Metric::new(format!("{case}, {quantile}"), peer, "us", Better::Lower);
        let p50 = expected.into_iter().fold(row("p50", "nested RPC"), Metric::expect);
        let latency = |variant| latencies(&threads[0], variant, pattern, calls);
        bench.compare(
            [p50, row("p99", "nested RPC")],
            || latency(&polling),
            || latencies(&threads[0], &nested, pattern, calls),
        )?;
        bench.compare([row("p50", "waiting"), row("p99", "waiting")], || latency(&polling), || latency(&waiting))?;
        if hops == 1 {
            let bar = row("p50", "15 us").expect(1.0);
            bench.compare([bar], || latency(&polling).map(|[p50, _]| [p50]), || Ok([BAR]))?;
        }
    }
    Ok(())
}

/// Starts servers on both threads in turn, and a client on the first.
fn delegated(threads: &[Party; 2], plan: &WorkPlan, busy_poll: Duration) -> Result<Nodes> {
    let (servers, config) = (Servers::default(), NodeConfig::default().busy_poll(busy_poll));
    let started = (0..SERVERS).map(|server| {
        let (plan, servers, config) = (plan.clone(), servers.clone(), config.clone());
        threads[server % 2].run(move || async move { nodes::serve(&config, plan, servers).await })
    });
    servers.set(started.collect::<Result<_>>()?);
    let plan = plan.clone();
    threads[0].run(move || async move { Nodes::start(&config, plan, servers).await })
}

/// Starts the same for nested calls.
fn nested(threads: &[Party; 2], plan: &WorkPlan, busy_poll: Duration) -> Result<NestedCaller> {
    let servers = Servers::default();
    let started = (0..SERVERS).map(|server| {
        let (plan, servers) = (plan.clone(), servers.clone());
        threads[server % 2].run(move || nested::serve(FREE, busy_poll, plan, servers))
    });
    servers.set(started.collect::<Result<_>>()?);
    let plan = plan.clone();
    threads[0].run(move || NestedCaller::start(FREE, busy_poll, plan, servers))
}

/// Median and 99th percentile of sequential calls, microseconds.
fn latencies(caller: &Party, variant: &impl CallVariant, pattern: usize, count: usize) -> Result<[f64; 2]> {
    let variant = variant.clone();
    percentiles(caller.run(move || calls(variant, pattern, count, 1))?.whole()?.latencies)
}
