//! `netrpc-fig8`: two applications on one shared link (NetRPC Fig. 8): convergence time of the second one, fairness,
//! and total throughput.
//!
//! One sums arrays, the other adds values by key, from the same two hosts; the second starts later. Links mark frames
//! when their queue is long, as the paper's switch does, and senders react. The peer is TCP on equal links, which
//! reacts to the marks as well: two applications with one stream from each of the two hosts.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall_testbed::{LinkProfile, Testbed};

use crate::harness::{Bench, Better, Curves, Figure, Kind, Metric, PlotLine};
use crate::testbed::endpoint_app::FlowTerms;
use crate::testbed::pair::{CALLERS, HOSTS, Pair, Sample, Schedule};
use crate::testbed::tcp::{ON_LINK, Streams};
use crate::testbed::{ElementTestbed, Hop, mbits, testbed_available};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-fig8",
    about: "two applications on one shared link, of which the second starts later",
    kind: Kind::Measured,
    run,
};

pub(crate) const RATE: &str = "50mbit";
/// Queue of a link in bytes, 31 ms at its rate, and threshold for marks: a sixth.
const QUEUE_BYTES: u32 = 192 << 10;
const MARK_BYTES: u32 = 32 << 10;
const SCHEDULE: Schedule =
    Schedule { lead: Duration::from_secs(1), both: Duration::from_secs(3), step: Duration::from_millis(20) };
const SCHEDULE_QUICK: Schedule =
    Schedule { lead: Duration::from_millis(100), both: Duration::from_millis(400), step: Duration::from_millis(20) };
/// Steps of the moving average of rates: 100 ms.
const STEPS: usize = 5;
/// Last part of the shared time, in which the rates are settled.
const SETTLED: f64 = 0.5;
/// Maximum relative distance of a settled rate from its share.
const TOLERANCE: f64 = 0.2;
/// Expected share of the link for both together (the paper: 77 to 89 %).
const SHARE: f64 = 0.77;

fn run(bench: &mut Bench) -> Result<()> {
    if !testbed_available(bench) {
        return Ok(());
    }
    let schedule = bench.size(SCHEDULE, SCHEDULE_QUICK);
    let link = mbits(RATE)?;
    let stage = |hop| ElementTestbed::start(Testbed::builder().hosts(HOSTS).profile(profile()?), hop);
    let testbed = stage(Hop::User)?;
    let pair = Pair::start(&testbed, FlowTerms::default())?;
    let streams = Streams::start(stage(Hop::NoElement)?)?;
    let metrics = [
        Metric::new("throughput of both", "the link", "Mbit/s", Better::Higher).peer_is_limit().expect(SHARE),
        Metric::new("throughput of both", "TCP", "Mbit/s", Better::Higher).limit(link),
        Metric::new("Jain's index of bytes", "TCP", "", Better::Higher).limit(1.0),
        Metric::new("Jain's index of frames", "TCP", "", Better::Higher).limit(1.0),
        Metric::new("until both have their shares", "TCP", "ms", Better::Lower),
    ];
    let (last, last_peer) = (RefCell::new(None), RefCell::new(None));
    bench.compare(
        metrics,
        || {
            // All bytes of an application pass one link of each host; those of TCP pass the server's link.
            let samples = pair.run(schedule, |_| Ok(()))?;
            let frames = Convergence::of(&samples, schedule, |sent| sent.frames)?;
            let seen = Convergence::of(&samples, schedule, |sent| sent.bytes / CALLERS as f64)?;
            let row = [seen.total(), seen.total(), seen.jain(), frames.jain(), seen.converged_ms];
            last.replace(Some(seen));
            Ok(row)
        },
        || {
            // Frames of TCP have equal lengths.
            let seen = Convergence::of(&streams.run(schedule)?, schedule, |bytes| bytes * ON_LINK)?;
            let row = [link, seen.total(), seen.jain(), seen.jain(), seen.converged_ms];
            last_peer.replace(Some(seen));
            Ok(row)
        },
    )?;
    if let (Some(ours), Some(peer)) = (last.into_inner(), last_peer.into_inner()) {
        bench.show(Curves {
            name: "over-time",
            about: format!("throughput of each application over time, one turn; links of {RATE}"),
            x: "s",
            y: "Mbit/s",
            lines: [ours.lines(["sums", "counts"]), peer.lines(["TCP, first", "TCP, second"])].concat(),
        });
    }
    Ok(())
}

/// Links of both figures of congestion.
pub(crate) fn profile() -> Result<LinkProfile> {
    let rate = Some(RATE.parse()?);
    Ok(LinkProfile { rate, queue_bytes: Some(QUEUE_BYTES), mark_bytes: Some(MARK_BYTES), ..LinkProfile::default() })
}

/// Results of a turn.
struct Convergence {
    /// Seconds, with the rates of both applications, in Mbit/s if bytes are sampled.
    rates: Vec<(f64, [f64; 2])>,
    /// Settled rates.
    settled: [f64; 2],
    converged_ms: f64,
}

impl Convergence {
    fn of<T: Copy>(samples: &[Sample<T>], schedule: Schedule, sent: impl Fn(T) -> f64) -> Result<Self> {
        let (lead, both) = (schedule.lead.as_secs_f64(), schedule.both.as_secs_f64());
        let rate = |window: &[Sample<T>]| {
            let (first, last) = (window.first()?, window.last()?);
            let (from, to) = (first.at.as_secs_f64(), last.at.as_secs_f64());
            let of = [0, 1].map(|i| (sent(last.of[i]) - sent(first.of[i])) * 8.0 / (to - from) / 1e6);
            Some((from, to, of))
        };
        let windows = || samples.windows(STEPS + 1).filter_map(rate);
        let settling = lead + both * (1.0 - SETTLED);
        let at = samples.iter().position(|sample| sample.at.as_secs_f64() >= settling).context("too few samples")?;
        let (.., settled) = rate(&samples[at..]).context("too few samples")?;
        let near = |rates: [f64; 2]| [0, 1].iter().all(|i| (rates[*i] / settled[*i] - 1.0).abs() <= TOLERANCE);
        // End of the first 100 ms with settled rates.
        let converged = windows().find(|(from, _, rates)| *from >= lead && near(*rates));
        let converged_ms = converged.map_or(both, |(_, to, _)| to - lead) * 1e3;
        let rates = windows().map(|(_, to, rates)| (to, rates)).collect();
        Ok(Self { rates, settled, converged_ms })
    }

    fn total(&self) -> f64 {
        self.settled.iter().sum()
    }

    /// Jain's fairness index: 1 for equal shares, one half if one application has everything (Jain, 1984).
    fn jain(&self) -> f64 {
        let [one, other] = self.settled;
        (one + other).powi(2) / (2.0 * (one * one + other * other))
    }

    fn lines(&self, names: [&str; 2]) -> Vec<PlotLine> {
        let line = |i: usize| PlotLine {
            name: names[i].to_owned(),
            points: self.rates.iter().map(|(at, rates)| (*at, rates[i])).collect(),
        };
        vec![line(0), line(1)]
    }
}
