//! `netrpc-fig9`: frames lost with and without congestion control (NetRPC Fig. 9), where two applications share
//! links that one of them could fill, as in [`netrpc_fig8`](crate::netrpc_fig8).
//!
//! Without, windows are always `w_max`. Channels have four flows in each application unless they are told
//! otherwise; so have these.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pathcall_endpoint::flow::Timing;
use pathcall_testbed::Testbed;

use crate::bed::by_hand::{Sent, Terms};
use crate::bed::pair::{CALLERS, Course, HOSTS, Pair};
use crate::bed::{Hop, Stage, mbits, stands};
use crate::harness::{Bench, Better, Curves, Figure, Line, Metric, Points};
use crate::netrpc_fig8::{RATE, profile};

pub(crate) const FIGURE: Figure =
    Figure { name: "netrpc-fig9", about: "frames lost by full queues, with and without congestion control", run };

/// Flows of a caller in each application: a channel's.
const FLOWS: u32 = 4;
const COURSE: Course = Course { lead: Duration::ZERO, both: Duration::from_secs(4), step: Duration::from_millis(200) };
const COURSE_QUICK: Course = Course { both: Duration::from_millis(800), ..COURSE };
/// The paper: 63 % less.
const LESS: f64 = 0.37;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let course = bench.size(COURSE, COURSE_QUICK);
    let link = mbits(RATE)?;
    let start = |congestion_control| {
        let stage = Stage::start(Testbed::builder().hosts(HOSTS).profile(profile()?), Hop::User)?;
        let terms = Terms { flows: FLOWS, timing: Timing { congestion_control, ..Timing::default() }, nth: 0 };
        Ok::<_, anyhow::Error>((Pair::start(&stage, terms)?, stage))
    };
    let (with, without) = (start(true)?, start(false)?);
    let peer = "no congestion control";
    let metrics = [
        Metric::new("frames lost", peer, "%", Better::Lower).expect(LESS),
        Metric::new("throughput of both", peer, "Mbit/s", Better::Higher).limit(link),
        Metric::new("frames sent again", peer, "%", Better::Lower),
    ];
    let lines = [RefCell::default(), RefCell::default()];
    let kept = |(pair, stage): &(Pair, Stage), points: &RefCell<Points>| {
        let (row, now) = turn(pair, stage, course)?;
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
            Line { name: "congestion control".to_owned(), points: ours },
            Line { name: peer.to_owned(), points: peers },
        ],
    });
    Ok(())
}

/// A turn's shares of frames lost and sent again, with what both got through; and the share lost, over time.
fn turn(pair: &Pair, stage: &Stage, course: Course) -> Result<([f64; 3], Points)> {
    let (began, mut looks) = (Instant::now(), Vec::new());
    let samples = pair.run(course, |sent| {
        let all: f64 = sent.iter().map(|sent| sent.frames + sent.again).sum();
        looks.push((began.elapsed().as_secs_f64(), all, lost(stage)?));
        Ok(())
    })?;
    let share = |from: &(f64, f64, f64), to: &(f64, f64, f64)| percent(to.2 - from.2, to.1 - from.1);
    let points = looks.windows(2).map(|look| (look[1].0, share(&look[0], &look[1]))).collect();
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { bail!("no samples") };
    let sent = |of: fn(&Sent) -> f64| last.of.iter().map(of).sum::<f64>() - first.of.iter().map(of).sum::<f64>();
    let mbit = sent(|sent| sent.bytes) * 8.0 / CALLERS as f64 / (last.at - first.at).as_secs_f64() / 1e6;
    let again = sent(|sent| sent.again);
    let lost = share(&looks[0], &looks[looks.len() - 1]);
    Ok(([lost, mbit, percent(again, again + sent(|sent| sent.frames))], points))
}

/// Frames of callers that found their link's queue full.
fn lost(stage: &Stage) -> Result<f64> {
    let up = |k| Ok(stage.bed.link(k)?.overflowed()?.context("links have wires")?.0 as f64);
    (2..=HOSTS).map(up).sum()
}

fn percent(part: f64, all: f64) -> f64 {
    part / all.max(1.0) * 100.0
}
