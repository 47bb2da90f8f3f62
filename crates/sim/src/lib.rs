//! Deterministic simulator of the real callers, owners and switch program on a faulty network.
//!
//! One seed is one [`scenario`], one run and one trace: virtual time, an event [`queue`], [`link`]s that delay, mark,
//! lose, repeat and reorder, and a [checker](MapViolation) that compares every outcome with a software model.
//!
//! ```text
//! seed ─► scenario ─► world ─► outcome
//!                      ├─ callers (MapClient), owners (MapServer), elements (Program)
//!                      ├─ hosts: clocks that drift, machines that pause or are slow
//!                      ├─ failing: elements lose their state, or the controller loses them; memory moves or shrinks
//!                      ├─ killing: callers' processes die and are replaced
//!                      ├─ network: links that are cut, change, lose, repeat, reorder; late copies, hostile datagrams
//!                      ├─ windows: window rule of sequence numbers, checked from outside
//!                      └─ checker: sums, values, locks; each call ends exactly once
//! ```
//!
//! The other abilities have worlds of their own: [`clone`], [`delegate`], [`function`], [`place`]. [`all`] combines
//! them.
//!
//! [`run`] plays one seed, [`play`] a scenario, [`sweep`] many seeds on all cores; [`shrink`] removes what a
//! violation does not need; [`cli`] is `pathcall sim`. After the end of the faults all calls must end within a bound
//! of virtual time. Then late repeats are delivered, and the values of all keys must be exact.

#![warn(missing_docs)]

pub mod all;
pub mod cli;
pub mod clone;
pub mod delegate;
pub mod function;
pub mod host;
pub mod link;
pub mod place;
pub mod queue;
pub mod random;
pub mod scenario;

mod caller;
mod checker;
mod counts;
mod element;
mod element_program;
mod environment;
mod hostile;
mod minimizer;
mod network;
mod node;
mod nodes;
mod owner;
mod panics;
mod shrink;
mod simulation;
mod stepping;
mod sweep;
mod trace;
mod windows;
mod world;

use std::fmt;
use std::io::{self, Write};

use pathcall_endpoint::map::server::ServerStats;
use pathcall_wire::Instant;

pub use checker::MapViolation;
pub use counts::MapCounts;
pub use node::MapNodeId;
pub use scenario::{Scenario, generate};
pub use shrink::shrink;
pub use simulation::Simulation;
#[cfg(feature = "mutants")]
pub use sweep::find_mutant;
pub use sweep::{MapReport, Progress, sweep};
pub use windows::WindowError;

use environment::Environment;
use stepping::SteppedRun;
use trace::{Millis, Trace};
use world::MapWorld;

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapOutcome {
    /// Seed of the run.
    pub seed: u64,
    /// Hash of the run's trace; different runs have different hashes.
    pub trace_hash: u64,
    /// Counts of the run.
    pub counts: MapCounts,
    /// Statistics of each application's owner.
    pub owners: Vec<ServerStats>,
    /// First violation and the virtual time of it; `None`: every check passed.
    pub failure: Option<(Instant, MapViolation)>,
}

/// Violation with the data that is needed to replay it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFinding {
    /// Seed of the run.
    pub seed: u64,
    /// Virtual time of the violation.
    pub at: Instant,
    /// The violation.
    pub failure: MapViolation,
}

impl fmt::Display for MapFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, failure } = self;
        write!(f, "seed {seed}, after {} ms: {failure}\n  replay: pathcall sim map --seed {seed}", Millis(*at))
    }
}

impl MapOutcome {
    /// Violation with the data that is needed to replay it.
    #[must_use]
    pub fn finding(&self) -> Option<MapFinding> {
        let (at, failure) = self.failure.clone()?;
        Some(MapFinding { seed: self.seed, at, failure })
    }
}

/// Plays the scenario of a seed.
#[must_use]
pub fn run(seed: u64) -> MapOutcome {
    play(&generate(seed))
}

/// Plays a scenario.
#[must_use]
pub fn play(scenario: &Scenario) -> MapOutcome {
    play_with_trace(scenario, Trace::new(None)).0
}

/// Plays a scenario and writes the trace.
///
/// # Errors
/// If `text` cannot be written.
pub fn play_traced(scenario: &Scenario, text: &mut dyn Write) -> io::Result<MapOutcome> {
    let (outcome, trace) = play_with_trace(scenario, Trace::new(Some(text)));
    trace.and_then(Trace::into_error).map_or(Ok(outcome), Err)
}

fn play_with_trace<'a>(scenario: &'a Scenario, trace: Trace<'a>) -> (MapOutcome, Option<Trace<'a>>) {
    let mut outcome = MapOutcome {
        seed: scenario.seed,
        trace_hash: 0,
        counts: MapCounts::default(),
        owners: Vec::new(),
        failure: None,
    };
    let mut world = match MapWorld::new(scenario, trace, Environment::default()) {
        Ok(world) => world,
        Err(failure) => {
            outcome.failure = Some((Instant(0), failure));
            return (outcome, None);
        }
    };
    let failure = match panics::catch(|| world.play()) {
        Ok(played) => played.err(),
        Err(text) => Some(MapViolation::Panic(text)),
    };
    outcome.failure = failure.map(|failure| (world.now(), failure));
    outcome.counts = world.counts();
    outcome.owners = world.server_stats();
    let trace = world.into_trace();
    outcome.trace_hash = trace.hash();
    (outcome, Some(trace))
}
