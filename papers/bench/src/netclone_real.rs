//! `netclone-real`: latency over load and ceilings in real time, between hosts of a testbed, or on the loopback where
//! there can be none: the real ends and the real program over UDP, servers that wait for milliseconds instead of
//! working. What Fig. 7, 8 and 10 show at the scale of microseconds, with every scheme there is.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{Jitter, Plan, Service};
use pathcall_endpoint::clone::Budget;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Better, Figure, Line, Metric, Panel, Panels};
use crate::netclone::CEILING;
use crate::netclone::real::{Bed, Ground, Load, Seen, Waits};
use crate::netclone::stores::REDUNDANT;

pub(crate) const FIGURE: Figure =
    Figure { name: "netclone-real", about: "in real time, waits of milliseconds: latency over load, ceilings", run };

/// The paper's times, 200 times as long.
const EXP: Service = Service::Exponential(Duration::from_millis(5));
const BIMODAL: Service = Service::Bimodal(Duration::from_millis(5), Duration::from_millis(50));
const SERVERS: usize = 6;
const WORKERS: usize = 4;
const LOADS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
const LOADS_QUICK: [f64; 1] = [0.3];
/// More than servers can do. Queues grow for all of the time, so nobody is without work, and nobody gives up.
const OVERLOAD: f64 = 1.15;
const CEILING_TIME: Duration = Duration::from_secs(6);
const CEILING_DEADLINE: Duration = Duration::from_secs(60);
const TIME: Duration = Duration::from_secs(3);
const TIME_QUICK: Duration = Duration::from_millis(150);
const WARM: Duration = Duration::from_millis(200);
/// Where schemes stand beside random.
const LOAD_OF_ROWS: f64 = 0.3;
/// Extra requests that may be sent for each call.
const BUDGET: f64 = 1.0;
const WORDS: &str = "The paper (§5.2, §5.3.1): \"C-Clone shows limited throughput in all figures due to its static request cloning.\" \
    \"NetClone achieves low tail latency while maintaining similar throughput to the baseline.\" \"LÆDGE performs even worse than \
    C-Clone since it relies on a CPU-based coordinator.\" Here servers wait for milliseconds, so that no coordinator is \
    short of processors: what it takes of one is a row.";

fn run(bench: &mut Bench) -> Result<()> {
    let ground = Ground::of(bench, SERVERS);
    let mut panels = Vec::new();
    for (name, service) in [("Exp(5 ms)", EXP), ("Bimodal(5 ms, 50 ms)", BIMODAL)] {
        let bed = Bed { servers: SERVERS, workers: WORKERS, waits: Waits { service, jitter: Jitter::HIGH } };
        panels.push(curves(bench, &ground, name, &bed)?);
        beside_random(bench, &ground, name, &bed)?;
        ceilings(bench, &ground, name, &bed)?;
    }
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

/// 99th percentiles of each scheme over load, a run each.
fn curves(bench: &mut Bench, ground: &Ground, name: &str, bed: &Bed) -> Result<Panel> {
    let loads = bench.size(&LOADS[..], &LOADS_QUICK);
    let mut lines = Vec::new();
    for scheme in bench.schemes() {
        bench.says(&format!("{name}: {scheme}"));
        let point = |load: &f64| {
            let seen = bed.run(ground, Load::new(scheme, budget(), plan(bed, *load, time(bench), 1)))?;
            Ok((seen.answers.rate(), p(&seen, 0.99)))
        };
        let points = loads.iter().map(point).collect::<Result<_>>()?;
        lines.push(Line { name: scheme.name().to_owned(), points });
    }
    let (x, y) = ("calls answered a second", "p99, ms");
    Ok(Panel { title: name.to_owned(), x, y, logarithmic: true, lines })
}

/// Rows: each scheme beside random, at a load at which processors are idle.
fn beside_random(bench: &mut Bench, ground: &Ground, name: &str, bed: &Bed) -> Result<()> {
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
            let seen = bed.run(ground, Load::new(scheme, budget(), plan(bed, LOAD_OF_ROWS, time, next(seed))))?;
            seen.answers.all()?;
            let extra = seen.extra();
            let Budget { burst, per_second, .. } = budget();
            let bursts = (burst + per_second * (WARM + time).as_secs_f64()) / seen.answers.stats.calls.max(1) as f64;
            ensure!(extra <= BUDGET + bursts, "{extra} extra requests a call, not {BUDGET} and bursts of {bursts}");
            Ok([p(&seen, 0.99), p(&seen, 0.5), extra, seen.redundant() * 100.0, seen.busy * 100.0])
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

/// Rows: what is answered where more is asked than can be, and what that takes of what is in the middle.
fn ceilings(bench: &mut Bench, ground: &Ground, name: &str, bed: &Bed) -> Result<()> {
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
            let load = Load::new(scheme, budget(), plan(bed, OVERLOAD, time, next(seed)));
            let seen = bed.run(ground, Load { deadline: CEILING_DEADLINE, waits: false, ..load })?;
            Ok([seen.answers.rate(), seen.middle_us()])
        };
        let seeds = [Cell::default(), Cell::default()];
        let (ours, theirs) = (|| turn(Scheme::Clone, &seeds[0]), || turn(other, &seeds[1]));
        if other == Scheme::Coordinator {
            bench.compare([ceiling, middle], ours, theirs)?;
        } else {
            // Nothing goes by the middle there.
            let rate = |[rate, _]: [f64; 2]| [rate];
            bench.compare([ceiling], || ours().map(rate), || theirs().map(rate))?;
        }
    }
    Ok(())
}

fn plan(bed: &Bed, load: f64, measured: Duration, seed: u64) -> Plan {
    Plan { rate: bed.capacity() * load, warm: WARM, measured, in_flight_max: 100_000, seed }
}

fn budget() -> Budget {
    // Bursts are paid for by calls before them.
    Budget { share: BUDGET, ..Budget::default() }
}

fn time(bench: &Bench) -> Duration {
    bench.size(TIME, TIME_QUICK)
}

/// Counts from 1.
fn next(seed: &Cell<u64>) -> u64 {
    seed.set(seed.get() + 1);
    seed.get()
}

/// In milliseconds, of calls that were answered.
fn p(seen: &Seen, share: f64) -> f64 {
    seen.answers.latencies.quantile(share).as_secs_f64() * 1e3
}
