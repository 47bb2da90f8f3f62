//! `function-table3`: mean latency of SNAT and of the gateway (CLIP Table III), in virtual time: the real controller's
//! placement, and queues of servers with the latency of the paper's software if all packets go there. SNAT also in
//! reality, between hosts of a testbed beside nftables: see `live_snat`.

use anyhow::Result;
use pathcall_models::function::{MatchKind, PacketCosts};
use pathcall_netfn::place::PlacementStrategy;

use crate::function::placed;
use crate::function_table1::{ALPHA, ROOM};
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-table3",
    about: "latency of SNAT and routes, split and on servers alone: simulated, and SNAT between hosts",
    kind: Kind::Modelled,
    run,
};

/// Latency of the paper's software, its deviation, and the paper's own mean relative to the first.
const ROWS: [(&str, MatchKind, f64, f64, f64); 2] =
    [("SNAT", MatchKind::Exact, 22.71, 11.0, 1.0 - 0.675), ("FIB", MatchKind::Longest, 25.06, 15.06, 1.0 - 0.715)];

/// Round trips of a turn between hosts.
#[cfg(feature = "xdp")]
const ROUND_TRIPS: usize = 20_000;
#[cfg(feature = "xdp")]
const ROUND_TRIPS_QUICK: usize = 500;

fn run(bench: &mut Bench) -> Result<()> {
    for (name, kind, mean, deviation, floor) in ROWS {
        let costs = PacketCosts::calibrated(mean, deviation);
        let of = |strategy| {
            let runs = placed(bench, kind, strategy, ALPHA, Some(ROOM));
            let latencies = (1..).zip(&runs).map(|(seed, run)| costs.latency(run.hits, seed));
            latencies.map(|latency| (latency.mean_us, latency.deviation_us)).unzip::<_, _, Vec<f64>, Vec<f64>>()
        };
        let ((ours, spread), (all, all_spread)) = (of(PlacementStrategy::Threshold), of(PlacementStrategy::None));
        let metric = |what| Metric::new(format!("{name}, threshold: {what}"), "on servers alone", "us", Better::Lower);
        bench.row(metric("mean latency").expect(floor), &ours, &all);
        bench.row(metric("its standard deviation"), &spread, &all_spread);
    }
    round_trips(bench)
}

/// Round trips through a live function, whose large flows are in the element, and through nftables.
#[cfg(feature = "xdp")]
fn round_trips(bench: &mut Bench) -> Result<()> {
    use std::cell::Cell;

    use crate::function::live_snat::{self, SnatPath};

    if !crate::testbed::testbed_available(bench) {
        return Ok(());
    }
    let (ours, theirs) = (SnatPath::live()?, SnatPath::nftables()?);
    let (of_ours, of_theirs) = (ours.flows()?, theirs.flows()?);
    let packets = bench.size(ROUND_TRIPS, ROUND_TRIPS_QUICK);
    let case = |what: &str| format!("SNAT between hosts, {} flows, a round trip: {what}", live_snat::FLOWS);
    let metric = |what| Metric::new(case(what), "nftables", "us", Better::Lower).kind(Kind::Measured);
    let metrics = [metric("mean").expect(ROWS[0].4), metric("standard deviation")];
    let (before, turns) = (ours.requests()?, Cell::new(0));
    let turn = || {
        turns.set(turns.get() + 1);
        ours.round_trips(&of_ours, packets)
    };
    bench.compare(metrics, turn, || theirs.round_trips(&of_theirs, packets))?;
    // A round trip has two packets.
    let share = (ours.requests()? - before) as f64 / (2 * packets * turns.get().max(1)) as f64;
    bench.print_note(&format!("{:.1} % of the packets passed the server of the live function", share * 100.0));
    Ok(())
}

#[cfg(not(feature = "xdp"))]
fn round_trips(bench: &mut Bench) -> Result<()> {
    bench.print_note("no rows of SNAT between hosts: the bench was built without XDP (XDP=1)");
    Ok(())
}
