//! Harness of all figures: alternating turns of ours and the peer, medians, a table, JSON and a picture.
//!
//! ```text
//! figure(&mut Bench) ─► compare(metrics, ours, peer) ─► A B A B … ─► Row ─► table, <figure>.json, <figure>.svg
//! ```
//!
//! A figure is a function that gets a [`Bench`] and calls [`Bench::compare`] once for each comparison. Each side is a
//! closure that does the work once, checks its result, and returns its measurements. Turns alternate, so that both
//! sides see the same noise. One warm-up turn per side is not counted; quick runs skip it.

mod curves;
mod panels;
mod picture;
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pathcall_models::clone::Scheme;
use serde::Serialize;

pub(crate) use curves::{Curves, PlotLine, Points};
pub(crate) use panels::{Panel, Panels, write_panels};
pub(crate) use report::{Better, Row, table, write_rows};

/// Default number of turns per side.
pub(crate) const REPS: usize = 7;
/// Number of turns per side for long turns.
const REPS_LONG: usize = 3;
/// Maximum time for the turns beyond that number.
const TURNS_TAKE: Duration = Duration::from_secs(20);
/// Number of turns per side in quick runs.
pub(crate) const REPS_QUICK: usize = 2;

/// Origin of a row's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Times and rates of real programs on this machine.
    Measured,
    /// Numbers that a scheduler does not change: messages, bytes, instructions, lines.
    Counted,
    /// The real state machines in virtual time; costs of hosts and links are assumed.
    Simulated,
    /// Virtual time with costs taken from the paper or fitted to its figures: it can agree with the paper, but shows no
    /// gain of its own.
    Modelled,
}

/// Figure of the bench.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    /// Name for `make bench FIGURE=`; its file has the same name.
    pub(crate) name: &'static str,
    /// Description in one line.
    pub(crate) about: &'static str,
    /// Origin of the values, unless a metric says otherwise.
    pub(crate) kind: Kind,
    /// Function that adds the rows.
    pub(crate) run: fn(&mut Bench) -> Result<()>,
}

/// Metric of a turn: one column of the measurements.
#[derive(Debug, Clone)]
pub(crate) struct Metric {
    case: String,
    peer_name: String,
    unit: &'static str,
    better: Better,
    expected: Option<f64>,
    limit: Option<f64>,
    limit_of_peer: Option<f64>,
    kind: Option<Kind>,
}

impl Metric {
    /// Creates a metric. `case` names the work, `peer_name` the peer.
    pub(crate) fn new(
        case: impl Into<String>,
        peer_name: impl Into<String>,
        unit: &'static str,
        better: Better,
    ) -> Self {
        let (case, peer_name) = (case.into(), peer_name.into());
        Self { case, peer_name, unit, better, expected: None, limit_of_peer: None, limit: None, kind: None }
    }

    /// Sets the expected ratio of ours to the peer's.
    pub(crate) fn expect(self, ratio: f64) -> Self {
        Self { expected: Some(ratio), ..self }
    }

    /// Sets the origin of this metric's values, where it is not the figure's.
    pub(crate) fn kind(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Marks the peer as the limit of the machine.
    pub(crate) fn peer_is_limit(self) -> Self {
        self.limit_of_peer(1.0)
    }

    /// Sets the limit of the path, if the peer is not the limit.
    pub(crate) fn limit(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Sets the limit as a multiple of the peer's value.
    pub(crate) fn limit_of_peer(self, ratio: f64) -> Self {
        Self { limit_of_peer: Some(ratio), ..self }
    }
}

/// Side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    Ours,
    Peer,
}

/// Settings of the figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct BenchSettings {
    /// Turns per side.
    pub(crate) reps: usize,
    /// True if the user gave the number of turns.
    pub(crate) reps_asked: bool,
    /// Short turns.
    pub(crate) quick: bool,
    /// Only comparisons with this text in their name.
    pub(crate) case: String,
    /// Only this side, and so no rows: for a profiler.
    pub(crate) only: Option<Side>,
    /// Only these schemes, in figures that compare several; all if empty.
    pub(crate) schemes: Vec<Scheme>,
}

/// Collector of the rows of one figure.
pub(crate) struct Bench {
    figure: Figure,
    settings: BenchSettings,
    rows: Vec<Row>,
    curves: Vec<Curves>,
    panels: Vec<Panels>,
}

impl Bench {
    pub(crate) fn new(figure: Figure, settings: BenchSettings) -> Self {
        Self { figure, settings, rows: Vec::new(), curves: Vec::new(), panels: Vec::new() }
    }

    /// Prints a note about the figure to stderr.
    pub(crate) fn print_note(&self, what: &str) {
        eprintln!("{}: {what}", self.figure.name);
    }

    /// `full`, or `quick` in quick runs.
    pub(crate) fn size<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// Selected schemes, in their order.
    pub(crate) fn schemes(&self) -> Vec<Scheme> {
        let wanted = |scheme: &Scheme| self.settings.schemes.is_empty() || self.settings.schemes.contains(scheme);
        Scheme::ALL.into_iter().filter(wanted).collect()
    }

    /// Runs both sides in turn and adds a row per metric. A closure returns one value per metric.
    ///
    /// # Errors
    /// Returns the error of a closure: a figure with a failed turn is invalid.
    pub(crate) fn compare<const N: usize>(
        &mut self,
        metrics: [Metric; N],
        mut ours: impl FnMut() -> Result<[f64; N]>,
        mut peer: impl FnMut() -> Result<[f64; N]>,
    ) -> Result<()> {
        let name = metrics.first().map_or_else(String::new, |m| format!("{}, beside {}", m.case, m.peer_name));
        let BenchSettings { reps, reps_asked, quick, only, ref case, .. } = self.settings;
        if !name.contains(case) {
            return Ok(());
        }
        let mut turn = |turn: usize, of: usize| -> Result<([f64; N], [f64; N])> {
            eprintln!("{}: {name}: turn {turn} of {of}", self.figure.name);
            let one = |side, run: &mut dyn FnMut() -> Result<[f64; N]>| match only {
                Some(only) if only != side => Ok([f64::NAN; N]),
                _ => run().with_context(|| format!("{name}: {side:?}")),
            };
            Ok((one(Side::Ours, &mut ours)?, one(Side::Peer, &mut peer)?))
        };
        let begun = Instant::now();
        if !quick {
            turn(0, reps)?;
        }
        let reps = if quick || reps_asked { reps } else { fewer(reps, begun.elapsed()) };
        let turns = (1..=reps).map(|at| turn(at, reps)).collect::<Result<Vec<_>>>()?;
        if only.is_some() {
            return Ok(());
        }
        for (i, metric) in metrics.into_iter().enumerate() {
            let ours: Vec<f64> = turns.iter().map(|(ours, _)| ours[i]).collect();
            let peer: Vec<f64> = turns.iter().map(|(_, peer)| peer[i]).collect();
            self.rows.push(Row::new(&self.figure, metric, &ours, &peer));
        }
        Ok(())
    }

    /// Adds a row of values measured in virtual time, one per seed: virtual time needs no warm-up and has no noise.
    pub(crate) fn row(&mut self, metric: Metric, ours: &[f64], peer: &[f64]) {
        let wanted = format!("{}, beside {}", metric.case, metric.peer_name).contains(&self.settings.case);
        if wanted && self.settings.only.is_none() {
            self.rows.push(Row::new(&self.figure, metric, ours, peer));
        }
    }

    /// Adds lines to the figure.
    pub(crate) fn show(&mut self, curves: Curves) {
        self.curves.push(curves);
    }

    /// Adds plots to the figure.
    pub(crate) fn show_panels(&mut self, panels: Panels) {
        self.panels.push(panels);
    }

    /// Rows in the order of addition, with lines and plots.
    pub(crate) fn finish(self) -> (Vec<Row>, Vec<Curves>, Vec<Panels>) {
        (self.rows, self.curves, self.panels)
    }
}

/// Turns per side: at most `reps`, and fewer if a turn is long.
fn fewer(reps: usize, each: Duration) -> usize {
    let within = TURNS_TAKE.as_secs_f64() / each.as_secs_f64().max(1e-9);
    reps.min((within as usize).max(REPS_LONG))
}

/// Writes the lines of a figure, `<figure>-<name>.json` and `.svg`: see [`curves`].
pub(crate) fn write_curves(numbers: &Path, pictures: &Path, figure: &str, curves: &Curves) -> Result<()> {
    let name = format!("{figure}-{}", curves.name);
    report::write_json(&numbers.join(format!("{name}.json")), curves)?;
    let path = pictures.join(format!("{name}.svg"));
    Ok(curves::draw(&path, figure, curves)?)
}

/// Draws the rows of a figure as bars: see [`picture`].
pub(crate) fn draw(path: &Path, title: &str, rows: &[Row]) -> Result<()> {
    picture::draw(path, title, rows).map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turns_reduce_repetitions() {
        let turns = |seconds| fewer(REPS, Duration::from_secs(seconds));
        assert_eq!([0, 2, 3, 5, 7, 600].map(turns), [7, 7, 6, 4, 3, 3]);
        assert_eq!(fewer(REPS_QUICK, Duration::from_secs(60)), REPS_QUICK);
    }
}
