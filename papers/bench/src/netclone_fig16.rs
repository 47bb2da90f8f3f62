//! `netclone-fig16`: effect of an element failure on calls (NetClone Fig. 16): throughput over time, simulated at the
//! paper's scale, and in real time with an open loop.

use std::time::Duration;

use anyhow::{Result, ensure};
use apps_load::{Jitter, LoadPlan, Service};
use pathcall_endpoint::clone::HedgeBudgetConfig;
use pathcall_models::clone::Scheme;
use pathcall_models::clone::{CloneRun, CloneTestbed, HEDGED_AFTER, measure};

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};
use crate::netclone::model::{HIGH, exp, paper};
use crate::netclone::real::{self, RackHosts, RackLoad, WaitDistribution};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig16",
    about: "calls answered while the element fails and comes back, over time",
    kind: Kind::Simulated,
    run,
};

/// Speed-up of the paper's 25 seconds, in which the switch is down from the fifth to the seventh second.
const SCALE: u32 = 100;
const RUN: Duration = Duration::from_secs(25);
const OUTAGE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(7));
const LOAD: f64 = 0.3;
/// Speed-up in real time.
const REAL_SCALE: u32 = 4;
const REAL_SCALE_QUICK: u32 = 25;
/// Steps of a run in which calls are counted.
const STEPS: u32 = 100;
const REAL: real::RealRack = real::RealRack {
    servers: 6,
    workers: 4,
    waits: WaitDistribution { service: Service::Exponential(Duration::from_millis(5)), jitter: Jitter::HIGH },
};
const WORDS: &str = "The paper (§5.6.4, Fig. 16): \"The switch was stopped at 5 seconds and manually reactivated at 7 seconds. \
    The throughput recovers after approximately 10 seconds. […] NetClone does not incur permanent misbehavior since the \
    switch stores only soft states.\" \
    Here all frames pass the switch in the first plot; in the second, callers without answers from the element send \
    directly to servers.";

fn run(bench: &mut Bench) -> Result<()> {
    let simulated = Panel {
        title: format!("simulated, time by {SCALE}"),
        x: "ms",
        y: "calls answered, millions a second",
        logarithmic: false,
        lines: vec![simulated(bench)?],
    };
    let real = Panel {
        title: "in real time".to_owned(),
        x: "s",
        y: "calls answered a second",
        logarithmic: false,
        lines: vec![in_real_time(bench)?],
    };
    bench.show_panels(Panels { name: "over-time", words: WORDS, panels: vec![simulated, real] });
    Ok(())
}

fn simulated(bench: &mut Bench) -> Result<PlotLine> {
    let scale = SCALE * bench.size(1, 10);
    let (duration, outage) = (RUN / scale, (OUTAGE.0 / scale, OUTAGE.1 / scale));
    let step = duration / STEPS;
    let testbed = CloneTestbed { outage: Some(outage), step, ..paper() };
    let (name, workload) = exp(HIGH);
    let run = CloneRun { scheme: Scheme::Clone, workload, load: LOAD, hedged_after: HEDGED_AFTER, seed: 1, duration };
    let measured = measure(&testbed, &run);
    let rates = per_second(&measured.timeline, step);
    let case = format!("simulated, {name}: calls answered a second");
    rows(bench, (&case, Kind::Simulated), &rates, (duration, outage))?;
    let points = rates.iter().map(|(at, rate)| (at * 1e3, rate / 1e6)).collect();
    Ok(PlotLine { name: Scheme::Clone.name().to_owned(), points })
}

fn in_real_time(bench: &mut Bench) -> Result<PlotLine> {
    let scale = bench.size(REAL_SCALE, REAL_SCALE_QUICK);
    let (duration, outage) = (RUN / scale, (OUTAGE.0 / scale, OUTAGE.1 / scale));
    let rate = REAL.capacity() * LOAD;
    let plan = LoadPlan { rate, warm: Duration::ZERO, measured: duration, in_flight_max: 10_000, seed: 1 };
    let hosts = RackHosts::of(bench, REAL.servers);
    let seen = REAL.run(
        &hosts,
        RackLoad { outage: Some(outage), ..RackLoad::new(Scheme::Clone, HedgeBudgetConfig::default(), plan) },
    )?;
    seen.answers.all()?;
    let step = duration / STEPS;
    let rates = per_second(&seen.answers.timeline(step), step);
    rows(bench, ("in real time: calls answered a second", Kind::Measured), &rates, (duration, outage))?;
    Ok(PlotLine { name: Scheme::Clone.name().to_owned(), points: rates })
}

/// End of each step in seconds, with the calls answered per second in it.
fn per_second(counts: &[u64], step: Duration) -> Vec<(f64, f64)> {
    let step = step.as_secs_f64();
    counts.iter().enumerate().map(|(nth, count)| ((nth + 1) as f64 * step, *count as f64 / step)).collect()
}

/// Rows of the answer rate during and after the outage, compared with the rate before.
fn rows(
    bench: &mut Bench,
    (case, kind): (&str, Kind),
    rates: &[(f64, f64)],
    (duration, outage): (Duration, (Duration, Duration)),
) -> Result<()> {
    let mean = |from: Duration, to: Duration| {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        let within: Vec<f64> = rates.iter().filter(|(at, _)| *at > from && *at <= to).map(|(_, rate)| *rate).collect();
        ensure!(!within.is_empty(), "no calls between {from} s and {to} s");
        Ok(within.iter().sum::<f64>() / within.len() as f64)
    };
    // The first and last steps are incomplete.
    let edge = duration / 20;
    let before = mean(edge, outage.0)?;
    let metric = |what: &str| Metric::new(format!("{case}, {what}"), "before", "calls/s", Better::Higher).kind(kind);
    bench.row(metric("while the element is gone"), &[mean(outage.0, outage.1)?], &[before]);
    bench.row(metric("after it"), &[mean(outage.1 + edge, duration - edge)?], &[before]);
    Ok(())
}
