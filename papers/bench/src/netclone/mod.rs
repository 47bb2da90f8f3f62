//! Common parts of the figures of *clone*: in virtual time, the paper's workloads and latency over load ([`model`]); in
//! real time, servers and load on this machine ([`real`]), and real stores behind stubs ([`stores`]), beside
//! [`grpc_hedging`].
//!
//! ```text
//! Case (servers, workload, schemes) ─► model, per load and seed ─► Curves ─► rows relative to random, a Panel
//! ```

mod grpc_hedging;
pub(crate) mod model;
pub(crate) mod real;
pub(crate) mod stores;

use model::Point;
use pathcall_models::clone::Scheme;
use pathcall_models::clone::{CloneTestbed, Workload};

use crate::harness::{Bench, Better, Metric, Panel, PlotLine};

/// Loads of the latency curves, as shares of the servers' capacity.
const LOADS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
const LOADS_QUICK: [f64; 2] = [0.2, 0.6];
/// Overload as a share of the capacity; the answer rate under overload is the throughput ceiling.
const OVERLOAD: f64 = 1.1;
/// Measured calls per load.
const CALLS: usize = 40_000;
const CALLS_QUICK: usize = 2000;
/// Runs per load.
const SEEDS: u64 = 3;
/// Minimum ratio of ceilings: a scheme that clones only to idle servers costs no throughput (NetClone §5.2).
pub(crate) const CEILING: f64 = 0.98;

/// Plot of a figure.
pub(crate) struct Case<'a> {
    pub(crate) title: String,
    pub(crate) testbed: CloneTestbed,
    pub(crate) workload: Workload,
    pub(crate) schemes: &'a [Scheme],
}

/// Latency over load of a scheme, for one seed.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) points: Vec<Point>,
    /// Calls answered per second under overload.
    pub(crate) ceiling: f64,
}

/// Curves of a case: one per scheme and seed.
pub(crate) struct Curves<'a> {
    case: &'a Case<'a>,
    of: Vec<Vec<Curve>>,
}

impl Curve {
    /// Ratio of the other curve's p99 to this one's, averaged over the loads.
    fn improvement(&self, over: &Self) -> f64 {
        let times = self.points.iter().zip(&over.points).map(|(ours, theirs)| theirs.p99_us / ours.p99_us);
        times.sum::<f64>() / self.points.len() as f64
    }
}

impl<'a> Curves<'a> {
    /// Runs a case.
    pub(crate) fn of(bench: &Bench, case: &'a Case<'a>) -> Self {
        let (loads, calls) = (bench.size(&LOADS[..], &LOADS_QUICK), bench.size(CALLS, CALLS_QUICK));
        let seeds = bench.size(SEEDS, 1);
        let curve = |scheme, seed| {
            let at = |load| model::at(&case.testbed, case.workload, scheme, load, calls, seed);
            Curve { points: loads.iter().map(|load| at(*load)).collect(), ceiling: at(OVERLOAD).rate }
        };
        let all = |scheme: &Scheme| {
            bench.print_note(&format!("{}: {scheme}", case.title));
            (1..=seeds).map(|seed| curve(*scheme, seed)).collect()
        };
        Self { case, of: case.schemes.iter().map(all).collect() }
    }

    /// Curves of one scheme.
    ///
    /// # Panics
    /// Panics if the case does not contain the scheme.
    pub(crate) fn scheme(&self, scheme: Scheme) -> &[Curve] {
        let place = self.case.schemes.iter().position(|one| *one == scheme);
        &self.of[place.expect("a scheme of the case")]
    }

    /// Adds a row: ratio of the p99 of `other` to that of `ours`, averaged over the loads.
    pub(crate) fn improvement(&self, bench: &mut Bench, ours: Scheme, other: Scheme, expected: Option<f64>) {
        let case = format!("{}: {ours}, p99, mean improvement", self.case.title);
        let metric = Metric::new(case, other.name(), "x", Better::Higher);
        let metric = expected.map_or(metric.clone(), |ratio| metric.expect(ratio));
        let pairs = self.scheme(ours).iter().zip(self.scheme(other));
        let values: Vec<f64> = pairs.map(|(ours, other)| ours.improvement(other)).collect();
        bench.row(metric, &values, &vec![1.0; values.len()]);
    }

    /// Adds a row: calls answered per second under overload.
    pub(crate) fn ceiling(&self, bench: &mut Bench, ours: Scheme, other: Scheme, expected: Option<f64>) {
        let case = format!("{}: {ours}, throughput ceiling", self.case.title);
        let metric = Metric::new(case, other.name(), "calls/s", Better::Higher);
        let metric = expected.map_or(metric.clone(), |ratio| metric.expect(ratio));
        let ceilings = |scheme| self.scheme(scheme).iter().map(|curve| curve.ceiling).collect::<Vec<_>>();
        bench.row(metric, &ceilings(ours), &ceilings(other));
    }

    /// Plot of 99th percentiles over answered calls, for the first seed.
    pub(crate) fn panel(&self) -> Panel {
        self.panel_of("p99, us", true, |point| point.p99_us)
    }

    /// Plot of another property.
    pub(crate) fn panel_of(&self, y: &'static str, logarithmic: bool, of: fn(&Point) -> f64) -> Panel {
        let line = |(scheme, curves): (&Scheme, &Vec<Curve>)| PlotLine {
            name: scheme.name().to_owned(),
            points: curves[0].points.iter().map(|point| (point.rate / 1e6, of(point))).collect(),
        };
        Panel {
            title: self.case.title.clone(),
            x: "calls answered, millions a second",
            y,
            logarithmic,
            lines: self.case.schemes.iter().zip(&self.of).map(line).collect(),
        }
    }
}
