//! What all figures share: ours and the peer in turn, medians, a table, JSON and a picture.
//!
//! ```text
//! figure(&mut Bench) ─► compare(metrics, ours, peer) ─► A B A B … ─► Row ─► table, <figure>.json, <figure>.svg
//! ```
//!
//! A figure is a function that gets a [`Bench`] and calls [`Bench::compare`] once for each pair of
//! ways to do the same work. Each way is a closure that does the work once, checks its result, and
//! returns what it measured. Turns alternate, so that both see the same noise; one turn each, which
//! does not count, warms up, but where a figure only has to be made.

mod curves;
mod panels;
mod picture;
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pathcall_models::clone::Scheme;

pub(crate) use curves::{Curves, Line, Points};
pub(crate) use panels::{Panel, Panels, write_panels};
pub(crate) use report::{Better, Row, table, write_json};

/// Turns of each side unless told otherwise.
pub(crate) const REPS: usize = 7;
/// The same where a turn is long.
const REPS_LONG: usize = 3;
/// What the turns of a comparison may take beyond that.
const TURNS_TAKE: Duration = Duration::from_secs(20);
/// Turns of each side where it only matters that a figure can be made.
pub(crate) const REPS_QUICK: usize = 2;

/// One figure of the bench.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    /// What `make bench FIGURE=` knows it by; its file has the same name.
    pub(crate) name: &'static str,
    /// What it shows, in one line.
    pub(crate) about: &'static str,
    /// Adds its rows.
    pub(crate) run: fn(&mut Bench) -> Result<()>,
}

/// What a turn measures: one column of it.
#[derive(Debug, Clone)]
pub(crate) struct Metric {
    case: String,
    peer_name: String,
    unit: &'static str,
    better: Better,
    expected: Option<f64>,
    limit: Option<f64>,
    limit_of_peer: Option<f64>,
}

impl Metric {
    /// `case` names the work, `peer_name` who else does it.
    pub(crate) fn new(
        case: impl Into<String>,
        peer_name: impl Into<String>,
        unit: &'static str,
        better: Better,
    ) -> Self {
        let (case, peer_name) = (case.into(), peer_name.into());
        Self { case, peer_name, unit, better, expected: None, limit_of_peer: None, limit: None }
    }

    /// The ratio, ours to the peer's, that we mean to reach.
    pub(crate) fn expect(self, ratio: f64) -> Self {
        Self { expected: Some(ratio), ..self }
    }

    /// The peer is the best that the machine gives, with nothing behind it.
    pub(crate) fn peer_is_limit(self) -> Self {
        self.limit_of_peer(1.0)
    }

    /// The best that the path gives, where the peer is something else.
    pub(crate) fn limit(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The best is this multiple of the peer's, whatever that comes to.
    pub(crate) fn limit_of_peer(self, ratio: f64) -> Self {
        Self { limit_of_peer: Some(ratio), ..self }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    Ours,
    Peer,
}

/// How figures are made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Turns of each side.
    pub(crate) reps: usize,
    /// Whether somebody asked for so many.
    pub(crate) reps_asked: bool,
    /// Short turns.
    pub(crate) quick: bool,
    /// Only comparisons whose name has this in it.
    pub(crate) case: String,
    /// Only this side, and so no rows: for a profiler.
    pub(crate) only: Option<Side>,
    /// Where calls can be steered in several ways, only these; all, without any.
    pub(crate) schemes: Vec<Scheme>,
}

/// Gathers the rows of one figure.
pub(crate) struct Bench {
    figure: &'static str,
    settings: Settings,
    rows: Vec<Row>,
    curves: Vec<Curves>,
    panels: Vec<Panels>,
}

impl Bench {
    pub(crate) fn new(figure: &'static str, settings: Settings) -> Self {
        Self { figure, settings, rows: Vec::new(), curves: Vec::new(), panels: Vec::new() }
    }

    /// Says why something of the figure is not made.
    pub(crate) fn says(&self, what: &str) {
        eprintln!("{}: {what}", self.figure);
    }

    /// `full`, or `quick` where the figure only has to be made.
    pub(crate) fn size<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// The ways to steer calls that are wanted, in their order.
    pub(crate) fn schemes(&self) -> Vec<Scheme> {
        let wanted = |scheme: &Scheme| self.settings.schemes.is_empty() || self.settings.schemes.contains(scheme);
        Scheme::ALL.into_iter().filter(wanted).collect()
    }

    /// Runs both sides in turn and adds a row for each metric. A closure returns one value for each.
    ///
    /// # Errors
    /// Those of the closures: a figure with a failed turn is no figure.
    pub(crate) fn compare<const N: usize>(
        &mut self,
        metrics: [Metric; N],
        mut ours: impl FnMut() -> Result<[f64; N]>,
        mut peer: impl FnMut() -> Result<[f64; N]>,
    ) -> Result<()> {
        let name = metrics.first().map_or_else(String::new, |m| format!("{}, beside {}", m.case, m.peer_name));
        let Settings { reps, reps_asked, quick, only, ref case, .. } = self.settings;
        if !name.contains(case) {
            return Ok(());
        }
        let mut turn = |turn: usize, of: usize| -> Result<([f64; N], [f64; N])> {
            eprintln!("{}: {name}: turn {turn} of {of}", self.figure);
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
            self.rows.push(Row::new(self.figure, metric, &ours, &peer));
        }
        Ok(())
    }

    /// Adds a row of what was measured in virtual time, with a value for each seed: nothing there warms up, and no
    /// other program disturbs.
    pub(crate) fn row(&mut self, metric: Metric, ours: &[f64], peer: &[f64]) {
        let wanted = format!("{}, beside {}", metric.case, metric.peer_name).contains(&self.settings.case);
        if wanted && self.settings.only.is_none() {
            self.rows.push(Row::new(self.figure, metric, ours, peer));
        }
    }

    /// Adds lines that go with the rows.
    pub(crate) fn show(&mut self, curves: Curves) {
        self.curves.push(curves);
    }

    /// Adds plots that go with the rows.
    pub(crate) fn show_panels(&mut self, panels: Panels) {
        self.panels.push(panels);
    }

    /// The rows, in the order in which they were added, and what goes with them.
    pub(crate) fn finish(self) -> (Vec<Row>, Vec<Curves>, Vec<Panels>) {
        (self.rows, self.curves, self.panels)
    }
}

/// Turns of each side, of so many at most, where one of both takes so long.
fn fewer(reps: usize, each: Duration) -> usize {
    let within = TURNS_TAKE.as_secs_f64() / each.as_secs_f64().max(1e-9);
    reps.min((within as usize).max(REPS_LONG))
}

/// Writes lines of a figure, `<figure>-<name>.json` and `.svg`: see [`curves`].
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
    fn long_turns_are_few() {
        let turns = |seconds| fewer(REPS, Duration::from_secs(seconds));
        assert_eq!([0, 2, 3, 5, 7, 600].map(turns), [7, 7, 6, 4, 3, 3]);
        assert_eq!(fewer(REPS_QUICK, Duration::from_secs(60)), REPS_QUICK);
    }
}
