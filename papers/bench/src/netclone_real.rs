//! `netclone-real`: latency over load and throughput ceilings in real time, between hosts of a testbed, or on the
//! loopback without a testbed: the real endpoints and the real switch program over UDP, with servers that sleep for
//! milliseconds instead of working. Covers Fig. 7, 8 and 10 at a larger time scale, with every scheme.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{Jitter, LoadPlan, Service};
use pathcall_endpoint::clone::HedgeBudgetConfig;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};
use crate::netclone::CEILING;
use crate::netclone::real::{RackHosts, RackLoad, RackResults, RealRack, WaitDistribution};
use crate::netclone::stores::REDUNDANT;

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-real",
    about: "in real time, waits of milliseconds: latency over load, ceilings",
    kind: Kind::Measured,
    run,
};

/// Service times of the paper, 200 times as long.
const EXP: Service = Service::Exponential(Duration::from_millis(5));
const BIMODAL: Service = Service::Bimodal(Duration::from_millis(5), Duration::from_millis(50));
const SERVERS: usize = 6;
const WORKERS: usize = 4;
const LOADS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
const LOADS_QUICK: [f64; 1] = [0.3];
/// Overload as a share of the capacity. Queues grow during the whole run, so all workers are busy, and no call reaches
/// its deadline.
const OVERLOAD: f64 = 1.15;
const CEILING_TIME: Duration = Duration::from_secs(6);
const CEILING_DEADLINE: Duration = Duration::from_secs(60);
const TIME: Duration = Duration::from_secs(3);
const TIME_QUICK: Duration = Duration::from_millis(150);
const WARM: Duration = Duration::from_millis(200);
/// Load of the rows that compare schemes with random.
const LOAD_OF_ROWS: f64 = 0.3;
/// Extra requests per call.
const BUDGET: f64 = 1.0;
const WORDS: &str = "The paper (§5.2, §5.3.1): \"C-Clone shows limited throughput in all figures due to its static request cloning.\" \
    \"NetClone achieves low tail latency while maintaining similar throughput to the baseline.\" \"LÆDGE performs even worse than \
    C-Clone since it relies on a CPU-based coordinator.\" \
    Here servers wait for milliseconds, so that the coordinator's processor is no bottleneck; its processor time \
    is a row.";

fn run(bench: &mut Bench) -> Result<()> {
    let hosts = RackHosts::of(bench, SERVERS);
    let mut panels = Vec::new();
    for (name, service) in [("Exp(5 ms)", EXP), ("Bimodal(5 ms, 50 ms)", BIMODAL)] {
        let rack =
            RealRack { servers: SERVERS, workers: WORKERS, waits: WaitDistribution { service, jitter: Jitter::HIGH } };
        panels.push(curves(bench, &hosts, name, &rack)?);
        rows_against_random(bench, &hosts, name, &rack)?;
        ceiling_rows(bench, &hosts, name, &rack)?;
    }
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

/// 99th percentiles of each scheme over load, one run each.
fn curves(bench: &mut Bench, hosts: &RackHosts, name: &str, rack: &RealRack) -> Result<Panel> {
    let loads = bench.size(&LOADS[..], &LOADS_QUICK);
    let mut lines = Vec::new();
    for scheme in bench.schemes() {
        bench.print_note(&format!("{name}: {scheme}"));
        let point = |load: &f64| {
            let results = rack.run(hosts, RackLoad::new(scheme, budget(), plan(rack, *load, time(bench), 1)))?;
            Ok((results.answers.rate(), latency_ms(&results, 0.99)))
        };
        let points = loads.iter().map(point).collect::<Result<_>>()?;
        lines.push(PlotLine { name: scheme.name().to_owned(), points });
    }
    let (x, y) = ("calls answered a second", "p99, ms");
    Ok(Panel { title: name.to_owned(), x, y, logarithmic: true, lines })
}

/// Rows of each scheme compared with random, at a load with idle processors.
fn rows_against_random(bench: &mut Bench, hosts: &RackHosts, name: &str, rack: &RealRack) -> Result<()> {
    for scheme in bench.schemes().into_iter().filter(|scheme| *scheme != Scheme::Random) {
        let of = |what: &str, unit| {
            let case = format!("{name}, load {LOAD_OF_ROWS}: {scheme}, {what}");
            Metric::new(case, Scheme::Random.name(), unit, Better::Lower)
        };
        let extra = of(&format!("extra requests (at most {BUDGET})"), "a call");
        let metrics =
            [of("p99", "ms"), of("p50", "ms"), extra, of("redundant answers", "%"), of("processors busy", "%")];
        let time = time(bench);
        let turn = |scheme, seed: &Cell<u64>| {
            let results =
                rack.run(hosts, RackLoad::new(scheme, budget(), plan(rack, LOAD_OF_ROWS, time, next_seed(seed))))?;
            results.answers.all()?;
            let extra = results.extra();
            let HedgeBudgetConfig { burst, per_second, .. } = budget();
            let bursts = (burst + per_second * (WARM + time).as_secs_f64()) / results.answers.stats.calls.max(1) as f64;
            ensure!(extra <= BUDGET + bursts, "{extra} extra requests a call, not {BUDGET} and bursts of {bursts}");
            Ok([
                latency_ms(&results, 0.99),
                latency_ms(&results, 0.5),
                extra,
                results.redundant() * 100.0,
                results.busy * 100.0,
            ])
        };
        // Both sides of a turn have the same arrivals.
        let seeds = [Cell::default(), Cell::default()];
        let random = || {
            let [p99, p50, .., busy] = turn(Scheme::Random, &seeds[1])?;
            Ok([p99, p50, BUDGET, REDUNDANT, busy])
        };
        bench.compare(metrics, || turn(scheme, &seeds[0]), random)?;
    }
    Ok(())
}

/// Rows of the throughput ceiling under overload, and of the middle's processor time.
fn ceiling_rows(bench: &mut Bench, hosts: &RackHosts, name: &str, rack: &RealRack) -> Result<()> {
    let others = [(Scheme::Random, CEILING), (Scheme::ClientClone, 1.0), (Scheme::Coordinator, 1.0)];
    let wanted = bench.schemes();
    for (other, expected) in others.into_iter().filter(|(other, _)| wanted.contains(other)) {
        let of = |what: &str, unit, better| {
            Metric::new(format!("{name}: {}, {what}", Scheme::Clone), other.name(), unit, better)
        };
        let ceiling = of("throughput ceiling", "calls/s", Better::Higher).expect(expected);
        let middle = of("processor time in the middle", "us/call", Better::Lower);
        let time = bench.size(CEILING_TIME, TIME_QUICK);
        let turn = |scheme, seed: &Cell<u64>| {
            let load = RackLoad::new(scheme, budget(), plan(rack, OVERLOAD, time, next_seed(seed)));
            let results = rack.run(hosts, RackLoad { deadline: CEILING_DEADLINE, waits: false, ..load })?;
            Ok([results.answers.rate(), results.middle_us()])
        };
        let seeds = [Cell::default(), Cell::default()];
        let (ours, theirs) = (|| turn(Scheme::Clone, &seeds[0]), || turn(other, &seeds[1]));
        if other == Scheme::Coordinator {
            bench.compare([ceiling, middle], ours, theirs)?;
        } else {
            // Random calls do not pass the middle.
            let rate = |[rate, _]: [f64; 2]| [rate];
            bench.compare([ceiling], || ours().map(rate), || theirs().map(rate))?;
        }
    }
    Ok(())
}

fn plan(rack: &RealRack, load: f64, measured: Duration, seed: u64) -> LoadPlan {
    LoadPlan { rate: rack.capacity() * load, warm: WARM, measured, in_flight_max: 100_000, seed }
}

fn budget() -> HedgeBudgetConfig {
    // Calls of earlier turns fill the burst budget.
    HedgeBudgetConfig { share: BUDGET, burst: 100.0, per_second: 10.0 }
}

fn time(bench: &Bench) -> Duration {
    bench.size(TIME, TIME_QUICK)
}

/// Next seed, counted from 1.
fn next_seed(seed: &Cell<u64>) -> u64 {
    seed.set(seed.get() + 1);
    seed.get()
}

/// Latency quantile of answered calls in milliseconds.
fn latency_ms(results: &RackResults, share: f64) -> f64 {
    results.answers.latencies.quantile(share).as_secs_f64() * 1e3
}
