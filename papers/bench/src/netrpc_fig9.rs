//! `netrpc-fig9`: frames lost with and without congestion control (NetRPC Fig. 9), if two applications share links that
//! one of them could fill, as in [`netrpc_fig8`](crate::netrpc_fig8).
//!
//! Without congestion control, windows are always `w_max`. The applications have four flows per caller, as channels
//! have by default.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pathcall_endpoint::flow::FlowTiming;
use pathcall_testbed::Testbed;

use crate::harness::{Bench, Better, Curves, Figure, Kind, Metric, PlotLine, Points};
use crate::netrpc_fig8::{RATE, profile};
use crate::testbed::endpoint_app::{FlowTerms, SentCounters};
use crate::testbed::pair::{CALLERS, HOSTS, Pair, Schedule};
use crate::testbed::{ElementTestbed, Hop, mbits, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-fig9",
    about: "frames lost by full queues, with and without congestion control",
    kind: Kind::Measured,
    run,
};

/// Flows per caller and application: a channel's default.
const FLOWS: u32 = 4;
const SCHEDULE: Schedule =
    Schedule { lead: Duration::ZERO, both: Duration::from_secs(4), step: Duration::from_millis(200) };
const SCHEDULE_QUICK: Schedule = Schedule { both: Duration::from_millis(800), ..SCHEDULE };
/// Maximum ratio of losses; the paper has 63 % less.
const LOSS_RATIO_MAX: f64 = 0.37;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let schedule = bench.size(SCHEDULE, SCHEDULE_QUICK);
    let link = mbits(RATE)?;
    let start = |congestion_control| {
        let stage = ElementTestbed::start(Testbed::builder().hosts(HOSTS).profile(profile()?), Hop::User)?;
        let terms =
            FlowTerms { flows: FLOWS, timing: FlowTiming { congestion_control, ..FlowTiming::default() }, index: 0 };
        Ok::<_, anyhow::Error>((Pair::start(&stage, terms)?, stage))
    };
    let (with, without) = (start(true)?, start(false)?);
    let peer = "no congestion control";
    let metrics = [
        Metric::new("frames lost", peer, "%", Better::Lower).expect(LOSS_RATIO_MAX),
        Metric::new("throughput of both", peer, "Mbit/s", Better::Higher).limit(link),
        Metric::new("frames sent again", peer, "%", Better::Lower),
    ];
    let lines = [RefCell::default(), RefCell::default()];
    let kept = |(pair, stage): &(Pair, ElementTestbed), points: &RefCell<Points>| {
        let (row, now) = turn(pair, stage, schedule)?;
        points.replace(now);
        Ok(row)
    };
    bench.compare(metrics, || kept(&with, &lines[0]), || kept(&without, &lines[1]))?;
    let [ours, peers] = lines.map(RefCell::into_inner);
    bench.show(Curves {
        name: "over-time",
        about: format!("frames of callers that found a queue full, of those sent, one turn; links of {RATE}"),
        x: "s",
        y: "%",
        lines: vec![
            PlotLine { name: "congestion control".to_owned(), points: ours },
            PlotLine { name: peer.to_owned(), points: peers },
        ],
    });
    Ok(())
}

/// Shares of frames lost and retransmitted in a turn, with the throughput of both; and the share lost over time.
fn turn(pair: &Pair, stage: &ElementTestbed, schedule: Schedule) -> Result<([f64; 3], Points)> {
    let (began, mut looks) = (Instant::now(), Vec::new());
    let samples = pair.run(schedule, |sent| {
        let all: f64 = sent.iter().map(|sent| sent.frames + sent.retransmitted).sum();
        looks.push((began.elapsed().as_secs_f64(), all, dropped_frames(stage)?));
        Ok(())
    })?;
    let share = |from: &(f64, f64, f64), to: &(f64, f64, f64)| percent(to.2 - from.2, to.1 - from.1);
    let points = looks.windows(2).map(|look| (look[1].0, share(&look[0], &look[1]))).collect();
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { bail!("no samples") };
    let sent =
        |of: fn(&SentCounters) -> f64| last.of.iter().map(of).sum::<f64>() - first.of.iter().map(of).sum::<f64>();
    let mbit = sent(|sent| sent.bytes) * 8.0 / CALLERS as f64 / (last.at - first.at).as_secs_f64() / 1e6;
    let retransmitted = sent(|sent| sent.retransmitted);
    let lost = share(&looks[0], &looks[looks.len() - 1]);
    Ok(([lost, mbit, percent(retransmitted, retransmitted + sent(|sent| sent.frames))], points))
}

/// Frames of callers dropped by a full queue.
fn dropped_frames(stage: &ElementTestbed) -> Result<f64> {
    let up = |k| Ok(stage.testbed.link(k)?.overflowed()?.context("link has no queue counters")?.0 as f64);
    (2..=HOSTS).map(up).sum()
}

fn percent(part: f64, all: f64) -> f64 {
    part / all.max(1.0) * 100.0
}
