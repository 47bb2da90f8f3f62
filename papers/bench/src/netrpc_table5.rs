//! `netrpc-table5`: the rows of NetRPC Table 5 that no other figure has: monitoring (KeyValue), where agents count
//! packets by flow. *Monitor delay*: latency of a report. *Packets counted*: throughput of two agents on the shared
//! processors. *Packet processing capacity*: throughput of server and element without the agents' part: packets per
//! second of their processor time.
//!
//! A report contains the flows of a thousand packets, as in `apps/monitor`, with the count of each: flow sizes follow
//! Zipf's law, and the agent has added up the packets of a flow. Beside that stand reports without this *aggregation*:
//! each packet is a pair of its own, of another flow. The hosts have bare links. The element in the kernel has no
//! processor of its own there: it runs in the agents' time.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;
use pathcall_testbed::Testbed;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{Stopwatch, percentiles};
use crate::netrpc_async::{CountClient, Counter};
use crate::stubs::pb::PATHCALL;
use crate::stubs::pb::words_client::WordsClient;
use crate::stubs::pb::words_server::WordsServer;
use crate::testbed::callers::Callers;
use crate::testbed::{ElementTestbed, Hop, has_xdp, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-table5",
    about: "packets counted by flow: delay of a report, and packets a second",
    kind: Kind::Measured,
    run,
};

/// Packets per report.
const PACKETS: usize = 1000;
/// Number of different flows.
const FLOWS: f64 = 4000.0;
/// Number of different reports.
const REPORTS: usize = 16;
const CALLS: usize = 200;
const CALLS_QUICK: usize = 20;
/// Concurrent agents, which saturate the counters.
const AGENTS: usize = 2;
/// The paper's delay relative to software: 3.52 ms and 4.05 ms.
const DELAY: f64 = 0.87;
/// The paper's capacity relative to software: more than ten times.
const CAPACITY: f64 = 10.0;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let mut hops = vec![Hop::User, Hop::NoElement];
    if has_xdp(bench) {
        hops.insert(0, Hop::Xdp);
    }
    let calls = bench.size(CALLS, CALLS_QUICK);
    for agents in [1, AGENTS] {
        let stage = |hop| ElementTestbed::start(Testbed::builder().hosts(1 + agents), hop);
        let bare = stage(Hop::NoElement)?;
        let service = || WordsServer::new(Counter::default());
        let tonic = Callers::plain(&bare, agents, service(), WordsClient::new)?;
        for hop in &hops {
            let stage = stage(*hop)?;
            let parts = (&PATHCALL, pathcall::layer::DEFAULT_ROWS);
            let ours = Callers::pathcall(&stage, parts, agents, service(), WordsClient::new)?;
            if agents == 1 {
                bench.compare(delay(*hop), || report(&ours, calls), || report(&tonic, calls))?;
            } else {
                for content in [Content::Aggregated, Content::Packets] {
                    let ours = || closed_loop(&ours, calls, content);
                    bench.compare(capacity(*hop, content), ours, || closed_loop(&tonic, calls, content))?;
                }
            }
        }
    }
    Ok(())
}

/// Pairs of a report of a thousand packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// A pair for each flow, with the number of its packets.
    Aggregated,
    /// A pair for each packet.
    Packets,
}

/// Adds the expected ratio for the best element.
fn expect(metric: Metric, hop: Hop, ratio: f64) -> Metric {
    if hop == Hop::Xdp { metric.expect(ratio) } else { metric }
}

fn delay(hop: Hop) -> [Metric; 3] {
    let metric =
        |what, unit| Metric::new(format!("monitor delay, {}, {what}", hop.name()), "tonic", unit, Better::Lower);
    [expect(metric("p50", "us"), hop, DELAY), metric("p99", "us"), metric("CPU of all", "us/call")]
}

fn capacity(hop: Hop, content: Content) -> [Metric; 3] {
    let pairs = if content == Content::Aggregated { "" } else { ", a pair for each packet" };
    let metric = |what, unit, better| Metric::new(format!("{what}{pairs}, {}", hop.name()), "tonic", unit, better);
    [
        metric("packets counted", "packets/s", Better::Higher),
        metric("CPU of all for a packet", "ns/packet", Better::Lower),
        expect(metric("packet processing capacity", "packets/s", Better::Higher), hop, CAPACITY),
    ]
}

/// Median and 99th percentile of a report, without the first tenth, and processor time of all parties per report. In
/// microseconds.
fn report<S: CountClient + Clone>(agent: &Callers<S>, calls: usize) -> Result<[f64; 3]> {
    let reports = reports(Content::Aggregated);
    let (done, took) = std::sync::mpsc::channel();
    let watch = Stopwatch::start();
    agent.each(move |mut stub| {
        let (reports, done) = (reports.clone(), done.clone());
        async move {
            for report in reports.iter().cycle().take(calls) {
                let report = report.clone();
                let began = Instant::now();
                stub.count(report).await?;
                // The receiver outlives this task.
                let _ = done.send(began.elapsed());
            }
            Ok(())
        }
    })?;
    let cpu = watch.cpu_us(calls);
    let took: Vec<_> = took.try_iter().skip(calls / 10).collect();
    let [p50, p99] = percentiles(took)?;
    Ok([p50, p99, cpu])
}

/// Closed loop of agents: packets per second, nanoseconds of all processors per packet, and packets per second of
/// processor time without the agents' part.
fn closed_loop<S: CountClient + Clone>(agents: &Callers<S>, calls: usize, content: Content) -> Result<[f64; 3]> {
    let (reports, before) = (reports(content), agents.cpu()?);
    let watch = Stopwatch::start();
    agents.each(move |mut stub| {
        let reports = reports.clone();
        async move {
            for report in reports.into_iter().cycle().take(calls) {
                stub.count(report).await?;
            }
            Ok(())
        }
    })?;
    let (took, cpu) = watch.read();
    let counting = cpu.saturating_sub(agents.cpu()? - before);
    let packets = (AGENTS * calls * PACKETS) as f64;
    Ok([packets / took.as_secs_f64(), cpu.as_nanos() as f64 / packets, packets / counting.as_secs_f64()])
}

/// Flows of a thousand packets each, with their packet counts.
fn reports(content: Content) -> Vec<HashMap<String, i64>> {
    let mut random = 1_u64;
    let mut unit = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let mut report = |number: usize| {
        let mut flows = HashMap::new();
        for packet in 0..PACKETS {
            let rank = match content {
                // Inverse of the harmonic distribution: rank r with probability about 1/r.
                Content::Aggregated => FLOWS.powf(unit()) as usize,
                // No flow twice: packets take turns in all flows.
                Content::Packets => (number * PACKETS + packet) % FLOWS as usize,
            };
            let flow = format!("tcp 192.0.2.{}:443 > 198.51.100.{}:{}", rank % 16, rank % 251, 1024 + rank);
            *flows.entry(flow).or_default() += 1;
        }
        flows
    };
    (0..REPORTS).map(&mut report).collect()
}
