//! `netrpc-fig8`: two applications on one shared link (NetRPC Fig. 8): how soon the second has its share, how
//! equal the shares are, and how much of the link both have.
//!
//! One sums arrays, the other counts under keys, from the same two hosts; the second starts later. Links mark
//! where their queue is long, as the paper's switch does, and senders heed that. The peer is TCP on links of
//! the same kind, which heeds the marks as well: two applications of a stream from each of the two hosts.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result};
use pathcall_testbed::{Profile, Testbed};

use crate::bed::by_hand::Terms;
use crate::bed::pair::{CALLERS, Course, HOSTS, Pair, Sample};
use crate::bed::tcp::{ON_LINK, Streams};
use crate::bed::{Hop, Stage, mbits, stands};
use crate::harness::{Bench, Better, Curves, Figure, Line, Metric};

pub(crate) const FIGURE: Figure =
    Figure { name: "netrpc-fig8", about: "two applications on one shared link, of which the second starts later", run };

pub(crate) const RATE: &str = "50mbit";
/// Bytes that may wait for the rate, for 31 ms, and those that wait before frames are marked: a sixth.
const QUEUE_BYTES: u32 = 192 << 10;
const MARK_BYTES: u32 = 32 << 10;
const COURSE: Course =
    Course { lead: Duration::from_secs(1), both: Duration::from_secs(3), step: Duration::from_millis(20) };
const COURSE_QUICK: Course =
    Course { lead: Duration::from_millis(100), both: Duration::from_millis(400), step: Duration::from_millis(20) };
/// Rates are means over so many steps: 100 ms.
const STEPS: usize = 5;
/// Of the time that both are there, the last part shows what they come to.
const SETTLED: f64 = 0.5;
/// An application has come to its share when its rate is so near to it.
const NEAR: f64 = 0.2;
/// Of the link, both together (the paper: 77 to 89 %).
const SHARE: f64 = 0.77;

fn run(bench: &mut Bench) -> Result<()> {
    if !stands(bench) {
        return Ok(());
    }
    let course = bench.size(COURSE, COURSE_QUICK);
    let link = mbits(RATE)?;
    let stage = |hop| Stage::start(Testbed::builder().hosts(HOSTS).profile(profile()?), hop);
    let bed = stage(Hop::User)?;
    let pair = Pair::start(&bed, Terms::default())?;
    let streams = Streams::start(stage(Hop::Nothing)?)?;
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
            // All that an application sends goes by one link of each host; that of TCP, by the server's.
            let samples = pair.run(course, |_| Ok(()))?;
            let frames = Seen::of(&samples, course, |sent| sent.frames)?;
            let seen = Seen::of(&samples, course, |sent| sent.bytes / CALLERS as f64)?;
            let row = [seen.total(), seen.total(), seen.jain(), frames.jain(), seen.converged_ms];
            last.replace(Some(seen));
            Ok(row)
        },
        || {
            // Its frames are of one length.
            let seen = Seen::of(&streams.run(course)?, course, |bytes| bytes * ON_LINK)?;
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
pub(crate) fn profile() -> Result<Profile> {
    let rate = Some(RATE.parse()?);
    Ok(Profile { rate, queue_bytes: Some(QUEUE_BYTES), mark_bytes: Some(MARK_BYTES), ..Profile::default() })
}

/// What a turn has shown.
struct Seen {
    /// Seconds, and the rates of both, in Mbit/s if what is sampled is bytes.
    rates: Vec<(f64, [f64; 2])>,
    /// What they come to.
    settled: [f64; 2],
    converged_ms: f64,
}

impl Seen {
    fn of<T: Copy>(samples: &[Sample<T>], course: Course, sent: impl Fn(T) -> f64) -> Result<Self> {
        let (lead, both) = (course.lead.as_secs_f64(), course.both.as_secs_f64());
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
        let near = |rates: [f64; 2]| [0, 1].iter().all(|i| (rates[*i] / settled[*i] - 1.0).abs() <= NEAR);
        // By the end of the first 100 ms that have the shares: never sooner than that.
        let converged = windows().find(|(from, _, rates)| *from >= lead && near(*rates));
        let converged_ms = converged.map_or(both, |(_, to, _)| to - lead) * 1e3;
        let rates = windows().map(|(_, to, rates)| (to, rates)).collect();
        Ok(Self { rates, settled, converged_ms })
    }

    fn total(&self) -> f64 {
        self.settled.iter().sum()
    }

    /// 1 where shares are equal, a half where one has all (Jain, 1984).
    fn jain(&self) -> f64 {
        let [one, other] = self.settled;
        (one + other).powi(2) / (2.0 * (one * one + other * other))
    }

    fn lines(&self, names: [&str; 2]) -> Vec<Line> {
        let line = |i: usize| Line {
            name: names[i].to_owned(),
            points: self.rates.iter().map(|(at, rates)| (*at, rates[i])).collect(),
        };
        vec![line(0), line(1)]
    }
}
